"""`pagoda bench tiers`: sealed tiers against plain I/O, fio, numpy and other caches."""

from pagoda.lab.bench.tiers.run import measure_tiers
from pagoda.lab.bench.tiers.settings import KIB, MIB, PAIRS, SHARED_MEMORY, TierSettings

__all__ = ["KIB", "MIB", "PAIRS", "SHARED_MEMORY", "TierSettings", "measure_tiers"]
