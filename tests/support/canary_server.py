"""A small OpenAI-compatible server with a two-level prefix cache, that can be wrong on purpose.

Tokens are words. An answer is a function of the prompt alone; what breaks is chosen by `Fault`.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

BLOCK = 16
VOCABULARY = "ash bay cod dew elm fog gum hay ivy jet kin log".split()


@dataclass
class Behaviour:
    """What the server has and what is wrong with it."""

    caches: bool = True  # a device cache
    lower: bool = True  # a tier below it
    lower_block: int = BLOCK  # tokens of the lower tier's blocks
    reset: str = "/reset_prefix_cache"  # "" has none
    reset_key: str = ""  # that it wants, as SGLang's administrators have one
    salts: str = "honoured"  # or "ignored", "refused"
    chat: bool = False  # chats only
    logprobs: str = "given"  # or "absent", "refused"
    reports: str = "truth"  # of cached tokens; or "nothing", "always", "on repeats"
    metrics: bool = True
    shape: float = 0.0  # how far a prefix moves log-probabilities, by itself
    noise: float = 0.0  # how far each second answer to a text lies off
    stores_after: int = 0  # resets until the lower tier has what it was given
    restless: float = 0.0  # how far each second cached answer lies off, from reset `wrong_from` on
    device_wrong: float = 0.0  # an error of prefixes on the device
    wrong: float = 0.0  # and of restored ones
    tiers: bool = False  # a second tier below it, of which metrics tell as vLLM's do
    below_wrong: float = 0.0  # an error of what that one restores
    busy: int = 0  # resets that do not succeed, and say so, before each that does
    wrong_token: bool = False
    wrong_from: int = 0  # errors begin with this reset
    empty: bool = False
    hang_from: int = 10**9  # the request that gets no answer
    garbage: bytes | None = None
    status: int = 200
    key: str = ""
    models: Any = field(default_factory=lambda: ["tiny"])
    device_tokens: int = 10**9  # capacity


class CanaryServer:
    """The state of one server."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.is_ = behaviour
        self.url = ""
        self.bodies: list[dict[str, Any]] = []
        self.resets: list[str] = []
        self.cleared: list[str] = []
        self._refused = 0
        self._emptied_too = False  # the tier below the device
        self.restored_tokens = 0
        self._cached = 0  # answers of which a part was
        self.release = threading.Event()
        self._device: dict[tuple[str, ...], None] = {}
        self._lower: set[tuple[str, ...]] = set()
        self._pending: list[tuple[int, tuple[str, ...]]] = []
        self._seen: set[tuple[str, ...]] = set()
        self._lock = threading.Lock()
        self._asked: Counter[tuple[str, ...]] = Counter()

    def answer(self, body: dict[str, Any], *, chat: bool) -> dict[str, Any]:
        """What a request is answered."""
        text = body["messages"][0]["content"] if chat else body["prompt"]
        salt = body.get("cache_salt", "") if self.is_.salts == "honoured" else ""
        words = (f"salt:{salt}", *text.split())
        with self._lock:
            device, restored = self._look_up(words)
            return self._whole(body, words, device, restored, chat=chat)

    def reset(self, *, deep: bool) -> bool:
        """Empty the device cache, and with `deep` the first tier below it; what waited long
        enough is stored below. False while it is busy."""
        with self._lock:
            self._refused += 1
            if self._refused <= self.is_.busy:
                return False
            self._refused = 0
            self._emptied_too = deep
            self._device.clear()
            self._pending = [(left - 1, key) for left, key in self._pending]
            self._lower |= {key for left, key in self._pending if left < 0}
            return True

    def _look_up(self, words: tuple[str, ...]) -> tuple[int, int]:
        """Tokens of the prefix found on the device, and in all."""
        if not self.is_.caches:
            return 0, 0
        count = len(words) - 1
        ends = range(BLOCK, count, BLOCK)  # one token at least is computed
        device = max((end for end in ends if words[: end + 1] in self._device), default=0)
        lower_ends = range(self.is_.lower_block, count, self.is_.lower_block)
        found = max((end for end in lower_ends if words[: end + 1] in self._lower), default=0)
        restored = max(found, device) if self.is_.lower else device
        for end in ends:
            self._device[words[: end + 1]] = None
        for end in lower_ends:
            self._pending.append((self.is_.stores_after, words[: end + 1]))
        while len(self._device) * BLOCK > self.is_.device_tokens:
            del self._device[next(iter(self._device))]
        if not self.is_.stores_after:
            self._lower |= {words[: end + 1] for end in lower_ends}
        self.restored_tokens += restored - device
        return device, restored

    def _whole(
        self,
        body: dict[str, Any],
        words: tuple[str, ...],
        device: int,
        restored: int,
        *,
        chat: bool,
    ) -> dict[str, Any]:
        asked = 0 if self.is_.empty else body["max_tokens"]
        shift = self.is_.shape * (restored > 0) * (1 + restored % 3)
        self._asked[words[1:]] += 1
        shift += self.is_.noise * (self._asked[words[1:]] % 2)
        shift += self.is_.device_wrong * (device > 0)
        late = len(self.resets) >= self.is_.wrong_from
        if restored and late:
            self._cached += 1
            shift += self.is_.restless * (self._cached % 2)
        bad = restored > device and late
        shift += (self.is_.below_wrong if self._emptied_too else self.is_.wrong) * bad
        tokens = [self._token(words[1:], at, shift) for at in range(asked)]
        if self.is_.wrong_token and bad:
            tokens[2] = ("zinc", *tokens[2][1:])
        repeated = words in self._seen
        self._seen.add(words)
        cached = {
            "truth": restored,
            "nothing": None,
            "always": len(words) - 2,
            "on repeats": (len(words) - 2) * repeated,
        }[self.is_.reports]
        usage: dict[str, Any] = {"prompt_tokens": len(words) - 1, "completion_tokens": asked}
        if cached is not None:
            usage["prompt_tokens_details"] = {"cached_tokens": cached}
        answer: dict[str, Any] = {"usage": usage}
        if body.get("return_cached_tokens_details") and restored:  # as SGLang does
            split = {"device": device, "host": 0, "storage": restored - device}
            answer["sglext"] = {"cached_tokens_details": {**split, "storage_backend": "Any"}}
        return {"choices": [self._choice(body, tokens, chat=chat)], **answer}

    def _token(
        self, words: tuple[str, ...], at: int, shift: float
    ) -> tuple[str, float, dict[str, float]]:
        digest = hashlib.sha256(f"{at} {' '.join(words)}".encode()).digest()
        names = [VOCABULARY[(digest[0] + step) % len(VOCABULARY)] for step in range(3)]
        top = {name: round(-0.4 - step * 1.5 - shift, 4) for step, name in enumerate(names)}
        return names[0], top[names[0]], top

    def _choice(
        self, body: dict[str, Any], tokens: list[tuple[str, float, dict[str, float]]], *, chat: bool
    ) -> dict[str, Any]:
        text = "".join(f" {token}" for token, _, _ in tokens)
        logprobs: dict[str, Any] | None = None
        if body.get("logprobs") and self.is_.logprobs == "given":
            logprobs = _chat_logprobs(tokens) if chat else _logprobs(tokens)
        choice: dict[str, Any] = {"index": 0, "logprobs": logprobs, "finish_reason": "length"}
        said = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        return choice | said

    def metrics(self) -> str:
        """In Prometheus' format."""
        name = "vllm:external_prefix_cache_hits"
        tiers = "# TYPE vllm:kv_offload_tiering_chunk_hits counter\n" * self.is_.tiers
        counted = f'{name}_total{{engine="0"}} {self.restored_tokens}'
        return f"{tiers}# TYPE {name} counter\n{counted}\n"


def _logprobs(tokens: list[tuple[str, float, dict[str, float]]]) -> dict[str, Any]:
    return {
        "tokens": [token for token, _, _ in tokens],
        "token_logprobs": [logprob for _, logprob, _ in tokens],
        "top_logprobs": [top for _, _, top in tokens],
    }


def _chat_logprobs(tokens: list[tuple[str, float, dict[str, float]]]) -> dict[str, Any]:
    return {
        "content": [
            {
                "token": token,
                "logprob": logprob,
                "top_logprobs": [{"token": t, "logprob": p} for t, p in top.items()],
            }
            for token, logprob, top in tokens
        ]
    }


def _handler(server: CanaryServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            if self.path == "/metrics" and server.is_.metrics:
                self.send(200, server.metrics().encode())
            elif self.path == "/v1/models" and not self.refused():
                data = server.is_.models
                named = [{"id": name} for name in data] if isinstance(data, list) else data
                self.send_json({"data": named})
            elif self.path != "/v1/models":
                self.send(404, b"{}")

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("content-length") or 0))
            path, _, query = self.path.partition("?")
            key = server.is_.reset_key
            if (
                key
                and path == server.is_.reset
                and self.headers["authorization"] != f"Bearer {key}"
            ):
                self.send(401, b"{}")
                return
            if server.is_.reset and path == server.is_.reset:
                server.resets.append(self.path)
                done = server.reset(deep=query == "reset_external=true")
                refused = not done and path == "/flush_cache"  # as SGLang does
                self.send(400 if refused else 200, json.dumps({"success": done}).encode())
                return
            if path == "/cache/clear":
                server.cleared.append(json.loads(raw)["cache_salt"])
                self.send_json({})
                return
            chat = self.path == "/v1/chat/completions"
            if self.path not in {"/v1/chat/completions", "/v1/completions"} or (
                chat != server.is_.chat
            ):
                self.send(404, b"{}")
            elif not self.refused():
                self.ask(json.loads(raw), chat=chat)

        def ask(self, body: dict[str, Any], *, chat: bool) -> None:
            is_ = server.is_
            server.bodies.append(body)
            if len(server.bodies) >= is_.hang_from:
                server.release.wait(30)
                self.close_connection = True
                return
            wants_refused = (is_.salts == "refused" and "cache_salt" in body) or (
                is_.logprobs == "refused" and "logprobs" in body
            )
            if wants_refused:
                self.send(400, b'{"error": {"message": "unknown field"}}')
            elif is_.garbage is not None:
                self.send(200, is_.garbage)
            else:
                self.send_json(server.answer(body, chat=chat))

        def refused(self) -> bool:
            is_ = server.is_
            if is_.key and self.headers["authorization"] != f"Bearer {is_.key}":
                self.send(401, b'{"error": {"message": "no such key"}}')
                return True
            if is_.status != 200:
                self.send(is_.status, b'{"error": {"message": "out of order"}}')
                return True
            return False

        def send_json(self, data: object) -> None:
            self.send(200, json.dumps(data).encode())

        def send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    return Handler


@contextmanager
def canary_server(behaviour: Behaviour) -> Iterator[CanaryServer]:
    """A server on a free loopback port, for the length of the block."""
    state = CanaryServer(behaviour)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(state))
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield state
    finally:
        state.release.set()
        server.shutdown()
        server.server_close()
        thread.join()
