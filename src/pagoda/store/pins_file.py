"""Where pins are kept over restarts: `pins.json` in each drive's directory (`store.kept`).

    {"revision": 3, "pins": [{"owner": "search", "tenant": "shared", "namespace": "68b4…",
      "generation": "68b4…", "keys": "base64 of 32 bytes a key", "budget": 0.25,
      "until_ms": 1790000000000, "tiers": ["device", "host"]}]}

Keys and digests only: neither a prompt nor a salt. Of several copies the newest counts. Without a
drive pins end with the process, as the blocks do.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagoda.core.identity import DIGEST_BYTES, Key, NamespaceId
from pagoda.core.pins import MOST_KEYS, MOST_PINS, Pin
from pagoda.store import kept

NAME = "pins.json"
VERSION = 1
_LATEST_MS = 253_402_300_800_000  # the year 10000
_log = logging.getLogger("pagoda.store")


@dataclass(frozen=True, slots=True)
class _Copy:
    """What one drive's file says."""

    revision: int
    pins: list[Pin]


class PinsFile:
    """The copies of one engine's pins. Reads at once; `write` is for an I/O thread.

    Raises FormatError for a file of a newer version and for something that is no file: both are
    left as they are. A damaged copy is told and passed over; before it would be written over, it
    is put aside as `pins.json.damaged`.
    """

    def __init__(self, directories: Sequence[Path] = ()) -> None:
        self.places = [directory / NAME for directory in directories]
        self._damaged: set[Path] = set()
        copies = [copy for place in self.places if (copy := self._read(place)) is not None]
        newest = max(copies, key=lambda copy: copy.revision, default=_Copy(0, []))
        self._revision = newest.revision
        self.pins = newest.pins  # as they were when this was opened

    def text(self, pins: Sequence[Pin]) -> str:
        """What to write."""
        self._revision += 1
        content = {"revision": self._revision, "pins": [_entry(pin) for pin in pins]}
        return kept.text_of(content, version=VERSION)

    def write(self, text: str) -> bool:
        """Every copy anew, each whole or not at all. False when none survives a restart: no
        copy could be written, or there is no place for one. Blocks on I/O."""
        written = False
        for place in self.places:
            try:
                if place in self._damaged:
                    place.replace(place.with_suffix(".json.damaged"))
                    self._damaged.discard(place)
                kept.replace_copy(place, text)
                written = True
            except OSError as error:
                _log.warning("cannot write %s: %s", place, error.strerror)
        return written

    def _read(self, place: Path) -> _Copy | None:
        try:
            content = kept.read_content(place, version=VERSION)
            return None if content is None else _parse(content)
        except kept.DAMAGES:
            self._damaged.add(place)
            _log.error("%s is damaged: pins are lost unless another drive has them", place)
            return None


def _entry(pin: Pin) -> dict[str, Any]:
    return {
        "owner": pin.owner,
        "tenant": pin.tenant,
        "namespace": pin.namespace.hex(),
        "generation": pin.generation,
        "keys": base64.b64encode(b"".join(pin.keys)).decode(),
        "budget": pin.share,
        "until_ms": pin.until_ms,
        "tiers": sorted(pin.tiers),
    }


def _parse(content: dict[str, Any]) -> _Copy:
    """Raises ValueError and its like for what cannot be."""
    pins = [_pin(**entry) for entry in content["pins"]]
    if len(pins) > MOST_PINS or sum(len(pin.keys) for pin in pins) > MOST_KEYS:
        raise ValueError("more than is ever kept")
    if len({pin.id for pin in pins}) != len(pins):
        raise ValueError("a pin is there twice")
    return _Copy(int(content["revision"]), pins)


def _pin(  # noqa: PLR0913 - an entry's fields, and no others
    *,
    owner: str,
    tenant: str,
    namespace: str,
    generation: str,
    keys: str,
    budget: float,
    until_ms: int,
    tiers: list[str],
) -> Pin:
    data, name = base64.b64decode(keys, validate=True), bytes.fromhex(namespace)
    if not data or len(data) % DIGEST_BYTES or len(name) != DIGEST_BYTES:
        raise ValueError("digests of another size")
    if not 0 <= budget <= 1 or type(until_ms) is not int or not 0 <= until_ms < _LATEST_MS:
        raise ValueError("a budget or an end that cannot be")
    if not all(isinstance(text, str) for text in (owner, tenant, generation, *tiers)):
        raise TypeError("a name that is no text")
    starts = range(0, len(data), DIGEST_BYTES)
    return Pin(
        owner=owner,
        tenant=tenant,
        namespace=NamespaceId(name),
        generation=generation,
        keys=tuple(Key(data[start : start + DIGEST_BYTES]) for start in starts),
        share=budget,
        until_ms=until_ms,
        tiers=frozenset(tiers),
    )
