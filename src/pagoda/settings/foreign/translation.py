"""The outcome of reading another cache's configuration: settings, and what became of each key."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pagoda.settings.foreign.masking import shown
from pagoda.settings.keys import keys_by_name


class Fate(StrEnum):
    """What becomes of a key."""

    MAPPED = "maps"  # to a setting of the same meaning
    CHANGED = "maps, with another meaning"
    NEEDLESS = "not needed"  # Pagoda does it always, or has nothing to set
    MISSING = "has no counterpart"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Line:
    """One key of the file: its dotted name, its value as text, its fate, and why."""

    key: str
    value: str
    fate: Fate
    setting: str  # the setting it maps to, "" when none
    note: str


class BadValue(ValueError):
    """A key's value is none of its kind; the text says what is wrong with it."""

    def __init__(self, message: str, *, key: str) -> None:
        super().__init__(message)
        self.key = key


@dataclass(slots=True)
class Translation:
    """What a file means in Pagoda's terms. `settings` maps dotted names to texts as a settings
    file would hold them."""

    source: str  # "LMCache" or "vLLM"
    settings: dict[str, str] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    remarks: dict[str, str] = field(default_factory=dict)  # on settings that are left out

    def apply(self, key: str, value: object, rule: Rule) -> None:
        """Note one key, and the settings it maps to. Raises BadValue."""
        try:
            outcome = _judged(rule, value)
        except ValueError as error:
            raise BadValue(str(error), key=key) from error
        for name, text in outcome.settings.items():
            assert name in keys_by_name(), f"{name} is a setting"
            self.settings[name] = text
        names = ", ".join(outcome.settings)
        self.lines.append(Line(key, shown(key, value), outcome.fate, names, outcome.note))

    def absent(self, key: str, setting: str, note: str) -> None:
        """Note what follows from a key that is not there."""
        self.lines.append(Line(key, "(absent)", Fate.CHANGED, setting, note))

    def left_to_default(self, key: str, setting: str, note: str) -> None:
        """Note a setting that is left out, and the default that then holds: for people here, in
        the settings file as a comment."""
        default = keys_by_name()[setting].format(keys_by_name()[setting].default)
        self.remarks[setting] = note
        self.absent(key, setting, f"left at its default, {default}: {note}")

    def toml(self) -> str:
        """The settings as a settings file; those with a remark are there as a comment."""
        sections: dict[str, list[str]] = {}
        for name in keys_by_name():
            section, _, _ = name.partition(".")
            sections.setdefault(section, []).extend(self._toml_lines(name))
        sections = {section: lines for section, lines in sections.items() if lines}
        return "\n\n".join(
            "\n".join([f"[{section}]", *lines]) for section, lines in sections.items()
        )

    def _toml_lines(self, name: str) -> list[str]:
        key = keys_by_name()[name]
        if name in self.settings:
            text = self.settings[name]
            return [f"{key.field} = {text if key.kind == 'integer' else json.dumps(text)}"]
        if name in self.remarks:
            default = json.dumps(key.format(key.default))
            return [f"# {key.field} = {default}  # the default: {self.remarks[name]}"]
        return []

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        keys = [
            {"key": line.key, "value": line.value, "fate": line.fate.value,
             "setting": line.setting, "note": line.note}
            for line in self.lines
        ]  # fmt: skip
        return {"source": self.source, "settings": dict(self.settings), "keys": keys}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a rule makes of a value."""

    fate: Fate
    note: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)


Rule = Outcome | Callable[[object], Outcome]


def maps(name: str, text: str, note: str = "") -> Outcome:
    """To a setting of the same meaning."""
    return Outcome(Fate.MAPPED, note, {name: text})


def changed(name: str, text: str, note: str) -> Outcome:
    """To a setting whose meaning is another one, as `note` says."""
    return Outcome(Fate.CHANGED, note, {name: text})


def needless(note: str) -> Outcome:
    """To nothing, for there is nothing to set."""
    return Outcome(Fate.NEEDLESS, note)


def missing(note: str) -> Outcome:
    """To nothing, for Pagoda does not do it."""
    return Outcome(Fate.MISSING, note)


UNKNOWN = Outcome(Fate.UNKNOWN, "no key of this name is known here: it is left out")
_UNSET = needless("it is not set")
OFF = needless("it is off")
_OFF_TEXTS = frozenset({"", "0", "false", "no", "off"})


def is_off(value: object) -> bool:
    """Whether a value says that there is nothing, or that something is off."""
    if isinstance(value, str):
        return value.lower() in _OFF_TEXTS
    return value in (None, False, 0, [], {})


def _judged(rule: Rule, value: object) -> Outcome:
    """What becomes of a value. Null is a key that is not there, and nothing is lost by what is
    off; a rule that is a function decides about other values itself. Raises ValueError."""
    if value is None and rule is not UNKNOWN:
        return _UNSET
    if isinstance(rule, Outcome):
        return OFF if rule.fate is Fate.MISSING and is_off(value) else rule
    return rule(value)
