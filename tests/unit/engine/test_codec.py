"""The codec of a model directory: the demonstration model's, and a tiny one made here."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from pagoda.core.errors import ModelNotFound, RequestError, UnsupportedModel
from pagoda.engine.codec import eos_token_ids, load_codec
from pagoda.engine.detokenize import BYTE_OF_LETTER

TEMPLATE = (
    "{% if messages[0]['role'] == 'assistant' %}{{ raise_exception('begin with a user') }}"
    "{% endif %}<s>{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


@pytest.fixture
def tiny(tmp_path):
    """A byte-level tokenizer that puts <s> in front, as Llama's does."""
    made = Tokenizer(models.BPE(vocab=dict(BYTE_OF_LETTER), merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken("<s>", special=True), AddedToken("</s>", special=True)])
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 256)]
    )
    made.save(str(tmp_path / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "chat_template": TEMPLATE,
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "eos_token_id": 257}))
    return tmp_path


def test_a_plain_prompt_gets_one_beginning_token_and_a_chat_the_templates_own(tiny):
    """Special tokens are never added twice, spelled out or not."""
    codec = load_codec(tiny)
    assert codec.encode("hi") == [256, *b"hi"]
    assert codec.encode("<s>hi") == [256, *b"hi"]
    chat = codec.render_chat([{"role": "user", "content": "hi"}])
    assert chat == [256, *b"[user]hi[assistant]"]


def test_decoding_returns_the_text_without_special_tokens(tiny):
    """Decoding what was encoded gives the text back."""
    codec = load_codec(tiny)
    assert codec.decode([*codec.encode("naïve 你好 😀"), 257]) == "naïve 你好 😀"


def test_a_refusing_or_failing_template_becomes_a_request_error(tiny):
    """The template's own words reach the client, any other failure only by kind."""
    codec = load_codec(tiny)
    with pytest.raises(RequestError, match="begin with a user") as refusal:
        codec.render_chat([{"role": "assistant", "content": "x"}])
    assert refusal.value.param == "messages"
    with pytest.raises(RequestError, match="chat template"):
        codec.render_chat([])


def test_a_model_without_a_template_says_so(tiny):
    """A base model still serves completions, and its refusal names them."""
    settings = json.loads((tiny / "tokenizer_config.json").read_text())
    del settings["chat_template"]
    (tiny / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(RequestError, match="/v1/completions"):
        load_codec(tiny).render_chat([{"role": "user", "content": "x"}])


def test_end_tokens_come_from_both_configurations(tiny):
    """generation_config.json and config.json may each name one token, several or none."""
    (tiny / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 6]}))
    assert eos_token_ids(tiny) == {5, 6, 257}
    assert load_codec(tiny).eos_ids == {5, 6, 257}
    (tiny / "generation_config.json").unlink()
    (tiny / "config.json").write_text(json.dumps({"model_type": "llama", "eos_token_id": None}))
    assert eos_token_ids(tiny) == frozenset()
    assert load_codec(tiny).eos_ids == {257}


def test_threads_may_share_a_codec(tiny):
    """Concurrent calls give what single ones give."""
    codec = load_codec(tiny)
    texts = [chr(65 + at) * (at + 1) for at in range(26)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(codec.encode, texts * 8)) == [codec.encode(t) for t in texts] * 8


def test_a_directory_without_a_tokenizer_is_named(tmp_path):
    """Both a missing directory and an empty one are ModelNotFound, with the path."""
    for directory in (tmp_path, tmp_path / "absent"):
        with pytest.raises(ModelNotFound) as refusal:
            load_codec(directory)
        assert refusal.value.path == str(directory)


def test_a_tokenizer_that_cannot_be_streamed_is_refused(tiny):
    """A decoder Pagoda does not know fails at start, not in the middle of an answer."""
    data = json.loads((tiny / "tokenizer.json").read_text())
    data["decoder"] = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    (tiny / "tokenizer.json").write_text(json.dumps(data))
    with pytest.raises(UnsupportedModel, match="WordPiece"):
        load_codec(tiny)


@pytest.mark.engine
def test_the_demonstration_models_text_survives_a_round_trip(demo_model):
    """Encoding and decoding with the real vocabulary, its emoji and CJK bytes included."""
    codec = load_codec(Path(demo_model))
    text = "Pagoda: naïve façade, 你好, 😀🎉\n\ttabs"
    assert codec.decode(codec.encode(text)) == text
    assert codec.eos_ids == {2}


@pytest.mark.engine
def test_the_demonstration_models_chat_equals_transformers_own(demo_model):
    """Our direct path to the tokenizer gives the ids that apply_chat_template gives."""
    from transformers import AutoTokenizer

    reference = AutoTokenizer.from_pretrained(demo_model, local_files_only=True)
    messages = [{"role": "user", "content": "What is a cache? 你好"}]
    expected = reference.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
    assert load_codec(Path(demo_model)).render_chat(messages) == expected
