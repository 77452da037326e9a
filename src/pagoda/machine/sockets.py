"""TCP ports that something on this host listens on, and the range that clients take ports from."""

from __future__ import annotations

from pagoda.machine.tree import HostTree

__all__ = ["ephemeral_range", "listening_ports"]

_LISTEN = "0A"


def listening_ports(tree: HostTree) -> set[int] | None:
    """Ports in state LISTEN, IPv4 and IPv6; None when the tables cannot be read."""
    tables = [tree.text("proc/net/tcp"), tree.text("proc/net/tcp6")]
    if all(table is None for table in tables):
        return None
    found: set[int] = set()
    for table in tables:
        for line in (table or "").splitlines()[1:]:
            words = line.split()
            port = _port(words[1]) if len(words) > 3 and words[3] == _LISTEN else None
            if port is not None:
                found.add(port)
    return found


def _port(address: str) -> int | None:
    _, colon, port = address.rpartition(":")
    try:
        return int(port, 16) if colon else None
    except ValueError:
        return None


def ephemeral_range(tree: HostTree) -> tuple[int, int] | None:
    """First and last port that the kernel gives to outgoing connections."""
    words = (tree.text("proc/sys/net/ipv4/ip_local_port_range") or "").split()
    if len(words) == 2 and all(word.isdecimal() for word in words):
        return int(words[0]), int(words[1])
    return None
