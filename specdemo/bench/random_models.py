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
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

from specdemo.models.pair import ModelPair

SEED = 0
CONTEXT = 4096
CPU = torch.device("cpu")
ENDLESS = {"bos_token_id": None, "eos_token_id": None}
"""No token ends a text."""
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


def random_llama(layers: int, width: int, heads: int, groups: int, context: int) -> PreTrainedModel:
    """A float32 model of Llama's shape on the CPU; ``groups``: heads of keys and values."""
    return random_model(LlamaConfig, (layers, width, heads, groups, 8 * width // 3, 4096), context=context)


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
    later: float = 0.05,
) -> ModelPair:
    """A target of the shape of Qwen2.5-0.5B but for its vocabulary, and a draft of its first layers.

    ``later``: the factor on the output projections of the target's layers behind those.
    """
    shape = (layers, width, heads, groups, inner, vocabulary)
    return _with_first_layers(Qwen2Config, shape, draft_layers, later, device, dtype, tie_word_embeddings=False)


def random_qwen3(size: str, dtype: torch.dtype, draft_layers: int = 2, later: float = 0.05) -> ModelPair:
    """A target of the shape of a Qwen3 model on the CPU, its head tied to the embeddings, and its first layers.

    Args:
        size: one of ``QWEN3``.
        later: as in :func:`random_pair`.
    """
    more = {"head_dim": 128, "tie_word_embeddings": True}
    return _with_first_layers(Qwen3Config, QWEN3[size], draft_layers, later, CPU, dtype, **more)


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
    target, draft = (
        random_model(kind, (count, *rest), device, dtype, **more, **ENDLESS) for count in (layers, draft_layers)
    )
    with torch.no_grad():
        for layer in target.model.layers[draft_layers:]:
            for projection in (layer.self_attn.o_proj, layer.mlp.down_proj):
                projection.weight.mul_(later)
    weights = target.state_dict()
    draft.load_state_dict({name: weights[name].clone() for name in draft.state_dict()})
    return ModelPair(target, draft, None, name=f"random {layers} × {rest[0]} + its first {draft_layers} layers")


def random_4b(device: torch.device) -> PreTrainedModel:
    """A bfloat16 model of the shape of Qwen3-4B, its head tied to the embeddings."""
    more = {"head_dim": 128, "tie_word_embeddings": True, **ENDLESS}
    return random_model(Qwen3Config, QWEN3["4B"], device, torch.bfloat16, **more)
