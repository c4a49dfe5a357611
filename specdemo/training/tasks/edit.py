"""Edit: a text of a few sentences or lines, given again with one change."""

from __future__ import annotations

from specdemo.training.tasks.slots import SLOTS, filled
from specdemo.training.tasks.task import Draw, Task, exact, lines

SENTENCES = lines("""
{name} lives in {city} and works as a {job}.
On {day} {name} goes to the {place}.
{name} has a {colour} {animal}.
The {animal} likes to sleep in the {place}.
In {month} {name} will travel to {city}.
There are {number} {things} on the table.
{name} bought {number} {things} at the {place}.
The meeting starts at {number} on {day}.
{name} likes {sport} and {subject}.
For dinner we had {food} and {food}.
The {colour} {thing} belongs to {name}.
Please bring the {thing} to the {place} before {day}.
{name} and {name} met at the {place} in {city}.
It was a warm day in {month}.
The train to {city} leaves at {number}.
{name} wrote a letter about the {animal}.
We need {number} {things} and a {colour} {thing}.
My friend {name} teaches {subject} in {city}.
The {job} paid {number} dollars for the {thing}.
After {sport} they ate {food}.
""")
ITEMS = lines("""
{number} {things}
{food}
a {colour} {thing}
call {name}
go to the {place}
{day}: {sport}
{day}: meet {name}
ticket to {city}
feed the {animal}
read about {subject}
""")
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh")
ASKS = (
    "{change}\n{text}",
    "{text}\n{change}",
    "Write this text again. {change}\n{text}",
    "Give the text again with one change. {change}\n{text}",
    "Edit this text.\n{text}\n{change}",
    "Here is a text:\n{text}\n{change}",
)
CHANGES = {
    "replace": lines("""
Change {old} to {new}.
Replace {old} by {new}.
Write {new} instead of {old}.
Put "{new}" where it says "{old}".
Say {new} and not {old}.
"""),
    "remove": lines("""
Remove the {place} {unit}.
Delete the {place} {unit}.
Leave out the {place} {unit}.
Drop the {place} {unit}.
Take out the {place} {unit}.
"""),
    "add": lines("""
Add this {unit} at the {place}: {new}
At the {place}, add: {new}
Put this at the {place}: {new}
Add the {unit} "{new}" at the {place}.
"""),
    "capitals": lines("""
Write {old} in capital letters.
Put {old} in capitals.
Make {old} all capitals.
The word "{old}" should be in capitals.
"""),
}
WEIGHTS = (("replace", 5, 5), ("remove", 2, 2), ("add", 2, 2), ("capitals", 1, 2))
"""Of a change among held-out tasks and in training."""
_LISTED = frozenset(word for words in SLOTS.values() for word in words)


def capital_words(draw: Draw) -> Task:
    """Practice only: an edit holds one word in capital letters among many that are copied."""
    words = draw.some(sorted(_LISTED), draw.number(4, 16))
    ask = draw.one(
        ("Write these words in capital letters.", "Put these words in capitals.", "All capitals, please.")
    )
    return Task("capital words", f"{ask}\n{' '.join(words)}", " ".join(words).upper())


def edit(draw: Draw) -> Task:
    """Three to seven sentences, or items of a list, and a change that can be made to them."""
    listed = draw.number(1, 3) == 1
    templates = ITEMS if listed else SENTENCES
    mark, join = ("- ", "\n") if listed else ("", " ")
    chosen = draw.new("patterns", lambda: tuple(draw.some(templates, draw.number(3, 7))))
    parts = [mark + _part(draw, template) for template in chosen]
    while not (changed := _changed(draw, kind := draw.weighted(WEIGHTS), parts, mark, join)):
        pass
    words, answer = changed
    words["unit"] = "line" if listed else "sentence"
    ask = draw.phrase(ASKS, chosen)
    change = draw.one(CHANGES[kind]).format(**words)
    return Task(kind, ask.format(change=change, text=join.join(parts)), join.join(answer))


def _part(draw: Draw, template: str) -> str:
    """A sentence or item; one of three words or more is a composition."""
    return (
        draw.new("sentence", lambda: filled(draw, template)) if template.count("{") > 2 else filled(draw, template)
    )


def _changed(
    draw: Draw, kind: str, parts: list[str], mark: str, join: str
) -> tuple[dict[str, str], list[str]] | None:
    """The words that ask for a change, and what it makes of the parts; None where it cannot be made."""
    have = [word.strip(".,:") for word in join.join(parts).split()]
    if kind == "replace":  # one word for another of its kind, wherever it stands
        kinds = [k for k, words in SLOTS.items() if set(words) & set(have)]
        if not kinds:
            return None
        words = SLOTS[draw.one(kinds)]
        old = draw.one(sorted(set(words) & set(have)))
        new = draw.new("replace", lambda: (old, draw.one([word for word in words if word not in have])))[1]
        return {"old": old, "new": new}, [_swapped(part, old, new) for part in parts]
    if kind == "capitals":
        once = [w for w in have if have.count(w) == 1 and w.isalpha() and len(w) > 2 and w in _LISTED]
        if not once:
            return None
        old = draw.one(once)
        return {"old": old}, [_swapped(part, old, old.upper()) for part in parts]
    if kind == "remove":
        index = draw.number(0, len(parts) - 1)
        place = "last" if index == len(parts) - 1 and draw.one((True, False)) else ORDINALS[index]
        return {"place": place}, parts[:index] + parts[index + 1 :]
    while (added := mark + _part(draw, draw.one(ITEMS if mark else SENTENCES))) in parts:
        pass
    at_end = draw.one((True, False))
    where = {"place": "end" if at_end else "start", "new": added.removeprefix("- ")}
    return where, [*parts, added] if at_end else [added, *parts]


def _swapped(part: str, old: str, new: str) -> str:
    """``part`` with a word exchanged; only whole words."""
    return " ".join(word.replace(old, new) if word.strip(".,:") == old else word for word in part.split(" "))


grades = exact(lambda task, answer: answer.text.strip() == task.answer.strip())
"""Right: every character as it should be; spaces at the ends do not count."""
