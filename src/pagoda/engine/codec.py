"""The tokenizer and chat template of a model directory, as the engine port's Codec.

transformers finds the tokenizer's files and renders the template (in its jinja sandbox);
encoding goes straight to the `tokenizers` object below it, which threads may share, where
transformers' own call path changes that object's settings while it runs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagoda.core.errors import ModelNotFound, RequestError, UnsupportedModel
from pagoda.engine.detokenize import Pieces

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["TokenizerCodec", "eos_token_ids", "load_codec"]


class TokenizerCodec:
    """Implements engine.api.Codec. `pieces` serves detokenizers; `eos_ids` end an answer."""

    def __init__(self, tokenizer: Any, *, eos_ids: frozenset[int], path: str) -> None:
        self._tokenizer = tokenizer
        self._backend: Tokenizer = tokenizer.backend_tokenizer
        bos: list[int] = self._backend.encode("").ids[:1]
        self._added_bos = bos if bos == [tokenizer.bos_token_id] else []
        self.eos_ids = eos_ids
        self.pieces = Pieces(self._backend, path=path)

    def encode(self, text: str) -> list[int]:
        """Tokens of a plain prompt, with the special tokens the model wants around it; a
        beginning-of-sequence token that the text already spells out is not doubled."""
        ids: list[int] = self._backend.encode(text).ids
        doubled = bool(self._added_bos) and ids[:2] == self._added_bos * 2
        return ids[1:] if doubled else ids

    def decode(self, token_ids: list[int]) -> str:
        """Text of a whole sequence, special tokens left out."""
        return self.pieces.decode(token_ids)

    def render_chat(self, messages: list[dict[str, str]]) -> list[int]:
        """Tokens of a chat with the assistant's turn opened. Raises RequestError when the
        model has no template or the template refuses the messages."""
        text = self._render(messages)
        ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        return ids

    def _render(self, messages: list[dict[str, str]]) -> str:
        if not self._tokenizer.chat_template:
            raise RequestError(
                "this model has no chat template",
                param="messages",
                code="no_chat_template",
                remedy="use /v1/completions",
            )
        # Imported here: the template engine is needed only once a chat arrives.
        from jinja2 import TemplateError  # noqa: PLC0415

        try:
            rendered = self._tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True
            )
        except TemplateError as refusal:
            raise RequestError(
                f"the chat template refuses the messages: {refusal.message}",
                param="messages",
                code="chat_template_refused",
            ) from None
        except (TypeError, ValueError, KeyError, AttributeError, IndexError) as fault:
            raise RequestError(
                f"the chat template fails on these messages ({type(fault).__name__})",
                param="messages",
                code="chat_template_refused",
            ) from None
        return str(rendered)


def load_codec(directory: Path) -> TokenizerCodec:
    """The codec of a Hugging Face model directory; reads local files only. Raises
    ModelNotFound without tokenizer files, UnsupportedModel for tokenizers it cannot stream."""
    # transformers takes seconds to import; whoever only wants this module's names is spared.
    from transformers import AutoTokenizer  # noqa: PLC0415

    if not directory.is_dir():
        raise ModelNotFound(f"{directory} is not a directory", path=str(directory))
    try:
        tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)
    except (OSError, ValueError) as fault:
        raise ModelNotFound(
            f"no usable tokenizer in {directory}: {fault}",
            path=str(directory),
            remedy="the directory needs tokenizer.json and tokenizer_config.json",
        ) from fault
    if not getattr(tokenizer, "is_fast", False):
        raise UnsupportedModel(
            f"{type(tokenizer).__name__} has no tokenizers backend",
            path=str(directory),
            feature="slow tokenizer",
            remedy="convert it to tokenizer.json",
        )
    fallback = () if tokenizer.eos_token_id is None else (int(tokenizer.eos_token_id),)
    eos_ids = eos_token_ids(directory) or frozenset(fallback)
    return TokenizerCodec(tokenizer, eos_ids=eos_ids, path=str(directory))


def eos_token_ids(directory: Path) -> frozenset[int]:
    """The tokens that end an answer, by generation_config.json and config.json together."""
    found: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        file = directory / name
        if not file.is_file():
            continue
        stated = json.loads(file.read_text(encoding="utf-8")).get("eos_token_id")
        found.update(stated if isinstance(stated, list) else [] if stated is None else [stated])
    return frozenset(found)
