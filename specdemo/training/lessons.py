"""Lessons: batches of text with what the target computes of them, made once and read in every pass over them.

So a drafter's step costs the drafter alone; the target, which is many times as large, is asked once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import torch
from torch import nn
from transformers import LlamaForCausalLM

from specdemo.decoding.engines.model_views import TappedModel
from specdemo.files import written_whole
from specdemo.training.loop import REPORT_EVERY, Run
from specdemo.training.recipe import Recipe
from specdemo.training.tasks.stream import TaskStream
from specdemo.training.texts import Texts

FOLDER = "lessons"


@dataclass(frozen=True, slots=True)
class Lesson:
    """A batch.

    Attributes:
        ids: (B, n) the texts, filled up.
        learned: (B, n) the tokens that are to be predicted: those of answers.
        features: (B, n, taps · H) what entered the target's tapped layers.
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


def of_tasks(tasks: TaskStream, step: int, recipe: Recipe) -> tuple[torch.Tensor, torch.Tensor]:
    """Training tasks as ids (rows, n), and which of them are an answer's; a pure function of the step."""
    batch = tasks.batch(step, recipe.task_rows, recipe.window)
    answers = batch.learned.roll(1, dims=1)  # a batch marks the place before each token to learn
    answers[:, 0] = False
    return batch.ids, answers


def make_lessons(
    target: LlamaForCausalLM, taps: tuple[int, ...], texts: Texts, tasks: TaskStream, recipe: Recipe, run: Run
) -> None:
    """Writes them to ``folder/lessons``, a file each, until the recipe's minutes are spent in all starts.

    Every text of the target comes once, and a batch of training tasks after each batch of them; when all texts are
    used, tasks alone. Every file holds how long it took.
    """
    tapped = TappedModel(target.model, taps)
    seconds = (1 - recipe.text_share) * 60 * recipe.minutes
    spent = 0.0
    for index, (name, batch) in enumerate(_batches(texts, tasks, recipe)):
        path = run.folder / FOLDER / f"{name}.npz"
        if path.exists():
            with np.load(path) as arrays:
                spent += float(arrays["seconds"])
        elif index and spent >= seconds:
            return
        else:
            began = time.monotonic()
            ids, learned = batch()
            with torch.no_grad():
                hidden = tapped.view(ids.to(run.device), use_cache=False).last_hidden_state
            states = {"features": tapped.take(), "hidden": hidden}
            halves = {name: tensor.to("cpu", torch.float16).numpy() for name, tensor in states.items()}
            path.parent.mkdir(parents=True, exist_ok=True)
            took = time.monotonic() - began
            with written_whole(path) as partial:
                np.savez(partial, ids=ids.numpy(), learned=learned.numpy(), seconds=took, **halves)
            spent += took
        if (index + 1) % REPORT_EVERY == 0:
            run.log(f"lessons: {index + 1}, {spent / 60:.1f} of {seconds / 60:.1f} minutes")


def _batches(
    texts: Texts, tasks: TaskStream, recipe: Recipe
) -> Iterator[tuple[str, Callable[[], tuple[torch.Tensor, torch.Tensor]]]]:
    """Without end: a name, and what makes the ids and marks. With more texts the others stay the same."""
    for step in count():
        rows = range(step * recipe.rows, min((step + 1) * recipe.rows, len(texts.ids)))
        if rows:
            yield f"texts-{step:05d}", partial(texts.batch, rows)
        yield f"tasks-{step:05d}", partial(of_tasks, tasks, step, recipe)


class Lessons:
    """Those of a folder, in another order in every pass.

    Raises:
        SystemExit: there are none.
    """

    def __init__(self, folder: Path, recipe: Recipe) -> None:
        self._paths, self._seed = sorted((folder / FOLDER).glob("*.npz")), recipe.seed
        if not self._paths:
            raise SystemExit(f"--work: {folder} holds no lessons; run the stage lessons first.")

    def __len__(self) -> int:
        return len(self._paths)

    def at(self, step: int, device: torch.device) -> Lesson:
        """A step's; a pure function of its number."""
        turn, place = divmod(step, len(self))
        order = np.random.default_rng([self._seed, turn]).permutation(len(self))
        with np.load(self._paths[order[place]]) as arrays:
            ids, learned, *states = (torch.from_numpy(arrays[name]).to(device) for name in Lesson.__slots__)
        return Lesson(ids, learned, *(state.float() for state in states))


def says(output_layer: nn.Linear, hidden: torch.Tensor) -> torch.Tensor:
    """The target's logits where its output layer reads ``hidden``; without gradients."""
    with torch.no_grad():
        return output_layer(hidden.to(output_layer.weight.dtype))
