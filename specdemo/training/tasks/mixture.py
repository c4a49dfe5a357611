"""The mixture: the six domains with their tasks and weights, and their held-out prompts."""

from __future__ import annotations

from pathlib import Path

from specdemo.training.tasks import arithmetic, code, data, edit, sql
from specdemo.training.tasks.chat import Chat
from specdemo.training.tasks.stories import Stories
from specdemo.training.tasks.task import Domain, Draw, Task


def domains(corpus: Path) -> dict[str, Domain]:
    """All domains by name; chat and stories read the corpus folder.

    Raises:
        SystemExit: a file of theirs is not in the folder.
    """
    try:
        chat, stories = Chat(corpus), Stories(corpus)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise SystemExit(f"--corpus: there is no {error.filename}; give the folder of the corpus.") from None
    # The longest answer in tokens, the checker, and each task's weight among held-out tasks and in training.
    return {
        "chat": Domain(80, chat.grades, ((chat.dialogue, 1, 1),)),
        "stories": Domain(230, stories.grades, ((stories.story, 1, 1),)),
        "data": Domain(
            200,
            data.grades,
            (
                (data.to_json, 6, 6),
                (data.json_edit, 5, 20),
                (data.to_markdown, 3, 3),
                (data.to_csv, 2, 2),
                (sql.query, 5, 5),
            ),
        ),
        "arithmetic": Domain(
            140,
            arithmetic.grades,
            (
                (arithmetic.word_problem, 12, 12),
                (arithmetic.addition, 3, 3),
                (arithmetic.subtraction, 3, 3),
                (arithmetic.product, 3, 3),
                (arithmetic.quotient, 1, 1),
                (arithmetic.equations, 0, 9),
            ),
        ),
        "code": Domain(110, code.grades, ((code.function, 1, 1),)),
        "edit": Domain(200, edit.grades, ((edit.edit, 1, 10), (edit.capital_words, 0, 1))),
    }


def held_out_tasks(name: str, domain: Domain, count: int, start: int = 0) -> list[Task]:
    """Held-out tasks of different prompts, always the same; ``start`` leaves out the first so many draws.

    Raises:
        SystemExit: the domain has fewer.
    """
    found: dict[str, Task] = {}
    for index in range(start, start + 100 * count):
        task = domain.task(Draw(f"held-out {name} {index}", held_out=True))
        found.setdefault(task.prompt, task)
        if len(found) == count:
            return list(found.values())
    raise SystemExit(f"{name}: there are fewer than {count} held-out prompts; ask for fewer.")
