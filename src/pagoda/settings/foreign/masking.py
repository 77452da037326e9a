"""Values as they may be shown: what a name or a shape tells to be a secret is masked."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

MASK = "********"
_NAME = (
    r"passw|passphrase|pass(?![a-z])|pwd|secret|credential|cookie|auth|bearer|token(?!s|iz)"
    r"|(?:api|access|refresh)[_-]?tokens|(?:api|access|private)[_-]?key|keys?(?:_?id)?(?![a-z_])"
)
_SECRET = re.compile(_NAME, re.IGNORECASE)
_SHAPES = (  # each keeps its group; a path may hold an @, nothing else that is shown may
    re.compile(r"^(?!(?:(?:file|fs):/)?/)(\s*[\w+.-]+://|).*@", re.DOTALL),
    re.compile(r"(://)(?!/).*@", re.DOTALL),
    re.compile(r"(-----BEGIN ).+", re.DOTALL),
    re.compile(r"(\?|#(?=.*=)).+", re.DOTALL),
    re.compile(rf"((?:{_NAME})[\w-]*[\"']?\s*[=:]).+", re.DOTALL | re.IGNORECASE),
)
_LONG_BITS = 4096  # Python writes longer numbers in hexadecimal only


def shown(key: str, value: object) -> str:
    """A value for people, whatever it is; `key` is its dotted name."""
    safe = _safe(key, value)
    return safe if isinstance(safe, str) else json.dumps(safe)


def _safe(name: str, value: object) -> object:
    """The value as JSON can hold it. Below a name that tells a secret, everything is one."""
    if isinstance(value, Mapping):
        return {_by_shape(str(key)): _safe(f"{name}.{key}", inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_safe(name, inner) for inner in value]
    if value is None or isinstance(value, bool) or value == "":
        return value
    if _SECRET.search(name):
        return MASK
    if isinstance(value, int):
        return value if value.bit_length() <= _LONG_BITS else hex(value)
    return value if isinstance(value, float) else _by_shape(str(value))


def _by_shape(text: str) -> str:
    """A text without a URL's user, password and query, and without "password=…"."""
    for shape in _SHAPES:
        text = shape.sub(
            lambda found: f"{found[1]}{MASK}{'@' if found[0].endswith('@') else ''}", text
        )
    return text
