"""What is known of the namespaces in the tiers: whose they are, of which weights, how long they
live. Kept as a small file in each drive's directory, so that it survives with the blocks.

A namespace is a digest: from it alone nobody can tell a tenant, or old weights from new. So
whoever makes one writes down what it is made of. What a crash keeps from being written down is
learnt again when the tenant next asks; until then its blocks count as `unknown`.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagoda.core.errors import RequestError
from pagoda.core.holdings import SHARED, Ttl
from pagoda.core.identity import DIGEST_BYTES, NamespaceId
from pagoda.store import kept

NAME = "catalogue.json"
VERSION = 1
_EVERYBODY = "*"
_TENANT = re.compile(rf"{SHARED}|[0-9a-f]{{16}}")  # what `tenant_id` makes
_LIMIT_ENTRIES = 65_536  # namespaces; tenants choose salts, and must not fill the drive
_log = logging.getLogger("pagoda.store")


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose a namespace is, and the generation it belongs to: the namespace of unsalted
    requests under the same weights and settings, in hex."""

    tenant: str
    generation: str


@dataclass(frozen=True, slots=True)
class _Copy:
    """What one drive's file says."""

    revision: int
    origins: dict[NamespaceId, Origin]
    ttls: dict[str | None, float]


class Catalogue:
    """Namespaces and times to live. Owner's thread, but for `write`, which is given a text.

    Raises FormatError for a file of a newer version and for something that is no file: both
    are left as they are. A damaged copy is told and passed over.
    """

    def __init__(self, directories: Sequence[Path]) -> None:
        self._places = [directory / NAME for directory in directories]
        self._origins: dict[NamespaceId, Origin] = {}  # last met last
        self._ttls: dict[str | None, float] = {}
        self._revision = 0
        self.changed = False
        copies = [copy for place in self._places if (copy := _read(place)) is not None]
        if copies:  # a drive that was away has an older one
            newest = max(copies, key=lambda copy: copy.revision)
            self._revision = newest.revision
            self._origins, self._ttls = newest.origins, newest.ttls

    def meet(self, namespace: NamespaceId, origin: Origin) -> None:
        """A request's namespace. The least recently met is forgotten beyond 65,536."""
        known = self._origins.pop(namespace, None)
        self._origins[namespace] = origin
        if known != origin:
            self.changed = True
        if len(self._origins) > _LIMIT_ENTRIES:
            del self._origins[next(iter(self._origins))]

    def origin(self, namespace: NamespaceId) -> Origin | None:
        """What is known of a namespace."""
        return self._origins.get(namespace)

    def of_tenant(self, tenant: str) -> set[NamespaceId]:
        """Every namespace that a tenant has, under whatever weights."""
        return {name for name, origin in self._origins.items() if origin.tenant == tenant}

    def retain(self, held: Iterable[NamespaceId], generation: str) -> None:
        """Forget what no tier holds any more and is not of the generation that is served."""
        present = set(held)
        for name, origin in list(self._origins.items()):
            if name not in present and origin.generation != generation:
                del self._origins[name]
                self.changed = True

    def ttl(self, namespace: NamespaceId) -> float | None:
        """How long blocks of a namespace live; None: until their place is needed."""
        origin = self._origins.get(namespace)
        own = self._ttls.get(origin.tenant) if origin is not None else None
        return own if own is not None else self._ttls.get(None)

    def set_ttl(self, tenant: str | None, seconds: float | None) -> None:
        """Set or remove a tenant's, or everybody's. RequestError for what is no tenant's id:
        a time that nobody's blocks have would be believed in."""
        if tenant is not None and not _TENANT.fullmatch(tenant):
            raise RequestError(
                f"{tenant} is no tenant's id",
                param="tenant",
                code="invalid_value",
                remedy="`pagoda cache ls` shows ids; a salt names its tenant, too",
            )
        if seconds is None:
            self._ttls.pop(tenant, None)
        else:
            self._ttls[tenant] = seconds
        self.changed = True

    def ttls(self) -> list[Ttl]:
        """All that are set, the one for everybody first."""
        return [
            Ttl(tenant=tenant, seconds=seconds)
            for tenant, seconds in sorted(self._ttls.items(), key=lambda item: item[0] or "")
        ]

    def text(self) -> str:
        """What to write; counts as written from now on."""
        self._revision += 1
        self.changed = False
        content = {
            "revision": self._revision,
            "namespaces": {
                name.hex(): [origin.tenant, origin.generation]
                for name, origin in self._origins.items()
            },
            "ttl_s": {tenant or _EVERYBODY: seconds for tenant, seconds in self._ttls.items()},
        }
        return kept.text_of(content, version=VERSION)

    def write(self, text: str) -> bool:
        """In an I/O thread: every copy anew, each whole or not at all. False when one could not
        be written."""
        whole = True
        for place in self._places:
            try:
                kept.replace_copy(place, text)
            except OSError as error:
                _log.warning("cannot write %s: %s", place, error.strerror)
                whole = False
        return whole


def _read(place: Path) -> _Copy | None:
    """A sound copy; None when there is none, or it cannot be read."""
    try:
        content = kept.read_content(place, version=VERSION)
        return None if content is None else _parse(content)
    except kept.DAMAGES:
        _log.error(
            "%s is damaged: tenants are learnt anew, and times to live that were set are lost "
            "unless another drive has them",
            place,
        )
        return None


def _parse(content: dict[str, Any]) -> _Copy:
    """Raises ValueError and its like for what cannot be."""
    origins = {
        NamespaceId(bytes.fromhex(name)): Origin(str(tenant), str(generation))
        for name, (tenant, generation) in content["namespaces"].items()
        if len(name) == 2 * DIGEST_BYTES
    }
    ttls = {
        None if tenant == _EVERYBODY else tenant: float(seconds)
        for tenant, seconds in content["ttl_s"].items()
    }
    if not all(math.isfinite(seconds) and seconds > 0 for seconds in ttls.values()):
        raise ValueError("a time to live that cannot be")
    return _Copy(int(content["revision"]), origins, ttls)
