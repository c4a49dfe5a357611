"""Seeded choices: what fills the slots of templates, on one side of the split."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar
from zlib import crc32

from specdemo.training.tasks.corpus import Corpus, Sides

T = TypeVar("T")
Side = Literal["training", "known", "unseen"]
"""Trained on; held out, of words that training has; held out, with slots of words that it never has."""
HELD_OUT_SHARE = 6  # one composition of numbers, or of a function's parts, of so many is held out
MADE_UP_SHARE = 0.25  # of words: whoever only knows the corpus's would not learn to copy any other


def listed(text: str) -> tuple[str, ...]:
    """The words of a text."""
    return tuple(text.split())


def lines(text: str) -> tuple[str, ...]:
    """The lines of a table of templates."""
    return tuple(text.strip().split("\n"))


_CHOICE, _SLOT = re.compile("<([^<>]*)>"), re.compile(r"\{(\w+)\}")
_ONSETS = listed("b c d f g h j k l m n p r s t v w z br ch cl dr fl gr kr pl qu sh sk st th tr")
_VOWELS = listed("a e i o u a e i o ai ea ee ou y")
_CODAS = ("", "", "", *listed("n r s t l m x ck nd ng rt sk ll"))


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

    def some(self, options: Sequence[T], count: int) -> list[T]:
        """``count`` different ones, in random order."""
        return self.rng.sample(options, count)

    def number(self, low: int = 2, high: int = 99) -> int:
        """Both ends included."""
        return self.rng.randint(low, high)

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def new(self, topic: str, make: Callable[[], T]) -> T:
        """The first composition from ``make`` on this side; the hash of its ``repr`` says which side it is on."""
        while is_held_out(topic, made := make()) != self.held_out:
            pass
        return made

    def document(self, sides: Sides) -> str:
        """One on this side."""
        return self.one(sides[self.held_out])

    def say(self, template: str, **given: object) -> str:
        """A template with one of each ``<this|that>`` and with its ``{slots}`` filled.

        A slot that is not given is a method's name, such as ``{noun}``.
        """
        while choice := _CHOICE.search(template):
            template = template[: choice.start()] + self.one(choice[1].split("|")) + template[choice.end() :]
        return _SLOT.sub(
            lambda slot: str(given[slot[1]] if slot[1] in given else getattr(self, slot[1])()), template
        )

    # --- slots ---

    def made_up(self) -> str:
        """A word of two or three syllables that is in no dictionary, in small letters."""
        while True:
            syllables = [
                self.one(_ONSETS) + self.one(_VOWELS) + self.one(_CODAS) for _ in range(self.number(2, 3))
            ]
            if 4 <= len(word := "".join(syllables)) <= 10 and self.corpus.is_unseen(word) == self.unseen:
                return word

    def word(self) -> str:
        """Any word, in small letters."""
        return self.noun() if self.chance(0.5) else self.one(self.corpus.words[self.unseen])

    def noun(self) -> str:
        return self.made_up() if self.chance(MADE_UP_SHARE) else self.one(self.corpus.nouns[self.unseen])

    def nouns(self) -> str:
        """One in the plural."""
        return f"{self.noun()}s"

    def proper(self) -> str:
        """One word with a capital, such as a first name or a city."""
        return self.made_up().title() if self.chance(MADE_UP_SHARE) else self.one(self.corpus.names[self.unseen])

    def name(self) -> str:
        """A name in one of many shapes."""
        shapes = "{proper}|{proper}|{proper}|{proper} {proper}|{proper}-{proper}|O'{proper}|{initial}. {proper}"
        return self.say(f"<{shapes}>")

    def initial(self) -> str:
        return self.proper()[0]

    def phrase(self) -> str:
        """Two to four words."""
        return self.say("<{word} {word}|the {word} {noun}|a {word} {noun}|{word} {word} {noun} {noun}>")

    def code(self) -> str:
        """Letters and digits, as of a seat or a part."""
        return self.say("<{initial}{number}|{initial}{initial}-{number}|{number}-{initial}|#{number}{number}>")

    def identifier(self) -> str:
        """One to three words in snake_case or camelCase."""
        words = [self.word() for _ in range(self.one((1, 1, 2, 2, 3)))]
        return "_".join(words) if self.chance(0.7) else words[0] + "".join(map(str.title, words[1:]))

    def text(self) -> str:
        """What may stand where a word does: a word, a name or a phrase."""
        return self.say("<{word}|{word}|{name}|{name}|{phrase}|{code}>")

    def sentence(self) -> str:
        """One of a story, with other words in some places."""
        return reworded(self.document(self.corpus.sentences), self)


def reworded(text: str, draw: Draw, share: float = 0.4) -> str:
    """A sentence with some of its longer words and names exchanged."""

    def other(match: re.Match[str]) -> str:
        word = match[0]
        if not draw.chance(share) or (match.start() == 0 and word not in draw.corpus.all_names):
            return word
        return draw.proper() if word[0].isupper() else draw.word()

    return re.sub(r"\b(?:[a-z]{4,}|[A-Z][a-z]{2,})\b(?!')", other, text)


def renamed(texts: Sequence[str], draw: Draw, share: float = 0.8) -> list[str]:
    """The same dialogue or story about people and places of other names, each the same wherever it stands."""
    found = dict.fromkeys(re.findall(r"(?<=[a-z,] )[A-Z][a-z]+\b", "\n".join(texts)))
    others = {n: draw.proper() for n in found if n in draw.corpus.all_names and draw.chance(share)}
    if not others:
        return list(texts)
    pattern = re.compile(rf"\b({'|'.join(others)})\b")
    return [pattern.sub(lambda match: others[match[0]], text) for text in texts]
