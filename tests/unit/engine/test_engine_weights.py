"""Checkpoints load whole and exact, or are refused by name."""

from __future__ import annotations

import json
import re
import struct

import pytest
import torch
from safetensors.torch import load_file, save_file

from pagoda.core.errors import CapacityError, ModelNotFound, UnsupportedModel
from pagoda.engine.checkpoint import Checkpoint
from pagoda.engine.layout import PAGE_BYTES, BlockLayout, BlockPool
from pagoda.engine.runner import Runner, Segment
from pagoda.engine.weights import load_model


def logits_of(directory, dtype="auto"):
    """Logits of a short prompt."""
    runner = Runner(load_model(directory, dtype=dtype), num_blocks=4)
    return runner.forward([Segment([5, 6, 7, 8], 0, [3, 1], True)])


def rewrite(directory, change):
    """Apply `change` to the dictionary of a checkpoint's tensors."""
    tensors = load_file(directory / "model.safetensors")
    change(tensors)
    save_file(tensors, directory / "model.safetensors")


@pytest.mark.parametrize(
    ("stored", "asked", "computed"),
    [
        ("bfloat16", "auto", torch.bfloat16),
        ("float32", "auto", torch.float32),
        ("float16", "auto", torch.float32),
        ("float32", "bf16", torch.bfloat16),
        ("bfloat16", "fp32", torch.float32),
    ],
)
def test_auto_keeps_the_stored_precision(tiny_model, stored, asked, computed):
    """bf16 stays bf16; fp16 is widened, since bf16 would drop digits; a wish is obeyed."""
    model = load_model(tiny_model(dtype=stored), dtype=asked)
    assert model.dtype == computed
    assert model.weights.embedding.dtype == computed


def test_tensors_are_read_exactly(tiny_model):
    """Every tensor of a file equals what safetensors' own reader returns."""
    directory = tiny_model(dtype="bfloat16")
    expected = load_file(directory / "model.safetensors")
    with Checkpoint(directory) as checkpoint:
        assert checkpoint.entries.keys() == expected.keys()
        for name, tensor in expected.items():
            assert torch.equal(checkpoint.read(name, torch.bfloat16), tensor)


def test_sharded_weights_give_the_same_logits(tiny_model):
    """A checkpoint in two files behind an index equals the one in one file."""
    directory = tiny_model()
    whole = logits_of(directory)
    tensors = load_file(directory / "model.safetensors")
    names = sorted(tensors)
    shards = {"a.safetensors": names[:7], "b.safetensors": names[7:]}
    for file, members in shards.items():
        save_file({name: tensors[name] for name in members}, directory / file)
    (directory / "model.safetensors").unlink()
    weight_map = {name: file for file, members in shards.items() for name in members}
    index = directory / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    assert torch.equal(logits_of(directory), whole)
    index.write_text(json.dumps({"weight_map": {"x": "../a.safetensors"}}))
    with pytest.raises(ModelNotFound, match="no weights file"):
        load_model(directory)


@pytest.mark.parametrize(
    ("change", "feature"),
    [
        (lambda t: t.pop("model.norm.weight"), r"without model\.norm\.weight"),
        (lambda t: t.pop("lm_head.weight"), r"without lm_head\.weight"),
        (lambda t: t.update(extra=torch.zeros(1)), "the extra tensor extra"),
        (lambda t: t.update({"model.layers.0.self_attn.sinks": torch.zeros(6)}), "sinks"),
        (lambda t: t.update({"model.norm.weight": torch.ones(95)}), r"of shape \(95,\)"),
        (lambda t: t.update({"model.norm.weight": torch.ones(96).to(torch.int8)}), "I8 weights"),
    ],
)
def test_missing_extra_and_misshaped_tensors_are_refused(tiny_model, change, feature):
    """A checkpoint that does not match its configuration names the tensor at fault."""
    directory = tiny_model()
    rewrite(directory, change)
    with pytest.raises(UnsupportedModel) as caught:
        load_model(directory)
    assert re.search(feature, caught.value.feature)


def test_harmless_extra_tensors_are_ignored(tiny_model):
    """Old rope frequencies, and an output matrix equal to the tied embedding, are no news."""
    directory = tiny_model(tie_word_embeddings=True)
    expected = logits_of(directory)

    def add(tensors):
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.zeros(16)
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()

    rewrite(directory, add)
    assert torch.equal(logits_of(directory), expected)
    rewrite(directory, lambda tensors: tensors["lm_head.weight"].add_(1))
    with pytest.raises(UnsupportedModel, match=r"lm_head\.weight"):
        load_model(directory)


def damaged(content: bytes, kind: str) -> bytes:
    """A safetensors file, damaged in one way."""
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + length])
    if kind == "cut":
        return content[:-100]
    if kind == "short":
        return content[:5]
    if kind == "length":
        return struct.pack("<Q", 2**60) + content[8:]
    if kind == "json":
        return content[:8] + b"x" * length + content[8 + length :]
    header["model.norm.weight"]["data_offsets"] = [0, 1]
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content[8 + length :]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("cut", "beyond the end of the file"),
        ("short", "not a safetensors file"),
        ("length", "not a safetensors file"),
        ("json", "damaged header"),
        ("offsets", "contradict its shape"),
    ],
)
def test_damaged_files_are_model_not_found(tiny_model, kind, message):
    """A cut, foreign or inconsistent weights file is refused before anything is computed."""
    directory = tiny_model()
    path = directory / "model.safetensors"
    path.write_bytes(damaged(path.read_bytes(), kind))
    with pytest.raises(ModelNotFound, match=message) as caught:
        load_model(directory)
    assert caught.value.path == str(path)


def test_absent_models_are_model_not_found(tmp_path, tiny_model):
    """No directory, or one without safetensors, says what to do."""
    with pytest.raises(ModelNotFound, match="no model directory"):
        load_model(tmp_path / "nowhere")
    directory = tiny_model()
    (directory / "model.safetensors").rename(directory / "pytorch_model.bin")
    with pytest.raises(ModelNotFound, match="safetensors only"):
        load_model(directory)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_blocks_are_aligned_apart_and_writable(dtype):
    """A block's view starts on a page, has block_bytes, and is the bytes tensors see."""
    layout = BlockLayout(layers=3, kv_heads=2, head_dim=20, dtype=dtype)
    pool = BlockPool(layout, 5)
    assert layout.block_bytes % PAGE_BYTES == 0
    assert layout.block_bytes >= 3 * layout.layer_bytes
    assert (pool.elements.data_ptr() + layout.block_bytes) % PAGE_BYTES == 0
    view = pool.block_view(2)
    assert len(view) == layout.block_bytes
    view[:] = b"\x01" * len(view)
    assert all(not any(pool.block_view(other)) for other in (0, 1, 3, 4))
    for layer in range(3):
        for tensor in (pool.keys(layer), pool.values(layer)):
            assert tensor[2].view(torch.uint8).eq(1).all()
            assert not tensor[[0, 1, 3, 4]].any()
    with pytest.raises(AssertionError, match="block 5 of 5"):
        pool.block_view(5)
    view.release()
    pool.close()


def test_layout_ids_tell_layouts_apart():
    """Any difference in dtype or shape changes the layout's name."""
    base = {"layers": 2, "kv_heads": 2, "head_dim": 32, "dtype": torch.bfloat16}
    changes = [{}, {"layers": 3}, {"kv_heads": 1}, {"head_dim": 64}, {"dtype": torch.float32}]
    names = {BlockLayout(**(base | change)).layout_id for change in changes}
    assert len(names) == len(changes)


def test_a_pool_beyond_memory_is_a_capacity_error():
    """A pool that no machine can map names the bytes that were asked."""
    layout = BlockLayout(layers=2, kv_heads=2, head_dim=32, dtype=torch.float32)
    with pytest.raises(CapacityError) as caught:
        BlockPool(layout, 2**50)
    assert caught.value.asked_bytes == 2**50 * layout.block_bytes
