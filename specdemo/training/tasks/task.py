"""A task, what is known of an answer, and the draws that keep held-out tasks apart from those trained on."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar
from zlib import crc32

HELD_OUT_SHARE = 6  # one composition of so many is held out

T = TypeVar("T")
Grade = dict[str, tuple[int, int]]
"""What is counted of one answer: name → (right, of how many). The first name is the domain's figure."""


def listed(text: str) -> tuple[str, ...]:
    """The words of a text."""
    return tuple(text.split())


def lines(text: str) -> tuple[str, ...]:
    """The lines of a table of templates."""
    return tuple(text.strip().split("\n"))


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
    """What a model answered: the text, whether it ended with the end token, and the ids of the text."""

    text: str
    ended: bool = True
    ids: tuple[int, ...] = ()


class NoneOnThisSide(Exception):
    """Every composition that could still be made is on the other side of the split: draw anew from the start."""


class Draw:
    """Seeded choices, with every composition on one side of the split.

    A composition is a tuple of choices, such as a template with a name, or the numbers of a sum. Its hash says on
    which side it is. So a held-out prompt is made of known words and phrases, put together as in no training text.

    Args:
        seed: any text; the same seed gives the same task.
        held_out: which side to draw from.
    """

    def __init__(self, seed: str, held_out: bool = False) -> None:
        self.rng = random.Random(seed)
        self.held_out = held_out

    def new(self, topic: str, make: Callable[[], T]) -> T:
        """The first composition from ``make`` on this side; its ``repr`` is what is hashed.

        Raises:
            NoneOnThisSide: a hundred in a row were on the other.
        """
        for _ in range(100):
            if is_held_out(topic, made := make()) == self.held_out:
                return made
        raise NoneOnThisSide(topic)

    def phrase(self, options: Sequence[str], context: object) -> str:
        """A phrase that goes with ``context`` on this side: the composition is the two of them.

        Raises:
            NoneOnThisSide: none of them does.
        """
        allowed = [option for option in options if is_held_out(option, context) == self.held_out]
        if not allowed:
            raise NoneOnThisSide(context)
        return self.one(allowed)

    def one(self, options: Sequence[T]) -> T:
        return self.rng.choice(options)

    def some(self, options: Sequence[T], count: int) -> list[T]:
        """``count`` different ones, in random order."""
        return self.rng.sample(options, count)

    def number(self, low: int, high: int) -> int:
        """Both ends included."""
        return self.rng.randint(low, high)

    def weighted(self, options: Sequence[tuple[T, int, int]]) -> T:
        """An option by its weight: the first among held-out tasks, the second in training."""
        weights = {option: check if self.held_out else train for option, check, train in options}
        some = {option: weight for option, weight in weights.items() if weight}
        return self.rng.choices(list(some), list(some.values()))[0] if len(some) > 1 else next(iter(some))


@dataclass(frozen=True, slots=True)
class Domain:
    """Tasks of one kind of use, and their checker.

    Attributes:
        longest: tokens that an answer may take in a check.
        grades: one grade for each answer.
        tasks: generators, each with its weight among held-out tasks and in training, where what is hard is
            practised more. What one gives depends on its draw alone.
    """

    longest: int
    grades: Callable[[Sequence[Task], Sequence[Answer]], list[Grade]]
    tasks: tuple[tuple[Callable[[Draw], Task], int, int], ...]

    def task(self, draw: Draw) -> Task:
        """A task all of whose compositions are on the draw's side."""
        make = draw.weighted(self.tasks)
        while True:
            try:
                return make(draw)
            except NoneOnThisSide:
                continue


def exact(right: Callable[[Task, Answer], bool]) -> Callable[[Sequence[Task], Sequence[Answer]], list[Grade]]:
    """The grades of a domain that counts one thing: the answer ended and is right."""

    def grades(tasks: Sequence[Task], answers: Sequence[Answer]) -> list[Grade]:
        return [{"right": (int(a.ended and right(t, a)), 1)} for t, a in zip(tasks, answers, strict=True)]

    return grades


def is_held_out(topic: str, composition: object) -> bool:
    return crc32(f"{topic} {composition!r}".encode()) % HELD_OUT_SHARE == 0
