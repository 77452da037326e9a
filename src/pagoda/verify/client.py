"""Calls of an OpenAI-compatible server that nobody has to trust: bounded in time, size, number.

Proxy variables and ~/.netrc are ignored: another server would be verified, and no secret is sent
that was not given for this one.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import httpx

from pagoda.core.durations import human_duration
from pagoda.core.errors import (
    ModelUnknown,
    ServerForeign,
    ServerRefused,
    ServerTimeout,
    ServerUnreachable,
)
from pagoda.verify.answers import Answer, BadAnswer, parse_answer
from pagoda.verify.deadline import Deadline

ANSWER_BYTES = 8 << 20
_CONNECT_S = 10.0
_SHOWN_CHARS = 200


@dataclass(frozen=True, slots=True)
class Reply:
    """A status and a body."""

    status: int
    body: bytes

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    def json(self) -> object:
        """The body parsed. Raises ValueError."""
        try:
            return json.loads(self.body)
        except RecursionError:
            raise ValueError("nested too deeply") from None


class Client:
    """One server. `asked` counts the prompts it was sent; any thread may call."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str,
        timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.url = url
        self.asked = 0
        self._timeout_s = timeout_s
        self._clock = clock
        self._lock = threading.Lock()
        headers = {"accept-encoding": "identity"}
        if api_key:
            headers["authorization"] = f"Bearer {api_key}"
        self._http = httpx.Client(
            base_url=url,
            headers=headers,
            timeout=httpx.Timeout(timeout_s, connect=min(_CONNECT_S, timeout_s)),
            trust_env=False,
            limits=httpx.Limits(max_keepalive_connections=0),  # see Deadline
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def call(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Reply:
        """One call, whatever its status. Raises ServerUnreachable, ServerTimeout and, for a body
        without an end, ServerForeign."""
        until_s = self._clock() + self._timeout_s
        with Deadline(self._timeout_s) as deadline:
            try:
                with self._http.stream(
                    method, path, json=body, extensions={"trace": deadline.trace}
                ) as response:
                    return Reply(response.status_code, self._read(response, until_s, deadline))
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                raise ServerUnreachable(
                    f"nothing answers at {self.url}", url=self.url, remedy="check the URL"
                ) from error
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                if deadline.passed or isinstance(error, httpx.TimeoutException):
                    raise self._late(path) from error
                raise ServerUnreachable(
                    f"lost the connection to {self.url} ({type(error).__name__})",
                    url=self.url,
                    remedy="the server's log says more",
                ) from error

    def models(self) -> list[str]:
        """The names of the models that are served. Raises ServerError."""
        reply = self.call("GET", "/v1/models")
        self._require_ok(reply, "/v1/models")
        try:
            found = reply.json()["data"]  # type: ignore[index]
            return [str(model["id"]) for model in found]
        except (ValueError, LookupError, TypeError) as error:
            raise self.foreign("/v1/models names no models") from error

    def answer(self, path: str, body: Mapping[str, object], *, chat: bool) -> Answer:
        """One prompt's answer. Raises ServerError."""
        with self._lock:
            self.asked += 1
        reply = self.call("POST", path, body)
        self._require_ok(reply, path)
        try:
            return parse_answer(reply.json(), chat=chat)
        except BadAnswer as error:
            raise self.foreign(f"{path}: {error}") from error
        except ValueError as error:
            raise self.foreign(f"{path}: the answer is not JSON") from error

    def foreign(self, what: str) -> ServerForeign:
        """The error for an answer that is none of OpenAI's API."""
        return ServerForeign(
            f"{self.url} does not speak OpenAI's API: {what}",
            url=self.url,
            remedy="give the URL of an OpenAI-compatible server, without /v1/…",
        )

    def _read(self, response: httpx.Response, until_s: float, deadline: Deadline) -> bytes:
        """The body, within its bounds. It may end where its connection does: also where that is
        cut."""
        body = bytearray()
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) > ANSWER_BYTES:
                raise self.foreign(f"an answer is longer than {ANSWER_BYTES >> 20} MiB")
            if self._clock() > until_s:
                raise self._late(response.url.path)
        if deadline.passed:
            raise self._late(response.url.path)
        return bytes(body)

    def _late(self, path: str) -> ServerTimeout:
        return ServerTimeout(
            f"{self.url}{path} did not answer within {human_duration(self._timeout_s)}",
            url=self.url,
            timeout_s=self._timeout_s,
            remedy="give it longer with --timeout, or look at the server",
        )

    def _require_ok(self, reply: Reply, path: str) -> None:
        if reply.ok:
            return
        message = f"{self.url}{path} refuses: {_told(reply)} (status {reply.status})"
        remedy = "the server's log says more"
        if reply.status in {401, 403}:
            remedy = "put the server's key into PAGODA_API_KEY or name a file, --api-key-file"
        raise ServerRefused(message, url=self.url, status=reply.status, remedy=remedy)


def chosen_model(client: Client, wanted: str | None) -> str:
    """The model to ask for: `wanted`, else the first that is served. Raises ServerError."""
    names = client.models()
    if wanted is None and names:
        return names[0]
    if wanted is None:
        raise client.foreign("/v1/models names no models")
    if wanted not in names:
        shown = ", ".join(names[:5])
        raise ModelUnknown(
            f"{client.url} does not serve {wanted!r}",
            url=client.url,
            model=wanted,
            remedy=f"it serves {shown}" if shown else "it serves no model",
        )
    return wanted


def _told(reply: Reply) -> str:
    """The message of an OpenAI-shaped error, else that there is none."""
    try:
        fault = reply.json()["error"]  # type: ignore[index]
        text = str(fault["message"] if isinstance(fault, dict) else fault)
    except (ValueError, LookupError, TypeError):
        text = "it gives no reason"
    shown = "".join(c if c.isprintable() else " " for c in text)
    return " ".join(shown.split())[:_SHOWN_CHARS]
