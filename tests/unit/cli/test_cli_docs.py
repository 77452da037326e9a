"""The generated reference pages are those that the code would generate now."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pagoda.cli.docs import main, pages

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"


@pytest.mark.parametrize("name", sorted(pages()))
def test_the_page_has_not_drifted(name: str) -> None:
    """When this fails: `python -m pagoda.cli.docs docs/reference`, and commit the result."""
    assert (REFERENCE / name).read_text(encoding="utf-8") == pages()[name]


def test_the_generator_writes_every_page(tmp_path: Path) -> None:
    """It writes what `pages` says."""
    main(tmp_path)
    written = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    assert written == pages()


@pytest.mark.parametrize("arguments", [[], ["--help"], ["no-such-directory"]])
def test_a_mistyped_directory_is_not_made(arguments: list[str], tmp_path: Path) -> None:
    """`--help` once became a folder of that name in the checkout."""
    done = subprocess.run(
        [sys.executable, "-m", "pagoda.cli.docs", *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("usage: ")
    assert list(tmp_path.iterdir()) == []


def test_no_page_depends_on_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the terminal's width nor the environment changes a page."""
    before = pages()
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("PAGODA_DRIVE_CAPACITY", "8GiB")
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert pages() == before
    assert not any(str(Path.home()) in page for page in before.values())
