"""The request bodies: what is understood, what is harmless, what is refused.

Nothing that would change an answer is ignored. A field is implemented, or accepted only at the
value that means "off" (`OFF_VALUES`), or one of the `HARMLESS` that cannot change an answer;
any other name is an error that says so.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from pagoda.core.errors import RequestError

__all__ = [
    "SESSION_HINTS",
    "ChatBody",
    "CommonBody",
    "CompletionBody",
    "Message",
    "PinField",
    "ResetBody",
]

# Accepted and without effect: they label, bill or store, or hint at speed.
HARMLESS = frozenset(
    {
        "metadata",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "user",
    }
)

# Not implemented: accepted only when absent, null or at one of these values.
OFF_VALUES: dict[str, tuple[object, ...]] = {
    "audio": (),
    "best_of": (1,),
    "echo": (False,),
    "frequency_penalty": (0,),
    "function_call": ("none",),
    "functions": ([],),
    "logit_bias": ({},),
    "min_tokens": (0,),
    "modalities": (["text"],),
    "moderation": (),
    "parallel_tool_calls": (True, False),
    "prediction": (),
    "presence_penalty": (0,),
    "reasoning_effort": (),
    "repetition_penalty": (1,),
    "response_format": ({"type": "text"},),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "verbosity": (),
    "web_search_options": (),
}

STRICT = ConfigDict(strict=True, allow_inf_nan=False, extra="forbid")
Nothing = Annotated[list[Any], Field(max_length=0)] | None
SessionHint = Literal["alive", "closed", "tool"]
SESSION_HINTS: tuple[str, ...] = get_args(SessionHint)
Int64 = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]


class StreamOptions(BaseModel):
    """How a stream is framed."""

    model_config = STRICT
    include_usage: bool | None = None
    include_obfuscation: bool | None = None  # padding against traffic analysis; we add none


class PinField(BaseModel):
    """Keep the prompt's blocks: whose pin it is, for how long, and within which share of a tier."""

    model_config = STRICT
    owner: Annotated[str, Field(min_length=1, max_length=64)]
    expires_s: Annotated[float, Field(gt=0)] | None = None
    budget: Annotated[float, Field(gt=0, le=1)] | None = None


class PagodaField(BaseModel):
    """What a request asks of the cache, and what it says of its session, beside its answer."""

    model_config = STRICT
    pin: PinField | None = None
    session: SessionHint | None = None


class TransferField(BaseModel):
    """Parameters that engines hand to their KV connectors: of those, what is ours."""

    model_config = STRICT
    pagoda_session: SessionHint | None = None


class CommonBody(BaseModel):
    """What chats and completions have in common. null always means the default."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False, extra="allow")

    model: str | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=2**31 - 1)] | None = None
    min_p: Annotated[float, Field(ge=0, lt=1)] | None = None
    seed: Int64 | None = None
    n: Annotated[int, Field(ge=1)] | None = None
    stop: str | Annotated[list[str], Field(fail_fast=True)] | None = None
    stop_token_ids: Annotated[list[int], Field(fail_fast=True, max_length=64)] | None = None
    ignore_eos: bool | None = None
    cache_salt: Annotated[str, Field(max_length=256)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    pagoda: PagodaField | None = None
    kv_transfer_params: TransferField | None = None

    @model_validator(mode="after")
    def _only_known_fields(self) -> CommonBody:
        for name, value in (self.model_extra or {}).items():
            _check_extra(name, value)
        if self.stream_options is not None and not self.stream:
            raise RequestError(
                "stream_options needs stream to be true",
                param="stream_options",
                code="invalid_value",
            )
        return self

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with a chunk of token counts."""
        return bool(self.stream_options and self.stream_options.include_usage)


def _check_extra(name: str, value: object) -> None:
    if name in HARMLESS or (name in OFF_VALUES and _is_off(value, OFF_VALUES[name])):
        return
    shown = name if name.isidentifier() and len(name) <= 64 else "a field"
    known = name in OFF_VALUES
    raise RequestError(
        f"{shown} is not supported by this server" if known else f"{shown} is not a known field",
        param=shown if shown == name else None,
        code="unsupported_parameter" if known else "unknown_parameter",
        remedy="leave it out",
    )


def _is_off(value: object, allowed: tuple[object, ...]) -> bool:
    if value is None:
        return True
    return any(value == off and isinstance(value, bool) == isinstance(off, bool) for off in allowed)


class TextPart(BaseModel):
    """One part of a message's content; only text is understood."""

    model_config = STRICT
    type: Literal["text"]
    text: str


class Message(BaseModel):
    """One turn of a chat. The empty fields are those that clients send back with an answer."""

    model_config = STRICT
    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[TextPart], Field(fail_fast=True)]
    name: Annotated[str, Field(max_length=64)] | None = None
    refusal: None = None
    audio: None = None
    annotations: Nothing = None
    tool_calls: Nothing = None
    function_call: None = None

    def for_template(self) -> dict[str, str]:
        """As chat templates expect it: parts joined by line feeds, developer as system."""
        content = self.content
        text = content if isinstance(content, str) else "\n".join(part.text for part in content)
        role = "system" if self.role == "developer" else self.role
        turn = {"role": role, "content": text}
        return turn if self.name is None else {**turn, "name": self.name}


class ChatBody(CommonBody):
    """POST /v1/chat/completions."""

    messages: Annotated[list[Message], Field(fail_fast=True, min_length=1, max_length=4096)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> ChatBody:
        if self.top_logprobs is not None and not self.logprobs:
            raise RequestError(
                "top_logprobs needs logprobs to be true", param="top_logprobs", code="invalid_value"
            )
        if self.max_tokens and self.max_completion_tokens not in (None, self.max_tokens):
            raise RequestError(
                "max_tokens and max_completion_tokens differ",
                param="max_tokens",
                code="invalid_value",
                remedy="give one of them",
            )
        return self


class CompletionBody(CommonBody):
    """POST /v1/completions. `prompt` is checked by prompts.py: it has four shapes."""

    prompt: Any
    logprobs: Annotated[int, Field(ge=0)] | None = None


class ResetBody(BaseModel):
    """POST /cache/reset."""

    model_config = STRICT
    scope: Literal["device", "all"]
