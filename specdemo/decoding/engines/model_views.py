"""The caller's model under wrappers of our own: modules are replaced or watched without changing the caller's.

transformers' ``output_hidden_states`` is not used to read hidden states: it leaves its hooks on the model.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import nn

from specdemo.models.types import PreTrainedModel

HOOK_TABLES = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
)

DELTA_RULES = ("torch_chunk_gated_delta_rule", "chunk_kimi_delta_attention")
"""transformers' recurrences that take the length of a chunk from the arguments of the model's forward."""
DELTA_CHUNK = 64
"""Their own."""
SCANS = ("mamba2_chunk_scan",)
"""Those that take it from the layer, which has it from the configuration."""


def layer_list(model: PreTrainedModel) -> str | None:
    """Dotted name of the list that holds the decoder layers; None for an architecture built otherwise."""
    count, decoder = model.config.get_text_config().num_hidden_layers, model.get_decoder()
    inside = next((name for name, module in model.named_modules() if module is decoder), "")
    found = [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) == count
    ]
    # The encoder of images may have as many layers.
    return min(found, key=lambda name: (not name.startswith(inside), name.count(".")), default=None)


def layers_of(model: PreTrainedModel) -> list[nn.Module]:
    return list(cast(nn.ModuleList, model.get_submodule(layer_list(model) or "")))


def with_layers(model: PreTrainedModel, layers: Sequence[nn.Module]) -> PreTrainedModel:
    """The same model, weights shared, with other decoder layers in its :func:`layer_list`.

    ``model`` itself is not touched: the modules on the way to the layers are copied without their weights.
    """
    name = layer_list(model)
    assert name is not None, "its drafters check this"
    view: Any = _with_own_children(model)
    parent: Any = view
    *way, last = name.split(".")
    for step in way:
        child = _with_own_children(getattr(parent, step))
        parent._modules[step] = child
        parent = child
    parent._modules[last] = nn.ModuleList(layers)
    return view


def observable(module: Any) -> Any:
    """The same module under a wrapper of its own: it takes hooks that the caller's lacks."""
    copied = copy.copy(module)
    for table in HOOK_TABLES:
        setattr(copied, table, copy.copy(getattr(module, table)))
    return copied


class ShortChunks:
    """A view of a model whose recurrent layers, if it has any, read a few tokens as one chunk of so many.

    By themselves they fill a chunk up with zeros, to 64 tokens (delta rule) or 256 (Mamba-2), so that a verify
    would take several times the time of a step. The sums are the same.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._layers: list[tuple[Any, int]] = []
        self._delta_rule = any(_beside(module, DELTA_RULES) for module in model.modules())
        self.view: PreTrainedModel = self._copied(model)  # the model to call

    def _copied(self, module: Any) -> Any:
        """The same module; one with a scan somewhere in it is copied without its weights."""
        children = {name: child and self._copied(child) for name, child in module._modules.items()}
        scans = "chunk_size" in vars(module) and _beside(module, SCANS)
        if not scans and all(child is module._modules[name] for name, child in children.items()):
            return module
        copied = copy.copy(module)
        copied._modules = children
        if scans:
            self._layers.append((copied, module.chunk_size))
        return copied

    def arguments(self, count: int) -> dict[str, int]:
        """Make the view ready for a forward of ``count`` tokens; returns what it is to be called with."""
        for layer, chunk in self._layers:
            layer.chunk_size = min(count, chunk)
        return {"chunk_size": min(count, DELTA_CHUNK)} if self._delta_rule else {}


class HiddenStateReader:
    """A view of a model that keeps what enters some of its layers, whose indices are the ``aux_layers``.

    Their count is the index of one behind the last.
    """

    def __init__(self, model: PreTrainedModel, aux_layers: Sequence[int]) -> None:
        self._aux_layers = tuple(aux_layers)
        self._kept: dict[int, torch.Tensor] = {}
        layers = layers_of(model)
        for index in set(aux_layers):
            if index == len(layers):
                layers[-1] = observable(layers[-1])
                layers[-1].register_forward_hook(partial(self._keep_output, index))
            else:
                layers[index] = observable(layers[index])
                layers[index].register_forward_pre_hook(partial(self._keep, index), with_kwargs=True)
        self.view = with_layers(model, layers)  # the model to call

    def _keep(self, index: int, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._kept[index] = args[0] if args else kwargs["hidden_states"]

    def _keep_output(self, index: int, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        self._kept[index] = output[0] if isinstance(output, tuple) else output

    def take(self) -> torch.Tensor:
        """(B, n, layers · width) of the last forward, on the device of the last layer; kept no longer."""
        kept = [self._kept[index] for index in self._aux_layers]
        self._kept.clear()
        return torch.cat([states.to(kept[-1].device) for states in kept], dim=-1)


def _beside(module: nn.Module, functions: Sequence[str]) -> bool:
    """Whether one of the functions stands where the module's class does."""
    return any(hasattr(sys.modules.get(type(module).__module__), name) for name in functions)


def _with_own_children(module: nn.Module) -> nn.Module:
    """A copy that shares everything but the table of its children."""
    copied = copy.copy(module)
    copied._modules = dict(module._modules)
    return copied
