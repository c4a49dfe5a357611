"""A small corpus as files."""

from __future__ import annotations

import gzip
from pathlib import Path

from specdemo.training.tasks.corpus import END_OF_TEXT


def write_corpus(folder: Path) -> Path:
    """A corpus folder whose dialogues and stories are short and all different; returns ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    chat = [
        f"User: Find me a restaurant number {i} .\nAssistant: In which   city?\n"
        "User: In Oslo.\nAssistant: I found one."
        for i in range(400)
    ]
    stories = [
        f"Once there was a dog named Spot{i}. It ran {i} miles.\n\nThen it slept for a long time under an old "
        "tree. It had a dream of a bone. In the morning it went home to eat with Lily. They were happy."
        for i in range(1000)
    ]
    files = {
        "chat": chat,
        "stories_tiny": stories,
        "stories_pratham": stories[:50],
        "stories_african": stories[:50],
    }
    for name, documents in files.items():
        with gzip.open(folder / f"{name}.txt.gz", "wt", encoding="utf-8") as file:
            file.write(f"{END_OF_TEXT}\n".join(documents))
    return folder
