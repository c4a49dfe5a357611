"""The Muon optimizer with a choice of precision.

torch.optim.Muon always orthogonalises in bfloat16. On a CPU without bfloat16 instructions this takes several times
as long as the forward and backward passes together.
"""

from __future__ import annotations

import time

import torch

# Keller Jordan's quintic (https://kellerjordan.github.io/posts/muon): pushes all singular values near 1.
_QUINTIC = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5


def quicker_dtype(device: torch.device) -> torch.dtype:
    """bfloat16 where this device multiplies faster in it, else float32; measured, since no flag tells."""
    if device.type == "cuda":
        return torch.bfloat16

    def seconds(dtype: torch.dtype) -> float:
        """The best of ten multiplications as a layer does them: many rows, narrow weights."""
        rows, weights = (torch.ones(n, 256, dtype=dtype, device=device) for n in (4096, 512))
        rows @ weights.mT  # the first call sets up the kernel
        times = []
        for _ in range(10):
            start = time.perf_counter()
            rows @ weights.mT
            times.append(time.perf_counter() - start)
        return min(times)

    return torch.bfloat16 if seconds(torch.bfloat16) < seconds(torch.float32) else torch.float32


def orthogonalised(matrices: torch.Tensor) -> torch.Tensor:
    """The nearest matrices with singular values of about 1, by Newton–Schulz; shape (n, rows, columns)."""
    a, b, c = _QUINTIC
    wide = matrices.size(-2) <= matrices.size(-1)
    x = matrices if wide else matrices.mT
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(_ITERATIONS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x if wide else x.mT


class Muon(torch.optim.Optimizer):
    """Momentum whose update is orthogonalised, for weight matrices inside the layers.

    Args:
        parameters: two-dimensional weights.
        lr: spectral size of one update of a wide matrix; tall ones get √(rows/columns) more.
        dtype: what to orthogonalise in; see :func:`quicker_dtype`.
    """

    def __init__(
        self,
        parameters: list[torch.nn.Parameter],
        lr: float,
        dtype: torch.dtype,
        momentum: float = 0.95,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self._dtype = dtype

    @torch.no_grad()
    def step(self) -> None:
        """One update of all weights, those of one shape together."""
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[torch.nn.Parameter]] = {}
            for weight in group["params"]:
                if weight.grad is not None:
                    by_shape.setdefault(weight.shape, []).append(weight)
            for weights in by_shape.values():
                self._step_alike(weights, group)

    def _step_alike(self, weights: list[torch.nn.Parameter], group: dict) -> None:
        wanted = []
        for weight in weights:
            state = self.state[weight]
            if not state:
                state["momentum_buffer"] = torch.zeros_like(weight)
            state["momentum_buffer"].lerp_(weight.grad, 1 - group["momentum"])
            wanted.append(weight.grad.lerp(state["momentum_buffer"], group["momentum"]))  # Nesterov's look ahead
        directions = orthogonalised(torch.stack(wanted).to(self._dtype))
        rows, columns = weights[0].shape
        size = group["lr"] * max(1.0, rows / columns) ** 0.5
        for weight, direction in zip(weights, directions, strict=True):
            weight.mul_(1 - group["lr"] * group["weight_decay"]).add_(direction.to(weight.dtype), alpha=-size)
