"""The tree of settings: what can be set, its type, its default and what it means.

Every section is a frozen value. Sizes are bytes and durations are seconds once parsed; in
files, variables and flags they carry a unit ("4GiB", "30s"). `settings.load` fills the tree.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, field_validator

from pagoda.settings.units import parse_duration, parse_size


def _whole(value: object) -> object:
    """Refuses what pydantic would round or cast: neither true nor 3.0 is a count."""
    if isinstance(value, bool | float):
        raise ValueError("must be a whole number")  # noqa: TRY004 - pydantic reports ValueError
    return value


def _directories(value: object) -> object:
    """Several directories as one text, commas between them; each is there once."""
    if isinstance(value, list):
        good = [isinstance(path, str) and path and "," not in path for path in value]
        if not good or not all(good):
            raise ValueError("must be a list of directories without commas in their names")
        value = ",".join(value)
    if isinstance(value, str) and value:
        paths = [path.strip() for path in value.split(",")]
        if not all(paths):
            raise ValueError("has an empty directory between two commas")
        if len(paths) > 1 and "off" in paths:
            raise ValueError("is both off and a directory")
        if len({os.path.realpath(os.path.expanduser(path)) for path in paths}) < len(paths):  # noqa: PTH111 - of nobody's home it raises
            raise ValueError("names a directory twice")
        return ",".join(paths)
    return value


def _finite(value: object) -> object:
    """Refuses what pydantic would cast, and what is no number."""
    if isinstance(value, bool):
        raise ValueError("must be a number")  # noqa: TRY004 - pydantic reports ValueError
    return value


Number = Annotated[float, BeforeValidator(_finite), Field(allow_inf_nan=False)]
Size = Annotated[int, BeforeValidator(parse_size)]
Duration = Annotated[float, BeforeValidator(parse_duration)]
Count = Annotated[int, BeforeValidator(_whole)]
Switch = Literal["auto", "on", "off"]
# Those of core.policy.REGISTRY, in its order.
Policy = Literal[
    "heat",
    "lru",
    "lru-2",
    "arc",
    "s3-fifo",
    "sieve",
    "lfu",
    "gdsf",
    "recent-window",
    "ema",
    "ema-literal",
]


def user_directory(variable: str, fallback: str, environ: Mapping[str, str]) -> Path:
    """One of the user's base directories: XDG_CACHE_HOME or ~/.cache, and so on. The XDG
    specification has relative and empty values ignored."""
    value = environ.get(variable, "")
    return Path(value) if value.startswith("/") else Path.home() / fallback


MIB, GIB = 1 << 20, 1 << 30
_FILES = ("key_file", "ca_file", "password_file", "api_key_file")


class Section(BaseModel):
    """A frozen group of settings; unknown keys are refused, bad values are never echoed by
    pydantic (they may be secrets)."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_nul(cls, value: object) -> object:
        """No file, name or address has one: the system refuses it, by no name of ours."""
        if isinstance(value, str) and "\0" in value:
            raise ValueError("holds a NUL character")
        return value

    @field_validator("path", "record", *_FILES, mode="before", check_fields=False)
    @classmethod
    def _known_home(cls, value: object) -> object:
        """A path that begins with ~user needs a user of that name."""
        paths = value.split(",") if isinstance(value, str) else []
        if any(os.path.expanduser(path.strip()).startswith("~") for path in paths):  # noqa: PTH111
            raise ValueError("names the home directory of nobody")
        return value


class Model(Section):
    """Which model is served."""

    path: str = Field(default="", description="Directory of the model, in Hugging Face's layout.")
    name: str = Field(default="", description="Name clients ask for; empty: the directory's name.")
    dtype: Literal["auto", "bf16", "fp32"] = Field(
        default="auto",
        description="Type of weights and KV; auto: the type the weights are stored in.",
    )
    fingerprint: Literal["full", "sampled"] = Field(
        default="full",
        description="What names the weights: a digest of every byte, cached beside them, or of "
        "headers and 8 MiB of samples a file.",
    )

    @property
    def served_name(self) -> str:
        """The name clients ask for."""
        return self.name or Path(self.path).expanduser().resolve().name


class Engine(Section):
    """How much the engine computes at a time, and with what."""

    threads: Count = Field(
        default=0, ge=0, le=4096, description="Threads that compute; 0: every core."
    )
    native: Switch = Field(
        default="auto",
        description="Compiled kernels; on: refuse to start without them; off: torch only.",
    )
    context_tokens: Count = Field(
        default=0, ge=0, description="Longest prompt and answer together; 0: the model's own limit."
    )
    kv_memory: Size = Field(
        default=GIB, ge=MIB, description="Memory for the KV of running requests."
    )
    max_sequences: Count = Field(
        default=32, ge=1, le=4096, description="Requests computed at a time."
    )
    chunk_tokens: Count = Field(
        default=512,
        ge=64,
        multiple_of=64,
        description="Prompt tokens in one step; a multiple of 64.",
    )
    policy: Policy = Field(
        default="heat",
        description="Which blocks make room first: heat: those that are least likely to be asked "
        "for again soon, as is learned from requests; lru: those not used for longest.",
    )


class Host(Section):
    """The tier in main memory."""

    # Twice the KV of the longest conversation of a small model: one spill on its way down while
    # the next one fills.
    capacity: Size = Field(
        default=512 * MIB,
        description="Main memory for KV blocks, best twice the KV of the longest context; 0: no "
        "such tier.",
    )
    pinned: Switch = Field(
        default="auto",
        description="Pin that memory for GPUs; auto: where CUDA is; on: refuse to start without.",
    )
    policy: Policy = Field(
        default="heat", description="Which blocks make room first; see engine.policy."
    )


class Drive(Section):
    """The tier on drives: one directory each, written and read side by side."""

    path: Annotated[str, BeforeValidator(_directories)] = Field(
        default="",
        description="Directories, one a drive, with commas between them (in a file, a list will "
        "do); empty: pagoda/kv in the user's cache directory; off: no such tier.",
    )
    capacity: Size = Field(
        default=4 * GIB, ge=MIB, description="The slab of each drive never grows beyond this."
    )
    free_floor: Size = Field(
        default=2 * GIB,
        description="Space left free on each file system, always: with less, nothing is written.",
    )
    admission: Literal["reuse", "twice", "all"] = Field(
        default="reuse",
        description="Which blocks are written once a drive is full: those that are expected to be "
        "used often enough, by what blocks like them were; those used twice; or all.",
    )
    policy: Policy = Field(
        default="lru",
        description="Which blocks make room first; see engine.policy. In so much room policies "
        "differ by less, and lru needs the least memory and time for a restart.",
    )
    writes_per_day: Number = Field(
        default=1.0,
        ge=0,
        le=1000,
        description="How often a day the whole of a drive (its file system) may be written, so "
        "that it lasts; 0: no limit.",
    )
    total_writes: Size = Field(
        default=0, description="Bytes that may be written to each drive in all; 0: no limit."
    )
    key_file: str = Field(
        default="",
        description="Keys that blocks are encrypted with, one id:key a line, the current one "
        "first; empty: who can read the slab can read the prompts in it.",
    )
    codec: Literal["raw", "lossless"] = Field(
        default="raw", description="How blocks are stored: as they are, or compressed."
    )
    direct: Switch = Field(
        default="auto", description="O_DIRECT; on: refuse to start without it; off: buffered."
    )
    io_threads: Count = Field(default=4, ge=1, le=256, description="Reads and writes at a time.")

    def directories(self, environ: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
        """Where the slabs live, one a drive; none when the tier is off."""
        if self.path == "off":
            return ()
        if self.path:
            return tuple(Path(path).expanduser() for path in self.path.split(","))
        return (user_directory("XDG_CACHE_HOME", ".cache", environ) / "pagoda" / "kv",)


class Remote(Section):
    """A store that several nodes share, below the local tiers."""

    url: str = Field(
        default="",
        description="redis://, rediss:// or unix:// (Valkey, Redis), s3://, gs://, az:// or "
        "file:// (a shared directory), without credentials; empty: no such tier.",
    )
    user: str = Field(
        default="",
        description="User of Valkey or Redis, or the access key of S3; empty: the default user, "
        "or what the environment (AWS_…) says.",
    )
    password: SecretStr = Field(
        default=SecretStr(""), description="The user's password, or the secret access key."
    )
    password_file: str = Field(
        default="",
        description="File that holds the password, for secrets mounted into a container.",
    )
    ca_file: str = Field(
        default="", description="Certificate authorities to trust; empty: this machine's."
    )
    endpoint: str = Field(
        default="", description="Address of a server that speaks S3; empty: Amazon's."
    )
    region: str = Field(default="", description="Region of an S3 bucket; empty: us-east-1.")
    key_file: str = Field(
        default="",
        description="Keys that protect blocks, one id:key a line, the current one first; empty: "
        "whoever can write to the store can plant a block.",
    )
    protection: Literal["encrypt", "sign"] = Field(
        default="encrypt",
        description="What the keys do: encrypt keeps blocks secret and proves who wrote them, "
        "sign only proves it.",
    )
    codec: Literal["raw", "lossless"] = Field(
        default="raw", description="How blocks are stored: as they are, or compressed."
    )
    ttl: Duration = Field(
        default=0.0,
        ge=0,
        description="How long Valkey or Redis keeps a block; 0: until it evicts it.",
    )
    deadline: Duration = Field(
        default=2.0, gt=0, description="What one call to the store may take."
    )
    probe_deadline: Duration = Field(
        default=0.25, gt=0, description="How long a request waits to hear what the store has."
    )
    queue: Size = Field(
        default=256 * MIB, description="Blocks that may wait to be shared; more are dropped."
    )
    connections: Count = Field(
        default=8, ge=1, le=256, description="Requests to an object store at a time."
    )


class Store(Section):
    """Deadlines and upkeep of the cache."""

    restore_deadline: Duration = Field(
        default=2.0, gt=0, description="A block not restored by then is computed instead."
    )
    write_deadline: Duration = Field(
        default=30.0, gt=0, description="A block not written by then is dropped and counted."
    )
    flush_deadline: Duration = Field(
        default=20.0, ge=0, description="How long a shutdown writes what is still pending."
    )
    scrub_rate: Size = Field(
        default=4 * MIB, description="Bytes a second of cold blocks read and verified; 0: none."
    )
    scrub_interval: Duration = Field(
        default=86_400.0,
        gt=0,
        description="From the beginning of one pass over a tier to the next one's.",
    )


class Check(Section):
    """The sampled check of what is stored: blocks computed again and compared."""

    rate: Number = Field(
        default=0.001,
        ge=0,
        le=1,
        description="Share of the requests with a cached prefix that compute it again, to hold the "
        "stored blocks against it; a wrong block puts its namespace into quarantine. In a "
        "connector 0 unless it is set; 0: no checks.",
    )
    tokens: Count = Field(
        default=4096,
        ge=16,
        description="How many tokens of such a request are computed again at most: the last "
        "that were cached.",
    )


class Pins(Section):
    """What may be pinned, in shares of each tier (0.5 is half of it), and for how long."""

    total: Number = Field(
        default=0.5, ge=0, le=0.7, description="What all pins together may have; 0: no pins."
    )
    owner: Number = Field(
        default=0.25, ge=0, le=0.7, description="What the pins of one owner may have."
    )
    automatic: Number = Field(
        default=0.0,
        ge=0,
        le=0.25,
        description="What the hottest blocks have beside that, pinned without being asked for; "
        "0: none.",
    )
    expires: Duration = Field(
        default=86_400.0, gt=0, description="How long a pin lasts when nothing else is said."
    )
    longest: Duration = Field(
        default=30 * 86_400.0, ge=0, description="How long a pin may last; 0: ten years."
    )


class Server(Section):
    """The HTTP server."""

    host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="Address to listen on; any other than loopback needs an API key.",
    )
    port: Count = Field(
        default=8000, ge=0, le=65_535, description="Port to listen on; 0: any free one."
    )
    api_key: SecretStr = Field(
        default=SecretStr(""), description="Key that clients must send; empty: none is asked for."
    )
    api_key_file: str = Field(
        default="", description="File that holds the API key, for secrets mounted into a container."
    )
    max_body: Size = Field(default=8 * MIB, ge=1024, description="Largest request body.")
    max_connections: Count = Field(default=512, ge=1, description="Open connections at a time.")
    max_waiting: Count = Field(
        default=256, ge=1, description="Requests that may wait for the engine; more get status 429."
    )
    shutdown_grace: Duration = Field(
        default=30.0, ge=0, description="How long running answers may take to end at shutdown."
    )
    record: str = Field(
        default="",
        description="New file for a recording of requests, as salted hashes, that `pagoda replay` "
        "reads; empty: none is made.",
    )


class Log(Section):
    """What is logged, to standard error. Prompts, answers and keys never are."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least serious message that is shown."
    )
    format: Literal["text", "json"] = Field(
        default="text", description="Lines for people, or one JSON object a line."
    )


class Settings(Section):
    """All settings. `Settings()` is every default."""

    model: Model = Model()
    engine: Engine = Engine()
    host: Host = Host()
    drive: Drive = Drive()
    remote: Remote = Remote()
    store: Store = Store()
    check: Check = Check()
    pins: Pins = Pins()
    server: Server = Server()
    log: Log = Log()
