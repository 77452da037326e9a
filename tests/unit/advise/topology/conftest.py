"""Hand-made matrices in the layout of `nvidia-smi topo -m`, and where the real ones lie."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

Links = Mapping[tuple[int, int], str]


@dataclass(frozen=True)
class Table:
    """A matrix to print: GPU ids, links by pair (or one for all), affinity by GPU, adapters."""

    ids: Sequence[int]
    links: Links = field(default_factory=dict)
    other: str = "SYS"
    places: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    adapters: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def cell(self, left: int, right: int) -> str:
        """The link of a pair, X on the diagonal."""
        if left == right:
            return " X "
        return self.links.get((left, right), self.links.get((right, left), self.other))

    def lines(self) -> list[str]:
        """The column line and the GPU rows, with tabs as nvidia-smi prints them."""
        names = [f"GPU{gpu}" for gpu in self.ids] + [f"NIC{k}" for k in range(len(self.adapters))]
        titles = ["CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]
        rows = ["\t".join(["", *names, *titles])]
        for k, gpu in enumerate(self.ids):
            cells = [self.cell(gpu, other) for other in self.ids]
            near = [links[k] for links in self.adapters.values()]
            cpus, numa = self.places.get(gpu, ("", "N/A"))
            rows.append("\t".join([f"GPU{gpu}", *cells, *near, cpus, numa, "", "N/A"]))
        return rows

    def text(self) -> str:
        """The whole output with the adapters' legend."""
        legend = [f"  NIC{k}: {name}" for k, name in enumerate(self.adapters)]
        return "\n".join([*self.lines(), "", "NIC Legend:", *legend]) + "\n"


def two_sockets(count: int) -> dict[int, tuple[str, str]]:
    """Places of GPUs, half on node 0 and half on node 1."""
    halves = (("0-31,64-95", "0"), ("32-63,96-127", "1"))
    return {gpu: halves[gpu * 2 // count] for gpu in range(count)}


def all_pairs(gpus: Sequence[int], link: str) -> dict[tuple[int, int], str]:
    """The same link between every two of some GPUs."""
    return {(a, b): link for k, a in enumerate(gpus) for b in gpus[k + 1 :]}


@pytest.fixture
def switched() -> Table:
    """Eight GPUs behind an NVSwitch, four on each socket, an adapter near GPU1 and GPU5."""
    near = [["SYS"] * 8, ["SYS"] * 8]
    near[0][1], near[1][5] = "PIX", "PIX"
    return Table(
        range(8),
        all_pairs(range(8), "NV18"),
        places=two_sockets(8),
        adapters={"mlx5_3": near[0], "mlx5_7": near[1]},
    )


@pytest.fixture
def mesh() -> Table:
    """A hybrid cube mesh: two quads of NV1 and NV2, joined at four corners, else SYS."""
    wide = {(0, 1), (2, 3), (0, 2), (4, 5), (6, 7), (4, 6), (1, 5)}
    narrow = {(0, 3), (1, 2), (1, 3), (4, 7), (5, 6), (5, 7), (0, 4), (2, 6), (3, 7)}
    links = dict.fromkeys(wide, "NV2") | dict.fromkeys(narrow, "NV1")
    return Table(range(8), links, places=two_sockets(8))


@pytest.fixture
def plain() -> Table:
    """Eight GPUs without NVLink: PIX pairs, NODE inside a socket, SYS between sockets."""
    links = all_pairs(range(4), "NODE") | all_pairs(range(4, 8), "NODE")
    links |= dict.fromkeys([(0, 1), (2, 3), (4, 5), (6, 7)], "PIX")
    return Table(range(8), links, places=two_sockets(8))


@pytest.fixture(params=["switched", "mesh", "plain"])
def table(request: pytest.FixtureRequest) -> Table:
    """Each of the three hosts."""
    found: Table = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def make() -> Callable[..., Table]:
    """The class itself, for matrices that a test draws."""
    return Table


def shared_files() -> Path:
    """Where the real matrices lie: PAGODA_SHARED, or `shared` beside the checkout."""
    beside = Path(__file__).resolve().parents[4].parent / "shared"
    return Path(os.environ.get("PAGODA_SHARED", beside)) / "data" / "topology"


@pytest.fixture
def shared() -> Path:
    """The directory of real matrices; skips by name without it."""
    directory = shared_files()
    if not directory.is_dir():
        pytest.skip("public topology files: not beside the checkout, nor in PAGODA_SHARED")
    return directory
