"""Reaching a running server: its URL, its key, and JSON calls whose failures say what to do."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from pagoda.core.errors import PagodaError, RequestError, SettingsError
from pagoda.lab.bench.client import base_url
from pagoda.settings import Server
from pagoda.settings.files import read_text

_CONNECT_TIMEOUT_S = 10.0
_READ_TIMEOUT_S = 360.0  # longer than the engine takes to verify a clearing


def server_url(server: Server) -> str:
    """The URL under which this machine reaches a server with these settings."""
    try:
        address = ipaddress.ip_address(server.host.strip("[]"))
    except ValueError:
        return f"http://{server.host}:{server.port}"
    if address.is_unspecified:
        return f"http://127.0.0.1:{server.port}"
    return (
        f"http://[{address}]:{server.port}"
        if address.version == 6
        else f"http://{address}:{server.port}"
    )


def api_key_of(file: Path | None) -> str:
    """The key in a file, else in PAGODA_API_KEY. Raises SettingsError."""
    if file is None:
        return os.environ.get("PAGODA_API_KEY", "")
    try:
        return read_text(file).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"cannot read the API key in {file}",
            key="api_key",
            source="--api-key-file",
            remedy="name a readable file that holds the key and nothing else",
        ) from error


class ServerCalls:
    """Calls of one server; a context manager that owns the connection. Failures are PagodaErrors
    with a remedy."""

    def __init__(self, server: Server, *, url: str | None, api_key_file: Path | None) -> None:
        key = api_key_of(api_key_file)
        if url is None:  # our own server: its settings tell the key
            url, key = server_url(server), key or server.api_key.get_secret_value()
        self._url = base_url(url)
        self._client = httpx.Client(
            base_url=self._url,
            headers={b"authorization": f"Bearer {key}".encode(errors="surrogateescape")}
            if key
            else {},
            timeout=httpx.Timeout(_READ_TIMEOUT_S, connect=_CONNECT_TIMEOUT_S),
            trust_env=False,  # a proxy cannot reach this machine's loopback
        )

    def __enter__(self) -> ServerCalls:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def get(self, path: str, **query: str | float | None) -> dict[str, Any]:
        """GET; entries of the query that are None are left out."""
        given = {name: str(value) for name, value in query.items() if value is not None}
        return self._call("GET", path, params=given)

    def post(self, path: str, body: Mapping[str, object]) -> dict[str, Any]:
        """POST; entries of the body that are None are left out."""
        given = {name: value for name, value in body.items() if value is not None}
        return self._call("POST", path, json=given)

    def delete(self, path: str, **query: str) -> dict[str, Any]:
        """DELETE."""
        return self._call("DELETE", path, params=query)

    def set_ttl(self, tenant: Mapping[str, object], seconds: float | None) -> dict[str, Any]:
        """POST /cache/ttl, where null has a meaning of its own."""
        return self._call("POST", "/cache/ttl", json={**tenant, "seconds": seconds})

    def _call(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        try:
            response = self._client.request(method, path, **more)
        except (UnicodeEncodeError, httpx.InvalidURL) as error:
            raise RequestError(f"what is asked cannot be sent: {error}") from error
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise PagodaError(
                f"nothing answers at {self._url}",
                remedy="start a server with `pagoda serve --model DIR`, or name another with --url",
            ) from error
        except httpx.HTTPError as error:
            raise PagodaError(
                f"lost the connection to {self._url} ({type(error).__name__})",
                remedy="the server's log says more",
            ) from error
        if not response.is_success:
            raise self._refusal(response)
        return self._json(response)

    def _json(self, response: httpx.Response) -> dict[str, Any]:
        try:
            answer = response.json()
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise PagodaError(f"{self._url} sent no JSON object", remedy="is it a Pagoda server?")
        return answer

    def _refusal(self, response: httpx.Response) -> PagodaError:
        try:
            fault = response.json()["error"]
            message, param = str(fault["message"]), fault.get("param")
        except (ValueError, KeyError, TypeError, AttributeError):
            message, param = response.reason_phrase, None
        told = f"{self._url} refused: {message} (status {response.status_code})"
        if response.status_code in {401, 403}:
            return SettingsError(
                told,
                key="api_key",
                source="PAGODA_API_KEY",
                remedy="put the server's key into PAGODA_API_KEY or name a file, --api-key-file",
            )
        if response.status_code >= 500:
            return PagodaError(told, remedy="the server's log says more")
        return RequestError(told, param=param)
