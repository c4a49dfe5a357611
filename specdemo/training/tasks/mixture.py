"""The mixture: the domains with their tasks and weights, and their held-out prompts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from specdemo.training.tasks import arithmetic, chat, code, data, edit, stories
from specdemo.training.tasks.corpus import Corpus
from specdemo.training.tasks.task import Answer, Draw, Grade, Side, Task, same_text


@dataclass(frozen=True, slots=True)
class Domain:
    """Tasks of one kind of use, and their checker.

    Attributes:
        corpus: what fills their slots.
        longest: tokens that an answer may take in a check.
        grade: what is counted of an answer.
        tasks: generators, each with its weight among held-out tasks and in training, where what is hard is
            practised more. What one gives depends on its draw alone.
    """

    corpus: Corpus
    longest: int
    grade: Callable[[Task, Answer], Grade]
    tasks: tuple[tuple[Callable[[Draw], Task], int, int], ...]

    def task(self, seed: str, side: Side = "training") -> Task:
        """The task of a seed."""
        draw = Draw(seed, self.corpus, side)
        made, held_out, training = zip(*self.tasks, strict=True)
        return draw.rng.choices(made, held_out if draw.held_out else training)[0](draw)


def domains(folder: Path) -> dict[str, Domain]:
    """All domains by name.

    Args:
        folder: of the corpus.

    Raises:
        SystemExit: a file is not in the folder.
    """
    tables = [(data.convert, 9, 9), (data.simple, 3, 4), (data.edit_json, 5, 14), (data.query, 4, 4)]
    sums = [(arithmetic.word_problem, 12, 12), (arithmetic.worked_sum, 9, 9), (arithmetic.several, 1, 2)]
    sums += [(arithmetic.equations, 0, 8)]
    every = {
        "chat": (100, chat.grade, [(chat.dialogue, 2, 2), (chat.booking, 1, 2)]),
        "stories": (360, stories.grade, [(stories.story, 1, 1)]),
        "data": (300, data.grade, tables),
        "arithmetic": (200, arithmetic.grade, sums),
        "code": (160, code.grade, [(code.function, 1, 1)]),
        "edit": (250, same_text, [(edit.edit, 3, 3), (edit.relist, 1, 1)]),
        "outside": (80, same_text, [(chat.outside, 1, 1)]),
        "copy": (150, same_text, [(edit.copy, 1, 1)]),
    }
    corpus = Corpus(folder)
    return {name: Domain(corpus, longest, grade, tuple(tasks)) for name, (longest, grade, tasks) in every.items()}


ASKED = ("chat", "stories", "data", "arithmetic", "code", "edit")
"""The domains that people are told of; the others are practice, and what the model cannot answer."""


def held_out_tasks(name: str, domain: Domain, count: int, side: Side = "unseen") -> list[Task]:
    """Held-out tasks of different prompts, always the same.

    Raises:
        SystemExit: the domain has fewer.
    """
    found: dict[str, Task] = {}
    for index in range(100 * count):
        task = domain.task(f"ask {name} {index}", side)
        found.setdefault(task.prompt, task)
        if len(found) == count:
            return list(found.values())
    raise SystemExit(f"{name}: there are fewer than {count} held-out prompts; ask for fewer.")
