"""Models with random weights for measurements of speed: their forwards take the time of trained ones.

A draft that was never taught its target would be right once in a vocabulary. So it is made of the target: its
first layers, in memory of its own. The target's later layers do all of their work, but what they add to the text
is made small (their two output products are scaled down), so that the first layers often say the same. How often,
the figures say; it is no property of any trained pair.
"""

from __future__ import annotations

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel, Qwen2Config, Qwen3Config

from specdemo.models.pair import ModelPair

SEED = 0
CONTEXT = 4096


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

    ``later``: what the output products of the target's layers behind those are multiplied with.
    """

    def build(count: int) -> PreTrainedModel:
        config = Qwen2Config(
            vocab_size=vocabulary,
            hidden_size=width,
            intermediate_size=inner,
            num_hidden_layers=count,
            num_attention_heads=heads,
            num_key_value_heads=groups,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=False,
            bos_token_id=None,
            eos_token_id=None,
        )
        return random_model(config, device, dtype)

    target, draft = build(layers), build(draft_layers)
    with torch.no_grad():
        for layer in target.model.layers[draft_layers:]:
            for product in (layer.self_attn.o_proj, layer.mlp.down_proj):
                product.weight.mul_(later)
    weights = target.state_dict()
    draft.load_state_dict({name: weights[name].clone() for name in draft.state_dict()})
    return ModelPair(target, draft, None, name=f"random {layers} × {width} + its first {draft_layers} layers")


def random_4b(device: torch.device) -> PreTrainedModel:
    """A bfloat16 model of the shape of Qwen3-4B: 36 layers × 2560, its head tied to a vocabulary of 151,936."""
    config = Qwen3Config(
        vocab_size=151936,
        hidden_size=2560,
        intermediate_size=9728,
        num_hidden_layers=36,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
    )
    return random_model(config, device, torch.bfloat16)


def random_model(config: Qwen2Config | Qwen3Config, device: torch.device, dtype: torch.dtype) -> PreTrainedModel:
    """Weights drawn where the model will run."""
    torch.manual_seed(SEED)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
