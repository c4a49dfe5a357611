"""The Muon optimizer with a choice of precision.

torch.optim.Muon always orthogonalises in bfloat16. On a CPU without bfloat16 instructions this takes several times
as long as the forward and backward passes together.
"""

from __future__ import annotations

from collections import defaultdict

import torch

# Keller Jordan's quintic (https://kellerjordan.github.io/posts/muon): pushes all singular values near 1.
_QUINTIC = (3.4445, -4.7750, 2.0315)
_ITERATIONS, _MOMENTUM, _WEIGHT_DECAY = 5, 0.95, 0.01


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
        lr: spectral size of one update of a wide matrix; tall ones get √(rows/columns) more.
        dtype: what to orthogonalise in.
    """

    def __init__(self, parameters: list[torch.nn.Parameter], lr: float, dtype: torch.dtype) -> None:
        super().__init__(parameters, {"lr": lr})
        self._dtype = dtype

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]  # without a closure
        """One update of all weights, those of one shape together."""
        (group,) = self.param_groups
        by_shape: dict[torch.Size, list[torch.nn.Parameter]] = defaultdict(list)
        for weight in group["params"]:
            by_shape[weight.shape].append(weight)
        for (rows, columns), weights in by_shape.items():
            directions = orthogonalised(torch.stack([self._ahead(w) for w in weights]).to(self._dtype))
            size = group["lr"] * max(1.0, rows / columns) ** 0.5
            for weight, direction in zip(weights, directions, strict=True):
                weight.mul_(1 - group["lr"] * _WEIGHT_DECAY)
                weight.add_(direction.to(weight.dtype), alpha=-size)

    def _ahead(self, weight: torch.nn.Parameter) -> torch.Tensor:
        """The momentum, updated, and Nesterov's look ahead."""
        assert weight.grad is not None
        momentum = self.state[weight].setdefault("momentum_buffer", torch.zeros_like(weight))
        momentum.lerp_(weight.grad, 1 - _MOMENTUM)
        return weight.grad.lerp(momentum, _MOMENTUM)
