"""What a request of vLLM's says to Pagoda, in its `kv_transfer_params`:

    {"pagoda_session": "alive", "pagoda_pin": {"owner": "search", "expires_s": 7200}}
    {"pagoda_unpin": "search"}

The same as requests say to Pagoda's own server. An owner's name is for accounting, and proves
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from pagoda.core.errors import RequestError
from pagoda.core.pins import PinWish
from pagoda.core.policy import Hint

_PREFIX = "pagoda_"
_SHOWN_CHARS = 64
_Name = Annotated[str, Field(min_length=1, max_length=64)]


def _is_text(value: object) -> object:
    """An enumeration shows what it refuses, however deep that is nested."""
    if not isinstance(value, str):
        raise ValueError("not a text")  # noqa: TRY004 - what pydantic takes in
    return value


_Session = Annotated[Hint, BeforeValidator(_is_text)]


class _Pin(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
    owner: _Name
    expires_s: Annotated[float, Field(gt=0)] | None = None
    budget: Annotated[float, Field(gt=0, le=1)] | None = None


class _Said(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)
    pagoda_session: _Session = Hint.NONE
    pagoda_pin: _Pin | None = None
    pagoda_unpin: _Name | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What is known of a request's session, the pin of its prompt, and the owner all of whose
    pins are to end."""

    hint: Hint = Hint.NONE
    pin: PinWish | None = None
    unpin: str | None = None


def wishes_of(params: object) -> Wishes:
    """What a request says, whatever that is; parameters that are not ours are passed over.
    RequestError for one of ours that cannot be: it names a parameter as people may read it."""
    if not isinstance(params, Mapping):
        return Wishes()  # vLLM's to refuse
    ours = {
        name: value
        for name, value in params.items()
        if isinstance(name, str) and name.startswith(_PREFIX)
    }
    if not ours:
        return Wishes()
    try:
        said = _Said.model_validate(ours)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        where = ascii(".".join(map(str, first["loc"]))[:_SHOWN_CHARS])[1:-1]
        raise RequestError(
            f"{where}: {first['msg']}", param=f"kv_transfer_params.{where}", code="invalid_value"
        ) from None
    pin = said.pagoda_pin
    return Wishes(
        hint=said.pagoda_session,
        pin=PinWish(owner=pin.owner, expires_s=pin.expires_s, budget=pin.budget) if pin else None,
        unpin=said.pagoda_unpin,
    )
