"""The bodies of the requests under /cache. A salt travels in a body only: URLs are logged."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field, model_validator

from pagoda.core.errors import RequestError
from pagoda.core.holdings import Scope
from pagoda.engine.api import Engine
from pagoda.serve.prompts import Tokens, completion_prompts, message_prompt
from pagoda.serve.schema import STRICT, Message

__all__ = [
    "ClearBody",
    "DrainBody",
    "LiftBody",
    "PromptBody",
    "TtlBody",
    "prompt_of",
    "scope_of_query",
]

Salt = Annotated[str, Field(max_length=256)]
Name = Annotated[str, Field(min_length=1, max_length=64)]
Seconds = Annotated[float, Field(gt=0, le=10 * 365 * 86_400)]
_QUERY = frozenset({"tenant", "namespace", "older_than_s", "tier"})


class PromptBody(BaseModel):
    """POST /cache/lookup and /cache/prefetch: a prompt as /v1/completions takes one (text or
    token ids), or the messages of a chat, and whose it is."""

    model_config = STRICT
    prompt: Any = None
    messages: Annotated[list[Message], Field(min_length=1, max_length=4096)] | None = None
    cache_salt: Salt | None = None

    @model_validator(mode="after")
    def _one_prompt(self) -> PromptBody:
        if (self.prompt is None) == (self.messages is None):
            raise _fault("give either a prompt or messages", param="prompt")
        return self


class ClearBody(BaseModel):
    """POST /cache/clear: blocks that meet every field given, or `all`."""

    model_config = STRICT
    all: bool = False
    tenant: Name | None = None
    cache_salt: Salt | None = None
    namespace: Name | None = None
    prompt: Any = None
    messages: Annotated[list[Message], Field(min_length=1, max_length=4096)] | None = None
    older_than_s: Annotated[float, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _says_what(self) -> ClearBody:
        parts = [getattr(self, name) for name in type(self).model_fields if name != "all"]
        some = any(part is not None for part in parts)
        if some == self.all:
            raise _fault(
                "say what to clear: all, or any of tenant, cache_salt, namespace, prompt, "
                "messages and older_than_s",
                param="all",
            )
        if self.prompt is not None and self.messages is not None:
            raise _fault("give either a prompt or messages", param="prompt")
        if self.tenant is not None and self.has_prompt:
            raise _fault("a prompt's tenant is named by cache_salt", param="tenant")
        return self

    @property
    def has_prompt(self) -> bool:
        """Whether a prefix is named."""
        return self.prompt is not None or self.messages is not None

    def scope(self, prompt: tuple[int, ...] | None) -> Scope:
        """As the engine takes it."""
        return Scope(
            tenant=self.tenant,
            salt=self.cache_salt,
            namespace=self.namespace,
            prompt=prompt,
            older_than_s=self.older_than_s,
        )


class TtlBody(BaseModel):
    """POST /cache/ttl: `seconds` null removes it; without a tenant, of all without their own."""

    model_config = STRICT
    seconds: Seconds | None
    tenant: Name | None = None
    cache_salt: Salt | None = None

    @model_validator(mode="after")
    def _one_tenant(self) -> TtlBody:
        if self.tenant is not None and self.cache_salt is not None:
            raise _fault("name a tenant by its id or by its salt", param="tenant")
        return self


class DrainBody(BaseModel):
    """POST /cache/drain: the tier, as GET /cache/tiers names it."""

    model_config = STRICT
    tier: Name


class LiftBody(BaseModel):
    """POST /cache/quarantine/lift: the namespace, or how it begins."""

    model_config = STRICT
    namespace: Name


async def prompt_of(body: PromptBody | ClearBody, engine: Engine) -> Tokens:
    """The one prompt of a body, as a request for an answer would be encoded."""
    if body.messages is not None:
        return await message_prompt(body.messages, engine.codec)
    prompts = await completion_prompts(body.prompt, engine.codec, engine.card)
    if len(prompts) != 1:
        raise _fault("one prompt at a time", param="prompt")
    return prompts[0]


def scope_of_query(query: dict[str, str]) -> Scope:
    """The scope that GET /cache is asked for. RequestError for what it does not know."""
    for name in query:
        if name not in _QUERY:
            known = ", ".join(sorted(_QUERY))
            raise RequestError(
                "there is no such query parameter", code="unknown_parameter", remedy=f"use {known}"
            )
    try:
        age = float(query["older_than_s"]) if "older_than_s" in query else None
    except ValueError:
        raise _fault("older_than_s is a number of seconds", param="older_than_s") from None
    if age is not None and not 0 <= age < float("inf"):
        raise _fault("older_than_s is a number of seconds", param="older_than_s")
    return Scope(tenant=query.get("tenant"), namespace=query.get("namespace"), older_than_s=age)


def _fault(message: str, *, param: str) -> RequestError:
    return RequestError(message, param=param, code="invalid_value")
