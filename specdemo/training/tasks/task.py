"""What a task and an answer are, and the seeded choices that fill a task's slots, on one side of the split."""

from __future__ import annotations

import random
import re
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar
from zlib import crc32

from specdemo.training.tasks.corpus import TEMPLATES, Corpus, Sides

T = TypeVar("T")
Side = Literal["training", "known", "unseen"]
"""Trained on; held out, of words that training has; held out, with slots of words that it never has."""
HELD_OUT_SHARE = 6  # one composition of numbers, or of a function's parts, of so many is held out
MADE_UP_SHARE = 0.15  # of words: whoever only knows the corpus's would not learn to copy any other


@dataclass(frozen=True, slots=True)
class Task:
    """A prompt with its answer.

    Attributes:
        kind: which of the domain's generators made it.
        prompt: the user's first turn.
        answer: the assistant's, as trained on; in chat and stories one of many good ones.
        more: further turns of a dialogue, by turns the user's and the assistant's.
    """

    kind: str
    prompt: str
    answer: str
    more: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model answered: the text, and whether it ended with the end token."""

    text: str
    ended: bool = True


Grade = dict[str, Sequence[bool]]
"""What is counted of one answer: name → what of it is right. The first name is the domain's figure."""


def same_text(task: Task, answer: Answer) -> Grade:
    """Right is every character; spaces at the ends do not count."""
    return {"right": [answer.ended and answer.text.strip() == task.answer.strip()]}


def rows(table: Sequence[str]) -> list[list[str]]:
    """The columns of a table of templates."""
    return [re.split(r" +[|] +", line) for line in table]


SLOTS, TYPED, _SYLLABLES = (TEMPLATES[part] for part in ("slots", "typed", "syllables"))
"""Slots that are made of others; those are methods of a draw."""
_VERBS = frozenset(TYPED["verbs"][0].split())
_CHOICE, _SLOT = re.compile("<([^<>]*)>"), re.compile(r"\{(\w+)\}")


def is_held_out(topic: str, composition: object) -> bool:
    return crc32(f"{topic} {composition!r}".encode()) % HELD_OUT_SHARE == 0


class Draw:
    """Choices of one task; the same seed, corpus and side give the same task."""

    def __init__(self, seed: str, corpus: Corpus, side: Side = "training") -> None:
        self.rng = random.Random(seed)
        self.corpus, self.side = corpus, side
        self.held_out, self.unseen = side != "training", side == "unseen"

    def one(self, options: Sequence[T]) -> T:
        return self.rng.choice(options)

    def number(self, low: int = 2, high: int = 99) -> int:
        """Both ends included."""
        return self.rng.randint(low, high)

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def several(self, count: int, make: Callable[[], T]) -> list[T]:
        """So many different ones."""
        found: dict[T, None] = {}
        while len(found) < count:
            found[make()] = None
        return list(found)

    def new(self, topic: str, make: Callable[[], T]) -> T:
        """The first composition from ``make`` on this side; the hash of its ``repr`` says which side it is on."""
        while is_held_out(topic, made := make()) != self.held_out:
            pass
        return made

    def document(self, sides: Sides) -> str:
        """One on this side."""
        return self.one(sides[self.held_out])

    def weighted(self, weights: Mapping[str, int]) -> str:
        return self.rng.choices(list(weights), list(weights.values()))[0]

    def say(self, template: str | Sequence[str], **given: object) -> str:
        """A template, or one of several, as ``chosen``, with its ``{slots}`` filled.

        A slot that is not given is one of ``SLOTS`` or a method, such as ``{noun}``.
        """
        text = self.chosen(template)
        return _SLOT.sub(lambda slot: str(given[slot[1]]) if slot[1] in given else self.slot(slot[1]), text)

    def chosen(self, template: str | Sequence[str]) -> str:
        """A template, or one of several, with one of each ``<this|that>``; its slots stay."""
        text = template if isinstance(template, str) else f"<{self.one(template)}>"
        while choice := _CHOICE.search(text):
            text = text[: choice.start()] + self.one(choice[1].split("|")) + text[choice.end() :]
        return text

    def slot(self, name: str) -> str:
        """What a slot of this name is filled with."""
        return self.say(SLOTS[name]) if name in SLOTS else str(getattr(self, name)())

    # --- slots ---

    def made_up(self) -> str:
        """A word of two or three syllables that is in no dictionary, in small letters."""
        while True:
            parts = [self.one(part) for _ in range(self.number(2, 3)) for part in _SYLLABLES.values()]
            if 4 <= len(word := "".join(parts)) <= 10 and self.corpus.is_unseen(word) == self.unseen:
                return word

    def word(self) -> str:
        """Any word, in small letters."""
        return self.noun() if self.chance(0.5) else self.one(self.corpus.words[self.unseen])

    def noun(self) -> str:
        return self.made_up() if self.chance(MADE_UP_SHARE) else self.one(self.corpus.nouns[self.unseen])

    def proper(self) -> str:
        """One word with a capital, such as a first name or a city."""
        return self.made_up().title() if self.chance(MADE_UP_SHARE) else self.one(self.corpus.names[self.unseen])

    def gibberish(self) -> str:
        """Random letters."""
        while True:
            typed = "".join(self.one(string.ascii_lowercase) for _ in range(self.number(3, 11)))
            if self.corpus.is_unseen(typed) == self.unseen:
                return typed

    def initial(self) -> str:
        return self.proper()[0]

    def identifier(self) -> str:
        """One to three words in snake_case or camelCase."""
        words = [self.word() for _ in range(self.one((1, 1, 2, 2, 3)))]
        return "_".join(words) if self.chance(0.7) else words[0] + "".join(map(str.title, words[1:]))

    def told(self) -> str:
        """A sentence of a story, with other words in one or two places."""
        return reworded(self.document(self.corpus.sentences), self)


def around(draw: Draw, asks: str | Sequence[str], text: str, **given: object) -> str:
    """A request, filled with what is given, and the text that it is about.

    Most people ask first, some after the text, in the next line or after a blank one. What ends with a colon
    stands before the text, or in its line.
    """
    ask, gap = typed(draw, draw.chosen(asks)), draw.one(("\n", "\n", "\n", "\n\n"))
    if "\n" not in text and ": {" not in ask and draw.chance(0.5 if ask.endswith(":") else 0.15):
        ask, gap = f"{ask.rstrip('.:')}:", " "
    after = draw.chance(0.2) and not ask.endswith(":")
    said = draw.say(ask, **given)
    return f"{text}{gap}{said}" if after else f"{said}{gap}{text}"


def typed(draw: Draw, ask: str) -> str:
    """A template as it is typed: some begin with please or without a capital, and end without a full stop."""
    if draw.chance(0.6):
        return ask
    verb, _, rest = ask.partition(" ")
    if verb in _VERBS:
        ask = f"{draw.one(TYPED['before'])}{verb.lower()} {rest}"
    elif draw.chance(0.5):
        ask = ask[0].lower() + ask[1:]
    after = "" if "please" in ask.lower() else draw.one(TYPED["after"])
    return ask.removesuffix(".") + after if ask.endswith(".") else ask


def reworded(text: str, draw: Draw) -> str:
    """A sentence with one or two of its names and rarer words exchanged."""
    found = re.finditer(r"\b(?:[a-z]{4,}|[A-Z][a-z]{2,})\b(?!')", text)
    rare = [m for m in found if m[0] not in draw.corpus.usual and (m.start() or m[0] in draw.corpus.all_names)]
    for place in sorted(
        draw.rng.sample(rare, min(len(rare), draw.number(1, 2))), key=re.Match.start, reverse=True
    ):
        other = draw.proper() if place[0][0].isupper() else draw.word()
        text = text[: place.start()] + other + text[place.end() :]
    return text


def renamed(texts: Sequence[str], draw: Draw, share: float = 0.8) -> list[str]:
    """A dialogue or story about people and places of other names, each the same wherever it stands."""
    found = dict.fromkeys(re.findall(r"(?<=[a-z,] )[A-Z][a-z]+\b", "\n".join(texts)))
    others = {n: draw.proper() for n in found if n in draw.corpus.all_names and draw.chance(share)}
    pattern = re.compile(rf"\b({'|'.join(others) or '(?!)'})\b")
    return [pattern.sub(lambda match: others[match[0]], text) for text in texts]
