"""`pagoda plan`: will it fit, how fast, what will it cost. Pure arithmetic over stated facts.

facts, catalogue, hfconfig   what is known of models, GPUs and loads, and from where
links, roofline, throughput  what bytes and operations take on them
economics                    what tiers hold, when a restore beats recomputing, what drives last
schedule, choice, flags      what to run, and why
planner                      all of it together; figures carry their formulas
"""

from __future__ import annotations

from pagoda.advise.plan.planner import Plan, make_plan
from pagoda.advise.plan.request import Request

__all__ = ["Plan", "Request", "make_plan"]
