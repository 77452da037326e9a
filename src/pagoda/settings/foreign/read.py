"""Reading another cache's file: YAML or JSON, with the line of whatever is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import yaml

from pagoda.core.errors import SettingsError
from pagoda.settings.files import read_text
from pagoda.settings.foreign import lmcache, vllm
from pagoda.settings.foreign.translation import BadValue, Translation
from pagoda.settings.keys import keys_by_name
from pagoda.settings.load import resolve
from pagoda.settings.sources import Origin, Rank, mapping_layer

_LIMIT_BYTES = 1 << 20
_CONSTRUCTION = (  # what values of a wrong kind, such as `!!bool 7` and `!!int x`, raise in YAML
    yaml.YAMLError, ValueError, TypeError, AttributeError, LookupError, ArithmeticError,
    RecursionError,
)  # fmt: skip


def import_file(path: Path) -> Translation:
    """What a file of LMCache or vLLM means in Pagoda's settings, which are valid together.
    Raises SettingsError; its source names file and line."""
    text = _text(path)
    lines = _lines(path, text)
    tree = _parse(path, text)
    foreign = next((one for one in (vllm, lmcache) if one.is_mine(tree)), None)
    if foreign is None:
        raise _error(
            path, None, "is neither a configuration of LMCache nor a kv-transfer-config",
            remedy="give LMCache's YAML, or the JSON of vLLM's --kv-transfer-config",
        )  # fmt: skip
    out = Translation(foreign.NAME)
    try:
        foreign.translate(tree, out)
    except BadValue as error:
        where = lines.get(error.key)
        raise _error(path, where, f"{error.key} {error}", key=error.key) from error
    _require_valid(path, out)
    return out


def _text(path: Path) -> str:
    try:
        return read_text(path, limit_bytes=_LIMIT_BYTES)
    except OSError as error:
        raise _error(path, None, f"cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise _error(path, None, f"is not UTF-8 text (byte {error.start})") from error


def _parse(path: Path, text: str) -> Mapping[str, object]:
    """The tree of a file whose structure was looked at already."""
    is_json = text.lstrip().startswith("{")
    try:
        tree = json.loads(text) if is_json else yaml.safe_load(text)
    except json.JSONDecodeError as error:
        raise _error(path, error.lineno, f"is not valid JSON: {error.msg}") from error
    except _CONSTRUCTION as error:  # its text may show a secret
        mark = getattr(error, "problem_mark", None)
        kind = "JSON" if is_json else "YAML"
        what = f"is not valid {kind}: a value or key cannot be read"
        raise _error(path, mark.line + 1 if mark else None, what) from error
    if not isinstance(tree, dict) or not all(isinstance(key, str) for key in tree):
        raise _error(path, 1, "holds no keys with values")
    return tree


def _lines(path: Path, text: str) -> dict[str, int]:
    """The line of each key, by its dotted name. Raises SettingsError for a key that is there
    twice, and for aliases, which can blow a small file up."""
    if text.lstrip().startswith("{"):  # YAML reads JSON, but for tabs between its tokens
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            return {}
        text = text.replace("\t", " ")
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text)):
            raise _error(path, None, "uses YAML aliases", remedy="write the values out")
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else None
        raise _error(path, line, f"is not valid YAML: {error.problem}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise _error(path, None, f"is not valid YAML: {_one_line(error)}") from error
    found: dict[str, int] = {}
    _walk(path, root, "", found)
    return found


def _walk(path: Path, node: object, at: str, found: dict[str, int]) -> None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            name = f"{at}.{key.value}" if at else str(key.value)
            line = key.start_mark.line + 1
            if name in found:
                raise _error(path, line, f"has {name} twice", key=name)
            found[name] = line
            _walk(path, value, name, found)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _walk(path, value, f"{at}[{index}]", found)


def _require_valid(path: Path, out: Translation) -> None:
    """The settings are read as a file of ours would be."""
    tree: dict[str, dict[str, object]] = {}
    for name, text in out.settings.items():
        section, _, field = name.partition(".")
        is_count = keys_by_name()[name].kind == "integer"
        tree.setdefault(section, {})[field] = int(text) if is_count else text
    resolve([mapping_layer(tree, Origin(Rank.FILE, str(path)))])


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _error(
    path: Path, line: int | None, what: str, *, key: str = "FILE", remedy: str = ""
) -> SettingsError:
    where = str(path) if line is None else f"{path}, line {line}"
    return SettingsError(f"{where}: {what}", key=key, source=where, remedy=remedy)
