"""Where settings come from: files, the environment and flags, read into layers of raw values.

Nothing is interpreted here beyond names: an unknown one is refused with its nearest neighbour.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from pagoda.core.errors import SettingsError
from pagoda.settings.files import read_text
from pagoda.settings.keys import all_keys, keys_by_name
from pagoda.settings.tree import user_directory

CONFIG_VARIABLE = "PAGODA_CONFIG"
# Read by other parts of the project; every other unknown PAGODA_* variable is a typing error.
OTHER_VARIABLES = frozenset({CONFIG_VARIABLE, "PAGODA_API_KEY", "PAGODA_DEMO_MODEL"})
# A Service called "pagoda…" makes Kubernetes set these in every pod of its namespace.
_SERVICE_LINK = re.compile(
    r"PAGODA_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)"
)
_SERVICE_ADDRESS = re.compile(r"(tcp|udp|sctp)://\S+")


class Rank(IntEnum):
    """How strong a source is: a higher one overrides a lower one."""

    DEFAULT = 0
    FILE = 1
    ENVIRONMENT = 2
    FLAG = 3


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from; `text` names the file, variable or flag."""

    rank: Rank
    text: str

    def __str__(self) -> str:
        return self.text


DEFAULT = Origin(Rank.DEFAULT, "default")
Layer = Mapping[str, tuple[object, Origin]]  # dotted name → raw value, origin


def find_file(
    explicit: str | None, *, environ: Mapping[str, str], directory: Path
) -> tuple[Path, Origin] | None:
    """The settings file to read, if any: `explicit` (--config), PAGODA_CONFIG, pagoda.toml in
    `directory`, pagoda/pagoda.toml in the user's configuration directory; the first wins."""
    named = ((explicit, "--config"), (environ.get(CONFIG_VARIABLE), CONFIG_VARIABLE))
    for text, source in named:
        if text:
            path = Path(os.path.expanduser(text))  # noqa: PTH111 - Path's raises for nobody's home
            return path, Origin(Rank.FILE, f"{text} ({source})")
    home = user_directory("XDG_CONFIG_HOME", ".config", environ)
    for path in (directory / "pagoda.toml", home / "pagoda" / "pagoda.toml"):
        if path.is_file():
            return path, Origin(Rank.FILE, str(path))
    return None


def file_layer(path: Path, origin: Origin) -> Layer:
    """The settings in a TOML file. Raises SettingsError when it cannot be read or parsed."""
    try:
        tree = tomllib.loads(read_text(path))
    except OSError as error:
        raise _bad_file(f"cannot read {path}: {error.strerror}", origin) from error
    except UnicodeDecodeError as error:
        raise _bad_file(f"{path} is not UTF-8 text (byte {error.start})", origin) from error
    except (ValueError, RecursionError) as error:  # numbers and nesting beyond Python's limits, too
        raise _bad_file(f"{path} is not valid TOML: {error}", origin) from error
    return mapping_layer(tree, origin)


def mapping_layer(tree: Mapping[str, object], origin: Origin) -> Layer:
    """The settings in a nested mapping: {"drive": {"capacity": "8GiB"}}."""
    sections = {key.section for key in all_keys()}
    layer: dict[str, tuple[object, Origin]] = {}
    for section, fields in tree.items():
        if section not in sections:
            raise _unknown(section, sections, origin, what="section")
        if not isinstance(fields, Mapping):
            raise SettingsError(
                f"{origin}: {section} is a section, not a value",
                key=section,
                source=str(origin),
                remedy=f"write [{section}] and its settings below it",
            )
        layer |= {f"{section}.{field}": (value, origin) for field, value in fields.items()}
    for name in layer:
        _require_known(name, origin)
    return layer


def environment_layer(environ: Mapping[str, str]) -> Layer:
    """The settings in PAGODA_* variables; an empty one counts as not set."""
    names = {key.variable: key.name for key in all_keys()}
    layer: dict[str, tuple[object, Origin]] = {}
    for variable, value in sorted(environ.items()):
        if not variable.startswith("PAGODA_") or not value or _is_foreign(variable, value):
            continue
        origin = Origin(Rank.ENVIRONMENT, variable)
        if variable not in names:
            raise _unknown(variable, {*names, *OTHER_VARIABLES}, origin, what="variable")
        layer[names[variable]] = (value, origin)
    return layer


def flag_layer(flags: Mapping[str, str]) -> Layer:
    """The settings in command-line flags, by dotted name."""
    layer = {}
    for name, value in flags.items():
        _require_known(name, Origin(Rank.FLAG, "flags"))
        layer[name] = (value, Origin(Rank.FLAG, keys_by_name()[name].flag or name))
    return layer


def _is_foreign(variable: str, value: str) -> bool:
    if variable in OTHER_VARIABLES or _SERVICE_LINK.fullmatch(variable):
        return True
    return variable.endswith("_PORT") and _SERVICE_ADDRESS.fullmatch(value) is not None


def _require_known(name: str, origin: Origin) -> None:
    if name in keys_by_name():
        return
    section, _, field = name.partition(".")
    siblings = [key.name for key in all_keys() if key.section == section]
    near_siblings = difflib.get_close_matches(name, siblings, n=1)
    namesakes = [key.name for key in all_keys() if key.field == field]
    raise _unknown(name, namesakes or near_siblings or keys_by_name(), origin, what="setting")


def _unknown(name: str, known: Iterable[str], origin: Origin, *, what: str) -> SettingsError:
    candidates = sorted(known)
    near = difflib.get_close_matches(name, candidates, n=1, cutoff=0.5)
    hint = near[0] if near else ", ".join(candidates) if len(candidates) < 10 else ""
    where = "" if str(origin) == name else f"{origin}: "
    return SettingsError(
        f"{where}unknown {what} {name!r}",
        key=name,
        source=str(origin),
        remedy=f"did you mean {hint}?" if hint else "`pagoda config` lists them all",
    )


def _bad_file(message: str, origin: Origin) -> SettingsError:
    return SettingsError(
        message, key="", source=str(origin), remedy="correct it, or name another with --config"
    )
