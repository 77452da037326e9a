"""The forward pass of a decoder: layers of attention and gated MLP over a flattened batch."""

from __future__ import annotations

import torch

from pagoda.engine.batch import Batch
from pagoda.engine.kernels import Kernels
from pagoda.engine.linear import padded_rows
from pagoda.engine.weights import LoadedModel


def forward(model: LoadedModel, kernels: Kernels, batch: Batch) -> torch.Tensor:
    """Compute a batch and store its KV; logits float32 [len(batch.logit_rows), vocab].

    A row's numbers depend on its own sequence alone. The batch is padded to a round number of
    rows (see `padded_rows`); what the padding computes is thrown away.
    """
    weights = model.weights
    residual = torch.nn.functional.embedding(_padded(batch.token_ids), weights.embedding)
    delta: torch.Tensor | None = None
    for index, layer in enumerate(weights.layers):
        qkv = layer.qkv(kernels.add_norm(residual, delta, layer.input_norm))
        mixed = layer.output(kernels.attention(qkv, index, layer, batch))
        gate_up = layer.gate_up(kernels.add_norm(residual, mixed, layer.mlp_norm))
        delta = layer.down(kernels.silu_mul(gate_up))
    if not batch.logit_rows:
        return torch.empty(0, model.config.vocab_size)
    assert delta is not None, "a model has at least one layer"
    rows = _padded(torch.tensor(batch.logit_rows))
    final = kernels.add_norm(residual[rows], delta[rows], weights.final_norm)
    return weights.head(final)[: len(batch.logit_rows)].float()


def _padded(indices: torch.Tensor) -> torch.Tensor:
    missing = padded_rows(len(indices)) - len(indices)
    return torch.cat([indices, indices[-1:].expand(missing)]) if missing else indices
