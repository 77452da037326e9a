"""Loading settings: precedence, origins, and errors that name the key and the source."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr, ValidationError

from pagoda.core.errors import SettingsError
from pagoda.settings import Origin, Rank, Settings, is_loopback, load, load_file, resolve
from pagoda.settings.keys import Key, all_keys
from pagoda.settings.sources import Layer, flag_layer, mapping_layer

SAMPLES = {
    "size": "3MiB",
    "duration": "7s",
    "integer": "128",
    "number": "0.125",
    "text": "x",
    "secret": "hush",
}
# Texts that not every text will do for; files of secrets are made by the tests.
PARTICULAR = {"server.host": "::1", "remote.url": "redis://h/0"}
SECRET_FILES = {
    "server.api_key_file": "server.api_key",
    "remote.password_file": "remote.password",
}


def sample(key: Key) -> str:
    """A valid text for a key that differs from its default."""
    if key.choices:
        return next(choice for choice in key.choices if choice != key.default)
    return PARTICULAR.get(key.name, SAMPLES[key.kind])


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment whose configuration directory is empty."""
    return {"XDG_CONFIG_HOME": str(tmp_path / "xdg")}


def toml(path: Path, text: str) -> Path:
    """Write a settings file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_nothing_set_gives_the_defaults(tmp_path: Path, home: dict[str, str]) -> None:
    """Without sources the tree is `Settings()` and every origin is the default."""
    resolved = load(directory=tmp_path, environ=home)
    assert resolved.settings == Settings()
    assert {str(origin) for _, _, origin in resolved.rows()} == {"default"}


@pytest.mark.parametrize("key", all_keys(), ids=lambda key: key.name)
def test_every_key_from_every_source(key: Key, tmp_path: Path, home: dict[str, str]) -> None:
    """Each key can be set by file, variable and flag, and its origin says which."""
    text = sample(key)
    if key.name in SECRET_FILES:
        text = str(toml(tmp_path / "x", "hush"))
    toml(tmp_path / "pagoda.toml", f'[{key.section}]\n{key.field} = "{text}"\n')
    by_file = load(directory=tmp_path, environ=home)
    by_variable = load(directory=tmp_path, environ={**home, key.variable: text})
    values = {key.value_in(by_file.settings), key.value_in(by_variable.settings)}
    assert str(by_file.origins[key.name]) == str(tmp_path / "pagoda.toml")
    assert str(by_variable.origins[key.name]) == key.variable
    if key.flag:
        by_flag = load(directory=tmp_path, environ=home, flags={key.name: text})
        assert str(by_flag.origins[key.name]) == key.flag
        values.add(key.value_in(by_flag.settings))
    assert len(values) == 1
    assert values != {key.default}


@given(st.sets(st.sampled_from([Rank.FILE, Rank.ENVIRONMENT, Rank.FLAG])))
def test_the_strongest_source_wins(ranks: set[Rank]) -> None:
    """Of any set of sources the highest decides, value and origin both."""
    layers: list[Layer] = [
        {"engine.threads": (int(rank), Origin(rank, rank.name))} for rank in sorted(ranks)
    ]
    resolved = resolve(layers)
    strongest = max(ranks, default=Rank.DEFAULT)
    assert resolved.settings.engine.threads == int(strongest)
    assert resolved.origins["engine.threads"].rank == strongest


def test_the_first_file_found_is_the_only_one(tmp_path: Path, home: dict[str, str]) -> None:
    """--config, then PAGODA_CONFIG, then ./pagoda.toml, then the user's: one file is read."""
    files = {
        name: toml(path, f"[engine]\nthreads = {threads}\n")
        for name, path, threads in (
            ("user", tmp_path / "xdg" / "pagoda" / "pagoda.toml", 1),
            ("here", tmp_path / "pagoda.toml", 2),
            ("variable", tmp_path / "v.toml", 3),
            ("flag", tmp_path / "f.toml", 4),
        )
    }
    environ = {**home, "PAGODA_CONFIG": str(files["variable"])}

    def threads(**given: object) -> int:
        return load(directory=tmp_path, **given).settings.engine.threads  # type: ignore[arg-type]

    assert threads(environ=environ, config=str(files["flag"])) == 4
    assert threads(environ=environ) == 3
    assert threads(environ=home) == 2
    files["here"].unlink()
    assert threads(environ=home) == 1


@pytest.mark.parametrize(
    ("tree", "key", "remedy"),
    [
        ({"drive": {"capcity": "1GiB"}}, "drive.capcity", "drive.capacity"),
        ({"drvie": {"capacity": "1GiB"}}, "drvie", "drive"),
        ({"drive": {"max_body": "1MiB"}}, "drive.max_body", "server.max_body"),
        ({"drive": "8GiB"}, "drive", "write [drive]"),
        ({"drive": {"capacity": 1.5}}, "drive.capacity", "default 4GiB"),
        ({"drive": {"direct": True}}, "drive.direct", "default auto"),
        ({"engine": {"threads": True}}, "engine.threads", "default 0"),
        ({"engine": {"threads": 2.0}}, "engine.threads", "default 0"),
        ({"engine": {"chunk_tokens": 96}}, "engine.chunk_tokens", "multiple of 64"),
        ({"server": {"port": 65_536}}, "server.port", "default 8000"),
        ({"store": {"restore_deadline": "0s"}}, "store.restore_deadline", "default 2s"),
        ({"model": {"path": 5}}, "model.path", "Directory"),
    ],
)
def test_a_bad_tree_is_named(tree: dict[str, object], key: str, remedy: str) -> None:
    """An unknown name or a bad value names the key, the source and what would be right."""
    with pytest.raises(SettingsError) as caught:
        resolve([mapping_layer(tree, Origin(Rank.FILE, "some.toml"))])
    assert caught.value.key == key
    assert caught.value.source == "some.toml"
    assert "some.toml" in caught.value.message
    assert remedy in caught.value.remedy


def test_a_mistyped_variable_is_an_error(tmp_path: Path, home: dict[str, str]) -> None:
    """A PAGODA_* variable that means nothing is refused with its nearest neighbour."""
    with pytest.raises(SettingsError, match="PAGODA_DRIVE_CAPACITY") as caught:
        load(directory=tmp_path, environ={**home, "PAGODA_DRIVE_CAPCITY": "1GiB"})
    assert caught.value.key == caught.value.source == "PAGODA_DRIVE_CAPCITY"


def test_variables_of_a_kubernetes_service_are_ignored(
    tmp_path: Path, home: dict[str, str]
) -> None:
    """A Service named pagoda or pagoda-server puts variables into every pod of its namespace,
    PAGODA_SERVER_PORT=tcp://… among them; a server that died of that could not start there."""
    linked = {}
    for service in ("PAGODA", "PAGODA_SERVER"):
        linked |= {
            f"{service}_SERVICE_HOST": "10.0.0.1",
            f"{service}_SERVICE_PORT": "80",
            f"{service}_SERVICE_PORT_HTTP": "80",
            f"{service}_PORT": "tcp://10.0.0.1:80",
            f"{service}_PORT_80_TCP": "tcp://10.0.0.1:80",
            f"{service}_PORT_80_TCP_ADDR": "10.0.0.1",
        }
    assert load(directory=tmp_path, environ={**home, **linked}).settings == Settings()


def test_an_empty_variable_counts_as_not_set(tmp_path: Path, home: dict[str, str]) -> None:
    """`PAGODA_ENGINE_THREADS=` leaves the file's value alone."""
    toml(tmp_path / "pagoda.toml", "[engine]\nthreads = 3\n")
    resolved = load(directory=tmp_path, environ={**home, "PAGODA_ENGINE_THREADS": ""})
    assert resolved.settings.engine.threads == 3


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"[drive", "not valid TOML"),
        (b"a = " + b"[" * 5000 + b"]" * 5000, "not valid TOML"),
        (b"a = " + b"9" * 5000, "not valid TOML"),
        (b"\xff\xfe", "not UTF-8"),
        (None, "cannot read"),
    ],
)
def test_an_unreadable_file_is_named(tmp_path: Path, content: bytes | None, complaint: str) -> None:
    """Bad TOML, another encoding and a missing file are settings errors with the file's name."""
    path = tmp_path / "bad.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingsError, match=complaint) as caught:
        load(config=str(path), environ={}, directory=tmp_path)
    assert "bad.toml" in caught.value.message
    assert "--config" in caught.value.source


def test_load_file_reads_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is judged by itself, whatever the environment says."""
    monkeypatch.setenv("PAGODA_NONSENSE", "1")
    path = toml(tmp_path / "a.toml", '[log]\nlevel = "debug"\n')
    assert load_file(path).settings.log.level == "debug"


@pytest.mark.parametrize(("file", "secret"), SECRET_FILES.items())
def test_a_secrets_file_fills_the_secret(
    tmp_path: Path, home: dict[str, str], file: str, secret: str
) -> None:
    """It is read once, stripped, and shown as the secret's origin."""
    path = toml(tmp_path / "key", "hush\n")
    resolved = load(directory=tmp_path, environ=home, flags={file: str(path)})
    (value,) = (value for key, value, _ in resolved.rows() if key.name == secret)
    assert isinstance(value, SecretStr)
    assert value.get_secret_value() == "hush"
    assert str(path) in str(resolved.origins[secret])


def test_the_stronger_of_key_and_key_file_wins(tmp_path: Path, home: dict[str, str]) -> None:
    """A key in a variable overrides a key file that the settings file names."""
    key_file = toml(tmp_path / "key", "from the file")
    toml(tmp_path / "pagoda.toml", f'[server]\napi_key_file = "{key_file}"\n')
    resolved = load(directory=tmp_path, environ={**home, "PAGODA_SERVER_API_KEY": "hush"})
    assert resolved.settings.server.api_key.get_secret_value() == "hush"


@pytest.mark.parametrize("file", SECRET_FILES)
@pytest.mark.parametrize("content", [None, b" \n", b"\xff"])
def test_a_useless_secrets_file_is_an_error(
    tmp_path: Path, content: bytes | None, file: str
) -> None:
    """A missing, empty or binary file must not leave a server without a key."""
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingsError) as caught:
        resolve([flag_layer({file: str(path)})])
    assert caught.value.key == file


@pytest.mark.parametrize(
    "url", ["redis://h:6379/0", "rediss://[::1]:1", "unix:///s?db=1", "s3://b/p@q", "file:///kv"]
)
def test_addresses_of_shared_stores_are_taken(url: str) -> None:
    """Those of every client, unchanged."""
    assert resolve([flag_layer({"remote.url": url})]).settings.remote.url == url


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("redis://u:s3cret@h/0", "holds credentials"),
        ("s3://u:s3cret@b", "holds credentials"),
        ("http://s3cret", "is no address of a shared store"),
        ("redis://", "is no address of a shared store"),
        ("s3cret", "is no address of a shared store"),
    ],
)
def test_an_address_with_secrets_or_without_a_store_is_refused(url: str, why: str) -> None:
    """It would be shown by `pagoda config` and in messages; the error does not show it."""
    with pytest.raises(SettingsError, match=why) as caught:
        resolve([flag_layer({"remote.url": url})])
    assert caught.value.key == "remote.url"
    assert caught.value.remedy
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.4", "example.org"])
def test_other_machines_need_a_key(host: str) -> None:
    """Listening beyond loopback without an API key is refused; with one it is fine."""
    with pytest.raises(SettingsError) as caught:
        resolve([flag_layer({"server.host": host})])
    assert caught.value.key == "server.host"
    key: Layer = {"server.api_key": ("hush", Origin(Rank.ENVIRONMENT, "PAGODA_SERVER_API_KEY"))}
    assert resolve([flag_layer({"server.host": host}), key]).settings.server.host == host


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "::1", "[::1]"])
def test_loopback_is_known(host: str) -> None:
    """Every spelling of this machine alone needs no key."""
    assert is_loopback(host)


def test_a_secret_is_never_shown() -> None:
    """Neither the tree's text, nor its rows, nor an error about it quotes the key."""
    secret = "correct horse battery staple"
    origin = Origin(Rank.FILE, "x.toml")
    resolved = resolve([{"server.api_key": (secret, origin)}])
    shown = repr(resolved) + "".join(key.format(value) for key, value, _ in resolved.rows())
    assert secret not in shown
    with pytest.raises(SettingsError) as caught:
        resolve([{"server.api_key": ([secret], origin)}])
    assert secret not in str(caught.value)
    assert isinstance(resolved.settings.server.api_key, SecretStr)


def test_the_tree_is_frozen() -> None:
    """Neither a section nor a value can be replaced."""
    settings = Settings()
    with pytest.raises(ValidationError):
        settings.engine.threads = 4  # type: ignore[misc]
    with pytest.raises(ValidationError):
        settings.engine = settings.engine  # type: ignore[misc]


def test_the_drive_directories(tmp_path: Path) -> None:
    """Empty is the user's cache directory, off is none, ~ is the home directory; commas stand
    between several, or a file lists them."""

    def directories(path: object) -> tuple[Path, ...]:
        layer = mapping_layer({"drive": {"path": path}}, Origin(Rank.FILE, "pagoda.toml"))
        return resolve([layer]).settings.drive.directories({"XDG_CACHE_HOME": str(tmp_path)})

    assert directories("") == (tmp_path / "pagoda" / "kv",)
    assert directories("off") == ()
    assert directories("~/kv") == (Path.home() / "kv",)
    assert directories("/mnt/kv") == (Path("/mnt/kv"),)
    assert directories("/mnt/a, /mnt/b") == (Path("/mnt/a"), Path("/mnt/b"))
    assert directories(["/mnt/a", "/mnt/b"]) == (Path("/mnt/a"), Path("/mnt/b"))


@pytest.mark.parametrize(
    "path", ["/a,,/b", "/a,", "off,/a", "/a,/b,/a/", [], ["/a", ""], ["/a,/b"], ["/a", 5], 5]
)
def test_bad_drive_directories_are_refused(path: object) -> None:
    """One directory twice would be two engines on one slab."""
    layer = mapping_layer({"drive": {"path": path}}, Origin(Rank.FILE, "pagoda.toml"))
    with pytest.raises(SettingsError, match=r"drive\.path"):
        resolve([layer])


def test_one_directory_by_two_names_is_refused(tmp_path: Path) -> None:
    """A link to it, its place in the home directory, a second slash at the beginning."""
    (tmp_path / "kv").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "kv")
    for other in (tmp_path / "link", f"/{tmp_path}/kv", os.path.relpath(tmp_path / "kv")):
        with pytest.raises(SettingsError, match="names a directory twice"):
            resolve([flag_layer({"drive.path": f"{tmp_path}/kv,{other}"})])
    with pytest.raises(SettingsError, match="names a directory twice"):
        resolve([flag_layer({"drive.path": f"~/kv,{Path.home()}/kv"})])


@pytest.mark.parametrize(
    "name", ["drive.path", "model.path", "model.name", "remote.url", "remote.password"]
)
def test_a_nul_character_is_refused(name: str) -> None:
    """Only a file can hold one; the system calls that get it raise ValueError."""
    section, field = name.split(".")
    layer = mapping_layer({section: {field: "/a\0b"}}, Origin(Rank.FILE, "pagoda.toml"))
    with pytest.raises(SettingsError, match="NUL"):
        resolve([layer])


def test_a_file_that_never_ends_is_refused(tmp_path: Path) -> None:
    """A device, or somebody's disk image, instead of a text: it does not fill the memory."""
    (tmp_path / "image").touch()
    os.truncate(tmp_path / "image", 1 << 40)
    for endless in ("/dev/zero", str(tmp_path / "image")):
        for flags, config in (({"server.api_key_file": endless}, None), ({}, endless)):
            with pytest.raises(SettingsError, match="too large"):
                load(flags=flags, config=config, environ={}, directory=tmp_path)


def test_files_in_the_home_of_nobody_are_not_there(tmp_path: Path) -> None:
    """Those that are read while settings are loaded."""
    nobody = "~no-such-user/x"
    for flags, config in (({"server.api_key_file": nobody}, None), ({}, nobody)):
        with pytest.raises(SettingsError, match="cannot read"):
            load(flags=flags, config=config, environ={}, directory=tmp_path)


@pytest.mark.parametrize(
    "name", ["drive.path", "model.path", "drive.key_file", "remote.ca_file", "server.record"]
)
def test_the_home_of_nobody_is_refused(name: str) -> None:
    """`expanduser` would raise RuntimeError later."""
    section, field = name.split(".")
    for value in ("~no-such-user/x", "/a,~no-such-user/x"):
        layer = mapping_layer({section: {field: value}}, Origin(Rank.FILE, "pagoda.toml"))
        with pytest.raises(SettingsError, match="home directory"):
            resolve([layer])


@pytest.mark.parametrize("writes", [True, "nan", "inf", float("nan"), -1, 1001, "often", [1.0]])
def test_bad_write_budgets_are_refused(writes: object) -> None:
    """A budget is a finite number; it may be a fraction."""
    layer = mapping_layer({"drive": {"writes_per_day": writes}}, Origin(Rank.FILE, "pagoda.toml"))
    with pytest.raises(SettingsError, match=r"drive\.writes_per_day"):
        resolve([layer])
    assert resolve([flag_layer({"drive.writes_per_day": "0"})]).settings.drive.writes_per_day == 0


def test_the_served_name_is_the_directory_unless_named(tmp_path: Path) -> None:
    """A trailing slash or a dot does not make an empty name."""
    for text in (str(tmp_path), f"{tmp_path}/", f"{tmp_path}/."):
        assert (
            resolve([flag_layer({"model.path": text})]).settings.model.served_name == tmp_path.name
        )
    named = resolve([flag_layer({"model.path": str(tmp_path), "model.name": "tiny"})])
    assert named.settings.model.served_name == "tiny"


def test_flags_and_variables_are_distinct() -> None:
    """No two keys share a flag or a variable."""
    flags = [key.flag for key in all_keys() if key.flag]
    variables = [key.variable for key in all_keys()]
    assert len(set(flags)) == len(flags)
    assert len(set(variables)) == len(variables)


def test_every_key_says_what_it_means() -> None:
    """Each setting has a description that ends as a sentence does."""
    assert [key.name for key in all_keys() if not key.description.endswith(".")] == []
