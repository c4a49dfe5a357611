"""Edit: a text of a few sentences or lines, given again with one change."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specdemo.training.tasks.task import Answer, Draw, Grade, Task
from specdemo.training.tasks.words import (
    ANIMALS,
    CITIES,
    COLOURS,
    DAYS,
    FOODS,
    JOBS,
    MONTHS,
    NAMES,
    PLACES,
    SPORTS,
    SUBJECTS,
    THINGS,
    person,
)

name = "edit"
longest = 200

SENTENCES = (
    "{name} lives in {city} and works as a {job}.",
    "On {day} {name} goes to the {place}.",
    "{name} has a {colour} {animal}.",
    "The {animal} likes to sleep in the {place}.",
    "In {month} {name} will travel to {city}.",
    "There are {number} {things} on the table.",
    "{name} bought {number} {things} at the {place}.",
    "The meeting starts at {number} on {day}.",
    "{name} likes {sport} and {subject}.",
    "For dinner we had {food} and {food}.",
    "The {colour} {thing} belongs to {name}.",
    "Please bring the {thing} to the {place} before {day}.",
    "{name} and {name} met at the {place} in {city}.",
    "It was a warm day in {month}.",
    "The train to {city} leaves at {number}.",
    "{name} wrote a letter about the {animal}.",
    "We need {number} {things} and a {colour} {thing}.",
    "My friend {name} teaches {subject} in {city}.",
    "The {job} paid {number} dollars for the {thing}.",
    "After {sport} they ate {food}.",
)
LINES = (
    "{number} {things}",
    "{food}",
    "a {colour} {thing}",
    "call {name}",
    "go to the {place}",
    "{day}: {sport}",
    "{day}: meet {name}",
    "ticket to {city}",
    "feed the {animal}",
    "read about {subject}",
)
WORDS: dict[str, tuple[str, ...]] = {
    "name": NAMES,
    "city": CITIES,
    "job": JOBS,
    "day": DAYS,
    "place": PLACES,
    "colour": COLOURS,
    "animal": ANIMALS,
    "month": MONTHS,
    "sport": SPORTS,
    "subject": SUBJECTS,
    "food": FOODS,
    "thing": tuple(one for one, _ in THINGS),
    "things": tuple(many for _, many in THINGS),
    "number": tuple(str(n) for n in range(2, 60)),
}
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh")
ASKS = (
    "{change}\n{text}",
    "{text}\n{change}",
    "Write this text again. {change}\n{text}",
    "Give the text again with one change. {change}\n{text}",
    "Edit this text.\n{text}\n{change}",
    "Here is a text:\n{text}\n{change}",
)


def _filled(draw: Draw, pattern: str) -> str:
    """A sentence with its gaps filled by words."""

    def make() -> str:
        text = pattern
        for kind, words in WORDS.items():
            while f"{{{kind}}}" in text:
                word = person(draw.rng) if kind == "name" else draw.one(words)
                text = text.replace(f"{{{kind}}}", word, 1)
        return text

    return draw.new("sentence", make) if pattern.count("{") > 2 else make()


def _replace(draw: Draw, parts: list[str], join: str) -> tuple[tuple[str, ...], str] | None:
    """One word for another wherever it stands; a word of the closed lists that the text has."""
    text = join.join(parts)
    have = {w.strip(".,:") for w in text.split()}
    kinds = [k for k, words in WORDS.items() if have & set(words)]
    if not kinds:
        return None
    kind = draw.one(kinds)
    old = draw.one(sorted(have & set(WORDS[kind])))
    new = draw.new("replace", lambda: (old, draw.one([w for w in WORDS[kind] if w not in have])))[1]
    asks = (
        f"Change {old} to {new}.",
        f"Replace {old} by {new}.",
        f"Write {new} instead of {old}.",
        f'Put "{new}" where it says "{old}".',
        f"Say {new} and not {old}.",
    )
    return asks, join.join(_swapped(part, old, new) for part in parts)


def _swapped(part: str, old: str, new: str) -> str:
    """``part`` with a word exchanged; only whole words."""
    words = part.split(" ")
    return " ".join(word.replace(old, new) if word.strip(".,:") == old else word for word in words)


def _remove(draw: Draw, parts: list[str], join: str) -> tuple[tuple[str, ...], str]:
    unit = "line" if join == "\n" else "sentence"
    index = draw.number(0, len(parts) - 1)
    which = "last" if index == len(parts) - 1 and draw.one((True, False)) else ORDINALS[index]
    left = parts[:index] + parts[index + 1 :]
    asks = (
        f"Remove the {which} {unit}.",
        f"Delete the {which} {unit}.",
        f"Leave out the {which} {unit}.",
        f"Drop the {which} {unit}.",
        f"Take out the {which} {unit}.",
    )
    return asks, join.join(left)


def _add(draw: Draw, parts: list[str], join: str) -> tuple[tuple[str, ...], str]:
    line = join == "\n"
    unit = "line" if line else "sentence"
    while (new := ("- " if line else "") + _filled(draw, draw.one(LINES if line else SENTENCES))) in parts:
        pass
    shown = new.removeprefix("- ")
    at_end = draw.one((True, False))
    place = "end" if at_end else "start"
    asks = (
        f"Add this {unit} at the {place}: {shown}",
        f"At the {place}, add: {shown}",
        f"Put this at the {place}: {shown}",
        f'Add the {unit} "{shown}" at the {place}.',
    )
    return asks, join.join([*parts, new] if at_end else [new, *parts])


def _capitals(draw: Draw, parts: list[str], join: str) -> tuple[tuple[str, ...], str] | None:
    """One word in capital letters."""
    have = [w.strip(".,:") for w in join.join(parts).split()]
    once = [w for w in have if have.count(w) == 1 and w.isalpha() and len(w) > 2 and w in _LISTED]
    if not once:
        return None
    word = draw.one(once)
    asks = (
        f"Write {word} in capital letters.",
        f"Put {word} in capitals.",
        f"Make {word} all capitals.",
        f'The word "{word}" should be in capitals.',
    )
    return asks, join.join(_swapped(part, word, word.upper()) for part in parts)


_LISTED = frozenset(word for words in WORDS.values() for word in words)
Change = Callable[[Draw, list[str], str], tuple[tuple[str, ...], str] | None]
CHANGES: dict[str, Change] = {"replace": _replace, "remove": _remove, "add": _add, "capitals": _capitals}
WEIGHTS = (("replace", 5, 5), ("remove", 2, 2), ("add", 2, 2), ("capitals", 1, 2))
"""Of a change among held-out tasks and in training."""


def task(draw: Draw) -> Task:
    return draw.task(draw.weighed(((_edit, 1, 10), (_capital_words, 0, 1))))


def _capital_words(draw: Draw) -> Task:
    """Practice only: an edit holds one word in capital letters among many that are copied."""
    words = draw.some(sorted(_LISTED), draw.number(4, 16))
    ask = draw.one(
        ("Write these words in capital letters.", "Put these words in capitals.", "All capitals, please.")
    )
    return Task("capital words", f"{ask}\n{' '.join(words)}", " ".join(words).upper())


def _edit(draw: Draw) -> Task:
    """Three to seven sentences, or lines of a list, and a change that can be made to them."""
    listed = draw.number(1, 3) == 1
    pattern = draw.new("patterns", lambda: tuple(draw.some(LINES if listed else SENTENCES, draw.number(3, 7))))
    parts = [("- " if listed else "") + _filled(draw, p) for p in pattern]
    join = "\n" if listed else " "
    while not (changed := CHANGES[kind := draw.weighed(WEIGHTS)](draw, parts, join)):
        pass
    asks, answer = changed
    ask = draw.phrase(ASKS, pattern)
    return Task(kind, ask.format(change=draw.one(asks), text=join.join(parts)), answer)


def grades(tasks: Sequence[Task], answers: Sequence[Answer]) -> list[Grade]:
    """Right: ended, and every character as it should be; spaces at the ends do not count."""
    return [
        {"right": (int(a.ended and a.text.strip() == t.answer.strip()), 1)}
        for t, a in zip(tasks, answers, strict=True)
    ]
