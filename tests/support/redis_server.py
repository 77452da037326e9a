"""A redis-server of the tests' own: a free port of 127.0.0.1, nothing on disk, ended after."""

from __future__ import annotations

import datetime
import ipaddress
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

READY = "Ready to accept connections"


class RedisServer:
    """One process; `start` again after `kill` finds an empty server on the same port."""

    def __init__(self, directory: Path, *options: str, tls: bool = False) -> None:
        self.binary = shutil.which("redis-server") or pytest.skip("redis-server: not on PATH")
        self.directory = directory
        self.options = options
        self.tls = tls
        self.port = free_port()
        self.socket = directory / "s"
        if tls:
            write_certificate(directory)
        self.process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"redis{'s' if self.tls else ''}://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it and read its log until it accepts connections."""
        ports = ["--port", str(self.port)]
        if self.tls:
            files = ["--tls-cert-file", "cert.pem", "--tls-key-file", "key.pem"]
            ports = ["--port", "0", "--tls-port", str(self.port), *files]
            ports += ["--tls-auth-clients", "no"]
        fixed = ["--bind", "127.0.0.1", "--unixsocket", str(self.socket)]
        fixed += ["--save", "", "--appendonly", "no", "--dir", str(self.directory)]
        self.process = subprocess.Popen(
            [self.binary, *ports, *fixed, *self.options],
            cwd=self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout is not None
        log = []
        for line in self.process.stdout:
            log.append(line)
            if READY in line:
                return
        raise AssertionError("redis-server did not start:\n" + "".join(log))

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it, however it is."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.communicate(timeout=30)
            self.process = None


@contextmanager
def running(directory: Path, *options: str, tls: bool = False) -> Iterator[RedisServer]:
    """A started server that ends with the block."""
    server = RedisServer(directory, *options, tls=tls)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def write_certificate(directory: Path) -> None:
    """A self-signed certificate for 127.0.0.1: cert.pem and key.pem."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    (directory / "cert.pem").write_bytes(certificate.public_bytes(encoding))
    pem = serialization.PrivateFormat.PKCS8
    secret = key.private_bytes(encoding, pem, serialization.NoEncryption())
    (directory / "key.pem").write_bytes(secret)
