"""The one loop that trains target, draft and head: phases, learning rates, progress lines and checkpoints.

A run that is ended, also by a kill, goes on from its last checkpoint as if it had not been: what a step reads is a
pure function of its number.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import nn
from torch.utils.data import DataLoader

from specdemo.files import written_whole
from specdemo.machine import hardware
from specdemo.training.recipe import Rates, Recipe

REPORT_EVERY = 25  # steps

M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True, slots=True)
class Run:
    """Where and how a stage runs; checkpoints, lessons and log that are in ``folder`` are taken up."""

    folder: Path
    recipe: Recipe
    device: torch.device
    dtype: torch.dtype
    log: Callable[[str], None]
    workers: int = 0  # processes that make batches ahead, beside the one that trains
    save_every: float = 180.0  # seconds between checkpoints

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, dtype=self.dtype, enabled=self.dtype != torch.float32)

    def hardware(self) -> str:
        """The machine in words, for a model card."""
        found, dtype = hardware(self.device), str(self.dtype).removeprefix("torch.")
        return f"{found['device']} ({found['processor']}), threads: {found['threads']}, in {dtype}"


class Spent(NamedTuple):
    """What a training took, and where it ended: the seconds of all starts, and the mean loss of the last steps."""

    seconds: float
    loss: float


@dataclass(frozen=True, slots=True)
class Phase(Generic[M]):
    """A stretch of training.

    Attributes:
        begin: the model of the phase before, or None for new weights, → the model.
        read: a step's batch, by its number alone.
        loss: of a model on a batch, in parts, each of which is differentiated before the next is computed, so that
            only one part's activations are held.
    """

    tokens: int
    step_tokens: int
    begin: Callable[[M | None], M]
    read: Callable[[Any], Any]
    loss: Callable[[M, Any], Iterable[torch.Tensor]]

    @property
    def steps(self) -> int:
        return max(1, self.tokens // self.step_tokens)


def train(name: str, phases: Sequence[Phase[M]], rates: Rates, run: Run) -> tuple[M, Spent]:
    """The trained model and what that took; goes on from ``folder/NAME.pt``.

    Raises:
        SystemExit: the checkpoint is of a run with other numbers.
    """
    path = run.folder / f"{name}.pt"
    state, recipe = load_checkpoint(path), run.recipe.of(name)
    if state and state["recipe"] != recipe:
        raise SystemExit(f"--work: {path} is of a run with other numbers; give another folder, or the same --set.")
    saved = time.monotonic()
    began = saved - (state["seconds"] if state else 0.0)
    total, model = sum(phase.tokens for phase in phases), None
    mean = state["loss"] if state else math.nan
    for index, phase in enumerate(phases):
        if state and index < state["phase"]:
            continue
        later = sum(p.tokens for p in phases[index + 1 :])
        model = phase.begin(model)
        optimizers = _optimizers(model, rates, run.dtype)
        done = 0
        if state:
            model.load_state_dict(state["model"])
            for optimizer, saved_state in zip(optimizers, state["optimizers"], strict=True):
                optimizer.load_state_dict(saved_state)
            done, state = state["step"], None
        model.train()
        losses, clock, reported = [], time.monotonic(), done
        ahead: Any = range(done, phase.steps)  # a data set of numbers
        batches = DataLoader(ahead, batch_size=None, collate_fn=phase.read, num_workers=run.workers)
        for step, batch in enumerate(batches, done):
            left = (later + phase.tokens * (1 - step / phase.steps)) / total
            losses.append(_update(model, optimizers, phase.loss(model, batch), schedule(step, left, rates)))
            now, done = time.monotonic(), step + 1
            if done == phase.steps or done % REPORT_EVERY == 0:
                speed = (done - reported) * phase.step_tokens / (now - clock)
                mean = torch.stack(losses).mean().item()
                run.log(
                    f"{name}, phase {index + 1} of {len(phases)}: step {done} of {phase.steps}, "
                    f"loss {mean:.3f}, {speed:,.0f} tokens/s, "
                    f"{(phase.steps - done) * phase.step_tokens / speed / 3600:.1f} h left"
                )
                losses, clock, reported = [], now, done
            if done == phase.steps or now - saved >= run.save_every:
                saved = now
                place = {"recipe": recipe, "phase": index, "step": done, "seconds": now - began, "loss": mean}
                states = {"model": model.state_dict(), "optimizers": [o.state_dict() for o in optimizers]}
                path.parent.mkdir(parents=True, exist_ok=True)
                with written_whole(path) as partial:
                    torch.save(place | states, partial)
    assert model is not None
    return model.eval(), Spent(time.monotonic() - began, mean)


def schedule(step: int, left: float, rates: Rates) -> float:
    """What the learning rates are multiplied by: they warm up, hold, then fall to zero with the tokens left."""
    return min(1.0, (step + 1) / rates.warmup_steps) * min(1.0, left / rates.decay_share)


def load_checkpoint(path: Path) -> dict[str, Any] | None:
    """The last checkpoint, on the CPU; None before the first."""
    return torch.load(path, map_location="cpu", weights_only=True) if path.exists() else None


def _optimizers(model: nn.Module, rates: Rates, dtype: torch.dtype) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the layers, AdamW for all else."""
    inside = {n: p.ndim == 2 and "layer" in n for n, p in model.named_parameters()}
    matrices, rest = ([p for n, p in model.named_parameters() if inside[n] == kind] for kind in (True, False))
    adam = torch.optim.AdamW(rest, lr=rates.vector_lr, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    return [Muon(matrices, rates.matrix_lr, dtype), adam]


def _update(
    model: nn.Module, optimizers: list[torch.optim.Optimizer], losses: Iterable[torch.Tensor], scale: float
) -> torch.Tensor:
    """One step with both learning rates multiplied by ``scale``; returns its loss, still on its device."""
    total = torch.zeros((), device=next(model.parameters()).device)
    for loss in losses:
        loss.backward()
        total += loss.detach()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        optimizer.param_groups[0]["lr"] = optimizer.defaults["lr"] * scale
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return total


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
    """Momentum whose update is orthogonalised, in ``dtype``, for weight matrices inside the layers.

    torch.optim.Muon always computes in bfloat16. On a CPU without instructions for it this takes several times as
    long as the forward and backward passes together. ``lr`` is the spectral size of one update of a wide matrix;
    tall ones get √(rows/columns) more.
    """

    def __init__(self, parameters: list[torch.nn.Parameter], lr: float, dtype: torch.dtype) -> None:
        super().__init__(parameters, {"lr": lr})
        self._dtype = dtype

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]  # without a closure
        """One update of all weights, those of one shape together."""
        (group,) = self.param_groups
        by_shape: dict[torch.Size, list[Any]] = defaultdict(list)
        for weight in group["params"]:
            if not self.state[weight]:
                self.state[weight]["momentum_buffer"] = torch.zeros_like(weight)
            by_shape[weight.shape].append(weight)
        for (rows, columns), weights in by_shape.items():
            gradients: list[Any] = [weight.grad for weight in weights]
            momenta = [self.state[weight]["momentum_buffer"] for weight in weights]
            torch._foreach_lerp_(momenta, gradients, 1 - _MOMENTUM)
            ahead = torch._foreach_lerp(gradients, momenta, _MOMENTUM)  # Nesterov's look ahead
            directions = orthogonalised(torch.stack(ahead).to(self._dtype)).to(weights[0].dtype)
            torch._foreach_mul_(weights, 1 - group["lr"] * _WEIGHT_DECAY)
            torch._foreach_add_(weights, directions.unbind(), alpha=-group["lr"] * max(1.0, rows / columns) ** 0.5)
