"""EAGLE-3 heads as files in both formats, written from the tables of names without the package's writer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

import specdemo

FLAGS = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")


def tensors_of(head: specdemo.Eagle3Head, layer: str) -> dict[str, torch.Tensor]:
    """A head's tensors, its decoder layer under the prefix ``layer``, with the tables of ids."""
    held = {name.replace("midlayer.", layer): tensor.clone() for name, tensor in head.state_dict().items()}
    config = head.config
    if config.draft_vocabulary < config.vocabulary:
        held["d2t"] = head.target_ids - torch.arange(config.draft_vocabulary)
        held["t2d"] = torch.zeros(config.vocabulary, dtype=torch.bool).index_fill(0, head.target_ids, True)
    return held


def layer_keys(head: specdemo.Eagle3Head) -> dict[str, Any]:
    """The keys that describe a Llama or Qwen3 layer."""
    layer = head.config.layer
    sizes = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim")
    own = {key: getattr(layer, key) for key in ("model_type", *sizes, "rms_norm_eps")}
    theta, known = layer.rope_parameters["rope_theta"], head.config.vocabulary
    return {**own, "num_hidden_layers": 1, "rope_theta": theta, "hidden_act": "silu", "vocab_size": known}


def write_safeai(head: specdemo.Eagle3Head, folder: Path, **changes: Any) -> Path:
    """The format of SafeAILab/EAGLE, AngelSlim and SpecForge; returns ``folder``."""
    config = head.config
    data = {
        "architectures": ["LlamaForCausalLMEagle3"],
        **layer_keys(head),
        "draft_vocab_size": config.draft_vocabulary,
        "target_hidden_size": config.target_width,
        "norm_before_residual": config.norm_before_residual,
        "fc_norm": config.fc_norm,
        "eagle_config": {
            "use_aux_hidden_state": True,
            "norm_before_fc": config.norm_before_fc,
            "eagle_aux_hidden_state_layer_ids": [layer - 1 for layer in config.aux_layers],
        },
    }
    if config.fc_norm:
        data["norm_output"] = config.feeds_norm
    return _write(folder, data, tensors_of(head, "midlayer."), changes)


def write_speculators(head: specdemo.Eagle3Head, folder: Path, **changes: Any) -> Path:
    """The format of vllm-project/speculators; returns ``folder``."""
    config = head.config
    data = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "verifier": {"name_or_path": "Qwen/Qwen3-8B", "architectures": ["Qwen3ForCausalLM"]},
        },
        "transformer_layer_config": layer_keys(head),
        "draft_vocab_size": config.draft_vocabulary,
        "target_hidden_size": None if config.target_width == config.width else config.target_width,
        "norm_before_residual": config.norm_before_residual,
        "norm_before_fc": config.norm_before_fc,
        "fc_norm": config.fc_norm,
        "norm_output": config.feeds_norm,
        "eagle_aux_hidden_state_layer_ids": list(config.aux_layers),
    }
    return _write(folder, data, tensors_of(head, "layers.0."), changes)


def _write(folder: Path, data: dict[str, Any], tensors: dict[str, torch.Tensor], changes: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for key, value in changes.items():
        data.pop(key, None)
        if value is not None:
            data[key] = value
    (folder / "config.json").write_text(json.dumps(data), encoding="utf-8")
    save_file(tensors, folder / "model.safetensors")
    return folder
