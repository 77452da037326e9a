"""What PagodaStorage keeps apart, shares, and refuses."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sglang_fakes import (
    HostPool,
    MHATokenToKVPoolHost,
    MLATokenToKVPoolHost,
    bags_of,
    updater,
)
from sglang_host import (
    Host,
    entry,
    hosts,
    model_in,
    name_of,
    pool_of,
    random_page,
    soon,
)

from pagoda.core.errors import DirectoryLocked, PagodaError, SettingsError, UnsupportedModel

Build = Callable[..., Host]


def test_ranks_have_directories_and_pages_of_their_own(build: Build, tmp_path: Path) -> None:
    """Two ranks, two replicas and two stages share nothing but the path."""
    rng = random.Random(6)
    content = random_page(rng, pool_of())
    parts: list[dict[str, int]] = [
        {"tp_rank": 0, "tp_size": 2},
        {"tp_rank": 1, "tp_size": 2},
        {"tp_size": 2, "pp_rank": 1, "pp_size": 2},
        {"tp_size": 2, "dp_rank": 1},
    ]
    made = [build({"kv": pool_of("page_first_direct", MHATokenToKVPoolHost)}, **p) for p in parts]
    assert made[0].save([name_of(1)], [content])
    assert [host.storage.exists(name_of(1)) for host in made] == [True, False, False, False]
    found = sorted(str(p.relative_to(tmp_path / "kv")) for p in tmp_path.glob("kv/*/*/slab.pagoda"))
    ranks = ("tp-0", "tp-0-dp-1", "tp-0-pp-1", "tp-1")
    assert found == sorted(f"{rank}/kv/slab.pagoda" for rank in ranks)
    spaces = [host.volume().namespace for host in made]
    assert len(set(spaces)) == 3
    assert spaces[0] == spaces[3]  # replicas may share, through a shared store


def test_one_rank_writes_what_all_have_alike(build: Build, tmp_path: Path) -> None:
    """Ranks of a replicated cache name pages alike, and read what the writer shares; without a
    shared store they are refused, since none would ever be restored."""
    pytest.importorskip("obstore")
    latent = {"kv": pool_of("one segment", MLATokenToKVPoolHost)}
    with pytest.raises(SettingsError, match="one writes"):
        build(latent, is_mla_model=True, tp_size=2)
    (tmp_path / "shared").mkdir()
    shared = {"url": f"file://{tmp_path / 'shared'}"}
    made = []
    for rank in range(2):
        extra = entry(tmp_path / "kv")
        extra["settings"]["remote"] = shared
        pools = {"kv": pool_of("one segment", MLATokenToKVPoolHost)}
        made.append(build(pools, is_mla_model=True, tp_size=2, tp_rank=rank, **_own(extra)))
    names, rng = [name_of(1), name_of(2)], random.Random(7)
    contents = [random_page(rng, latent["kv"]) for _ in names]
    assert made[0].save(names, contents)
    soon(lambda: made[1].storage.batch_exists(names) == 2)
    assert made[1].load(names) == contents


def test_a_long_prefix_is_found_in_the_shared_store(build: Build, tmp_path: Path) -> None:
    """It is asked for a part at a time, until one is missing."""
    pytest.importorskip("obstore")
    (tmp_path / "shared").mkdir()
    pool = {"kv": HostPool([4096], pages=800)}
    names = [name_of(number) for number in range(700)]
    made = []
    for place in ("a", "b"):
        extra = entry(tmp_path / place)
        extra["settings"]["remote"] = {"url": f"file://{tmp_path / 'shared'}"}
        made.append(build({"kv": HostPool([4096], pages=800)}, directory=place, **_own(extra)))
    content = random_page(random.Random(13), pool["kv"])
    for first in range(0, len(names), 25):
        assert made[0].save(names[first : first + 25], [content] * 25)
        soon(lambda: not made[0].shelves.poll())  # they are in the shared store as well
    assert made[1].storage.batch_exists(names) == len(names)
    assert made[1].load(names[-3:]) == [content] * 3


def _own(extra: dict[str, Any]) -> dict[str, Any]:
    return {"settings": extra["settings"]}


def test_ranks_that_are_to_write_all_restore_each_for_itself(build: Build) -> None:
    """SGLang asks the configuration that it gave who writes, and hears that every rank does."""
    rng, content = random.Random(16), b""
    for rank in range(2):
        pool = pool_of("one segment", MLATokenToKVPoolHost)
        content = content or random_page(rng, pool)
        host = build(
            {"kv": pool}, each_rank_writes=True, is_mla_model=True, tp_rank=rank, tp_size=2
        )
        assert host.config.is_mla_model is False
        assert host.save([name_of(1)], [content])
        assert host.load([name_of(1)]) == [content]


def test_a_second_server_on_the_directory_is_refused(build: Build, tmp_path: Path) -> None:
    """The lock says who has it, when SGLang starts and not at the first request."""
    build()
    with pytest.raises(DirectoryLocked, match=str(tmp_path / "kv" / "tp-0")):
        build()


def test_a_failed_start_leaves_no_directory_locked(build: Build, tmp_path: Path) -> None:
    """The first pool's slab is given back when the second one's is somebody else's."""
    foreign = tmp_path / "kv" / "tp-0" / "mamba"
    foreign.mkdir(parents=True)
    (foreign / "slab.pagoda").write_bytes(b"not ours")
    with pytest.raises(PagodaError, match="mamba"):
        build({"kv": pool_of(), "mamba": HostPool([4096], tokens=1)})
    (foreign / "slab.pagoda").unlink()
    assert build({"kv": pool_of(), "mamba": HostPool([4096], tokens=1)}).volume("mamba")


def test_other_weights_salts_and_layouts_find_nothing(
    build: Build, tmp_path: Path, sglang_model: str
) -> None:
    """SGLang's names say nothing of them."""
    rng, pool = random.Random(8), pool_of()
    host = build()
    assert host.save([name_of(1)], [random_page(rng, pool)])
    host.storage.close()
    again = build()
    assert again.storage.exists(name_of(1))
    again.storage.close()
    for change in ("salt", "layout", "weights"):
        if change == "weights":
            model_in(Path(sglang_model), b"other")
        other = build(
            {"kv": pool_of("page_first_direct")} if change != "layout" else {"kv": _page_first()},
            **({"salt": "tenant"} if change == "salt" else {}),
        )
        assert not other.storage.exists(name_of(1)), change
        other.storage.close()


def _page_first() -> HostPool:
    """Pages of the same segments in another order of bytes."""
    return HostPool([8192, 8192], layout="page_first")


def test_nothing_is_stored_or_served_once_weights_were_updated(
    tmp_path: Path, sglang_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SGLang names pages as before: the old ones are not found, and no new ones are stored; nor
    does a backend that is attached later name them after the directory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    weights = updater()
    with hosts(tmp_path, sglang_model, updater=weights) as make:
        host = make(entry(tmp_path / "kv"), {"kv": pool_of()})
        content = random_page(random.Random(9), host.pools["kv"])
        assert host.save([name_of(1)], [content])
        assert host.load([name_of(1)]) == [content]
        assert weights().update_weights_from_tensor([1]) == [1]
        assert host.storage.batch_exists([name_of(1)]) == 0
        assert host.load([name_of(1)]) == [None]
        assert not host.save([name_of(2)], [content])
        with pytest.raises(PagodaError, match="weights were updated"):
            make(entry(tmp_path / "other"), {"kv": pool_of()})


@pytest.mark.parametrize(
    ("bag", "field", "value"),
    [
        ("lora", "enable_lora", True),
        ("lora", "lora_paths", ["a=b"]),
        ("model", "load_format", "dummy"),
        ("model", "kv_cache_dtype", "nvfp4"),
        ("model", "quantization_param_path", "scales.json"),
        ("model", "custom_weight_loader", ["x"]),
    ],
)
def test_what_names_of_pages_do_not_tell_apart_is_refused(
    tmp_path: Path, sglang_model: str, bag: str, field: str, value: Any
) -> None:
    """Adapters, other scales and other weights than those in the directory."""
    bags = bags_of(sglang_model)
    setattr(getattr(bags, bag), field, value)
    with hosts(tmp_path, sglang_model, bags) as make, pytest.raises(UnsupportedModel):
        make(entry(tmp_path / "kv"), {"kv": pool_of()})


def test_pools_that_cannot_be_stored_are_refused(build: Build) -> None:
    """Layouts that are not known, pages that move about, and pools without bytes."""
    unknown = HostPool([4096], layout="page_unified")
    with pytest.raises(UnsupportedModel, match="page_unified"):
        build({"kv": unknown})
    moving = HostPool([4096])
    moving.shared_allocation_domain = object()  # type: ignore[attr-defined]
    with pytest.raises(UnsupportedModel, match="move about"):
        build({"kv": moving})
    logical = HostPool([4096])
    logical.get_page_buffer_meta = lambda indices: None  # type: ignore[assignment,method-assign]
    with pytest.raises(UnsupportedModel, match="no bytes"):
        build({"kv": logical})


def test_entries_are_checked(build: Build) -> None:
    """A slip of the pen is told with what was meant."""
    for bad, message in (
        ({"setings": {}}, "did you mean settings"),
        ({"settings": [1]}, "settings is no tree"),
        ({"config": "a\0"}, "config is no path"),
        ({"salt": 7}, "salt is no text"),
        ({"salt": "\ud800"}, "half a character"),
        ({"kv_events": 7}, "kv_events is no text"),
        ({"each_rank_writes": 1}, "neither true nor false"),
        ({"settings": {"drive": {"pth": "/x"}}}, "pth"),
        ({"tp_lcm_size": 8}, "does not cut pages up"),
    ):
        with pytest.raises(SettingsError) as refused:
            build(**bad)
        assert message in f"{refused.value} {refused.value.remedy}"
