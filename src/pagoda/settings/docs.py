"""The settings as Markdown, for docs/reference/settings.md."""

from __future__ import annotations

from collections.abc import Iterator

from pagoda.settings.keys import Key, all_keys, section_meanings
from pagoda.settings.sources import OTHER_VARIABLES


def tables() -> str:
    """A heading and a table for each section, then the variables that are no settings."""
    parts = [_section(section, meaning) for section, meaning in section_meanings().items()]
    others = ", ".join(f"`{name}`" for name in sorted(OTHER_VARIABLES))
    parts.append(f"Variables that are no settings: {others}.\n")
    return "\n".join(parts)


def _section(section: str, meaning: str) -> str:
    rows = (key for key in all_keys() if key.section == section)
    return "\n".join(
        [
            f"## [{section}]",
            "",
            meaning,
            "",
            "| key | type | default | flag | variable | meaning |",
            "|---|---|---|---|---|---|",
            *("| " + " | ".join(_cells(key)) + " |" for key in rows),
            "",
        ]
    )


def _cells(key: Key) -> Iterator[str]:
    yield f"`{key.field}`"
    yield " or ".join(f"`{choice}`" for choice in key.choices) or key.kind
    yield f"`{key.format(key.default)}`" if key.format(key.default) else "empty"
    yield f"`{key.flag}`" if key.flag else "none"
    yield f"`{key.variable}`"
    yield key.description
