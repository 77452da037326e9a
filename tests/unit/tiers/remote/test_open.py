"""Opening a shared store by its address."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pagoda.core.errors import TierFault
from pagoda.tiers.remote.objects import ObjectTier
from pagoda.tiers.remote.open import RemoteConfig, open_shared
from pagoda.tiers.remote.redis import RedisTier

WITHOUT_CLIENTS = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"redis", "obstore"}:
            raise ModuleNotFoundError("No module named " + repr(name), name=name)

sys.meta_path.insert(0, Absent())
import pagoda.store.shared, pagoda.testing.shared_conformance, pagoda.settings
from pagoda.core.errors import TierFault
from pagoda.tiers.remote.open import RemoteConfig, open_shared
for url in ("redis://h/0", "s3://bucket/x"):
    try:
        open_shared(RemoteConfig(url=url))
    except TierFault as error:
        print(error)
"""


def test_the_scheme_chooses_the_client(tmp_path):
    """Nothing is connected to yet."""
    pytest.importorskip("redis")
    pytest.importorskip("obstore")
    for url in ("redis://h/0", "rediss://h", "unix:///s"):
        assert isinstance(open_shared(RemoteConfig(url=url)), RedisTier)
    for url in ("s3://b/p", f"file://{tmp_path}"):
        assert isinstance(open_shared(RemoteConfig(url=url)), ObjectTier)


@pytest.mark.parametrize("url", ["", "nothing", "ftp://h/s3cret", "http://u:s3cret@h"])
def test_an_unknown_scheme_is_refused_with_the_known_ones(url):
    """The rest of the address is not repeated."""
    with pytest.raises(TierFault, match="no shared store") as info:
        open_shared(RemoteConfig(url=url))
    assert "redis://" in info.value.remedy
    assert "s3://" in info.value.remedy
    assert "s3cret" not in str(info.value)


@pytest.mark.parametrize("url", ["redis://u:s3cret@[::1/0", "s3://[s3cret/x"])
def test_half_an_ipv6_address_is_refused(url):
    """As any other address that is none."""
    with pytest.raises(TierFault, match="no address") as info:
        open_shared(RemoteConfig(url=url))
    assert "s3cret" not in str(info.value)


@pytest.mark.parametrize("content", [None, b"", b"no certificate"])
@pytest.mark.parametrize("url", ["rediss://h/0", "s3://bucket/x"])
def test_authorities_that_cannot_be_read_are_named_at_the_start(tmp_path, url, content):
    """Later it would look like a server that cannot be reached."""
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(TierFault, match=r"remote\.ca_file") as info:
        open_shared(RemoteConfig(url=url, ca_file=str(file)))
    assert "PEM" in info.value.remedy


def test_without_the_clients_all_imports_and_opening_says_what_to_install():
    """`pip install pagoda-kv` alone."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_CLIENTS],
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
    )
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert all("pip install 'pagoda-kv[remote]'" in line for line in lines)
