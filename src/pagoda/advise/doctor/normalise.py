"""What a line says once colours and prefixes are taken off.

Engines, launchers and log collectors each put something in front of a message: a pod, an
actor, a rank, a time, a level. They nest in any order, so prefixes are peeled one after
another until none fits. All patterns are anchored and linear.
"""

from __future__ import annotations

import json
import re

from .model import Line

__all__ = ["MAX_LINE_CHARS", "normalise", "undress"]

MAX_LINE_CHARS = 4096
_MAX_PREFIXES = 10

# The escape byte is often lost when a log is pasted, so "[36m" alone counts too.
_ANSI = re.compile(r"\x1b\[[0-?]{0,16}[ -/]{0,4}[@-~]|\[(?:\d{1,3})(?:;\d{1,3}){0,4}m")
_LEVEL = r"DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL"
_MONTH_NAMES = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_HOST = r"[A-Za-z0-9][\w.-]{0,80}"
_LOGGER = r"[a-z_]\w{0,40}(?:\.\w{1,40}){0,8}\.[a-z_]\w{0,40}"
_CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"

_PREFIXES = tuple(
    re.compile(pattern)
    for pattern in (
        # kubectl logs --prefix, docker compose, stern
        rf"\[pod/(?P<node>{_HOST})/[^\]\s]{{1,80}}\]\s?",
        rf"(?P<node>{_HOST})\s{{1,20}}\|\s",
        # Ray actors and vLLM's processes; Ray prints ip= for remote nodes only
        r"\((?P<actor>[\w.:= ]{0,60}?)\s?pid=\d{1,10}(?:, ip=(?P<remote>[\w.:]{1,64}))?\)\s{0,4}",
        r"\((?:raylet|autoscaler|gcs_server)[^)]{0,60}\)\s{0,4}",
        # times with a year, SGLang's "[time DP0 TP3]" included
        rf"\[(?P<iso>\d{{4}}[-/]\d\d[-/]\d\d[ T]{_CLOCK})(?:Z|[+-]\d\d:?\d\d)?"
        r"(?P<who>(?: [A-Z]{2}\d{1,4}){0,4})(?:,[^\]]{0,80}|\s[^\]]{0,80})?\]\s{0,4}",
        rf"(?P<iso>\d{{4}}[-/]\d\d[-/]\d\d[ T]{_CLOCK})(?:Z|[+-]\d\d:?\d\d)?\s{{0,4}}-?\s{{0,4}}",
        # vLLM: LEVEL month-day time [file:line]
        rf"(?P<level>{_LEVEL})\s{{1,4}}(?P<month_day>\d\d-\d\d {_CLOCK})\s{{0,4}}"
        r"(?:\[[^\]\s]{1,120}\]|[\w./]{1,120}:\d{1,6}\])?\s?",
        # gunicorn's process
        r"\[\d{1,10}\]\s(?=\[)",
        # torch and glog
        r"\[(?:default|rank)\s?(?P<rank>\d{1,5})\]:?\s{0,4}",
        r"\[?(?P<letter>[EWIF])(?P<glog>\d{3,4} \d\d:\d\d:\d\d(?:\.\d{1,9})?)[^\]]{0,120}\]\s{0,4}",
        r"\[(?:PG ID [^\]]{0,60} )?Rank (?P<rank>\d{1,5})\]\s{0,4}",
        # the kernel, by syslog, journal or dmesg
        rf"(?P<syslog>(?:{_MONTH_NAMES})\s{{1,2}}\d{{1,2}} {_CLOCK})"
        rf"\s(?P<node>{_HOST})\s(?=[\w./-]{{1,40}}(?:\[\d{{1,10}}\])?:)",
        r"\[\s{0,8}(?P<boot>\d{1,9}\.\d{3,9})\]\s{0,4}",
        r"kernel:\s{0,4}",
        # NCCL's host:pid:tid [device]
        rf"(?P<node>{_HOST}):\d{{1,10}}:\d{{1,10}} \[(?P<device>\d{{1,3}})\]\s{{0,4}}",
        # srun --label
        r"(?P<rank>\d{1,5}): (?=\S)",
        # Python's logging: a level in lower case counts before the dotted name of a logger
        rf"(?P<level>{_LEVEL.lower()})\s{{1,8}}(?={_LOGGER}: )",
        # bare levels last: they end a prefix in most formats
        rf"(?:LMCache )?(?P<level>{_LEVEL})(?: LMCache)?:\s{{0,8}}",
        rf"\[(?P<level>{_LEVEL})\]\s{{0,4}}",
        rf"(?P<level>{_LEVEL})\s{{1,8}}",
    )
)
_NAMED = re.compile(rf"({_LOGGER}): ")
_ACTOR_RANK = re.compile(r"(?:^|[_ ])(?:TP|rank=)(\d{1,4})")
_WHO_RANK = re.compile(r" TP(\d{1,4})")
_GROUP_RANK = re.compile(r"\bRank (\d{1,5})\]")
_BODY_RANK = re.compile(r"\b(?:TP rank|[Rr]ank)[ =:](\d{1,5})\b|\btp_rank=(\d{1,5})")
_REPEATED = re.compile(r"(?:\[repeated |message repeated )(\d{1,9})(?:x| times)")
_MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES.split("|"), start=1)}
_DAYS_BEFORE = (0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335)
# A graver line that starts with such a name may quote an exception: "struct.error: …".
_CALM = ("DEBUG", "INFO", "WARNING")
_LETTERS = {"E": "ERROR", "W": "WARNING", "I": "INFO", "F": "FATAL"}


def undress(raw: str) -> str:
    """The line out of JSON, without colour codes and line end.

    Colour codes count with their escape byte lost, too. Applying it twice changes nothing.
    """
    text = _ANSI.sub("", raw[:MAX_LINE_CHARS]).rstrip("\r\n")
    while (inner := _unwrap_json(text)) != text:  # a container's record around a program's
        text = _ANSI.sub("", inner).rstrip("\r\n")
    return text


def normalise(raw: str) -> Line:
    """One line, peeled: message, level, rank, node, time and how often it is said to repeat."""
    text = undress(raw)
    found: dict[str, str] = {}
    begin = start = _skip_quote(text)
    for _ in range(_MAX_PREFIXES):
        end = _peel(text, start, found)
        if end == start:
            break
        start = end
    message = text[start:]
    level = _level(found)
    named = _NAMED.match(message) if level in _CALM else None
    time_s, clock = _time(found)
    return Line(
        text=text,
        message=message,
        prefixed=start > begin,
        level=level,
        rank=_rank(found, message),
        node=found.get("node") or found.get("remote", ""),
        remote="remote" in found,
        logger=named[1] if named else "",
        time_s=time_s,
        clock=clock,
        weight=_weight(text),
    )


def _unwrap_json(text: str) -> str:
    """The line with its JSON record replaced by what it says, or the line itself.

    A container runtime's record is the whole line. A program's names a level and may follow a
    prefix; other JSON behind a text is part of that text. Each time the line gets shorter, so
    that repeating it comes to an end.
    """
    start = text.find('{"')
    if start < 0 or not text.endswith("}"):
        return text
    try:
        record = json.loads(text[start:])
    except (ValueError, RecursionError):
        return text
    told = {name: value for name, value in record.items() if isinstance(value, str)}
    message = next((told[name] for name in ("log", "message", "msg") if name in told), None)
    level = next((told[name] for name in ("level", "levelname", "severity") if name in told), "")
    if message is None:
        return text
    if level.upper() in _LEVEL.split("|"):
        return text[:start] + _as_text(told, level.upper(), message)
    return text if start else message


def _as_text(told: dict[str, str], level: str, message: str) -> str:
    """A program's record as its text format would print it: time level logger: message."""
    time = told.get("time") or told.get("timestamp") or told.get("asctime") or ""
    logger = told.get("logger") or told.get("name")
    named = f"{logger}: {message}" if logger else message
    exception = told.get("exception") or told.get("exc_info") or ""
    return " ".join(f"{time} {level} {named} {exception}".split())


def _skip_quote(text: str) -> int:
    """Where a line starts that was pasted as a quotation ("> …") or indented."""
    start = 0
    while start < len(text) and text[start] in "> \t":
        start += 1
    return start


def _peel(text: str, start: int, found: dict[str, str]) -> int:
    """The position after the next prefix, or `start` when there is none; the first value stays."""
    for pattern in _PREFIXES:
        match = pattern.match(text, start)
        if match:
            for name, value in match.groupdict().items():
                if value:
                    found.setdefault(name, value)
            return match.end()
    return start


def _level(found: dict[str, str]) -> str:
    level = found.get("level", "").upper() or _LETTERS.get(found.get("letter", ""), "")
    return "WARNING" if level == "WARN" else level


def _rank(found: dict[str, str], message: str) -> int | None:
    """The global rank if a prefix names one, the tensor-parallel one otherwise."""
    if "rank" in found:
        return int(found["rank"])
    match = _GROUP_RANK.search(message)
    if match:
        return int(match.group(1))
    for source, pattern in (("who", _WHO_RANK), ("actor", _ACTOR_RANK)):
        match = pattern.search(found.get(source, ""))
        if match:
            return int(match.group(1))
    match = _BODY_RANK.search(message)
    return int(match.group(1) or match.group(2)) if match else None


def _time(found: dict[str, str]) -> tuple[float | None, str]:
    """Seconds and the clock they are counted on."""
    if "iso" in found:
        return _calendar(found["iso"][5:7], found["iso"][8:10], found["iso"][11:]), "wall"
    if "month_day" in found:
        stamp = found["month_day"]
        return _calendar(stamp[:2], stamp[3:5], stamp[6:]), "wall"
    if "glog" in found:
        digits, clock = found["glog"].split(" ", 1)
        return _calendar(digits[:-2], digits[-2:], clock), "wall"
    if "syslog" in found:
        month, day, clock = found["syslog"].split()
        return _calendar(str(_MONTHS[month]), day, clock), "wall"
    if "boot" in found:
        return float(found["boot"]), "boot"
    return None, ""


def _calendar(month: str, day: str, clock: str) -> float | None:
    """Seconds since the start of a leap year; None for a month that does not exist."""
    number = int(month)
    if not 1 <= number <= 12:
        return None
    hours, minutes, seconds = clock.replace(",", ".").split(":")
    days = _DAYS_BEFORE[number - 1] + int(day) - 1
    return days * 86400 + int(hours) * 3600 + int(minutes) * 60 + float(seconds)


def _weight(text: str) -> int:
    """How many lines this one stands for, when a collector folded repeats into it."""
    match = _REPEATED.search(text)
    return int(match.group(1)) if match else 1
