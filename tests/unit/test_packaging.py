"""The wheel and the source distribution: what they hold and what they ask for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from pagoda import __version__

ROOT = Path(__file__).resolve().parents[2]
# vLLM and SGLang pin these to what their kernels were built against.
NEVER_IN_THE_BASE = {"torch", "transformers", "safetensors", "triton", "vllm", "sglang"}
PYTHONS = ("3.11", "3.12", "3.13")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the source distribution and the wheel made from it.

    Built from a copy, without network and with a compiler that does not exist: the C kernels
    are optional, so this must work.
    """
    source = tmp_path_factory.mktemp("source")
    generated = shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT / "src", source / "src", ignore=generated)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", "dist"]
    done = subprocess.run(
        command,
        cwd=source,
        env={**os.environ, "CC": "/nonexistent/cc"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return source / "dist"


@pytest.fixture(scope="module")
def wheel(built: Path) -> zipfile.ZipFile:
    """The wheel, open."""
    (path,) = built.glob("*.whl")
    return zipfile.ZipFile(path)


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    """The wheel's METADATA."""
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    return Parser().parsestr(wheel.read(name).decode())


def requirements(metadata: Message, extra: str, python: str) -> dict[str, Requirement]:
    """What an installation with `extra` ("" for none) asks for on Linux, by name."""
    environment = {"extra": extra, "python_version": python, "sys_platform": "linux"}
    wanted = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]
    return {
        requirement.name.lower(): requirement
        for requirement in wanted
        if requirement.marker is None or requirement.marker.evaluate(environment)
    }


@pytest.mark.parametrize("python", PYTHONS)
def test_the_base_package_replaces_no_torch(metadata, python):
    """Installing Pagoda beside vLLM or SGLang must leave their torch alone."""
    base = requirements(metadata, "", python)
    assert base, "the metadata names no requirement at all"
    assert not NEVER_IN_THE_BASE & base.keys()


@pytest.mark.parametrize("python", PYTHONS)
def test_the_engine_extra_takes_any_torch_in_range(metadata, python):
    """`pagoda-kv[engine]` admits torch 2.6 up to but not including 3."""
    torch = requirements(metadata, "engine", python)["torch"].specifier
    admitted = {v: torch.contains(v) for v in ("2.5.1", "2.6.0", "2.13.0+cpu", "2.99", "3.0.0")}
    assert admitted == {
        "2.5.1": False,
        "2.6.0": True,
        "2.13.0+cpu": True,
        "2.99": True,
        "3.0.0": False,
    }


def test_name_version_and_pythons(metadata):
    """The distribution is pagoda-kv of the package's own version, for Python 3.11 to 3.13."""
    assert metadata["Name"] == "pagoda-kv"
    assert metadata["Version"] == __version__
    assert set(metadata["Requires-Python"].split(",")) == {">=3.11", "<3.14"}
    assert metadata["License-Expression"] == "Apache-2.0"


def test_the_wheel_names_its_licence_and_its_command(wheel):
    """The licence's text is in, and `pagoda` is a command."""
    info = f"pagoda_kv-{__version__}.dist-info"
    assert f"{info}/licenses/LICENSE" in wheel.namelist()
    assert "pagoda = pagoda.cli.main:run" in wheel.read(f"{info}/entry_points.txt").decode()


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(wheel):
    """Modules, py.typed and data; no tests, no C sources, no kernels without a compiler."""
    package = ROOT / "src" / "pagoda"
    files = {str(p.relative_to(ROOT / "src")) for p in package.rglob("*") if p.is_file()}
    generated = {name for name in files if name.endswith((".so", ".pyc"))}
    sources = {name for name in files if name.startswith("pagoda/_native/")}
    packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert packed == files - generated - sources
    assert {"pagoda/py.typed", "pagoda/lab/convert_gguf.py"} <= packed


def test_the_source_distribution_holds_what_the_kernels_need(built):
    """A machine with a compiler can build the C kernels from it: sources and headers are in."""
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    native = {str(p.relative_to(ROOT)) for p in (ROOT / "src/pagoda/_native").glob("*.[ch]")}
    assert native
    assert native <= names


def pins() -> dict[str, str]:
    """constraints.txt by name."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {name.lower().replace("_", "-"): version for name, version in pairs}


def test_the_constraints_pin_everything_that_the_project_names():
    """Each requirement of every extra has one exact pin, without hashes, that it admits."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    named = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    for extra in project["project"]["optional-dependencies"].values():
        named += extra
    pinned = pins()
    for requirement in map(Requirement, named):
        assert requirement.specifier.contains(pinned[requirement.name]), requirement.name
    assert pinned["torch"] == "2.13.0"
