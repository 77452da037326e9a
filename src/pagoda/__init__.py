"""Pagoda: a tiered, sealed KV cache for large language models that never serves a wrong byte."""

from pagoda._version import __version__

__all__ = ["__version__"]
