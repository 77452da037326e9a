"""Checks of processors: NUMA nodes, balancing, interrupts, frequency, clock."""

from __future__ import annotations

from collections.abc import Iterator

from pagoda.advise.preflight.check import Check, sized
from pagoda.advise.preflight.need import Need
from pagoda.machine.cpus import clock_source, governors, is_virtual_machine, numa_nodes, services
from pagoda.machine.pci import pci_devices
from pagoda.machine.tree import HostTree

__all__ = ["processor_checks"]

_GOOD_CLOCKS = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page")
_TIME_SERVICES = {"chronyd", "ntpd", "systemd-timesyn", "ptp4l", "phc2sys"}


def processor_checks(tree: HostTree, need: Need) -> Iterator[Check]:
    """All checks of processors and clocks."""
    yield _numa(tree, need)
    yield _numa_balancing(tree)
    yield _irqbalance(tree)
    yield _governor(tree)
    yield _clock(tree)
    yield _time_sync(tree)


def _numa(tree: HostTree, need: Need) -> Check:
    confirm = "numactl --hardware; cat /sys/bus/pci/devices/*/numa_node"
    nodes = numa_nodes(tree)
    if not nodes:
        return Check("numa", "unknown", "the kernel shows no NUMA nodes", confirm)
    if len(nodes) == 1:
        return Check("numa", "pass", "one NUMA node", confirm)
    lost = [d.address for d in pci_devices(tree) if d.is_gpu and d.numa_node in (None, -1)]
    if lost:
        reason = f"{len(nodes)} nodes, but GPU {lost[0]} says none: ranks cannot be bound by it"
        remedy = "a VM must pass the NUMA layout on; else bind by `nvidia-smi topo -m`"
        return Check("numa", "warn", reason, confirm, remedy)
    small = [n for n in nodes if n.free_bytes is not None and n.cpus]
    share = (need.all_pinned_bytes or 0) / len(nodes)
    short = [n for n in small if share and (n.free_bytes or 0) < share]
    if short:
        reason = (
            f"an even share of the pinned memory is {sized(share)} a node, but node {short[0].id} "
            f"has {sized(short[0].free_bytes or 0)} free"
        )
        remedy = "pin less, or free the node (drop caches, move other work)"
        return Check("numa", "warn", reason, confirm, remedy)
    return Check("numa", "pass", f"{len(nodes)} nodes; bind each rank to its GPU's node", confirm)


def _numa_balancing(tree: HostTree) -> Check:
    confirm = "sysctl kernel.numa_balancing"
    mode = tree.number("proc/sys/kernel/numa_balancing")
    if mode is None:
        return Check("numa-balancing", "unknown", "kernel.numa_balancing cannot be read", confirm)
    if mode and len(numa_nodes(tree)) > 1:
        return Check(
            "numa-balancing",
            "warn",
            "the kernel moves pages between nodes: faults in the middle of copies, and ranks that "
            "are bound gain nothing from it",
            confirm,
            "sysctl -w kernel.numa_balancing=0",
        )
    return Check("numa-balancing", "pass", "pages stay where they were put", confirm)


def _irqbalance(tree: HostTree) -> Check:
    confirm = "systemctl status irqbalance; cat /proc/interrupts"
    running = services(tree)
    if running is None:
        return Check("irqbalance", "unknown", "processes cannot be listed", confirm)
    many = len(numa_nodes(tree)) > 1
    if "irqbalance" in running and many:
        return Check(
            "irqbalance",
            "warn",
            "irqbalance runs on a host of several nodes: interrupts of adapters and drives may be "
            "moved away from their own node",
            confirm,
            "pin interrupts of NVMe and network devices to their node, and ban them in irqbalance",
        )
    state = "runs, on one node" if "irqbalance" in running else "does not run"
    return Check("irqbalance", "pass", f"irqbalance {state}", confirm)


def _governor(tree: HostTree) -> Check:
    confirm = "cat /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
    found = governors(tree)
    if not found:
        reason = "the kernel sets no frequency (a VM, or the firmware does it)"
        return Check("cpu-governor", "unknown", reason, confirm)
    slow = {name: count for name, count in found.items() if name != "performance"}
    if slow:
        shown = ", ".join(f"{count} × {name}" for name, count in sorted(slow.items()))
        reason = f"frequency governors: {shown}; a sleeping scheduler thread wakes up slowly"
        remedy = "cpupower frequency-set -g performance"
        return Check("cpu-governor", "warn", reason, confirm, remedy)
    return Check("cpu-governor", "pass", "all processors use performance", confirm)


def _clock(tree: HostTree) -> Check:
    confirm = "cat /sys/devices/system/clocksource/clocksource0/current_clocksource"
    source = clock_source(tree)
    if source is None:
        return Check("clock-source", "unknown", "the clock source cannot be read", confirm)
    if source in _GOOD_CLOCKS:
        return Check("clock-source", "pass", f"the clock source is {source}", confirm)
    guest = " (this is a guest: ask the host's owner)" if is_virtual_machine(tree) else ""
    reason = f"the clock source is {source}: every reading of the time is a slow device access"
    remedy = f"clocksource=tsc on the kernel command line{guest}"
    return Check("clock-source", "warn", reason, confirm, remedy)


def _time_sync(tree: HostTree) -> Check:
    confirm = "timedatectl show -p NTPSynchronized; chronyc tracking"
    running = services(tree)
    if running is None:
        return Check("clock-sync", "unknown", "processes cannot be listed", confirm)
    found = sorted(running & _TIME_SERVICES)
    if found:
        return Check("clock-sync", "pass", f"{found[0]} keeps the time", confirm)
    return Check(
        "clock-sync",
        "warn",
        "no time service runs here (in a container the host's may): logs of several nodes cannot "
        "be put in order",
        confirm,
        "run chronyd or systemd-timesyncd on the host",
    )
