"""A device that torch knows by name and this machine lacks, such as an Apple GPU, in main memory."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from specdemo import ModelPair

BETWEEN_DEVICES = {"to", "copy_", "cpu", "__get__", "__set__", "__getitem__", "__setitem__"}
BETWEEN_DEVICES |= {"_has_compatible_shallow_copy_type"}
"""What takes tensors of two devices."""
LIKE_THE_FIRST = {"copy_", "__set__", "__getitem__", "__setitem__"}


class OtherDevice(TorchFunctionMode):
    """A machine with one more device, as long as this is entered.

    Tensors made on the device, moved to it or computed from such tensors say that they are there, and torch
    refuses what it refuses on an Apple GPU: operands or a generator of another device, NumPy, and float64.

    Args:
        kind: its type.

    Attributes:
        waits: how often it was waited for.
    """

    def __init__(self, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.device, self.waits = torch.device(kind), 0
        own, module = torch.Generator, torch.get_device_module(kind)

        class Generator(own):
            """Draws on the CPU, and says where it was asked to."""

            def __new__(cls, device: Any = "cpu") -> Generator:
                generator = super().__new__(cls, "cpu")
                generator.asked = torch.device(device)
                return generator

            @property
            def device(self) -> torch.device:
                return self.asked

        make = torch.Tensor._make_subclass

        def subclass(cls: type, tensor: torch.Tensor, *args: Any) -> torch.Tensor:  # of a parameter
            made = make(cls, tensor, *args)
            made.is_there = _is_there(tensor)
            return made

        monkeypatch.setattr(torch.Tensor, "_make_subclass", subclass)
        monkeypatch.setattr(torch, "Generator", Generator)
        monkeypatch.setattr(module, "synchronize", self._wait)
        monkeypatch.setattr(module, "get_rng_state", lambda device: torch.get_rng_state())
        monkeypatch.setattr(module, "set_rng_state", lambda state, device: None)

    def _wait(self, device: torch.device | None = None) -> None:
        self.waits += 1

    def moved(self, pair: ModelPair) -> ModelPair:
        """A copy of a pair, its models on the device."""
        models = {role: copy.deepcopy(getattr(pair, role)) for role in ("target", "draft", "head")}
        return ModelPair(**{role: model and model.to(self.device) for role, model in models.items()})

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs, name = kwargs or {}, func.__name__
        if func is torch.device or name == "_parse_to":
            return func(*args, **kwargs)
        if name == "__get__" and func.__self__ is torch.Tensor.device:
            return self.device if _is_there(args[0]) else func(*args)
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        there = any(map(_is_there, tensors))
        if there and name not in BETWEEN_DEVICES and not all(_is_there(t) for t in tensors if t.dim()):
            raise RuntimeError(f"Expected all tensors to be on the same device, in {name}")
        if name in LIKE_THE_FIRST:
            there = _is_there(args[0])
        elif name == "to" and len(args) > 1 and isinstance(args[1], torch.Tensor):
            there = _is_there(args[1])
        elif (asked := _device(name, args, kwargs)) is not None:
            there = asked == self.device
        if there and name == "numpy":
            raise TypeError(f"can't convert {self.device} device type tensor to numpy")
        if (generator := kwargs.get("generator")) is not None and (generator.device == self.device) != there:
            raise RuntimeError(f"Expected a generator on the device of the tensors, in {name}")
        if name in ("to", "cpu") and there != _is_there(args[0]):
            args = (args[0].clone(), *args[1:])  # a move, where torch finds nothing to do
        args, kwargs = tree_map(self._on_cpu, (args, kwargs))
        found = func(*args, **kwargs)
        for tensor in tree_leaves(found):
            if isinstance(tensor, torch.Tensor):
                if there and tensor.dtype == torch.float64:
                    raise TypeError(f"Cannot convert a {self.device} tensor to float64")
                tensor.is_there = there
        if name == "__set__" and func.__self__ is torch.Tensor.data:
            args[0].is_there = _is_there(args[1])
        return found

    def _on_cpu(self, value: Any) -> Any:
        """The CPU where a call names the device."""
        return "cpu" if isinstance(value, (str, torch.device)) and str(value) == str(self.device) else value


def _is_there(tensor: torch.Tensor) -> bool:
    return getattr(tensor, "is_there", False)


def _device(name: str, args: tuple, kwargs: dict[str, Any]) -> torch.device | None:
    """The device that a call names for its result."""
    if name == "cpu":
        return torch.device("cpu")
    named = kwargs.get("device")
    if named is None and name == "to":
        named = next((a for a in args[1:] if isinstance(a, (str, torch.device))), None)
    return None if named is None else torch.device(named)
