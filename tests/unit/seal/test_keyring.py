"""Key files: what is read, what is refused, and what is never shown."""

from __future__ import annotations

import os
import pickle
import traceback
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from seal_samples import NEW, OLD

from pagoda.core.errors import SettingsError
from pagoda.seal.keyring import Keyring, expand, read_keyring


def key_file(directory: Path, text: str | bytes, *, mode: int = 0o600) -> Path:
    path = directory / "keys"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return path


def test_the_first_key_is_the_current_one(tmp_path: Path) -> None:
    """Comments and empty lines aside, keys are read in the file's order."""
    text = f"# rotated in March\n\n 7:{NEW.hex().upper()}\n1:{OLD.hex()}  \n"
    ring = read_keyring(key_file(tmp_path, text), setting="drive.key_file")
    assert ring.current == 7
    same = Keyring({7: NEW, 1: OLD})
    for key_id in (1, 7):
        assert ring.encryption_key(key_id) == same.encryption_key(key_id)
        assert ring.mac_key(key_id) == same.mac_key(key_id)
    assert ring.encryption_key(2) is ring.mac_key(2) is None


def test_sub_keys_are_hkdf_and_differ() -> None:
    """Derived as the format document says, checked against another implementation."""
    ring = Keyring({1: OLD})
    labels = [b"pagoda.seal.aes-256-gcm.v1\0", b"pagoda.seal.blake3-mac.v1\0"]
    expected = [HKDFExpand(algorithm=SHA256(), length=32, info=x).derive(OLD) for x in labels]
    assert [ring.encryption_key(1), ring.mac_key(1)] == expected
    assert len({*expected, OLD}) == 3
    assert expand(OLD, b"x") == HKDFExpand(algorithm=SHA256(), length=32, info=b"x").derive(OLD)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o601, 0o666])
def test_a_file_that_others_may_touch_is_refused(tmp_path: Path, mode: int) -> None:
    """The remedy is the command that mends it."""
    path = key_file(tmp_path, f"1:{OLD.hex()}\n", mode=mode)
    with pytest.raises(SettingsError, match="others may read or write it") as caught:
        read_keyring(path, setting="drive.key_file")
    assert caught.value.remedy == f"chmod 600 {path}"
    assert (caught.value.key, caught.value.source) == ("drive.key_file", str(path))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no key"),
        ("# nothing yet\n", "no key"),
        (f"1:{OLD.hex()}\n1:{NEW.hex()}\n", "line 2 repeats key 1"),
        (f"0:{OLD.hex()}\n", "line 1"),
        (f"4294967296:{OLD.hex()}\n", "line 1"),
        (f"-1:{OLD.hex()}\n", "line 1"),
        (f"1:{OLD.hex()}0\n", "line 1"),
        (f"1:{OLD.hex()[:-2]}\n", "line 1"),
        (f"\n#\n1:{OLD.hex()[:-1]}g\n", "line 3"),
        (f"{OLD.hex()}\n", "line 1"),
        (f"1:{OLD.hex()} # mine\n", "line 1"),
        (f"1:{OLD.hex()}\n".encode() + b"\xff", "no text of keys"),
        (b"#" * 70_000, "no text of keys"),
    ],
)
def test_what_is_no_key_is_refused_and_not_shown(
    tmp_path: Path, text: str | bytes, why: str
) -> None:
    """The error names the line; neither it nor its traceback holds the line's content."""
    with pytest.raises(SettingsError, match=why) as caught:
        read_keyring(key_file(tmp_path, text), setting="drive.key_file")
    shown = "".join(traceback.format_exception(caught.value)) + str(vars(caught.value))
    assert OLD.hex()[:-2] not in shown
    assert NEW.hex()[:-2] not in shown


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    """Missing, a directory, or a pipe that nobody writes to: an error at once."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    cases = {tmp_path / "absent": "No such file", tmp_path: "no regular", pipe: "no regular"}
    for path, why in cases.items():
        with pytest.raises(SettingsError, match=why) as caught:
            read_keyring(path, setting="drive.key_file")
        assert str(path) in str(caught.value)
        assert caught.value.remedy


def test_a_keyring_shows_ids_only() -> None:
    """Neither repr, nor format, nor pickle gives key material away."""
    ring = Keyring({2: NEW, 1: OLD})
    assert repr(ring) == str(ring) == f"{ring}" == "Keyring(current=2, ids=[1, 2])"
    with pytest.raises(TypeError, match="not copied"):
        pickle.dumps(ring)
