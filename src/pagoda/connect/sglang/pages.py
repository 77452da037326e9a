"""SGLang's host pools as memory of pages.

Where a pool says at which addresses a page lies, its segments are read and written in place; where
it does not, SGLang takes pages out and puts them in, through memory of our own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Protocol

import torch

from pagoda.core.errors import UnsupportedModel
from pagoda.machine.buffers import aligned_buffer

LAYOUTS = ("layer_first", "page_first", "page_first_direct", "page_first_kv_split", "page_head")

Buffers = list[list[memoryview]]  # of each page, its segments


class Pages(Protocol):
    """Pages of one pool: `count` of them, with `tokens` indices each. `sizes` are the bytes of
    their segments in order, `copied` counts pages that were copied in memory."""

    count: int
    tokens: int
    sizes: tuple[int, ...]
    copied: int

    def room(self, indices: Any) -> Buffers:
        """Where pages are to be read to."""
        ...

    def filled(self, indices: Any) -> Buffers:
        """The bytes of pages that are to be stored."""
        ...

    def take(self, indices: Any, buffers: Buffers, good: Sequence[bool]) -> None:
        """Have SGLang own what arrived."""
        ...


class InPlace:
    """Pages that are read and written where they lie in SGLang's host memory."""

    copied = 0

    def __init__(self, pool: Any, sizes: tuple[int, ...]) -> None:
        self._pool = pool
        self._memory = [one for one in vars(pool).values() if isinstance(one, torch.Tensor)]
        self.tokens = tokens_of(pool)
        self.count = _count_of(pool)
        self.sizes = sizes

    def room(self, indices: Any) -> Buffers:
        pointers, sizes = self._pool.get_page_buffer_meta(indices)
        width = len(self.sizes)
        pages = len(indices) // self.tokens
        assert len(pointers) == pages * width, "every page has the same segments"
        assert tuple(sizes[:width]) == self.sizes, "every page has segments of the same sizes"
        views = [_view(pointer, size) for pointer, size in zip(pointers, sizes, strict=True)]
        return [views[page * width : (page + 1) * width] for page in range(pages)]

    filled = room

    def take(self, indices: Any, buffers: Buffers, good: Sequence[bool]) -> None:
        """They lie there already."""


class Staged:
    """Pages whose places are known, through memory of our own: where too few can be set aside."""

    def __init__(self, places: InPlace) -> None:
        self._places = places
        self.count, self.tokens, self.sizes = places.count, places.tokens, places.sizes
        self.copied = 0

    def room(self, indices: Any) -> Buffers:
        pages = len(indices) // self.tokens
        return [[fresh(size) for size in self.sizes] for _ in range(pages)]

    def filled(self, indices: Any) -> Buffers:
        copies = self.room(indices)
        for copy, page in zip(copies, self._places.room(indices), strict=True):
            self._copy(page, copy)
        return copies

    def take(self, indices: Any, buffers: Buffers, good: Sequence[bool]) -> None:
        places = self._places.room(indices)
        for buffer, page, arrived in zip(buffers, places, good, strict=True):
            if arrived:
                self._copy(buffer, page)

    def _copy(self, source: Sequence[memoryview], target: Sequence[memoryview]) -> None:
        self.copied += 1
        for one, other in zip(source, target, strict=True):
            other[:] = one


class Flat:
    """Pages that SGLang takes out of its memory and puts in."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._blank = pool.get_dummy_flat_data_page()
        self.tokens = tokens_of(pool)
        self.count = _count_of(pool)
        self.sizes: tuple[int, ...] = (self._blank.numel() * self._blank.element_size(),)
        self.copied = 0

    def room(self, indices: Any) -> Buffers:
        return [[fresh(self.sizes[0])] for _ in range(len(indices) // self.tokens)]

    def filled(self, indices: Any) -> Buffers:
        pages = [self._pool.get_data_page(index) for index in self._starts(indices)]
        self.copied += len(pages)
        return [[copy_of(page)] for page in pages]

    def take(self, indices: Any, buffers: Buffers, good: Sequence[bool]) -> None:
        for start, (buffer,), arrived in zip(self._starts(indices), buffers, good, strict=True):
            if arrived:
                self.copied += 1
                page = torch.frombuffer(buffer, dtype=self._blank.dtype)
                self._pool.set_from_flat_data_page(start, page)

    def _starts(self, indices: Any) -> list[int]:
        return [int(index) for index in indices[:: self.tokens]]


def pages_of(pool: Any, name: str, *, in_place: bool = True) -> Pages:
    """The pages of a host pool. Raises UnsupportedModel for one whose bytes are not known."""
    _require_plain(pool, name)
    if in_place:
        try:
            meta = pool.get_page_buffer_meta(torch.arange(tokens_of(pool)))
        except (NotImplementedError, ValueError):
            meta = ()  # it tells no addresses in this layout
        if meta is None:
            raise _unsupported(name, f"{type(pool).__name__} holds no bytes of its own")
        if meta:
            return InPlace(pool, tuple(int(size) for size in meta[1]))
    try:
        return Flat(pool)
    except NotImplementedError as error:
        raise _unsupported(name, str(error)) from error


def tokens_of(pool: Any) -> int:
    """How many indices a page of a host pool has."""
    return int(pool.page_size) * int(getattr(pool, "dcp_size", 1))


def _count_of(pool: Any) -> int:
    return int(getattr(pool, "logical_size", pool.size)) // tokens_of(pool)


def layout_of(pool: Any, name: str, pages: Pages) -> Mapping[str, Any]:
    """The order of bytes inside a page, as far as it can be told: for a namespace."""
    return {
        "pool": name,
        "class": type(pool).__name__,
        "order": str(pool.layout),
        "format": getattr(pool, "storage_format_tag", None),
        "flat": isinstance(pages, Flat),
        "dtype": str(pool.dtype),
        "tokens": pages.tokens,
        "segments": list(pages.sizes),
        "layers": int(getattr(pool, "layer_num", 0)),
        "first_layer": int(getattr(pool, "start_layer", 0) or 0),
    }


def is_shared(pool: Any, name: str, *, replicated: bool) -> bool:
    """Whether all tensor-parallel ranks hold the same bytes in this pool: Mamba's state and the
    heads of plain attention are cut up even beside a replicated cache."""
    plain = any(base.__name__.startswith("MHA") for base in type(pool).__mro__)
    return replicated and not plain and name != "mamba"


def fresh(size_bytes: int) -> memoryview:
    """Page-aligned memory of our own."""
    return memoryview(aligned_buffer(size_bytes))[:size_bytes]


def copy_of(tensor: Any) -> memoryview:
    """A tensor's bytes, in page-aligned memory of our own."""
    flat = bytes_of(tensor)
    copy = fresh(len(flat))
    copy[:] = flat
    return copy


def is_room(target: Any) -> bool:
    """Whether a page can be read into a tensor: of one that lies in pieces a copy would be
    filled."""
    return target is not None and bool(target.is_contiguous())


def bytes_of(tensor: Any) -> memoryview:
    """A contiguous tensor's memory."""
    return memoryview(tensor.contiguous().view(torch.uint8).reshape(-1).numpy())


def _require_plain(pool: Any, name: str) -> None:
    if pool.layout not in LAYOUTS:
        raise _unsupported(name, f"the layout {pool.layout} is not known")
    if getattr(pool, "shared_allocation_domain", None) is not None:
        raise _unsupported(name, "pages move about in its memory")


def _unsupported(name: str, why: str) -> UnsupportedModel:
    return UnsupportedModel(
        f"pages of SGLang's host pool {name!r} cannot be stored: {why}",
        path="",
        feature=f"host pool {name}",
        remedy="choose another --hicache-mem-layout, or start SGLang without PagodaStorage",
    )


@cache
def _array(size_bytes: int) -> Any:
    return ctypes.c_ubyte * size_bytes


def _view(pointer: int, size_bytes: int) -> memoryview:
    """Memory at an address; whoever holds it sees to it that it stays."""
    return memoryview(_array(size_bytes).from_address(pointer)).cast("B")
