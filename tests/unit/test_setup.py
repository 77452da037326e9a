"""scripts/setup.sh on machines that lack something: each lack is named with its remedy."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SETUP = Path(__file__).resolve().parents[2] / "scripts" / "setup.sh"


class Machine:
    """A machine of scripts: a PATH that holds the basic tools and the commands it is given."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        for tool in ("sh", "awk", "dirname", "uname", "df", "rm"):
            found = shutil.which(tool)
            assert found, f"{tool} is missing here"
            (self.bin / tool).symlink_to(found)

    def command(self, name: str, body: str) -> None:
        """Give the machine a command."""
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def python(self, name: str, version: str, *, venv: bool = True) -> None:
        """Give it an interpreter: it tells its version, has venv or not, and makes no more."""
        has_venv = "exit 0" if venv else "exit 1"
        self.command(
            name,
            f'case "$*" in *version_info*) echo {version};; *ensurepip*) {has_venv};; '
            f'"-m venv"*) echo made by {name}; exit 3;; esac',
        )

    def setup(self, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run setup.sh there."""
        return subprocess.run(
            ["/bin/sh", str(SETUP), str(self.folder / "venv"), "engine"],
            env={"PATH": str(self.bin), "HOME": str(self.folder), **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with 50 GB of disk and no Python."""
    made = Machine(tmp_path)
    made.command("df", disk(gigabytes=50))
    return made


def disk(gigabytes: int) -> str:
    """What `df -Pk .` says on a disk with that much space free."""
    return f"echo Filesystem Blocks Used Available; echo /dev/x 9 9 {gigabytes * 1_000_000} 9 /"


def test_no_python_is_said_with_a_way_to_get_one(machine):
    """The message names the versions that fit, and what to install."""
    done = machine.setup()
    assert done.returncode == 1
    assert "no Python 3.11, 3.12 or 3.13 was found" in done.stderr
    assert "apt install python3" in done.stderr


def test_a_python_without_venv_is_said_with_its_package(machine):
    """Debian's Python comes without venv; the package's name carries the version."""
    machine.python("python3", "3.12", venv=False)
    done = machine.setup()
    assert done.returncode == 1
    assert "venv or ensurepip is missing" in done.stderr
    assert "apt install python3.12-venv" in done.stderr


def test_the_newest_python_that_fits_makes_the_environment(machine):
    """A newer one without venv is passed over; PYTHON overrules the choice."""
    machine.python("python3.13", "3.13", venv=False)
    machine.python("python3.12", "3.12")
    machine.python("python3.11", "3.11")
    assert "made by python3.12" in machine.setup().stdout
    assert "made by python3.11" in machine.setup(PYTHON="python3.11").stdout


def test_too_little_disk_is_said_with_both_numbers(machine):
    """5 GB stop the set-up; 8 GB are enough for torch's CPU build only, and that is said."""
    machine.python("python3.13", "3.13")
    machine.command("df", disk(gigabytes=5))
    done = machine.setup()
    assert done.returncode == 1
    assert "5 GB of disk are free here; 6 GB are needed" in done.stderr
    machine.command("uname", "echo Linux")
    machine.command("df", disk(gigabytes=8))
    assert "not for the CUDA build (10 GB)" in machine.setup().stdout


def test_an_unknown_system_is_refused(machine):
    """Windows is told about WSL before anything is made."""
    machine.command("uname", "echo MINGW64_NT")
    done = machine.setup()
    assert done.returncode == 1
    assert "WSL" in done.stderr
    assert list(machine.folder.iterdir()) == [machine.bin]
