"""A script that turns a GGUF file of the Llama family into a bf16 Hugging Face directory.

Run by path in a process of its own (`python convert_gguf.py GGUF OUT`), never imported: it is
the one place that uses transformers' model classes, which know GGUF's tensor names and
quantizations, and it needs packages (gguf, accelerate) that Pagoda does not. The import
contracts name it as their exception. `pagoda.lab.model` starts it and checks what it wrote.

Its standard output is one JSON object a line: {"stage": name} when a stage begins and
{"probe": [token ids]} for the tokenizer's reading of PROBE at the end.
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


def load(source: Path) -> tuple[Any, Any]:
    """The tokenizer and the dequantized fp32 model of a GGUF file."""
    folder, name = str(source.parent), source.name
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
    return tokenizer, model


def to_bf16(quantized: Any, tokenizer: Any) -> Any:
    """A fresh bf16 model with the same weights.

    A copy, because transformers refuses to save a model that it loaded from GGUF.
    """
    config = quantized.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    config.name_or_path = ""
    config.dtype = torch.bfloat16
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    model.load_state_dict({k: v.to(torch.bfloat16) for k, v in quantized.state_dict().items()})
    model.tie_weights()
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    return model


def main(source: Path, out: Path) -> None:
    """Convert `source` into the new directory `out`."""
    say(stage="reading GGUF")
    tokenizer, quantized = load(source)
    say(stage="rounding to bf16")
    model = to_bf16(quantized, tokenizer)
    say(stage="writing safetensors")
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    say(probe=AutoTokenizer.from_pretrained(out)(PROBE)["input_ids"])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
