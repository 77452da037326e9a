"""The keys of the settings tree, flat: one `Key` a setting, with its flag and its variable."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal, get_args, get_origin

from pydantic import BeforeValidator, SecretStr
from pydantic.fields import FieldInfo

from pagoda.settings.tree import Section, Settings
from pagoda.settings.units import format_duration, format_size, parse_duration, parse_size

Kind = Literal["size", "duration", "integer", "number", "choice", "text", "secret"]

# Flags that people type daily are short; every other is --section-key.
_SHORT_FLAGS = {
    "model.path": "--model",
    "server.host": "--host",
    "server.port": "--port",
    "server.record": "--record",
}
_PARSERS: dict[object, Kind] = {parse_size: "size", parse_duration: "duration"}
_MASK = "********"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One setting: its dotted name ("drive.capacity"), kind, choices, default and meaning."""

    section: str
    field: str
    kind: Kind
    choices: tuple[str, ...]
    default: object
    description: str

    @property
    def name(self) -> str:
        return f"{self.section}.{self.field}"

    @property
    def variable(self) -> str:
        return f"PAGODA_{self.section}_{self.field}".upper()

    @property
    def flag(self) -> str | None:
        """The command-line flag; None for a secret, which every user of a machine could read
        in the list of processes."""
        if self.kind == "secret":
            return None
        return _SHORT_FLAGS.get(self.name, f"--{self.section}-{self.field.replace('_', '-')}")

    def format(self, value: object) -> str:
        """The value as a file or flag would spell it; a secret is masked."""
        if isinstance(value, SecretStr):
            return _MASK if value.get_secret_value() else ""
        if self.kind == "size" and isinstance(value, int):
            return format_size(value)
        if self.kind == "duration" and isinstance(value, float):
            return format_duration(value)
        return str(value)

    def value_in(self, settings: Settings) -> object:
        """This key's value in a tree."""
        return getattr(getattr(settings, self.section), self.field)


@cache
def all_keys() -> tuple[Key, ...]:
    """Every key, in the order of the tree."""
    return tuple(_walk())


@cache
def keys_by_name() -> dict[str, Key]:
    """Every key by its dotted name."""
    return {key.name: key for key in all_keys()}


def section_meanings() -> dict[str, str]:
    """Each section's name and the first sentence of its docstring."""
    return {name: str(section.__doc__).split("\n\n")[0] for name, section in _sections()}


def _sections() -> Iterator[tuple[str, type[Section]]]:
    for name, info in Settings.model_fields.items():
        assert isinstance(info.annotation, type), f"{name} is not a section"
        assert issubclass(info.annotation, Section), f"{name} is not a section"
        yield name, info.annotation


def _walk() -> Iterator[Key]:
    for section, model in _sections():
        for field, info in model.model_fields.items():
            yield Key(
                section=section,
                field=field,
                kind=_kind(info),
                choices=_choices(info),
                default=info.default,
                description=info.description or "",
            )


def _choices(info: FieldInfo) -> tuple[str, ...]:
    return get_args(info.annotation) if get_origin(info.annotation) is Literal else ()


def _kind(info: FieldInfo) -> Kind:
    if info.annotation is SecretStr:
        return "secret"
    if _choices(info):
        return "choice"
    for mark in info.metadata:
        if isinstance(mark, BeforeValidator) and mark.func in _PARSERS:
            return _PARSERS[mark.func]
    if info.annotation is float:
        return "number"
    return "integer" if info.annotation is int else "text"
