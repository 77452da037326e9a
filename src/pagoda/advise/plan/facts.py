"""What a plan starts from: a model's architecture, a GPU, a load."""

from __future__ import annotations

from dataclasses import dataclass

from pagoda.core.errors import SettingsError
from pagoda.core.sizing import KvShape

MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """A model as the planner needs it.

    `params` and `active_params` are counts (equal for a dense model; None where no
    source says), `weight_bytes` the exact size where files were measured. `source`
    names where the facts come from.
    """

    name: str
    source: str
    kv: KvShape
    layers: int
    hidden: int
    q_heads: int
    max_context: int
    params: float | None = None
    active_params: float | None = None
    experts: int = 0
    experts_per_token: int = 0
    weight_bits: float = 16.0
    weight_bytes: int | None = None
    kv_dtype: str | None = "bf16"
    notes: tuple[str, ...] = ()

    def total_params(self) -> float:
        """Return the parameter count; SettingsError where it is not known."""
        if self.params is None:
            raise SettingsError(
                f"the parameter count of {self.name} is not known",
                key="params",
                source=self.source,
                remedy="name it with --params-b (and --active-params-b for experts)",
            )
        return self.params

    def token_params(self) -> float:
        """Return the parameters that one token uses."""
        return self.total_params() if self.active_params is None else self.active_params

    def bytes_of_weights(self) -> float:
        """Return the size of all weights: measured, or parameters times bits."""
        if self.weight_bytes is not None:
            return float(self.weight_bytes)
        return self.total_params() * self.weight_bits / 8

    def touched_weight_share(self, tokens: float) -> float:
        """Return the share of the weights that a step over `tokens` reads.

        Experts are chosen independently and evenly: one stays unread with probability
        (1 - k / E) ** tokens.
        """
        total, active = self.total_params(), self.token_params()
        if not self.experts or total <= active:
            return 1.0
        chosen = self.experts_per_token / self.experts
        in_experts = (total - active) / (1 - chosen)
        return float(1 - in_experts * (1 - chosen) ** tokens / total)


@dataclass(frozen=True, kw_only=True)
class GpuFacts:
    """A GPU's memory, speed and links, in bytes and bytes or operations a second."""

    name: str
    source: str
    memory_bytes: int
    bandwidth: float
    bf16_flops: float
    fp8_flops: float | None
    nvlink: float
    pcie_generation: int
    pcie_lanes: int

    def flops(self, weight_bits: float) -> float:
        """Return dense operations a second; fp8 weights use the fp8 rate where there is one."""
        if weight_bits == 8 and self.fp8_flops is not None:
            return self.fp8_flops
        return self.bf16_flops


@dataclass(frozen=True, kw_only=True)
class Load:
    """The work asked of the engine.

    `requests_per_s` None means as much as there is. `shared_prefix` is the share of
    input tokens that an earlier request already computed.
    """

    input_tokens: float = 2000.0
    output_tokens: float = 300.0
    requests_per_s: float | None = None
    shared_prefix: float = 0.0
    source: str = "flags"

    def __post_init__(self) -> None:
        for key in ("input_tokens", "output_tokens"):
            if getattr(self, key) <= 0:
                raise SettingsError(f"{key} must be positive", key=key, source=self.source)
        if not 0 <= self.shared_prefix < 1:
            raise SettingsError(
                f"the shared-prefix share must lie in [0, 1), not {self.shared_prefix}",
                key="shared_prefix",
                source=self.source,
            )
        if self.requests_per_s is not None and self.requests_per_s <= 0:
            raise SettingsError(
                "requests/s must be positive", key="requests_per_s", source=self.source
            )

    @property
    def mean_context(self) -> float:
        """Tokens that a running request holds on average: its input and half its output."""
        return self.input_tokens + self.output_tokens / 2

    @property
    def new_input(self) -> float:
        """Input tokens that no earlier request computed."""
        return self.input_tokens * (1 - self.shared_prefix)
