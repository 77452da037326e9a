"""What all parts of `pagoda bench engine` are given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pagoda.engine.api import Codec
from pagoda.lab.bench.words import Words
from pagoda.settings.tree import Check, Drive, Engine, Host, Model, Settings

MIB = 1 << 20

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The model, the machine's share, and how long to measure.

    `runs` counted alternations of each comparison; `directory` is on the drive to restore
    from; a `quick` setup shows that everything runs, and judges nothing.
    """

    model: Path
    directory: Path
    threads: int
    runs: int = 3
    quick: bool = False

    def judged(self, met: bool) -> bool | None:
        """The verdict, None of a quick run."""
        return None if self.quick else met

    def in_directory(self, name: str) -> Setup:
        """The same in a directory of its own."""
        return replace(self, directory=self.directory / name)

    def settings(self, *, kv_bytes: int, host_bytes: int, drive_bytes: int) -> Settings:
        """Settings of an engine in bf16; 0 bytes leave a tier out."""
        drive = Drive(path="off")
        if drive_bytes:
            drive = Drive(path=str(self.directory), capacity=drive_bytes, free_floor=0)
        return Settings(
            model=Model(path=str(self.model), dtype="bf16"),
            engine=Engine(threads=self.threads, kv_memory=kv_bytes),
            host=Host(capacity=host_bytes),
            drive=drive,
            check=Check(rate=0.0),  # no run is slower than others by chance
        )

    def to_json(self) -> dict[str, Any]:
        """For a child process."""
        return {
            "model": str(self.model),
            "directory": str(self.directory),
            "threads": self.threads,
            "runs": self.runs,
            "quick": self.quick,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Setup:
        return cls(
            model=Path(data["model"]),
            directory=Path(data["directory"]),
            threads=data["threads"],
            runs=data["runs"],
            quick=data["quick"],
        )


def prompt(codec: Codec, *, tokens: int, name: str) -> list[int]:
    """Exactly `tokens` tokens of text; another `name`, another text."""
    words = tokens  # a word is a token or more
    ids = codec.encode(Words(seed=0, name=name).document(words))
    assert len(ids) >= tokens, "the tokenizer makes less than a token of a word"
    return ids[:tokens]


def prompts(codec: Codec, *, count: int, shortest: int, longest: int) -> list[list[int]]:
    """`count` different prompts with lengths spread evenly from `shortest` to `longest`."""
    step = (longest - shortest) / max(1, count - 1)
    lengths = [longest if count == 1 else shortest + round(i * step) for i in range(count)]
    return [prompt(codec, tokens=n, name=f"prompt {i}") for i, n in enumerate(lengths)]
