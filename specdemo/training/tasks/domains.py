"""The six domains by name, and their held-out prompts."""

from __future__ import annotations

from pathlib import Path

from specdemo.training.tasks import arithmetic, code, data, edit
from specdemo.training.tasks.chat import Chat
from specdemo.training.tasks.stories import Stories
from specdemo.training.tasks.task import Domain, Draw, Task


def domains(corpus: Path) -> dict[str, Domain]:
    """All domains; chat and stories read the corpus folder.

    Raises:
        SystemExit: a file of theirs is not in the folder.
    """
    try:
        every: tuple[Domain, ...] = (Chat(corpus), Stories(corpus), data, arithmetic, code, edit)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise SystemExit(f"--corpus: there is no {error.filename}; give the folder of the corpus.") from None
    return {domain.name: domain for domain in every}


def held_out_tasks(domain: Domain, count: int, start: int = 0) -> list[Task]:
    """Held-out tasks of different prompts, always the same; ``start`` leaves out the first so many draws."""
    found: dict[str, Task] = {}
    index = start
    while len(found) < count:
        task = domain.task(Draw(f"held-out {domain.name} {index}", held_out=True))
        found.setdefault(task.prompt, task)
        index += 1
        if index - start > 100 * count:
            raise ValueError(f"{domain.name}: fewer than {count} held-out prompts; ask for fewer.")
    return list(found.values())
