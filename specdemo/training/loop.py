"""Next-token training of one Llama model through phases of growing depth, resumable at any step."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM

from specdemo.training.corpus import Windows
from specdemo.training.muon import Muon
from specdemo.training.recipe import Phase, Recipe, Shape

Log = Callable[[str], None]
REPORT_EVERY = 25  # steps


def build_model(shape: Shape, layers: int, recipe: Recipe) -> LlamaForCausalLM:
    """A freshly initialised Llama of the given shape, tied embeddings."""
    torch.manual_seed(recipe.seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=recipe.vocab_size,
            hidden_size=shape.hidden,
            num_hidden_layers=layers,
            num_attention_heads=shape.heads,
            num_key_value_heads=shape.kv_heads,
            intermediate_size=shape.intermediate,
            max_position_embeddings=recipe.context,
            tie_word_embeddings=True,
            bos_token_id=0,
            eos_token_id=0,
            pad_token_id=0,
        )
    )


def grown(model: LlamaForCausalLM, shape: Shape, layers: int, recipe: Recipe) -> LlamaForCausalLM:
    """A deeper model whose layers are the trained stack repeated (arXiv 2405.15319)."""
    deeper = build_model(shape, layers, recipe)
    depth = model.config.num_hidden_layers
    deeper.model.embed_tokens.load_state_dict(model.model.embed_tokens.state_dict())
    deeper.model.norm.load_state_dict(model.model.norm.state_dict())
    for index, layer in enumerate(deeper.model.layers):
        layer.load_state_dict(model.model.layers[index % depth].state_dict())
    return deeper


class Optimizers:
    """Muon for the matrices inside the layers, AdamW for embeddings and norms, one schedule for both."""

    def __init__(self, model: nn.Module, matrix_lr: float, vector_lr: float, dtype: torch.dtype) -> None:
        matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "layers." in n]
        chosen = {id(p) for p in matrices}
        rest = [p for p in model.parameters() if id(p) not in chosen]
        self.parameters = list(model.parameters())
        self.members = [
            Muon(matrices, matrix_lr, dtype),
            torch.optim.AdamW(rest, lr=vector_lr, betas=(0.9, 0.95), weight_decay=0.0, fused=True),
        ]
        self.base = (matrix_lr, vector_lr)

    def step(self, scale: float) -> None:
        """One update with both learning rates multiplied by ``scale``."""
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        for optimizer, lr in zip(self.members, self.base, strict=True):
            optimizer.param_groups[0]["lr"] = lr * scale
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    def state_dict(self) -> list[dict]:
        return [o.state_dict() for o in self.members]

    def load_state_dict(self, states: list[dict]) -> None:
        for optimizer, state in zip(self.members, states, strict=True):
            optimizer.load_state_dict(state)


def schedule(done: int, total: int, decay_share: float, step: int, warmup: int) -> float:
    """Warm up, hold, then fall linearly to zero over the last ``decay_share`` of the tokens."""
    fall = min(1.0, (total - done) / max(1.0, decay_share * total))
    return min(1.0, (step + 1) / warmup) * max(0.0, fall)


def next_token_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy in float32; logits (rows, length, vocabulary), targets (rows, length)."""
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def compiled(model: LlamaForCausalLM, loss: Callable) -> Callable:
    """Compile one layer's code for all layers, and the loss: on a CPU this triples training speed."""
    torch._dynamo.reset()
    # Layers differ by their index, so each is compiled once; beyond the default limit they would run eagerly.
    torch._dynamo.config.recompile_limit = 4 * model.config.num_hidden_layers
    for layer in model.model.layers:
        layer.compile()
    return torch.compile(loss)


@dataclass(frozen=True, slots=True)
class Run:
    """Where and how a training stage runs."""

    folder: Path
    device: torch.device
    dtype: torch.dtype
    compile: bool
    log: Log

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, dtype=self.dtype, enabled=self.dtype != torch.float32)


class Progress:
    """Tells loss and speed every REPORT_EVERY steps, and at the last one."""

    def __init__(self, name: str, step: int, steps: int, step_tokens: int, log: Log) -> None:
        self._name, self._steps, self._step_tokens, self._log = name, steps, step_tokens, log
        self._losses: list[torch.Tensor] = []
        self._clock, self._from = time.monotonic(), step

    def add(self, step: int, loss: torch.Tensor) -> None:
        """One more step is done; the loss stays on its device until it is reported."""
        self._losses.append(loss.detach())
        if step % REPORT_EVERY and step != self._steps:
            return
        mean = torch.stack(self._losses).mean().item()
        speed = (step - self._from) * self._step_tokens / (time.monotonic() - self._clock)
        self._log(f"{self._name}: step {step}/{self._steps}, loss {mean:.3f}, {speed:,.0f} tokens/s")
        self._losses, self._clock, self._from = [], time.monotonic(), step


def save_checkpoint(path: Path, state: dict) -> None:
    """Write beside, then rename: a run killed while saving keeps its last whole checkpoint."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".part")
    torch.save(state, partial)
    partial.replace(path)


def pretrain(
    name: str, shape: Shape, phases: tuple[Phase, ...], windows: Windows, recipe: Recipe, run: Run
) -> LlamaForCausalLM:
    """Train through all phases; returns the model of the last. Resumes from ``folder/name.pt``."""
    path = run.folder / f"{name}.pt"
    state = torch.load(path, map_location="cpu", weights_only=True) if path.exists() else None
    index = state["phase"] if state else 0
    model = build_model(shape, phases[index].layers, recipe)
    while True:
        model.to(run.device)
        _Phase(name, phases, index, recipe, run).train(model, windows, path, state)
        index += 1
        if index == len(phases):
            return _uncompiled(model)
        model, state = grown(model, shape, phases[index].layers, recipe), None
        run.log(f"{name}: grown to {phases[index].layers} layers")


def _uncompiled(model: LlamaForCausalLM) -> LlamaForCausalLM:
    """The same weights without the compiled code of training, which fits one length alone."""
    plain = LlamaForCausalLM(model.config)
    plain.load_state_dict(model.state_dict())
    return plain.to(model.device).eval()


class _Phase:
    """One phase of a pretraining: its step sizes, its place in the learning-rate schedule, its checkpoints."""

    def __init__(self, name: str, phases: tuple[Phase, ...], index: int, recipe: Recipe, run: Run) -> None:
        self._name, self._index, self._phase = name, index, phases[index]
        self._recipe, self._run = recipe, run
        self._before = sum(p.tokens for p in phases[:index])
        self._total = sum(p.tokens for p in phases)
        self._rows = max(1, self._phase.batch_tokens // self._phase.context)
        self._step_tokens = self._rows * self._phase.context
        self._steps = max(1, self._phase.tokens // self._step_tokens)

    def train(self, model: LlamaForCausalLM, windows: Windows, path: Path, state: dict | None) -> None:
        """All steps after those of ``state``, the checkpoint of an earlier start."""
        recipe, run = self._recipe, self._run
        optimizers = Optimizers(model, recipe.matrix_lr, recipe.vector_lr, run.dtype)
        if state:
            model.load_state_dict(state["model"])
            optimizers.load_state_dict(state["optimizers"])
        loss_function = compiled(model, next_token_loss) if run.compile else next_token_loss
        model.train()
        first = state["step"] if state else 0
        label = f"{self._name} {self._phase.layers} layers"
        progress = Progress(label, first, self._steps, self._step_tokens, run.log)
        for step in range(first, self._steps):
            seed = self._index * 10_000_000 + step
            ids = windows.batch(seed, self._rows, self._phase.context + 1).to(run.device)
            with run.autocast():
                loss = loss_function(model(ids[:, :-1], use_cache=False).logits, ids[:, 1:])
            loss.backward()
            done = self._before + step * self._step_tokens
            optimizers.step(schedule(done, self._total, recipe.decay_share, step, recipe.warmup_steps))
            progress.add(step + 1, loss)
            if (step + 1) % recipe.checkpoint_every == 0 or step + 1 == self._steps:
                self._save(path, step + 1, model, optimizers)

    def _save(self, path: Path, step: int, model: LlamaForCausalLM, optimizers: Optimizers) -> None:
        kept = {"model": model.state_dict(), "optimizers": optimizers.state_dict()}
        save_checkpoint(path, {"phase": self._index, "step": step, **kept})
