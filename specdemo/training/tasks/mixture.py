"""The mixture: the domains with their tasks and weights, and their held-out prompts."""

from __future__ import annotations

from pathlib import Path

from specdemo.training.tasks import arithmetic, chat, code, data, edit, stories
from specdemo.training.tasks.corpus import Corpus
from specdemo.training.tasks.draw import Side
from specdemo.training.tasks.task import Domain, Task


def domains(folder: Path) -> dict[str, Domain]:
    """All domains by name.

    Args:
        folder: of the corpus.

    Raises:
        SystemExit: a file is not in the folder.
    """
    corpus = Corpus(folder)
    # The longest answer in tokens, the checker, and each task's weight among held-out tasks and in training.
    return {
        "chat": Domain(corpus, 100, chat.grades, ((chat.dialogue, 1, 1),)),
        "stories": Domain(corpus, 300, stories.grades, ((stories.story, 1, 1),)),
        "data": Domain(
            corpus, 300, data.grades, ((data.convert, 11, 11), (data.edit_json, 5, 12), (data.query, 5, 5))
        ),
        "arithmetic": Domain(
            corpus,
            200,
            arithmetic.grades,
            ((arithmetic.word_problem, 12, 12), (arithmetic.worked_sum, 10, 10), (arithmetic.equations, 0, 8)),
        ),
        "code": Domain(corpus, 160, code.grades, ((code.function, 1, 1),)),
        "edit": Domain(corpus, 250, edit.grades, ((edit.edit, 3, 3), (edit.relist, 1, 1))),
        "outside": Domain(corpus, 80, chat.outside_grades, ((chat.outside, 1, 1),)),
        "copy": Domain(corpus, 150, edit.grades, ((edit.copy, 1, 1),)),
    }


ASKED = ("chat", "stories", "data", "arithmetic", "code", "edit")
"""The domains that people are told of; the others are practice, and what the model cannot answer."""


def held_out_tasks(name: str, domain: Domain, count: int, side: Side = "unseen", start: int = 0) -> list[Task]:
    """Held-out tasks of different prompts, always the same; ``start`` leaves out the first so many draws.

    Raises:
        SystemExit: the domain has fewer.
    """
    found: dict[str, Task] = {}
    for index in range(start, start + 100 * count):
        task = domain.task(f"ask {name} {index}", side)
        found.setdefault(task.prompt, task)
        if len(found) == count:
            return list(found.values())
    raise SystemExit(f"{name}: there are fewer than {count} held-out prompts; ask for fewer.")
