"""Reads logs of engines, caches, NCCL and the kernel, and says what went wrong.

Pure and offline: bytes in, a report out. Lines become events (`examine`), events become
facts (`facts`), rules turn facts into causes (`families`, `judge`).
"""

from __future__ import annotations

from .catalogue import FAMILIES, cause, causes, signs
from .doctor import Doctor, diagnose
from .examine import CHUNK_BYTES
from .judge import Finding, Report
from .report import cause_as_dict, explain, finding_as_text, report_as_dict, report_as_text
from .watch import Watcher

__all__ = [
    "CHUNK_BYTES",
    "FAMILIES",
    "Doctor",
    "Finding",
    "Report",
    "Watcher",
    "cause",
    "cause_as_dict",
    "causes",
    "diagnose",
    "explain",
    "finding_as_text",
    "report_as_dict",
    "report_as_text",
    "signs",
]
