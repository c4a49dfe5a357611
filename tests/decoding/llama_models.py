"""Small random models of every family that the direct forward and the graphs know."""

from __future__ import annotations

import torch
import transformers
from transformers import PreTrainedModel

CONFIGS = {
    "llama": transformers.LlamaConfig,
    "mistral": transformers.MistralConfig,
    "qwen2": transformers.Qwen2Config,
    "qwen3": transformers.Qwen3Config,
}

ROPE = {"rope_theta": 10000.0, "original_max_position_embeddings": 64}
SHAPES = {
    "grouped": {},
    "ungrouped": {"num_key_value_heads": 4},
    "one group": {"num_key_value_heads": 1},
    "wide heads": {"head_dim": 32},
    "tied": {"tie_word_embeddings": True},
    "biased": {"attention_bias": True, "mlp_bias": True},
    "llama3 positions": {
        "rope_parameters": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
        | ROPE
    },
    "yarn positions": {"rope_parameters": {"rope_type": "yarn", "factor": 4.0} | ROPE},
}
CASES = [
    *((family, shape) for family in ("llama", "qwen3") for shape in SHAPES),
    *((family, shape) for family in ("mistral", "qwen2") for shape in ("grouped", "ungrouped", "tied")),
]


def model_of(family: str, shape: str, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """A random model of three layers; every weight counts, those of norms and biases too."""
    config = CONFIGS[family](
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        max_position_embeddings=256,
        sliding_window=None,
        eos_token_id=None,
        **{"num_key_value_heads": 2, "head_dim": 8, **SHAPES[shape]},
    )
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for weights in model.parameters():
            weights.normal_(1.0 if weights.ndim == 1 else 0.0, 0.2)
    return model.to(dtype)
