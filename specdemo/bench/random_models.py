"""Models with random weights for measurements of speed: their forwards take the time of trained ones.

A draft with random weights of its own would agree with its target once in a vocabulary. So the draft is a copy of
the target's first layers, in memory of its own. The target's later layers do all of their work, but their two
output projections are scaled down, so that the first layers often predict the same token. How often, the figures
say; it is no property of any trained pair.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel, Qwen3_5TextConfig, Qwen3Config

from specdemo.bench.harness import CPU
from specdemo.models.packing import pack, unpackable_reason
from specdemo.models.pair import ModelPair

SEED = 0
LATER = 0.05
"""The factor on the output projections of a target's later layers."""
FIELDS = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
    "tie_word_embeddings",
)
SHAPES = {
    "24 layers × 896": (24, 896, 14, 2, 64, 4864, 32_768, False),
    "0.6B": (28, 1024, 16, 8, 128, 3072, 151_936, True),
    "1.7B": (28, 2048, 16, 8, 128, 6144, 151_936, True),
    "4B": (36, 2560, 32, 8, 128, 9728, 151_936, True),
    "hybrid": (24, 1024, 8, 2, 256, 3584, 32_768, True),
}
"""By name, the ``FIELDS``; three are Qwen3's, the last is Qwen3.5's of 0.8B with a small vocabulary: 0.53B."""
PROJECTIONS = ("o_proj", "out_proj", "down_proj")


def random_model(
    shape: str, dtype: torch.dtype = torch.float32, device: torch.device = CPU, layers: int | None = None
) -> PreTrainedModel:
    """A model whose weights are drawn where it will run, and whose texts no token ends."""
    fields: dict[str, Any] = dict(zip(FIELDS, SHAPES[shape], strict=True))
    fields["num_hidden_layers"] = layers or fields["num_hidden_layers"]
    fields |= {"max_position_embeddings": 4096, "bos_token_id": None, "eos_token_id": None}
    hybrid = shape == "hybrid"
    config = Qwen3_5TextConfig(**fields, linear_num_value_heads=16) if hybrid else Qwen3Config(**fields)
    torch.manual_seed(SEED)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, dtype=dtype).eval()


def random_pair(shape: str, dtype: torch.dtype, device: torch.device = CPU, draft_layers: int = 2) -> ModelPair:
    """Such a target, and a draft of its first layers."""
    target, draft = (random_model(shape, dtype, device, layers) for layers in (None, draft_layers))
    with torch.no_grad():
        for layer in target.model.layers[draft_layers:]:
            for name, weight in layer.named_parameters():
                if name.split(".")[-2] in PROJECTIONS:
                    weight.mul_(LATER)
    weights = target.state_dict()
    draft.load_state_dict({name: weights[name].clone() for name in draft.state_dict()})
    return ModelPair(target, draft, None, name=f"random, {shape} + its first {draft_layers} layers")


def pack_all(pair: ModelPair) -> None:
    """Pack the models as a pair's are that was loaded by name."""
    for model in (pair.target, pair.draft):
        if model is not None and unpackable_reason(model, model.device.type, model.dtype) is None:
            pack(model)
