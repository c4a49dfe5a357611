"""Is a model built exactly as the direct forward reads it? What is not known to be so is left to transformers."""

from __future__ import annotations

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.activations import SiLUActivation

FAMILIES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}
"""transformers' packages of structurally equal models, and how their classes begin."""
PARTS = ("ForCausalLM", "Model", "DecoderLayer", "Attention", "MLP", "RMSNorm", "RotaryEmbedding")
SILU = (nn.SiLU, SiLUActivation)
PLAIN = (nn.Linear, nn.Embedding, nn.ModuleList, *SILU)
ROTATIONS = ("default", "linear", "llama3", "yarn")
"""Whose angles depend on the position alone, not on the length of the text."""
DTYPES = (torch.float32, torch.bfloat16)
HOOKS = ("_forward_hooks", "_forward_pre_hooks")


def obstacle(model: PreTrainedModel) -> str | None:
    """Why ``model`` cannot run directly, in a few words; None if it can."""
    config = model.config
    family = config.model_type
    if family not in FAMILIES:
        return f"no direct forward for {family}"
    if config._attn_implementation != "sdpa":
        return f"attention is {config._attn_implementation}"
    if getattr(config, "sliding_window", None) is not None:
        return "sliding window"
    if config.rope_parameters["rope_type"] not in ROTATIONS:
        return f"rotary positions of type {config.rope_parameters['rope_type']}"
    if getattr(model, "hf_quantizer", None) is not None:
        return "quantised weights"
    return _foreign_module(model, family) or _foreign_weight(model)


def _foreign_module(model: PreTrainedModel, family: str) -> str | None:
    known = {f"{FAMILIES[family]}{part}" for part in PARTS}
    home = f"transformers.models.{family}.modeling_{family}"
    for name, module in model.named_modules():
        kind = type(module)
        ours = kind.__module__ == home and kind.__name__ in known and kind.forward.__module__.startswith(home)
        if not ours and kind not in PLAIN:
            return f"{name or 'model'} is a {kind.__name__}"
        if "forward" in vars(module) or any(getattr(module, hooks) for hooks in HOOKS):
            return f"{name or 'model'} has a hook or a forward of its own"
    if not all(type(layer.mlp.act_fn) in SILU for layer in model.model.layers):
        return "an activation other than SiLU"
    return None


def _foreign_weight(model: PreTrainedModel) -> str | None:
    dtype = model.lm_head.weight.dtype
    for name, weight in model.named_parameters():
        # A quantised or distributed tensor is a subclass with arithmetic of its own.
        if type(weight) is not nn.Parameter or type(weight.data) is not torch.Tensor:
            return f"{name} is no plain tensor"
        if weight.device.type != "cpu":
            return f"{name} is on {weight.device.type}"
        if weight.dtype != dtype or dtype not in DTYPES:
            return f"{name} is {str(weight.dtype).removeprefix('torch.')}"
    if model.lm_head.bias is not None:
        return "a bias on the logits"
    return None
