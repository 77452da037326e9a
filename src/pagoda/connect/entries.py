"""A connector's own entries in an engine's configuration, checked once.

Engines hand on whatever stands there: texts for numbers, lists for trees, and slips of the pen.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pagoda.core.errors import SettingsError

_LAST_PORT = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """`content` stands at `source` for the connector `whose`. Everything here raises SettingsError
    for what cannot be; null is the same as nothing."""

    whose: str
    source: str
    content: Mapping[str, Any]

    def require_known(self, ours: Collection[str], others: Collection[str] = ()) -> None:
        """There is no other entry than `ours`, and `others` that the engine reads."""
        for name in self.content:
            if name not in ours and name not in others:
                near = difflib.get_close_matches(str(name), ours, n=1)
                remedy = f"did you mean {near[0]}?" if near else f"there is {', '.join(ours)}"
                raise self._bad(f"unknown entry {name!r}", str(name), remedy)

    def tree(self, name: str) -> Mapping[str, object]:
        """Settings by section."""
        value = self._value(name, {})
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise self._bad(f"{name} is no tree", name, 'write {"drive": {"path": …}}')
        return value

    def file(self, name: str) -> str | None:
        """The path of a file."""
        value = self._value(name, None)
        if value is None or (isinstance(value, str) and "\0" not in value):
            return value
        raise self._bad(f"{name} is no path", name, "name a file of settings")

    def text(self, name: str) -> str:
        """A text, of characters that are some."""
        value = self._value(name, "")
        if not isinstance(value, str):
            raise self._bad(f"{name} is no text", name, "put it in quotation marks")
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise self._bad(f"{name} holds half a character", name, "write it anew")
        return value

    def flag(self, name: str) -> bool:
        """Whether something is wanted."""
        value = self._value(name, False)
        if not isinstance(value, bool):
            raise self._bad(f"{name} is neither true nor false", name, "write true or false")
        return value

    def port(self, name: str) -> int:
        """A port; 0 for none."""
        value = self._value(name, 0)
        if type(value) is not int or not 0 <= value <= _LAST_PORT:
            raise self._bad(f"{name} is no port", name, f"name one up to {_LAST_PORT}, or 0")
        return value

    def _value(self, name: str, unset: object) -> Any:
        value = self.content.get(name)
        return unset if value is None else value

    def _bad(self, message: str, name: str, remedy: str) -> SettingsError:
        return SettingsError(
            f"{self.whose}: {message}", key=name, source=self.source, remedy=remedy
        )
