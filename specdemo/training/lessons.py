"""Lessons: batches of text with what the target computed of them, made once and read in every pass over them.

So a drafter's step costs the drafter alone; the target, which is many times as large, runs once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

import torch
from torch import nn
from transformers import LlamaForCausalLM

from specdemo.files import written_whole
from specdemo.training.answers import generated, prompt_ids
from specdemo.training.loop import Run
from specdemo.training.recipe import Recipe
from specdemo.training.tasks.stream import TaskStream, task_mask


@dataclass(frozen=True, slots=True)
class Lesson:
    """A batch.

    Attributes:
        ids: (B, n) the texts, filled up.
        learned: (B, n) the tokens that are to be predicted: those of answers.
        features: (B, n, 3 · H) what entered the target's layers that a head reads.
        hidden: (B, n, H) what its output layer reads.
    """

    ids: torch.Tensor
    learned: torch.Tensor
    features: torch.Tensor
    hidden: torch.Tensor

    def places(self) -> torch.Tensor:
        """(B, n) the places whose next token is to be predicted."""
        places = self.learned.roll(-1, dims=1)
        places[:, -1] = False
        return places

    def to(self, device: torch.device) -> Lesson:
        """There, with states in float32."""
        states = (state.to(device).float() for state in (self.features, self.hidden))
        return Lesson(self.ids.to(device), self.learned.to(device), *states)

    def says(self, output_layer: nn.Linear) -> torch.Tensor:
        """(B, n, V) the target's logits; without gradients."""
        with torch.no_grad():
            return output_layer(self.hidden.to(output_layer.weight.dtype))


def make_lessons(target: LlamaForCausalLM, layers: tuple[int, ...], tasks: TaskStream, run: Run) -> None:
    """Writes them to ``folder/lessons``, a file each; a part that is whole is not made again.

    Every part has texts that the target writes, and training tasks; a head reads what enters ``layers``.
    """
    recipe, folder = run.recipe, run.folder / "lessons"
    folder.mkdir(parents=True, exist_ok=True)
    for part in range(recipe.lessons.parts):
        if (whole := folder / f"{part:04d}.whole").exists():
            continue
        for index, (ids, learned) in enumerate(_batches(part, target, tasks, recipe)):
            with torch.no_grad():
                mask = task_mask(ids, target.dtype).to(run.device)
                output = target.model(ids.to(run.device), mask, use_cache=False, output_hidden_states=True)
            features = torch.cat([output.hidden_states[layer] for layer in layers], dim=-1)
            states = (state.to("cpu", torch.float16) for state in (features, output.last_hidden_state))
            with written_whole(folder / f"{part:04d}-{index:04d}.pt") as partial:
                torch.save(asdict(Lesson(ids, learned, *states)), partial)
        whole.touch()
        run.log(f"lessons: part {part + 1} of {recipe.lessons.parts}")


def _batches(
    part: int, target: LlamaForCausalLM, tasks: TaskStream, recipe: Recipe
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The ids of a part's batches, and which of them are an answer's; a pure function of the part's number.

    The target answers training tasks, in the shares of its training, half greedily and half at temperature 1.
    """
    numbers, shares, seed = recipe.lessons, tasks.shares, f"{recipe.seed} {part}"
    names = Random(seed).choices(list(shares), list(shares.values()), k=numbers.texts)
    drawn = [tasks.domains[name].task(f"head {seed} {i}") for i, name in enumerate(names)]
    prompts = [prompt_ids(tasks.tokenizer, task)[-numbers.longest_prompt :] for task in drawn]
    half = len(prompts) // 2
    with torch.random.fork_rng([target.device] if target.device.type == "cuda" else []):
        torch.manual_seed(recipe.seed * 1_000_003 + part)
        written = generated(target, prompts[:half], numbers.answer_tokens, at_once=half)
        written += generated(target, prompts[half:], numbers.answer_tokens, sampled=True, at_once=half)
    texts = [(prompt + answer, len(prompt)) for prompt, answer in zip(prompts, written, strict=True)]
    for start in range(0, len(texts), numbers.rows):
        some = texts[start : start + numbers.rows]
        ids = nn.utils.rnn.pad_sequence([torch.tensor(text) for text, _ in some], batch_first=True)
        places = torch.arange(ids.size(1))
        yield ids, torch.stack([(places >= begins) & (places < len(text)) for text, begins in some])
    for index in range(numbers.task_batches):
        ids, weights = tasks.batch(part * numbers.task_batches + index, numbers.task_rows, numbers.window)
        yield ids, weights > 0


class Lessons:
    """Those of a folder, in another order in every pass.

    Raises:
        SystemExit: there are none.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self._paths, self._seed = sorted((folder / "lessons").glob("*-*.pt")), seed
        if not self._paths:
            raise SystemExit(f"--work: {folder} holds no lessons; run the stage lessons first.")

    def __len__(self) -> int:
        return len(self._paths)

    def at(self, step: int) -> Lesson:
        """A step's; a pure function of its number."""
        turn, place = divmod(step, len(self))
        path = Random(f"{self._seed} {turn}").sample(self._paths, len(self))[place]
        return Lesson(**torch.load(path, weights_only=True))
