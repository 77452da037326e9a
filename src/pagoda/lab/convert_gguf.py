"""A script that turns a GGUF file of the Llama family into a bf16 Hugging Face directory.

Run by path in a process of its own (`python convert_gguf.py GGUF OUT`), never imported: it is
the one place that uses transformers' model classes, which know GGUF's tensor names and
quantizations, and it needs packages (gguf, accelerate) that Pagoda does not. The import
contracts name it as their exception. `pagoda.lab.model` starts it and checks what it wrote.

Its standard output is one JSON object a line: {"done": share} when a stage ends, the shares
being those of the measured time, and {"probe": "token ids"} of PROBE at the end.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

PROBE = "Pagoda keeps 3 tiers;\n\tnaïve caches don’t. <|im_start|>"


def say(**line: Any) -> None:
    """Tell the parent process one fact."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def to_bf16(quantized: Any, tokenizer: Any) -> Any:
    """A fresh bf16 model with the same weights.

    A copy, because transformers refuses to save a model that it loaded from GGUF.
    """
    config = quantized.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    config.name_or_path = ""
    config.dtype = torch.bfloat16
    model: Any = LlamaForCausalLM(config)
    model = model.to(torch.bfloat16)
    model.load_state_dict({k: v.to(torch.bfloat16) for k, v in quantized.state_dict().items()})
    model.tie_weights()
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    return model


def main(source: Path, out: Path) -> None:
    """Convert `source` into the new directory `out`."""
    say(done=0.13)  # importing torch and transformers took this long
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    say(done=0.28)
    quantized = AutoModelForCausalLM.from_pretrained(
        source.parent, gguf_file=source.name, dtype=torch.float32
    )
    say(done=0.92)
    model = to_bf16(quantized, tokenizer)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    say(probe=" ".join(map(str, AutoTokenizer.from_pretrained(out)(PROBE)["input_ids"])))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
