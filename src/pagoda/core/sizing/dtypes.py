"""How many bytes cached keys and values take, scales included."""

from __future__ import annotations

from dataclasses import dataclass

from pagoda.core.errors import SettingsError


@dataclass(frozen=True, kw_only=True)
class KvDtype:
    """A storage format of cached keys and values.

    `bits` an element; `scale_bytes` for each vector of one head and token (K and
    V have one each); `group` elements share `group_scale_bytes` where the format
    is scaled in groups. A scale per tensor or per layer costs nothing a token.
    `latent_bytes` is the whole size of one latent vector where the format packs
    MLA's latent in its own way.
    """

    name: str
    bits: int
    scale_bytes: int = 0
    group: int = 0
    group_scale_bytes: int = 0
    latent_bytes: int | None = None

    def vector_bytes(self, elements: int) -> int:
        """Return the bytes of one head's key (or value) vector with its scales."""
        if elements * self.bits % 8:
            raise SettingsError(
                f"{elements} elements of {self.bits} bits are not a whole number of bytes",
                key="head_dim",
                source="model facts",
            )
        groups = -(-elements // self.group) if self.group else 0
        return elements * self.bits // 8 + self.scale_bytes + groups * self.group_scale_bytes

    def describe(self) -> str:
        """Return the format in words: bits an element, and what its scales cost."""
        costs = []
        if self.scale_bytes:
            costs.append(f"{self.scale_bytes} B of scale beside each head's key and value")
        if self.group:
            costs.append(f"{self.group_scale_bytes} B of scale to {self.group} elements")
        if self.latent_bytes is not None:
            costs.append(f"an MLA latent packed into {self.latent_bytes} B")
        scales = " and ".join(costs) or "no scales a token"
        return f"KV kept as {self.name}: {self.bits} bits an element, {scales}"


def _formats() -> dict[str, KvDtype]:
    """Return the known formats by every name an engine gives them.

    Sources: vLLM's cache data types (fp8 with scales per tensor; *_per_token_head
    with a float32 scale beside each vector; fp8_ds_mla: 512 fp8 + 4 float32 scales
    + 64 bf16 = 656 B); NVFP4: 4-bit elements, one fp8 scale to 16 of them.
    """
    plain = {
        "fp32": KvDtype(name="fp32", bits=32),
        "fp16": KvDtype(name="fp16", bits=16),
        "bf16": KvDtype(name="bf16", bits=16),
        "fp8": KvDtype(name="fp8", bits=8),
        "fp8_per_token_head": KvDtype(name="fp8_per_token_head", bits=8, scale_bytes=4),
        "int8_per_token_head": KvDtype(name="int8_per_token_head", bits=8, scale_bytes=4),
        "nvfp4": KvDtype(name="nvfp4", bits=4, group=16, group_scale_bytes=1),
        "fp8_ds_mla": KvDtype(name="fp8_ds_mla", bits=8, latent_bytes=656),
    }
    aliases = {
        "float32": "fp32",
        "float16": "fp16",
        "half": "fp16",
        "bfloat16": "bf16",
        "fp8_e4m3": "fp8",
        "fp8_e5m2": "fp8",
        "int8": "int8_per_token_head",
        "fp4": "nvfp4",
    }
    return plain | {alias: plain[name] for alias, name in aliases.items()}


KV_DTYPES = _formats()


def kv_dtype(name: str) -> KvDtype:
    """Return the format called `name`; SettingsError for an unknown one and for "auto"."""
    known = KV_DTYPES.get(name.lower())
    if known is not None:
        return known
    if name.lower() == "auto":
        raise SettingsError(
            "KV dtype 'auto' is the checkpoint's choice and is not known here",
            key="kv_dtype",
            source="KV dtype",
            remedy="name it: the model's torch_dtype (usually bf16), "
            "or fp8 where the checkpoint carries KV scales",
        )
    raise SettingsError(
        f"KV dtype {name!r} is unknown",
        key="kv_dtype",
        source="KV dtype",
        remedy="one of " + ", ".join(sorted(KV_DTYPES)),
    )
