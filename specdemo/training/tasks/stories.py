"""Stories: the simple ones of the corpus, told after a first sentence or about someone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from specdemo.analysis.repetition import LEAST_DISTINCT, distinct_share
from specdemo.training.tasks.corpus import read_documents
from specdemo.training.tasks.slots import NAMES, SHE
from specdemo.training.tasks.task import Answer, Draw, Grade, NoneOnThisSide, Task, is_held_out, listed

FILES = ("stories_tiny.txt.gz", "stories_pratham.txt.gz", "stories_african.txt.gz")
LONGEST_STORY = 850  # characters: what fits a window
SHORTEST_STORY = 150
VARIED = 0.9  # of a training story's runs of four words are distinct, at least; others teach to repeat
RENAMED_SHARE = 0.6  # of the stories whose hero gets another name: there are few stories

BEGINNINGS = ("{}", "Tell me a story. {}", "Write a story that begins like this: {}", "Go on with this story: {}")
ABOUT = (
    "Tell me a story about {}.",
    "Write a story about {}.",
    "A story about {}, please.",
    "Tell a story of {}.",
)
ANY = ("Tell me a story.", "Write a short story.", "A story, please.")
_SENTENCE = re.compile(r"(?<=[.!?])[\"']?\s+")
_HERO = re.compile(r"\b(an? [a-z ]{3,25}) (?:named|called) ([A-Z][a-z]+)\b")
# The names that TinyStories gives most often; one of them becomes another of its gender.
GIRLS = listed("Lily Mia Anna Sara Lucy Sue Jane Amy Emma Daisy Molly Bella Jenny Ella Mary")
BOYS = listed("Tim Tom Ben Max Jack Sam Bob Timmy Billy Joe John Spot Leo Jim Fred")


def fitted(document: str) -> str:
    """A story with single line breaks; of a long one, its last paragraphs or sentences that fit."""
    text = re.sub(r"\s*\n\s*", "\n", document.strip())
    if len(text) <= LONGEST_STORY:
        return text
    ends = (match.end() for match in re.finditer(r"[.!?][\"']?\s+(?=[A-Z\"])", text))
    return next((text[end:] for end in ends if len(text) - end <= LONGEST_STORY), "")


def renamed(text: str, draw: Draw) -> str:
    """The same story about people of other names."""
    girls = [n for n in (*GIRLS, *NAMES) if n in GIRLS or n in SHE]
    boys = [n for n in (*BOYS, *NAMES) if n not in girls]
    for old in (*GIRLS, *BOYS):
        if re.search(rf"\b{old}\b", text):
            new = draw.one(girls if old in GIRLS else boys)
            if new not in text:
                text = re.sub(rf"\b{old}\b", new, text)
    return text


class Stories:
    """Each told after a prompt. A held-out story is in no training text, and neither is its prompt."""

    def __init__(self, folder: Path) -> None:
        parts = [read_documents(folder / file) for file in FILES]
        usable = _usable(document for train, _ in parts for document in train)
        self._train = [text for text in usable if distinct_share(text.split()) >= VARIED]
        self._held_out = _usable(parts[0][1])

    def story(self, draw: Draw) -> Task:
        text = draw.one(self._held_out if draw.held_out else self._train)
        if draw.rng.random() < RENAMED_SHARE:
            text = renamed(text, draw)
        first, rest = _SENTENCE.split(text, maxsplit=1)
        hero = _HERO.search(first)
        about = f"{hero[1].strip()} named {hero[2]}" if hero else ""
        if about and is_held_out("hero", about) == draw.held_out and draw.one((True, False)):
            return Task("about", draw.one(ABOUT).format(about), text)
        if is_held_out("first sentence", first) == draw.held_out:
            return Task("beginning", draw.one(BEGINNINGS).format(first), rest)
        if draw.held_out:
            raise NoneOnThisSide(first)
        return Task("any", draw.one(ANY), text)

    def grades(self, tasks: Sequence[Task], answers: Sequence[Answer]) -> list[Grade]:
        """Varied: of the answer's 4-grams of tokens, at least seven tenths are distinct."""
        return [
            {
                "distinct 4-grams ≥ 0.7": (int(len(a.ids) >= 20 and distinct_share(a.ids) >= LEAST_DISTINCT), 1),
                "ends": (int(a.ended), 1),
            }
            for a in answers
        ]


def _usable(documents: Iterable[str]) -> list[str]:
    return [t for d in documents if len(t := fitted(d)) >= SHORTEST_STORY and len(_SENTENCE.split(t)) > 2]
