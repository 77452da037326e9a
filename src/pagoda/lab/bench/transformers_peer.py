"""The peer of `pagoda bench engine`: the same model in transformers' own classes.

The one place beside the GGUF converter that uses them; the import contracts name it as an
exception. It is loaded by name when the bench runs, and nothing else imports it.

transformers' continuous batching gets what served it best where it was tried, on two processors
without a GPU: SDPA attention (its paged eager path decodes as fast at batch 8 and prefills at
half the speed), its default page of 256 tokens (16 and 64 made no difference), no compilation
(it recompiles for every layer, and decodes more slowly), no sharing of blocks (these prompts
share none), and a cache that holds all prompts at once, so that it never has to evict.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pagoda.lab.bench.window import Decoded

PAGE_TOKENS = 256
BATCH_TOKENS = 2048


class Peer:
    """A causal language model in transformers, in `dtype` ("bfloat16", "float32")."""

    def __init__(self, directory: Path, *, dtype: str, attention: str) -> None:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        os.environ.setdefault("TQDM_DISABLE", "1")
        import transformers  # noqa: PLC0415 - after the environment it reads

        self._lib: Any = transformers
        self._lib.utils.logging.set_verbosity_error()
        self._lib.utils.logging.disable_progress_bar()
        logging.getLogger("ContinuousBatchingLogger").setLevel(logging.CRITICAL)
        model: Any = self._lib.AutoModelForCausalLM.from_pretrained(
            str(directory), dtype=getattr(torch, dtype), attn_implementation=attention
        )
        self._model: Any = model.eval()

    def prefill(self, tokens: Sequence[int]) -> int:
        """One forward pass over a prompt, its KV cache kept; the most likely next token."""
        with torch.inference_mode():
            ids = torch.tensor([list(tokens)])
            output = self._model(ids, use_cache=True, logits_to_keep=1)
            return int(output.logits[0, -1].argmax())

    def logits(self, tokens: Sequence[int]) -> npt.NDArray[np.float32]:
        """Logits after each token: float32 [tokens, vocab]."""
        with torch.inference_mode():
            output = self._model(torch.tensor([list(tokens)]), use_cache=False)
        array: npt.NDArray[np.float32] = output.logits[0].float().numpy()
        return array

    def generate(self, prompts: Sequence[Sequence[int]], *, new_tokens: int) -> list[Decoded]:
        """Continue all prompts greedily with continuous batching, exactly `new_tokens` each."""
        pages = sum(-(-(len(prompt) + new_tokens) // PAGE_TOKENS) + 1 for prompt in prompts)
        config = self._lib.ContinuousBatchingConfig(
            page_size=PAGE_TOKENS,
            num_blocks=pages + 4,
            max_batch_tokens=BATCH_TOKENS,
            max_requests_per_batch=len(prompts),
            allow_block_sharing=False,
            auto_switch_to_flash=False,
        )
        generation = self._lib.GenerationConfig(
            max_new_tokens=new_tokens, do_sample=False, eos_token_id=-1
        )
        outputs = self._model.generate_batch(
            [list(prompt) for prompt in prompts],
            generation_config=generation,
            continuous_batching_config=config,
            record_timestamps=True,
        )
        return [
            Decoded(tokens=tuple(output.generated_tokens), moments_s=tuple(output.timestamps))
            for output in outputs.values()
        ]
