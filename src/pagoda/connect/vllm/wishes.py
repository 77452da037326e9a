"""What a request of vLLM's says to Pagoda, in its `kv_transfer_params`:

    {"pagoda_session": "alive", "pagoda_pin": {"owner": "search", "expires_s": 7200}}
    {"pagoda_unpin": "search"}

The same as requests say to Pagoda's own server. An owner's name is for accounting, and proves
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pagoda.core.errors import RequestError
from pagoda.core.pins import PinWish
from pagoda.core.policy import Hint

_PREFIX = "pagoda_"
_Name = Annotated[str, Field(min_length=1, max_length=64)]


class _Pin(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
    owner: _Name
    expires_s: Annotated[float, Field(gt=0)] | None = None
    budget: Annotated[float, Field(gt=0, le=1)] | None = None


class _Said(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)
    pagoda_session: Hint = Hint.NONE
    pagoda_pin: _Pin | None = None
    pagoda_unpin: _Name | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What is known of a request's session, the pin of its prompt, and the owner all of whose
    pins are to end."""

    hint: Hint = Hint.NONE
    pin: PinWish | None = None
    unpin: str | None = None


def wishes_of(params: Mapping[Any, Any] | None) -> Wishes:
    """What a request says; parameters that are not ours are passed over. RequestError for one of
    ours that cannot be."""
    ours = {
        name: value
        for name, value in (params or {}).items()
        if isinstance(name, str) and name.startswith(_PREFIX)
    }
    if not ours:
        return Wishes()
    try:
        said = _Said.model_validate(ours)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise RequestError(
            f"{where}: {first['msg']}", param=f"kv_transfer_params.{where}", code="invalid_value"
        ) from None
    pin = said.pagoda_pin
    return Wishes(
        hint=said.pagoda_session,
        pin=PinWish(owner=pin.owner, expires_s=pin.expires_s, budget=pin.budget) if pin else None,
        unpin=said.pagoda_unpin,
    )
