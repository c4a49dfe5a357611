"""Models with random weights for measurements of speed: their forwards take the time of trained ones.

A draft with random weights of its own would agree with its target once in a vocabulary. So the draft is a copy of
the target's first layers, in memory of its own. The target's later layers do all of their work, but their two
output projections are scaled down, so that the first layers often predict the same token. How often, the figures
say; it is no property of any trained pair.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

from specdemo.models.eagle3_config import shaped_like
from specdemo.models.eagle3_head import Eagle3Head
from specdemo.models.packing import pack, unpackable_reason
from specdemo.models.pair import ModelPair

SEED = 0
CONTEXT = 4096
CPU = torch.device("cpu")
ENDLESS = {"bos_token_id": None, "eos_token_id": None}
"""No token ends a text."""
TIED = {"head_dim": 128, "tie_word_embeddings": True, **ENDLESS}
"""Of the Qwen3 shapes."""
LATER = 0.05
"""The factor on the output projections of a target's later layers."""
HEAD_VOCABULARY = 32_000
"""Of most published heads."""
QWEN3 = {
    "0.6B": (28, 1024, 16, 8, 3072, 151936),
    "1.7B": (28, 2048, 16, 8, 6144, 151936),
    "4B": (36, 2560, 32, 8, 9728, 151936),
}
"""Shapes as ``random_model`` takes them, heads of 128."""


def random_model(
    kind: type[PreTrainedConfig],
    shape: tuple[int, int, int, int, int, int],
    device: torch.device = CPU,
    dtype: torch.dtype = torch.float32,
    context: int = CONTEXT,
    **more: Any,
) -> PreTrainedModel:
    """A model whose weights are drawn where it will run.

    Args:
        kind: the configuration's class, which decides the architecture.
        shape: layers, width, heads, heads of keys and values, width of the MLPs, vocabulary.
        context: positions it can read.
        more: further fields of the configuration.
    """
    names = ("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "intermediate_size")
    fields = dict(zip((*names, "vocab_size"), shape, strict=True))
    config = kind(**fields, max_position_embeddings=context, **more)
    torch.manual_seed(SEED)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, dtype=dtype).eval()


def random_pair(
    device: torch.device,
    dtype: torch.dtype,
    layers: int = 24,
    draft_layers: int = 4,
    width: int = 896,
    heads: int = 14,
    groups: int = 2,
    inner: int = 4864,
    vocabulary: int = 32768,
    later: float = LATER,
) -> ModelPair:
    """A target of the shape of Qwen2.5-0.5B but for its vocabulary, and a draft of its first layers.

    ``later``: the factor on the output projections of the target's layers behind those.
    """
    shape = (layers, width, heads, groups, inner, vocabulary)
    return _with_first_layers(
        Qwen2Config, shape, draft_layers, later, device, dtype, tie_word_embeddings=False, **ENDLESS
    )


def random_qwen3(size: str, dtype: torch.dtype, layers: int | None = None) -> PreTrainedModel:
    """A model on the CPU of the shape of one of ``QWEN3``, its head tied to the embeddings.

    ``layers``: only so many.
    """
    all_layers, *rest = QWEN3[size]
    return random_model(Qwen3Config, (layers or all_layers, *rest), CPU, dtype, **TIED)


def random_qwen3_pair(size: str, dtype: torch.dtype) -> ModelPair:
    """Such a target, a draft of its first two layers, and a random head of the shape of published ones."""
    pair = _with_first_layers(Qwen3Config, QWEN3[size], 2, LATER, CPU, dtype, **TIED)
    shape = pair.target.config
    drafted = min(HEAD_VOCABULARY, shape.vocab_size)
    config = shaped_like(shape, "a random head", shape.intermediate_size, drafted)
    torch.manual_seed(SEED)
    pair.head = Eagle3Head(config).to(dtype).requires_grad_(False).eval()
    pair.head.target_ids = torch.randperm(shape.vocab_size)[:drafted].sort().values
    return pair


def packed(model: PreTrainedModel) -> PreTrainedModel:
    """The same model, packed as a loaded one would be."""
    if unpackable_reason(model, "cpu", model.dtype) is None:
        pack(model)
    return model


def _with_first_layers(
    kind: type[PreTrainedConfig],
    shape: tuple[int, int, int, int, int, int],
    draft_layers: int,
    later: float,
    device: torch.device,
    dtype: torch.dtype,
    **more: Any,
) -> ModelPair:
    layers, *rest = shape
    target, draft = (random_model(kind, (count, *rest), device, dtype, **more) for count in (layers, draft_layers))
    with torch.no_grad():
        for layer in target.model.layers[draft_layers:]:
            for projection in (layer.self_attn.o_proj, layer.mlp.down_proj):
                projection.weight.mul_(later)
    weights = target.state_dict()
    draft.load_state_dict({name: weights[name].clone() for name in draft.state_dict()})
    return ModelPair(target, draft, None, name=f"random {layers} × {rest[0]} + its first {draft_layers} layers")


def random_4b(device: torch.device) -> PreTrainedModel:
    """A bfloat16 model of the shape of Qwen3-4B, its head tied to the embeddings."""
    return random_model(Qwen3Config, QWEN3["4B"], device, torch.bfloat16, **TIED)
