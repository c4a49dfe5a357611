"""The cross entropy of chosen positions, with its gradients computed on the way: no logits are kept."""

from __future__ import annotations

import torch

_AT_ONCE = 1024  # positions: their logits fit a processor's last cache


class _FusedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        used = weight.to(hidden.dtype)
        hidden_grad = torch.empty_like(hidden)
        weight_grad = torch.zeros_like(weight)
        loss = torch.zeros((), device=hidden.device)
        for start in range(0, len(hidden), _AT_ONCE):
            part, wanted = hidden[start : start + _AT_ONCE], targets[start : start + _AT_ONCE].unsqueeze(1)
            logits = (part @ used.T).float()
            total = logits.logsumexp(-1, keepdim=True)
            loss += (total - logits.gather(1, wanted)).sum()
            grad = logits.sub_(total).exp_()  # of the sum of losses: probabilities, less one at the target
            grad.scatter_add_(1, wanted, torch.full_like(wanted, -1, dtype=grad.dtype))
            grad = grad.to(hidden.dtype)
            hidden_grad[start : start + _AT_ONCE] = grad @ used
            weight_grad += grad.T @ part
        ctx.save_for_backward(hidden_grad, weight_grad)
        return loss

    @staticmethod
    def backward(ctx: object, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        hidden_grad, weight_grad = ctx.saved_tensors
        return hidden_grad * scale.to(hidden_grad.dtype), weight_grad * scale, None


def summed_cross_entropy(hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Sum of the cross entropies in nats, in float32.

    Args:
        hidden: (positions, width), in the type to multiply in.
        weight: of the output head, (vocabulary, width).
        targets: int64 of shape (positions,).
    """
    return _FusedCrossEntropy.apply(hidden, weight, targets)
