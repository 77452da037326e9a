"""Slabs as tests of drives make them."""

from __future__ import annotations

from pathlib import Path

from pagoda.seal.digest import digest
from pagoda.tiers.drive import DriveConfig, DriveTier, slab


def slab_of(config: DriveConfig) -> Path:
    """The slab's file."""
    return config.directory / slab.SLAB_NAME


def make(config: DriveConfig) -> Path:
    """Create a slab and close it."""
    DriveTier(config).close()
    return slab_of(config)


def rewrite_super(path: Path, offset: int, value: bytes) -> None:
    """Change a superblock and give it a right digest again."""
    data = bytearray(path.read_bytes()[:4096])
    data[offset : offset + len(value)] = value
    data[4080:] = digest(bytes(data[:4080]))
    with path.open("r+b") as file:
        file.write(data)
