"""Namespaces in quarantine: a block of theirs was wrong, so none of them is handed out or stored.

    {"revision": 2, "namespaces": {"68b4…": {"since_s": 1790000000, "detail": "drive: …"}}}

The blocks stay where they are, to be looked at, and make room as others do. A quarantine ends
when somebody lifts it, or has cleared the namespace from every tier that held it. It is kept as
`quarantine.json` in each drive's directory (`store.kept`): of several copies the newest counts.
Without a drive it ends with the process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagoda.core.errors import RequestError
from pagoda.core.events import Barred, Observer, Unbarred, ignore
from pagoda.core.holdings import UNKNOWN, BarredNamespace
from pagoda.core.identity import DIGEST_BYTES, NamespaceId
from pagoda.store import kept
from pagoda.store.catalogue import Catalogue
from pagoda.store.executor import Kind, Lane
from pagoda.store.orders import Orders

NAME = "quarantine.json"
VERSION = 1
_LANE = Lane("quarantine", Kind.CHECK)
_log = logging.getLogger("pagoda.store")


@dataclass(frozen=True, slots=True)
class Entry:
    """Since when (seconds since the epoch) a namespace is in quarantine, and why, for people."""

    since_s: int
    detail: str


class Quarantine:
    """Owner's thread, but for `write`, which is given a text.

    Raises FormatError for a file of a newer version and for something that is no file: both are
    left as they are. A damaged copy is told and passed over.
    """

    def __init__(self, directories: Sequence[Path] = ()) -> None:
        self._places = [directory / NAME for directory in directories]
        copies = [copy for place in self._places if (copy := _read(place)) is not None]
        self._revision, self._entries = max(copies, key=lambda copy: copy[0], default=(0, {}))
        self._news: list[NamespaceId] = []
        self._changed = False
        self._writing = False
        self._observer: Observer = ignore

    @property
    def count(self) -> int:
        """How many namespaces are in quarantine."""
        return len(self._entries)

    def tell(self, observer: Observer) -> None:
        """Tell of what is in quarantine from the start, and from now on of each change."""
        self._observer = observer
        for namespace in self._entries:
            self._tell(namespace)

    def bars(self, namespace: NamespaceId) -> bool:
        """Whether blocks of a namespace are neither handed out nor stored."""
        return namespace in self._entries

    def entries(self) -> dict[NamespaceId, Entry]:
        """All of them, the oldest first."""
        return dict(self._entries)

    def add(self, namespace: NamespaceId, entry: Entry) -> None:
        """Put a namespace in quarantine, unless it is there."""
        if namespace not in self._entries:
            self._entries[namespace] = entry
            self._news.append(namespace)
            self._changed = True
            self._tell(namespace)

    def lift(self, namespace: NamespaceId) -> bool:
        """Hand its blocks out again; False when it is not in quarantine."""
        if self._entries.pop(namespace, None) is None:
            return False
        self._changed = True
        self._observer(Unbarred(namespace=namespace.hex()))
        return True

    def take_news(self) -> list[NamespaceId]:
        """Those that were added since the last call: what an engine itself has of them, it has
        to let go of."""
        news, self._news = self._news, []
        return news

    def poll(self, orders: Orders) -> None:
        """Send what has changed to be written, one write at a time."""
        if not self._changed or self._writing or not self._places:
            return
        text, self._writing = self._text(), True

        def written(whole: bool) -> None:
            del whole  # told by the log; the next change writes all copies again
            self._writing = False

        orders.send(_LANE, lambda: self.write(text), written)

    def close(self) -> None:
        """Write what has changed. Blocks on I/O."""
        if self._changed:
            self.write(self._text())

    def write(self, text: str) -> bool:
        """Every copy anew, each whole or not at all. False when one could not be written."""
        whole = True
        for place in self._places:
            try:
                kept.replace_copy(place, text)
            except OSError as error:
                _log.error(
                    "cannot write %s: %s; a restart may serve what is in quarantine",
                    place,
                    error.strerror,
                )
                whole = False
        return whole

    def _text(self) -> str:
        self._revision += 1
        self._changed = False
        content = {
            "revision": self._revision,
            "namespaces": {
                name.hex(): {"since_s": entry.since_s, "detail": entry.detail}
                for name, entry in self._entries.items()
            },
        }
        return kept.text_of(content, version=VERSION)

    def _tell(self, namespace: NamespaceId) -> None:
        entry = self._entries[namespace]
        self._observer(
            Barred(namespace=namespace.hex(), since_s=entry.since_s, detail=entry.detail)
        )


def listed(quarantine: Quarantine, catalogue: Catalogue) -> list[BarredNamespace]:
    """What is in quarantine, the oldest first, and whose it is."""
    return [
        BarredNamespace(
            namespace=name.hex(),
            tenant=UNKNOWN if (origin := catalogue.origin(name)) is None else origin.tenant,
            since_s=entry.since_s,
            detail=entry.detail,
        )
        for name, entry in quarantine.entries().items()
    ]


def named(listed: Sequence[BarredNamespace], beginning: str) -> BarredNamespace:
    """The one that begins so. RequestError for none, or several."""
    found = [one for one in listed if one.namespace.startswith(beginning.lower())]
    if len(found) != 1 or not beginning:
        many = "several namespaces in quarantine begin" if found else "none in quarantine begins"
        raise RequestError(
            f"{many} with {beginning!r}",
            param="namespace",
            code="invalid_value" if found else "not_found",
            remedy="`pagoda cache quarantine` shows those that are",
        )
    return found[0]


Bars = Callable[[NamespaceId], bool]
_Copy = tuple[int, dict[NamespaceId, Entry]]  # its revision, and what it names


def _read(place: Path) -> _Copy | None:
    """A sound copy; None when there is none, or it cannot be read."""
    try:
        content = kept.read_content(place, version=VERSION)
        return None if content is None else _parse(content)
    except kept.DAMAGES:
        _log.error(
            "%s is damaged: what was in quarantine is served again unless another drive names it",
            place,
        )
        return None


def _parse(content: dict[str, Any]) -> _Copy:
    """Raises ValueError and its like for what cannot be."""
    entries = {
        NamespaceId(bytes.fromhex(name)): Entry(int(entry["since_s"]), str(entry["detail"]))
        for name, entry in content["namespaces"].items()
    }
    if any(len(name) != DIGEST_BYTES for name in entries):
        raise ValueError("a digest of another size")
    return int(content["revision"]), entries
