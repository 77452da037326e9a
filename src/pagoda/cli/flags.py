"""Flags made from the settings tree, so that no command line can drift from it.

    @takes_settings("model", "log")
    def command(resolved: Resolved, *, quiet: bool = False) -> None: ...

gives the command --config and a flag for each setting of those sections; it is called with the
settings of all sources.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_type_hints

import typer

from pagoda.settings import Resolved, load
from pagoda.settings.keys import Key, all_keys, section_meanings

_METAVARS = {"size": "SIZE", "duration": "TIME", "integer": "N", "number": "N", "text": "TEXT"}
_CONFIG_HELP = "Settings file; else PAGODA_CONFIG, ./pagoda.toml, or the user's pagoda.toml."


def takes_settings(*sections: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator that replaces a command's first parameter by the flags of `sections`."""
    keys = {_parameter(key): key for key in all_keys() if key.section in sections and key.flag}

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def command(**given: Any) -> None:
            flags = {key.name: given.pop(name) for name, key in keys.items()}
            set_flags = {name: text for name, text in flags.items() if text is not None}
            function(load(flags=set_flags, config=given.pop("config")), **given)

        own = _own_parameters(function)
        added = [_config_parameter(), *(_flag_parameter(key) for key in keys.values())]
        signature = inspect.Signature([*own, *added])
        # Typer reads both; the originals are texts that name what only `function` can see.
        command.__signature__ = signature  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
        return command

    return decorate


def _parameter(key: Key) -> str:
    return key.name.replace(".", "_")


def _own_parameters(function: Callable[..., None]) -> list[inspect.Parameter]:
    hints = get_type_hints(function, include_extras=True)
    first, *rest = inspect.signature(function).parameters.values()
    assert hints[first.name] is Resolved, f"{function.__name__}'s first parameter takes Resolved"
    return [p.replace(annotation=hints[p.name], kind=inspect.Parameter.KEYWORD_ONLY) for p in rest]


def _config_parameter() -> inspect.Parameter:
    return _optional("config", typer.Option("--config", metavar="FILE", help=_CONFIG_HELP))


def _flag_parameter(key: Key) -> inspect.Parameter:
    assert key.flag is not None, f"{key.name} has no flag"
    option = typer.Option(
        key.flag,
        metavar="|".join(key.choices) or _METAVARS[key.kind],
        help=key.description,
        show_default=key.format(key.default) or False,
        rich_help_panel=f"{key.section}: {section_meanings()[key.section]}",
    )
    return _optional(_parameter(key), option)


def _optional(name: str, option: object) -> inspect.Parameter:
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[str | None, option],
    )
