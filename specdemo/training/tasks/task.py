"""A task, what is known of an answer, and a domain of tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specdemo.training.tasks.corpus import Corpus
from specdemo.training.tasks.draw import Draw, Side

Grade = dict[str, tuple[int, int]]
"""What is counted of one answer: name → (right, of how many). The first name is the domain's figure."""


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


Graded = Callable[[Sequence[Task], Sequence[Answer]], list[Grade]]


@dataclass(frozen=True, slots=True)
class Domain:
    """Tasks of one kind of use, and their checker.

    Attributes:
        corpus: what fills their slots.
        longest: tokens that an answer may take in a check.
        grades: one grade for each answer.
        tasks: generators, each with its weight among held-out tasks and in training, where what is hard is
            practised more. What one gives depends on its draw alone.
    """

    corpus: Corpus
    longest: int
    grades: Graded
    tasks: tuple[tuple[Callable[[Draw], Task], int, int], ...]

    def task(self, seed: str, side: Side = "training") -> Task:
        """The task of a seed."""
        draw = Draw(seed, self.corpus, side)
        made = [task for task, *_ in self.tasks]
        weights = [check if draw.held_out else train for _, check, train in self.tasks]
        return draw.rng.choices(made, weights)[0](draw)


def exact(right: Callable[[Task, Answer], bool]) -> Graded:
    """The grades of a domain that counts one thing: the answer ended and is right."""

    def grades(tasks: Sequence[Task], answers: Sequence[Answer]) -> list[Grade]:
        return [{"right": (int(a.ended and right(t, a)), 1)} for t, a in zip(tasks, answers, strict=True)]

    return grades


def same_text(task: Task, answer: Answer) -> bool:
    """Whether every character is as it should be; spaces at the ends do not count."""
    return answer.text.strip() == task.answer.strip()
