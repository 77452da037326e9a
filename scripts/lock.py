"""Rewrite constraints.txt: one exact version of everything that .venv may hold.

The newest versions that pyproject.toml admits are resolved once, for the oldest Python on
Linux x86-64 with torch's default (CUDA) build, whose closure contains every other one; then
each pin is checked to have a wheel for every Python and processor that Pagoda supports.
Nothing is downloaded but metadata. Reads PIP_ARGS. Run by `make lock`.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The version the measurements are made with; raised on purpose only. "===" refuses the local
# builds ("2.13.0+cpu") that a machine may prefer: they lack the CUDA libraries to be pinned.
TORCH = "torch===2.13.0"
PYTHONS = ("3.11", "3.12", "3.13")  # to pip "3.11" is 3.11.0: Debian 12 ships 3.11.2
MACHINES = ("x86_64", "aarch64")
GLIBC_MINORS = range(28, 4, -1)  # torch's wheels need glibc 2.28

HEADER = """\
# Written by `make lock`; do not edit. Exact versions for .venv, without hashes.
# A torch that .venv already holds and that pyproject.toml admits is kept (scripts/pins.py).
# The CUDA libraries come with torch's default Linux build; its CPU build ignores them.
"""


def requirements() -> list[str]:
    """All that pyproject.toml names: build system, base package and every extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"].values()
    names = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    return [TORCH, *names, *(name for extra in extras for name in extra)]


def platform_arguments(python: str, machine: str) -> list[str]:
    """pip's options that make it choose wheels for another interpreter."""
    tags = [f"manylinux_2_{minor}_{machine}" for minor in GLIBC_MINORS]
    tags += [f"manylinux2014_{machine}", f"manylinux2010_{machine}", f"manylinux1_{machine}"]
    options = ["--only-binary=:all:", "--implementation=cp", f"--python-version={python}"]
    return options + [f"--platform={tag}" for tag in tags]


def resolve(wanted: list[str], python: str, machine: str, *, deps: bool) -> list[str]:
    """The pins ("name==version", sorted) that pip would install; exits when it finds none."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed"]
        command += ["--quiet", "--report", str(report), "--target", str(Path(folder) / "target")]
        command += platform_arguments(python, machine) + ([] if deps else ["--no-deps"])
        command += shlex.split(os.environ.get("PIP_ARGS", ""))
        done = subprocess.run([*command, *wanted], check=False)
        if done.returncode != 0:
            sys.exit(f"no wheels for Python {python} on {machine}: see pip's message above")
        found = json.loads(report.read_text(encoding="utf-8"))["install"]
    pairs = [(item["metadata"]["name"], item["metadata"]["version"]) for item in found]
    # A local build ("2.13.0+cpu") is one machine's choice, never everyone's pin.
    return sorted((f"{name}=={v.partition('+')[0]}" for name, v in pairs), key=str.lower)


def main() -> None:
    """Resolve, check every supported Python and processor, write the file."""
    pins = resolve(requirements(), PYTHONS[0], MACHINES[0], deps=True)
    for python in PYTHONS:
        for machine in MACHINES:
            sys.stdout.write(f"checking wheels for Python {python} on {machine}\n")
            resolve(pins, python, machine, deps=False)
    (ROOT / "constraints.txt").write_text(HEADER + "\n".join(pins) + "\n", encoding="utf-8")
    sys.stdout.write(f"wrote constraints.txt: {len(pins)} pins\n")


if __name__ == "__main__":
    main()
