"""A small corpus as files."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

from specdemo.training.tasks.corpus import END_OF_TEXT, STORIES, VOCABULARY

ODD_TEXTS = [
    "a  b \n\n\n d\t\te \r\n",
    "٣٤ ²³ naïve ﬁ",
    "日本語 हिन्दी",
    "🙂👩‍👩‍👧🏽 e\u0301",
    "don't 'tis",
    "\u200b\u00a0\x01\ufeff…|(x)",
]


def write_corpus(folder: Path) -> Path:
    """A corpus folder whose dialogues and stories are short and all different; returns ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(1)
    stems = [
        "".join(draw.choices("bdfgklmnprst", k=3)) + draw.choice("aeiou") + draw.choice("nrst") for _ in range(900)
    ]
    words = list(dict.fromkeys(stems))
    book = " ".join(f"Here the {w} and the {w}s met {w.title()[::-1].title()}x." for w in words for _ in range(3))
    chat = [
        f"User: Find me a restaurant number {i} .\nAssistant: In which   city?\n"
        "User: In Oslo.\nAssistant: I found one."
        for i in range(400)
    ]
    stories = [
        f"Once a dog named Spot ran {i} miles. It met a cat there. They saw {i} birds fly.\n\nThen it slept. "
        "In the morning it ate with Lily. It had a bone. It went home again. They were happy. It was a good day."
        for i in range(1000)
    ]
    topical = [f"User: What is the {w} of the day?\nAssistant: It is a {w}." for w in words[:100]]
    files = {"chat": chat, STORIES[0]: stories, VOCABULARY[0]: topical}
    files |= dict.fromkeys(STORIES[1:], stories[:50]) | {name: [book] for name in VOCABULARY[1:]}
    for name, documents in files.items():
        with gzip.open(folder / f"{name}.txt.gz", "wt", encoding="utf-8") as file:
            file.write(f"{END_OF_TEXT}\n".join(documents))
    return folder
