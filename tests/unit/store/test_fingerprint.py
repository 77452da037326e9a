"""What names the weights: their bytes, all of them or samples, and a cache that never lies."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from xxhash import xxh3_128_digest

from pagoda.core.errors import ModelError, ModelNotFound
from pagoda.core.identity import Namespace, chain
from pagoda.store import fingerprint
from pagoda.store.fingerprint import Mode, weights_fingerprint
from pagoda.store.fingerprint_cache import NAME

LATER_NS = 4_000_000_000_000_000_000  # past any file's times: every file has settled
SAMPLED_WHOLE = 512 * (16 << 10)


def name_of(path: Path, mode: Mode = "full", fallback: Path | None = None) -> bytes:
    """The fingerprint, long after the last write."""
    found = weights_fingerprint(path, mode=mode, fallback=fallback, now_ns=lambda: LATER_NS)
    return found.digest


def safetensors(path: Path, payload: bytes, header: bytes = b'{"w":{}}') -> bytes:
    """Write a file in safetensors' frame; returns its bytes."""
    content = len(header).to_bytes(8, "little") + header + payload
    path.write_bytes(content)
    return content


def gguf(path: Path, payload: bytes, *, vocabulary: tuple[bytes, ...] = (b"a", b"bc")) -> bytes:
    """Write a GGUF file with an integer, a list of texts, a list of numbers and one tensor."""

    def text(value: bytes) -> bytes:
        return struct.pack("<Q", len(value)) + value

    content = b"GGUF" + struct.pack("<IQQ", 3, 1, 3)
    content += text(b"depth") + struct.pack("<II", 4, 7)
    words = b"".join(map(text, vocabulary))
    content += text(b"tokens") + struct.pack("<IIQ", 9, 8, len(vocabulary)) + words
    content += text(b"scores") + struct.pack("<IIQ", 9, 6, 2) + struct.pack("<ff", 0, 1)
    content += text(b"w") + struct.pack("<IQQIQ", 2, 4, 4, 0, 0)
    path.write_bytes(content + payload)
    return content


def test_the_full_fingerprint_is_the_documented_one(tmp_path: Path) -> None:
    """SHA-256 over domain, sizes and digests, in order of name: formats do not matter."""
    second = safetensors(tmp_path / "b.safetensors", b"2" * 100)
    first = gguf(tmp_path / "a.gguf", b"1" * 10) + b"1" * 10
    (tmp_path / "config.json").write_text("{}")
    parts = [len(f).to_bytes(8, "little") + xxh3_128_digest(f) for f in (first, second)]
    expected = hashlib.sha256(b"pagoda.weights.v1\0" + b"".join(parts)).digest()
    assert name_of(tmp_path) == expected


def test_a_single_gguf_file_can_be_named(tmp_path: Path) -> None:
    """A model that is one file is named by that file alone, whatever lies beside it."""
    gguf(tmp_path / "a.gguf", b"1")
    alone = name_of(tmp_path / "a.gguf")
    gguf(tmp_path / "b.gguf", b"2")
    assert name_of(tmp_path / "a.gguf") == alone != name_of(tmp_path)


@pytest.mark.parametrize("mode", ["full", "sampled"])
def test_names_follow_content_not_places(tmp_path: Path, mode: Mode) -> None:
    """A copy elsewhere has the same fingerprint; one changed byte gives another."""
    for place in ("one", "two", "other"):
        (tmp_path / place).mkdir()
        safetensors(tmp_path / place / "m.safetensors", b"7" * 5000)
    safetensors(tmp_path / "other" / "m.safetensors", b"7" * 4999 + b"8")
    names = [name_of(tmp_path / place, mode) for place in ("one", "two", "other")]
    assert names[0] == names[1] != names[2]


def test_full_and_sampled_never_mix(tmp_path: Path) -> None:
    """Their domains differ, so that neither can take the other's blocks for its own."""
    safetensors(tmp_path / "m.safetensors", b"")
    assert name_of(tmp_path, "full") != name_of(tmp_path, "sampled")
    assert name_of(tmp_path, "full") != name_of(tmp_path, "sampled"), "nor do they in the cache"


def test_samples_cover_the_header_both_ends_and_every_part(tmp_path: Path) -> None:
    """Of a large file: a change of the header, of the size, or of any run of two parts is seen."""
    size = 2 * SAMPLED_WHOLE
    names = set()
    path = tmp_path / "m.safetensors"
    part = size // 512
    for change in [None, 0, 100 * part, 511 * part - part]:
        payload = bytearray(size)
        if change is not None:
            payload[change : change + 2 * part] = b"\1" * (2 * part)
        safetensors(path, bytes(payload))
        names.add(name_of(tmp_path, "sampled"))
    safetensors(path, bytes(size), header=b'{"v":{}}')
    names.add(name_of(tmp_path, "sampled"))
    safetensors(path, bytes(size + 1))
    names.add(name_of(tmp_path, "sampled"))
    assert len(names) == 6


def test_samples_lie_where_the_specification_says() -> None:
    """The example of docs/design/identity.md; 512 of 16 KiB, none beyond its part."""
    found = list(fingerprint._samples(96, 20_000_000))
    assert [first for first, _ in found[:3]] == [4641, 54944, 80023]
    assert found[-1] == (19_980_832, 16_384)
    assert len(found) == 512
    assert list(fingerprint._samples(96, 5000)) == [(96, 4904)]


def test_a_sampled_fingerprint_can_miss_what_full_sees(tmp_path: Path) -> None:
    """The price that identity.md names: a change between the samples. Full stays the default."""
    path = tmp_path / "m.safetensors"
    payload = bytearray(4 * SAMPLED_WHOLE)
    header = len(safetensors(path, bytes(payload))) - len(payload)
    before = {mode: name_of(tmp_path, mode) for mode in ("full", "sampled")}
    read = {
        at
        for first, n in fingerprint._samples(header, header + len(payload))
        for at in (first, first + n - 1)
    }
    missed = next(
        at
        for at in range(header + 20_000, header + len(payload), 20_000)
        if all(abs(at - seen) > 20_000 for seen in read)
    )
    payload[missed - header] ^= 1
    safetensors(path, bytes(payload))
    assert name_of(tmp_path, "sampled") == before["sampled"]
    assert name_of(tmp_path, "full") != before["full"]


def test_a_ggufs_header_is_sampled_whole(tmp_path: Path) -> None:
    """A changed vocabulary of the same size is another model."""
    path = tmp_path / "m.gguf"
    gguf(path, bytes(2 * SAMPLED_WHOLE))
    before = name_of(tmp_path, "sampled")
    gguf(path, bytes(2 * SAMPLED_WHOLE), vocabulary=(b"a", b"bd"))
    assert name_of(tmp_path, "sampled") != before


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"GGUF",
        b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60),
        b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**63 - 1) + b"x" * 64,
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<QI", 0, 99),
        b"GGUF" + struct.pack("<IQQ", 1, 0, 0),
        b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
        b"\xff" * 64,
        (1 << 40).to_bytes(8, "little") + b"{}",
    ],
)
def test_a_damaged_header_is_named_when_it_is_sampled(tmp_path: Path, content: bytes) -> None:
    """Refused with the file's name; a digest of every byte needs no header."""
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"m\.gguf") as refused:
        name_of(tmp_path, "sampled")
    assert refused.value.remedy
    assert name_of(tmp_path, "full")


def test_a_directory_without_weights_is_named(tmp_path: Path) -> None:
    """The remedy is part of it."""
    with pytest.raises(ModelNotFound, match="safetensors"):
        name_of(tmp_path)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of files whose bytes were digested."""
    seen: list[str] = []
    real = fingerprint._digest_of

    def spy(file: Path, *rest: object) -> bytes:
        seen.append(file.name)
        return real(file, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(fingerprint, "_digest_of", spy)
    return seen


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model of two files."""
    directory = tmp_path / "model"
    directory.mkdir()
    for name in "ab":
        safetensors(directory / f"{name}.safetensors", name.encode() * 1000)
    return directory


def test_a_second_start_reads_nothing(model: Path, reads: list[str]) -> None:
    """Both kinds are remembered beside each other."""
    first = [name_of(model, mode) for mode in ("full", "sampled")]
    assert len(reads) == 4
    assert [name_of(model, mode) for mode in ("full", "sampled")] == first
    assert len(reads) == 4


def test_only_the_changed_file_is_read_again(model: Path, reads: list[str]) -> None:
    """One shard of many: the others' digests still stand, in either kind."""
    before = name_of(model)
    name_of(model, "sampled")
    reads.clear()
    safetensors(model / "b.safetensors", b"c" * 1000)
    assert name_of(model) != before
    assert reads == ["b.safetensors"]
    reads.clear()
    name_of(model, "sampled")
    assert reads == ["b.safetensors"], "the digest of the other kind was the old content's"


def test_a_change_that_hides_its_mtime_is_seen(model: Path, reads: list[str]) -> None:
    """Same name, size and mtime, as `cp -p` and `touch -d` make them: other times tell."""
    before = name_of(model)
    path = model / "a.safetensors"
    times = path.stat()
    safetensors(path, b"x" * 1000)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert name_of(model) != before


@pytest.mark.parametrize("field", range(5))
def test_any_difference_of_the_stamp_counts(model: Path, reads: list[str], field: int) -> None:
    """Size, both times, inode and device: a cache that states another is not believed."""
    before = name_of(model)
    cache = json.loads((model / NAME).read_text())
    entry = cache["files"]["a.safetensors"]
    entry["stamp"][field] += 1
    entry["full"] = "00" * 16
    canonical = json.dumps(cache["files"], sort_keys=True).encode()
    cache["check"] = hashlib.sha256(canonical).hexdigest()
    (model / NAME).write_text(json.dumps(cache))
    reads.clear()
    assert name_of(model) == before
    assert reads == ["a.safetensors"]


def damage_version(text: str) -> str:
    """A version from the future."""
    return json.dumps(json.loads(text) | {"version": 2})


def damage_digest(text: str) -> str:
    """One flipped digit of a digest."""
    tree = json.loads(text)
    digest = tree["files"]["a.safetensors"]["full"]
    tree["files"]["a.safetensors"]["full"] = ("0" if digest[0] != "0" else "1") + digest[1:]
    return json.dumps(tree)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: "[]",
        lambda text: '{"version": 1}',
        lambda text: "[" * 100_000,
        damage_version,
        damage_digest,
    ],
)
def test_a_damaged_cache_is_computed_anew(
    model: Path, reads: list[str], damage: Callable[[str], str]
) -> None:
    """It is not believed, not fatal, and sound again afterwards."""
    before = name_of(model)
    (model / NAME).write_text(damage((model / NAME).read_text()))
    reads.clear()
    assert name_of(model) == before
    assert len(reads) == 2
    name_of(model)
    assert len(reads) == 2


def test_a_file_that_is_too_young_is_not_cached(model: Path, reads: list[str]) -> None:
    """Changed again within the same tick it would keep its times: nothing is remembered."""
    (model / "b.safetensors").unlink()
    changed_ns = (model / "a.safetensors").stat().st_ctime_ns
    for age_ns in (0, 1_999_999_999, -5):  # the last: a file server whose clock is ahead
        weights_fingerprint(model, now_ns=lambda age_ns=age_ns: changed_ns + age_ns)
    assert not (model / NAME).exists()
    weights_fingerprint(model, now_ns=lambda: changed_ns + 2_000_000_000)
    assert (model / NAME).exists()


def test_a_directory_that_cannot_be_written_is_cached_elsewhere(
    model: Path, tmp_path: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the user's directory, under the name of the weights' directory and no other's."""
    real = fingerprint.FingerprintCache.save.__globals__["_replace"]

    def read_only(place: Path, text: str) -> None:
        if place.parent == model:
            raise OSError(30, "Read-only file system")
        real(place, text)

    monkeypatch.setitem(fingerprint.FingerprintCache.save.__globals__, "_replace", read_only)
    before = name_of(model, fallback=tmp_path / "user" / "cache")
    reads.clear()
    assert name_of(model, fallback=tmp_path / "user" / "cache") == before
    assert reads == []
    assert not (model / NAME).exists()
    assert name_of(model) == before, "without such a directory it is read each time"
    assert len(reads) == 2


def test_a_file_that_changes_while_it_is_read_is_refused(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A download that still runs has no name."""
    real = fingerprint._full_digest

    def grow(file: Path) -> bytes:
        with file.open("ab") as stream:
            stream.write(b"more")
        return real(file)

    monkeypatch.setattr(fingerprint, "_full_digest", grow)
    with pytest.raises(ModelError, match="changed while it was read"):
        name_of(model)
    assert not (model / NAME).exists()


def test_what_changes_between_digest_and_load_is_noticed(model: Path) -> None:
    """The engine confirms the stamps once the weights are loaded."""
    found = weights_fingerprint(model)
    found.confirm()
    safetensors(model / "b.safetensors", b"z" * 1000)
    with pytest.raises(ModelError, match=r"b\.safetensors changed"):
        found.confirm()


def test_new_weights_are_another_namespace(model: Path) -> None:
    """Equal tokens have other keys under new weights: no old block can be found any more."""

    def keys() -> set[bytes]:
        namespace = Namespace(
            weights=name_of(model), config="{}", layout="l", dtype="bfloat16", scales="none",
            layers=1, kv_heads=1, head_dim=64, block_tokens=16, tp_rank=0, tp_size=1,
            pp_rank=0, pp_size=1, rope="", adapter="", salt="",
        )  # fmt: skip
        return set(chain(namespace.digest(), list(range(64)), block_tokens=16))

    before = keys()
    safetensors(model / "b.safetensors", b"y" * 1000)
    assert len(before) == 4
    assert not before & keys()
