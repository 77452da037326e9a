"""Object stores: a directory, and S3 through the real client against a double."""

from __future__ import annotations

import resource
import socket
import stat
from collections.abc import Iterator

import pytest
from s3_double import S3Double, serving

from pagoda.core.errors import TierError, TierFault, TierFull, TierReadOnly, TierTimeout
from pagoda.tiers.remote.objects import ObjectConfig, ObjectTier

pytest.importorskip("obstore")

NAME = "ab" * 32 + "/" + "cd" * 32
VALUE = [memoryview(b"header"), memoryview(b"payload")]


def refusal(tier: ObjectTier, *, reading: bool = False) -> TierError:
    """What a call is refused with; texts hold neither names nor secrets."""
    with pytest.raises(TierError) as info:
        tier.get([NAME], 100) if reading else tier.put([NAME], [VALUE])
    assert "cd" * 8 not in str(info.value)
    assert "s3cret" not in str(info.value)
    assert info.value.__cause__ is None
    assert info.value.remedy
    return info.value


@pytest.fixture
def double() -> S3Double:
    return S3Double(access_key="mine")


@pytest.fixture
def endpoint(double: S3Double) -> Iterator[str]:
    with serving(double) as address:
        yield address


def bucket(endpoint: str, **options: object) -> ObjectTier:
    fixed = {"url": "s3://kv/pre", "user": "mine", "password": "s3cret", "timeout_s": 20.0}
    return ObjectTier(ObjectConfig(**fixed | {"endpoint": endpoint} | options))


@pytest.mark.parametrize(
    "url",
    [
        "ftp://h/x",
        "file:relative",
        "file://host/x",
        "s3://u:s3cret@h",
        "s3://b?key=s3cret",
        "s3://[::1/s3cret",
        "s3:///prefix",
        "az://account",
    ],
)
def test_a_bad_address_is_refused_with_examples_and_without_its_secrets(url):
    """Credentials and options do not belong into it."""
    with pytest.raises(TierFault, match="no address of an object store") as info:
        ObjectTier(ObjectConfig(url=url))
    assert "s3://bucket/prefix" in info.value.remedy
    assert "s3cret" not in str(info.value)


@pytest.mark.parametrize("endpoint", ["minio:9000", "not an address", "http://", "ftp://h"])
def test_an_endpoint_that_is_no_address_is_refused_at_the_start(endpoint):
    """Not at every call."""
    with pytest.raises(TierFault, match=r"remote\.endpoint"):
        bucket(endpoint)


def test_objects_lie_below_the_prefix(double, endpoint):
    """Other things in the bucket are neither listed nor touched."""
    double.objects["other"] = b"x"
    tier = bucket(endpoint)
    tier.put([NAME], [VALUE])
    assert double.objects == {"other": b"x", f"pre/{NAME}": b"headerpayload"}
    assert list(tier.names("")) == [NAME]


def test_one_write_is_one_request_however_large(double, endpoint):
    """No multipart upload that could be left half done."""
    bucket(endpoint).put([NAME], [[memoryview(bytes(12 << 20))]])
    assert double.requests == ["PUT"]


def test_many_names_are_deleted_in_one_request(double, endpoint):
    """Clearing a tenant is not a request a block."""
    tier = bucket(endpoint)
    names = [f"{'ab' * 32}/{i:064x}" for i in range(20)]
    tier.put(names, [VALUE] * 20)
    double.requests.clear()
    tier.drop(names)
    assert double.requests == ["POST"]
    assert double.objects == {}


@pytest.mark.parametrize(
    ("status", "reading", "kind"),
    [
        (503, False, TierFault),
        (503, True, TierFault),
        (507, False, TierFull),
        (403, False, TierReadOnly),
        (403, True, TierFault),
        (401, True, TierFault),
    ],
)
def test_statuses_map_into_the_error_tree(double, endpoint, status, reading, kind):
    """Each with a remedy; what only writing lacks leaves reading alone."""
    double.status = status
    assert type(refusal(bucket(endpoint), reading=reading)) is kind


def test_a_wrong_access_key_is_refused_with_the_settings_to_change(endpoint):
    """The double knows one key."""
    error = refusal(bucket(endpoint, user="other"), reading=True)
    assert "password_file" in error.remedy


def test_a_missing_bucket_is_named_on_writing(endpoint):
    """Reading from it is a miss: object stores do not tell the two apart."""
    tier = bucket(endpoint, url="s3://nobody/pre")
    assert "no such bucket" in refusal(tier).message
    assert tier.get([NAME], 100) == [None]


def test_a_store_that_does_not_answer_is_a_timeout():
    """Requests are bounded."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        tier = bucket(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.1)
        assert isinstance(refusal(tier), TierTimeout)


def test_a_store_that_is_down_is_a_fault():
    """Nobody listens on port 1."""
    error = refusal(bucket("http://127.0.0.1:1"))
    assert type(error) is TierFault
    assert "cannot be reached" in error.message


def test_a_directory_is_made_for_its_owner_alone(tmp_path):
    """KV reveals prompts."""
    ObjectTier(ObjectConfig(url=f"file://{tmp_path}/new%20kv")).put([NAME], [VALUE])
    assert stat.S_IMODE((tmp_path / "new kv").stat().st_mode) == 0o700
    assert (tmp_path / "new kv" / NAME).read_bytes() == b"headerpayload"


def test_what_an_interrupted_write_left_is_not_a_value(tmp_path):
    """A temporary file is neither listed nor found, and a later write of the name works."""
    tier = ObjectTier(ObjectConfig(url=f"file://{tmp_path}"))
    leftover = tmp_path / f"{NAME}#1"
    leftover.parent.mkdir()
    leftover.write_bytes(b"head")
    assert list(tier.names("")) == []
    assert tier.has([NAME]) == [False]
    tier.put([NAME], [VALUE])
    assert tier.get([NAME], 100) == [memoryview(b"headerpayload")]


def test_a_file_is_replaced_not_rewritten(tmp_path):
    """A reader that has the old file open keeps the whole old value: writes are renames."""
    tier = ObjectTier(ObjectConfig(url=f"file://{tmp_path}"))
    tier.put([NAME], [VALUE])
    with (tmp_path / NAME).open("rb") as old:
        tier.put([NAME], [[memoryview(b"new")]])
        assert old.read() == b"headerpayload"
    assert (tmp_path / NAME).read_bytes() == b"new"


def test_a_directory_that_takes_no_more_is_full(tmp_path):
    """Stood in for by the process's limit on a file's size, which is ENOSPC's neighbour."""
    tier = ObjectTier(ObjectConfig(url=f"file://{tmp_path}"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(TierFull, match="no space"):
            tier.put([NAME], [[memoryview(bytes(8192))]])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert tier.has([NAME]) == [False]


def test_a_directory_that_cannot_be_written_is_read_only():
    """/sys takes no files from anybody."""
    tier = ObjectTier(ObjectConfig(url="file:///sys"))
    assert isinstance(refusal(tier), TierReadOnly)
    assert tier.get([NAME], 100) == [None]


def test_a_path_that_is_a_file_is_refused(tmp_path):
    """Named, with what to change."""
    (tmp_path / "f").write_bytes(b"")
    with pytest.raises(TierFault, match="File exists"):
        ObjectTier(ObjectConfig(url=f"file://{tmp_path}/f"))
