"""Which prefixes can be restored from several pools together.

A pool that holds every page of a prefix ends it where a page is missing; one that holds states or
windows serves the prefixes that end at one, and no others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def restorable(
    pages: int, found: Mapping[Any, Sequence[bool]], transfers: Iterable[Any]
) -> tuple[dict[Any, int], list[int]]:
    """By pool, how long a prefix it serves of one of `pages`; and the lengths, rising, that all of
    them serve. `found` says of each pool which pages it has, a transfer which of them it needs."""
    hits: dict[Any, int] = {"kv": pages} if pages else {}
    lengths = set(range(1, pages + 1))
    for transfer in transfers:
        own = _served(found[transfer.name], transfer)
        if own:
            hits[transfer.name] = max(own)
        lengths &= own
    return hits, sorted(lengths)


def _served(there: Sequence[bool], transfer: Any) -> set[int]:
    """Lengths of the prefixes that a pool serves."""
    policy = str(getattr(transfer.hit_policy, "value", transfer.hit_policy))
    if policy == "all_pages":
        whole = list(there).index(False) if False in there else len(there)
        return set(range(1, whole + 1))
    if policy == "trailing_pages":
        window = max(1, len(transfer.keys or ()))
        return {
            length
            for length in range(1, len(there) + 1)
            if all(there[max(0, length - window) : length])
        }
    return set()  # SGLang needs of it what is not known here
