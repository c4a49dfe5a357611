"""Stories: the simple ones of the corpus, told after a first sentence or about someone."""

from __future__ import annotations

import re

from specdemo.analysis.repetition import LEAST_DISTINCT, distinct_share
from specdemo.training.tasks.corpus import TEMPLATES
from specdemo.training.tasks.task import Answer, Draw, Grade, Task, renamed

ASKS = TEMPLATES["stories"]
LONGEST_STORY, SHORTEST_STORY = 800, 150  # characters: what fits a window
VARIED = 0.9  # of a story's runs of four words are distinct, at least; others teach to repeat
LEAST_WORDS = 15
_SENTENCE = re.compile(r"(?<=[.!?])[\"']?\s+")
_HERO = re.compile(r"\b(an? [a-z ]{3,25}) (?:named|called) ([A-Z][a-z]+)\b")


def fitted(document: str) -> str:
    """A story with single line breaks; of a long one, its last sentences that fit."""
    text = re.sub(r"\s*\n\s*", "\n", document.strip())
    if len(text) <= LONGEST_STORY:
        return text
    ends = (match.end() for match in re.finditer(r"[.!?][\"']?\s+(?=[A-Z\"])", text))
    return next((text[end:] for end in ends if len(text) - end <= LONGEST_STORY), "")


def story(draw: Draw) -> Task:
    text = ""
    while len(text) < SHORTEST_STORY or distinct_share(text.split()) < VARIED or len(_SENTENCE.split(text)) < 3:
        text = renamed([fitted(draw.document(draw.corpus.stories))], draw, share=1.0 if draw.held_out else 0.8)[0]
    first, rest = _SENTENCE.split(text, maxsplit=1)
    hero = _HERO.search(first)
    if hero and draw.side != "known" and draw.chance(0.5):
        return Task("about", draw.say(ASKS["about"], text=f"{hero[1].strip()} named {hero[2]}"), text)
    if draw.held_out or draw.chance(0.8):
        return Task("beginning", draw.say(ASKS["beginnings"], text=first), rest)
    return Task("any", draw.say(ASKS["any"]), text)


def grade(task: Task, answer: Answer) -> Grade:
    """Varied: of the answer's runs of four words, at least seven tenths are distinct."""
    words = answer.text.split()
    varied = len(words) >= LEAST_WORDS and distinct_share(words) >= LEAST_DISTINCT
    return {"distinct 4-grams ≥ 0.7": [varied], "ends": [answer.ended]}
