"""What all training stages share: optimizers, learning-rate schedule, progress lines and checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from transformers import LlamaForCausalLM

from specdemo.files import written_whole
from specdemo.training.muon import Muon

REPORT_EVERY = 25  # steps


@dataclass(frozen=True, slots=True)
class Run:
    """Where and how the training stages run.

    Attributes:
        folder: of checkpoints and other intermediate files.
        device, dtype: of forward and backward passes.
        compile: whether ``torch.compile`` is used.
        log: takes one line of progress.
        checkpoint_every: steps between checkpoints.
    """

    folder: Path
    device: torch.device
    dtype: torch.dtype
    compile: bool
    log: Callable[[str], None]
    checkpoint_every: int

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, dtype=self.dtype, enabled=self.dtype != torch.float32)

    def compiled(self, model: LlamaForCausalLM, loss: Callable) -> Callable:
        """The loss, compiled with the layers' code if this run compiles: on a CPU this triples training speed."""
        if not self.compile:
            return loss
        torch._dynamo.reset()
        # Layers differ by their index, so each is compiled once; beyond the default limit they would run eagerly.
        torch._dynamo.config.recompile_limit = 4 * model.config.num_hidden_layers
        for layer in model.model.layers:
            layer.compile()
        return torch.compile(loss)


class Trainer:
    """The steps of one stretch of training: Muon for the matrices inside the layers, AdamW for all else.

    Args:
        label: for progress lines.
        model: its parameters are updated in place, after those of ``state`` were loaded.
        rates: learning rates of Muon and of AdamW.
        steps, step_tokens: how many, and the tokens of each.
        path: of the checkpoints, each with the number ``phase``.
        state: the checkpoint of an earlier start, whose steps are not repeated.
        run: where and how it runs.
        budget: seconds of all starts together after which no step begins; None for all steps.
        spent: seconds of the phases before this one.
    """

    def __init__(
        self,
        label: str,
        model: nn.Module,
        rates: tuple[float, float],
        steps: int,
        step_tokens: int,
        path: Path,
        phase: int,
        state: dict | None,
        run: Run,
        budget: float | None = None,
        spent: float = 0.0,
    ) -> None:
        matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "layer" in n]
        chosen = {id(p) for p in matrices}
        rest = [p for p in model.parameters() if id(p) not in chosen]
        self._optimizers = [
            Muon(matrices, rates[0], run.dtype),
            torch.optim.AdamW(rest, lr=rates[1], betas=(0.9, 0.95), weight_decay=0.0, fused=True),
        ]
        self._label, self._model, self._rates, self._path, self._phase = label, model, rates, path, phase
        self._steps, self._step_tokens, self._run = steps, step_tokens, run
        self._done = 0
        if state:
            model.load_state_dict(state["model"])
            for optimizer, saved in zip(self._optimizers, state["optimizers"], strict=True):
                optimizer.load_state_dict(saved)
            self._done = state["step"]
        model.train()
        self._losses: list[torch.Tensor] = []
        self._clock, self._reported = time.monotonic(), self._done
        self._budget, self._began = budget, time.monotonic() - (state["seconds"] if state else spent)

    @property
    def seconds(self) -> float:
        """That all starts spent, as far as their checkpoints know.

        By the clock on the wall, which goes on while a process is stopped (SIGSTOP); the time between two starts
        is in nobody's checkpoint and does not count. The processor's time is no substitute: what it is of a second
        depends on the threads of each part of a step, and on a GPU it says nothing.
        """
        return time.monotonic() - self._began

    def steps(self) -> Iterator[int]:
        """The steps that are left."""
        while self._done < self._steps and (self._budget is None or self.seconds < self._budget):
            yield self._done

    def update(self, losses: Iterable[torch.Tensor], scale: float) -> None:
        """One step with both learning rates multiplied by ``scale``; logs and saves where it is time to.

        Args:
            losses: the step's loss in parts; each is differentiated before the next is computed, so that only one
                part's activations are held.
        """
        total = torch.zeros((), device=self._run.device)
        for loss in losses:
            loss.backward()
            total += loss.detach()
        nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        for optimizer, rate in zip(self._optimizers, self._rates, strict=True):
            optimizer.param_groups[0]["lr"] = rate * scale
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self._done += 1
        last = self._done == self._steps
        self._losses.append(total)  # stays on its device until it is reported
        if last or self._done % REPORT_EVERY == 0:
            self._report()
        if last or self._done % self._run.checkpoint_every == 0:
            self.save()

    def save(self) -> None:
        """Write a checkpoint."""
        states = {"model": self._model.state_dict(), "optimizers": [o.state_dict() for o in self._optimizers]}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(self._path) as partial:
            torch.save({"phase": self._phase, "step": self._done, "seconds": self.seconds, **states}, partial)

    def _report(self) -> None:
        mean = torch.stack(self._losses).mean().item()
        speed = (self._done - self._reported) * self._step_tokens / (time.monotonic() - self._clock)
        left = (self._steps - self._done) * self._step_tokens / speed
        total = f"/{self._steps}"
        if self._budget is not None:
            left, total = max(0.0, self._budget - self.seconds), ""
        hours = left / 3600
        self._run.log(
            f"{self._label}: step {self._done}{total}, {self._done * self._step_tokens / 1e6:.1f}M tokens, "
            f"loss {mean:.3f}, {speed:,.0f} tokens/s, {hours:.1f} h left"
        )
        self._losses, self._clock, self._reported = [], time.monotonic(), self._done


def hardware(device: torch.device, dtype: torch.dtype) -> str:
    """The machine in words, for a model card."""
    if device.type == "cuda":
        return f"one {torch.cuda.get_device_name(device)}"
    cores = torch.get_num_threads()
    return f"{cores} CPU core{'s' if cores > 1 else ''} in {str(dtype).removeprefix('torch.')}"


def schedule(done: int, total: int, decay_share: float, step: int, warmup: int) -> float:
    """Warm up, hold, then fall linearly to zero over the last ``decay_share`` of the tokens."""
    fall = min(1.0, (total - done) / max(1.0, decay_share * total))
    return min(1.0, (step + 1) / warmup) * max(0.0, fall)


def load_checkpoint(path: Path) -> dict | None:
    """The last checkpoint, on the CPU; None before the first."""
    return torch.load(path, map_location="cpu", weights_only=True) if path.exists() else None
