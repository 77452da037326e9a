"""What drives say of their own health, from what `nvme` and `smartctl` print."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.machine import smart
from pagoda.machine.commands import Captured
from pagoda.machine.smart import DriveHealth, drive_health, parse_nvme, parse_smartctl
from pagoda.machine.tree import HostTree

# `nvme smart-log -o json` of nvme-cli 1.16, shortened.
NVME_1 = """{"critical_warning": 0, "temperature": 311, "avail_spare": 100, "spare_thresh": 10,
"percent_used": 3, "data_units_read": 31054621, "media_errors": 0}"""
# nvme-cli 2 with --verbose, of a drive near its end.
NVME_2 = """{"critical_warning": {"value": 13, "available_spare": 1, "temp_threshold": 0},
"avail_spare": 4, "spare_thresh": 10, "percentage_used": 118, "media_errors": "27"}"""
# `smartctl -j -a` of an NVMe drive and of a SATA drive, shortened.
SMARTCTL_NVME = json.dumps(
    {
        "smartctl": {"version": [7, 4], "exit_status": 0},
        "smart_status": {"passed": True},
        "nvme_smart_health_information_log": {
            "critical_warning": 0,
            "available_spare": 99,
            "available_spare_threshold": 5,
            "percentage_used": 12,
            "media_errors": 1,
        },
    }
)
SMARTCTL_SATA = json.dumps(
    {
        "smartctl": {"version": [7, 4], "exit_status": 8},
        "smart_status": {"passed": False},
        "endurance_used": {"current_percent": 61},
        "spare_available": {"current_percent": 88, "threshold_percent": 10},
    }
)


def test_nvme_of_both_major_versions() -> None:
    """Names and shapes differ; the facts are the same."""
    assert parse_nvme(NVME_1) == DriveHealth(
        used_percent=3, spare_percent=100, spare_threshold_percent=10, media_errors=0
    )
    assert parse_nvme(NVME_2) == DriveHealth(
        used_percent=118,
        spare_percent=4,
        spare_threshold_percent=10,
        media_errors=27,
        warnings=("spare below its threshold", "reliability degraded", "read only"),
    )


def test_smartctl_of_nvme_and_sata() -> None:
    """SATA drives sum up as far as smartctl 7.4 does; the verdict is kept apart."""
    assert parse_smartctl(SMARTCTL_NVME) == DriveHealth(
        used_percent=12,
        spare_percent=99,
        spare_threshold_percent=5,
        media_errors=1,
        passed=True,
    )
    assert parse_smartctl(SMARTCTL_SATA) == DriveHealth(
        used_percent=61, spare_percent=88, spare_threshold_percent=10, passed=False
    )


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "null", "smartctl 7.2", '{"critical_warning": null}', "[" * 100_000],
)
def test_output_without_facts_is_a_problem_not_a_healthy_drive(text: str) -> None:
    """Saying nothing is not saying that all is well."""
    for parse in (parse_nvme, parse_smartctl):
        health = parse(text)
        assert health.problem
        assert health == DriveHealth(problem=health.problem)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                [
                    "critical_warning",
                    "value",
                    "percent_used",
                    "avail_spare",
                    "smart_status",
                    "passed",
                    "nvme_smart_health_information_log",
                    "endurance_used",
                    "current_percent",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@given(json_values)
def test_no_json_breaks_the_parsers(value: object) -> None:
    """Whatever a vendor prints, numbers are whole and not negative, or unknown."""
    for parse in (parse_nvme, parse_smartctl):
        health = parse(json.dumps(value))
        for number in (health.used_percent, health.spare_percent, health.media_errors):
            assert number is None or (type(number) is int and number >= 0)


class Host:
    """A tree in which the directory lies on a partition of a drive, or on a mapper above it."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.answers: dict[str, Captured] = {}
        self.asked: list[str] = []
        number = root.stat().st_dev
        self.device = f"{os.major(number)}:{os.minor(number)}"
        (root / "sys/block").mkdir(parents=True)
        (root / "sys/dev/block").mkdir(parents=True)
        monkeypatch.setattr(smart, "capture", self._capture)

    def drive(self, name: str, partition: str = "") -> Path:
        """Add a drive; returns the directory of what the device number leads to."""
        path = self.root / "sys/block" / name / partition
        path.mkdir(parents=True)
        return path

    def lies_on(self, path: Path) -> None:
        """The directory's device number leads there."""
        (self.root / "sys/dev/block" / self.device).symlink_to(path)

    def health(self) -> DriveHealth:
        return drive_health(self.root, HostTree(self.root))

    def _capture(self, argv: list[str], *, timeout_s: float) -> Captured:
        self.asked.append(" ".join(argv))
        assert timeout_s <= 10
        return self.answers.get(argv[0], Captured("", f"{argv[0]} is not installed"))


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """A made-up host."""
    return Host(tmp_path, monkeypatch)


def test_the_drive_of_a_partition_is_asked(host: Host) -> None:
    """`nvme` first; its answer is enough."""
    host.lies_on(host.drive("nvme0n1", "nvme0n1p2"))
    host.answers["nvme"] = Captured(NVME_1)
    assert host.health().used_percent == 3
    assert host.health().drive == "nvme0n1"
    assert host.asked[0] == "nvme smart-log -o json /dev/nvme0n1"
    assert all(question.startswith("nvme ") for question in host.asked)


def test_the_drive_below_an_encrypted_volume_is_asked(host: Host) -> None:
    """A mapper with one device below it is that device's; with two it is unknown."""
    host.drive("sda", "sda1")
    mapper = host.drive("dm-0")
    (mapper / "slaves" / "sda1").mkdir(parents=True)
    host.lies_on(mapper)
    host.answers["smartctl"] = Captured(SMARTCTL_SATA, "smartctl ended with status 8")
    assert host.health().passed is False, "a status that is not 0 tells of the drive"
    assert host.health().drive == "sda"


def test_without_programs_or_drive_health_is_unknown(host: Host) -> None:
    """And says why; nothing is raised."""
    assert "no local drive" in host.health().problem
    host.lies_on(host.drive("nvme1n1"))
    problem = host.health().problem
    assert "nvme is not installed" in problem
    assert "smartctl is not installed" in problem
    assert drive_health(Path("/no/such/place")).problem
