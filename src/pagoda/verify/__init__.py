"""A black-box proof that restored KV equals computed KV, for any OpenAI-compatible server."""

from pagoda.verify.client import Client
from pagoda.verify.judge import Finding, Reason, Verdict
from pagoda.verify.plan import LENGTHS, Plan
from pagoda.verify.report import Report
from pagoda.verify.run import Verification

__all__ = [
    "LENGTHS",
    "Client",
    "Finding",
    "Plan",
    "Reason",
    "Report",
    "Verdict",
    "Verification",
]
