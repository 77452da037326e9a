"""vLLM's configuration, as a tier can come by it."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from pagoda.core.errors import PagodaError


def engine_config() -> Any:
    """The VllmConfig of the connector that is being built: a tier is given a digest of it that
    lacks what the model's arithmetic depends on. Raises PagodaError when nobody above has it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        found = frame.f_locals.get("vllm_config")
        if hasattr(found, "model_config") and hasattr(found, "cache_config"):
            return found
        frame = frame.f_back
    raise PagodaError(
        "PagodaTier was not built by an OffloadingConnector: vLLM's configuration is not known",
        remedy="use it as a secondary tier of OffloadingConnector",
    )
