"""From an operator's words to the blocks that they name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pagoda.core.errors import RequestError
from pagoda.core.holdings import SHARED, Scope, Selection, tenant_id
from pagoda.core.identity import Key, Namespace, NamespaceId, chain
from pagoda.store.catalogue import Catalogue
from pagoda.store.census import namespaces_held
from pagoda.store.level import Level


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What the engine serves: the namespace of unsalted requests and the size of a block."""

    namespace: Namespace
    block_tokens: int
    block_bytes: int

    @property
    def generation(self) -> str:
        """Names these weights and settings, whatever the tenant."""
        return self.namespace.digest().hex()

    def namespace_of(self, salt: str) -> NamespaceId:
        """A tenant's namespace."""
        return replace(self.namespace, salt=salt).digest()

    def keys(self, prompt: Sequence[int], salt: str) -> list[Key]:
        """Keys of a prompt's full blocks."""
        return chain(self.namespace_of(salt), prompt, block_tokens=self.block_tokens)


class Scopes:
    """Reads scopes against what the tiers hold now. RequestError for what names nothing."""

    def __init__(
        self,
        levels: Sequence[Level],
        catalogue: Catalogue,
        *,
        served: Served,
        wall_ms: Callable[[], int],
    ) -> None:
        self._levels = levels
        self._catalogue = catalogue
        self._served = served
        self._wall_ms = wall_ms

    def selection(self, scope: Scope) -> Selection:
        """The scope as namespaces, a key and a time."""
        below = before_s = None
        if scope.prompt is not None:
            below = self._below(scope.prompt, scope.salt or "")
        if scope.older_than_s is not None:
            before_s = max(0, int(self._wall_ms() / 1000 - scope.older_than_s))
        return Selection(namespaces=self._namespaces(scope), below=below, before_s=before_s)

    def _namespaces(self, scope: Scope) -> frozenset[NamespaceId] | None:
        """Those that every part of the scope names; None when no part names any."""
        parts: list[set[NamespaceId]] = []
        if scope.tenant is not None:
            parts.append(self._of_tenant(scope.tenant))
        if scope.prompt is not None:
            parts.append({self._served.namespace_of(scope.salt or "")})
        elif scope.salt is not None:
            own = {self._served.namespace_of(scope.salt)}
            parts.append(self._catalogue.of_tenant(tenant_id(scope.salt)) | own)
        if scope.namespace is not None:
            parts.append({self._named(scope.namespace)})
        return frozenset(set.intersection(*parts)) if parts else None

    def _of_tenant(self, tenant: str) -> set[NamespaceId]:
        names = self._catalogue.of_tenant(tenant)
        if not names and tenant != SHARED:
            raise RequestError(
                f"no tenant {tenant} is known",
                param="tenant",
                code="not_found",
                remedy="`pagoda cache ls` shows those that are; a salt names its tenant, too",
            )
        return names

    def _named(self, beginning: str) -> NamespaceId:
        held = namespaces_held(self._levels) | {self._served.namespace.digest()}
        found = [name for name in held if name.hex().startswith(beginning.lower())]
        if len(found) != 1:
            many = "several namespaces begin" if found else "no namespace begins"
            raise RequestError(
                f"{many} with {beginning}",
                param="namespace",
                code="invalid_value" if found else "not_found",
                remedy="`pagoda cache ls --json` shows them in full",
            )
        return found[0]

    def _below(self, prompt: Sequence[int], salt: str) -> Key:
        keys = self._served.keys(prompt, salt)
        if not keys:
            raise RequestError(
                f"the prompt has {len(prompt)} tokens, and a block {self._served.block_tokens}",
                param="prompt",
                code="invalid_value",
                remedy="to clear every block of a tenant, name the tenant and no prompt",
            )
        return keys[-1]
