"""Is a model built exactly as the direct forwards read it? What is not known to be so is left to transformers."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as every_module

from specdemo.models.eagle3_head import Eagle3Head
from specdemo.models.packing import PackedLinear
from specdemo.models.pair import device_of
from specdemo.models.types import PreTrainedModel

FAMILIES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}
"""transformers' packages of structurally equal models, and how their classes begin."""
PARTS = ("ForCausalLM", "Model", "DecoderLayer", "Attention", "MLP", "RMSNorm", "RotaryEmbedding")
PLAIN = (nn.Linear, PackedLinear, nn.Embedding, nn.ModuleList)
ROTATIONS = ("default", "linear", "llama3", "yarn")
"""Whose angles depend on the position alone, not on the length of the text."""
DIRECT_DTYPES = {
    "cpu": (torch.float32, torch.bfloat16),
    "cuda": (torch.float32, torch.bfloat16, torch.float16),
}
"""By the kind of device; on a CPU half precision is slow, and not every operation has it. What is on a device of
another kind is left to transformers."""
HOOKS = ("_forward_hooks", "_forward_pre_hooks")
ALIKE = ("scaling", "head_dim", "is_causal")
"""What the attentions of all layers must have in common."""


def unsupported_reason(model: PreTrainedModel, kind: str = "cpu") -> str | None:
    """Why ``model`` cannot run without transformers' modules on one device of this kind; None if it can."""
    config = model.config
    family = config.model_type
    if family not in FAMILIES:
        return f"no direct forward for {family}"
    if config._attn_implementation != "sdpa":
        return f"attention is {config._attn_implementation}"
    if getattr(config, "sliding_window", None) is not None:
        return "sliding window"
    if getattr(model, "hf_quantizer", None) is not None:
        return "quantised weights"
    found = _foreign_around(kind, config.rope_parameters["rope_type"]) or _foreign_module(model, family)
    found = found or _foreign_tensor(model, model.lm_head.weight.dtype, device_of(model), kind)
    return "a bias on the logits" if found is None and model.lm_head.bias is not None else found


def head_unsupported_reason(head: Eagle3Head) -> str | None:
    """The same of a draft head: its modules are our own, but may be watched or have weights of another kind."""
    rotary: Any = head.config.layer.rope_parameters
    if (found := _foreign_around(head.device.type, rotary["rope_type"])) is not None:
        return found
    if not _is_silu(type(head.midlayer.mlp.act_fn)):
        return "an activation other than SiLU"
    watched = (name for name, module in head.named_modules() if _is_watched(module))
    if (name := next(watched, None)) is not None:
        return f"{name or 'head'} has a hook or a forward of its own"
    return _foreign_tensor(head, head.dtype, head.device, head.device.type)


def _foreign_around(kind: str, rotation: str) -> str | None:
    if kind not in DIRECT_DTYPES:
        return f"no direct forward on {kind}"
    if rotation not in ROTATIONS:
        return f"rotary positions of type {rotation}"
    if torch.is_autocast_enabled(kind):
        return "autocast is on"
    return "a hook on every module" if any(getattr(every_module, f"_global{hooks}") for hooks in HOOKS) else None


def _foreign_module(model: PreTrainedModel, family: str) -> str | None:
    known = {f"{FAMILIES[family]}{part}" for part in PARTS}
    home = f"transformers.models.{family}.modeling_{family}"
    for name, module in model.named_modules():
        kind = type(module)
        ours = kind.__module__ == home and kind.__name__ in known and kind.forward.__module__.startswith(home)
        if not ours and kind not in PLAIN and not _is_silu(kind):
            return f"{name or 'model'} is a {kind.__name__}"
        if _is_watched(module):
            return f"{name or 'model'} has a hook or a forward of its own"
    if not all(_is_silu(type(layer.mlp.act_fn)) for layer in model.model.layers):
        return "an activation other than SiLU"
    attentions = {tuple(getattr(layer.self_attn, name) for name in ALIKE) for layer in model.model.layers}
    if len(attentions) > 1 or not all(layer.self_attn.is_causal for layer in model.model.layers):
        return "attention that differs between layers, or is not causal"
    return None


def _is_watched(module: nn.Module) -> bool:
    return "forward" in vars(module) or any(getattr(module, hooks) for hooks in HOOKS)


def _is_silu(kind: type) -> bool:
    """By name: importing transformers' activations takes longer than the rest of this package."""
    return kind is nn.SiLU or (kind.__module__, kind.__name__) == ("transformers.activations", "SiLUActivation")


def _foreign_tensor(module: nn.Module, dtype: torch.dtype, device: torch.device, kind: str) -> str | None:
    for name, weight in module.named_parameters():
        # A quantised or distributed tensor is a subclass with arithmetic of its own.
        if type(weight) is not nn.Parameter or type(weight.data) is not torch.Tensor:
            return f"{name} is no plain tensor"
        if weight.device.type != kind:
            return f"{name} is on {weight.device.type}"
        if weight.device != device:
            return f"{name} is on {weight.device}, other weights are on {device}"
        if weight.dtype != dtype or dtype not in DIRECT_DTYPES[kind]:
            return f"{name} is {str(weight.dtype).removeprefix('torch.')}"
    return None
