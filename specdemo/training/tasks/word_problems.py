"""Word problems of one to three steps with small numbers; every step stands on a line with its equation.

A template is a prompt, then the lines of its answer; what stands in braces is computed. The result is that of the
last equation.
"""

from __future__ import annotations

import re
from typing import Any

from specdemo.training.tasks.slots import NAMES, SHE, SLOTS
from specdemo.training.tasks.task import Draw, lines


def _templates(text: str) -> tuple[tuple[str, ...], ...]:
    return tuple(lines(block) for block in text.strip().split("\n\n"))


# What happens, and the verb of its step.
GAINS = (
    ("{He} buys {n} more.", "buys"),
    ("{He} finds {n} more.", "finds"),
    ("{He} gets {n} from {other}.", "gets"),
    ("Then {he} wins {n}.", "wins"),
    ("{other} gives {him} {n} more.", "gets"),
    ("On Monday {he} makes another {n}.", "makes"),
)
LOSSES = (
    ("{He} loses {n}.", "loses"),
    ("{He} gives {n} to {other}.", "gives away"),
    ("{He} sells {n} of them.", "sells"),
    ("Then {n} get lost.", "loses"),
    ("{He} gives away {n}.", "gives away"),
    ("{other} takes {n} of them.", "loses"),
)
DOUBLES = ("Then the number doubles.", "After that {he} has twice as many.")
STARTS = lines("""
{name} has {a} {many}.
{name} owns {a} {many}.
There are {a} {many} in the bag of {name}.
""")
QUESTIONS = lines("""
How many {many} does {name} have now?
How many {many} does {name} have in the end?
How many {many} are left?
How many {many} has {name} got now?
What number of {many} does {he} have now?
""")
SHOPPING = _templates("""
{name} buys {a} {ones} for ${p} each and {b} {twos} for ${q} each. {ask}
The {ones} cost {a} * {p} = {a * p} dollars.
The {twos} cost {b} * {q} = {b * q} dollars.
Together: {a * p} + {b * q} = {a * p + b * q} dollars.

{name} has ${have}. {He} buys {a} {ones} for ${p} each. {ask}
The {ones} cost {a} * {p} = {a * p} dollars.
Left: {have} - {a * p} = {have - a * p} dollars.

One {one} costs ${p} and one {two} costs ${q}. {ask}
The {ones} cost {a} * {p} = {a * p} dollars.
With the {two}: {a * p} + {q} = {a * p + q} dollars.
""")
SHOPPING_ASKS = (
    ("How much does {he} spend in total?", "How much does {he} pay?"),
    ("How much money is left?", "How many dollars does {he} have left?"),
    ("How much do {a} {ones} and one {two} cost?",),
)
SAVING = _templates("""
{name} {verb} ${a} a {unit}. How much is that after {b} {unit}s?
After {b} {unit}s: {a} * {b} = {a * b} dollars.

{name} {verb} ${a} a {unit}. After {b} {unit}s {he} spends ${c} on a {one}. How much money is left?
After {b} {unit}s: {a} * {b} = {a * b} dollars.
Left: {a * b} - {c} = {a * b - c} dollars.

{name} {verb} ${a} a {unit}. {He} had ${c} before. How much money does {he} have after {b} {unit}s?
After {b} {unit}s: {a} * {b} = {a * b} dollars.
With the ${c}: {a * b} + {c} = {a * b + c} dollars.
""")
AGES = _templates("""
{name} is {a} years old. {other} is {n} times as old as {name}. {ask}
{other} is {a} * {n} = {a * n} years old.

{name} is {a} years old. {other} is {n} years older than {name}. {ask}
{other} is {a} + {n} = {a + n} years old.

{name} is {a} years old. {other} is {n} years younger than {name}. {ask}
{other} is {a} - {n} = {a - n} years old.
""")
SHARING = _templates("""
{name} shares {a * b} {many} evenly among {b} friends. How many does each friend get?
Each friend gets {a * b} / {b} = {a} {many}.

{name} has {a * b + c} {many} and keeps {c}. {He} puts the rest into {b} boxes, the same number in each. \
How many {many} are in a box?
The rest: {a * b + c} - {c} = {a * b} {many}.
In a box: {a * b} / {b} = {a} {many}.

There are {b} boxes with {a} {many} in each, and one more box with {c}. How many {many} does {name} have in all?
In the {b} boxes: {b} * {a} = {a * b} {many}.
With the last box: {a * b} + {c} = {a * b + c} {many}.
""")
COMPARING = _templates("""
{name} has {a} {many} and {other} has {b}. How many {many} do they have together?
Together: {a} + {b} = {a + b} {many}.

{name} has {max(a, b)} {many}. {other} has {min(a, b)}. How many more {many} does {name} have than {other}?
The difference: {max(a, b)} - {min(a, b)} = {abs(a - b)} {many}.

{name} has {a} {many}. {other} has {b} more than {name}. How many do they have together?
{other} has {a} + {b} = {a + b} {many}.
Together: {a} + {a + b} = {2 * a + b} {many}.

{name} has {a} {many}. {other} has twice as many. How many {many} do they have together?
{other} has {a} * 2 = {2 * a} {many}.
Together: {a} + {2 * a} = {3 * a} {many}.
""")


def _words(draw: Draw) -> dict[str, Any]:
    """Two people and a thing; the composition of all three is new."""
    name, other, (one, many) = draw.new("people", lambda: (*draw.some(NAMES, 2), draw.one(_THINGS)))
    he, him = ("she", "her") if name in SHE else ("he", "him")
    return {"name": name, "other": other, "one": one, "many": many, "he": he, "He": he.title(), "him": him}


_THINGS = tuple(zip(SLOTS["thing"], SLOTS["things"], strict=True))


def _filled(template: tuple[str, ...], words: dict[str, Any]) -> list[str]:
    """The prompt and the lines of the answer."""
    return [re.sub(r"\{(.+?)\}", lambda match: str(eval(match[1], {}, words)), line) for line in template]


def changes(draw: Draw) -> list[str]:
    """Something to start with, then one to three changes."""
    words = _words(draw)
    kinds, phrases = draw.new("changes", lambda: _phrases(draw))
    now = draw.number(10, 60)
    if packs := kinds[0] == "packs":
        a, b = draw.new("packs", lambda: (draw.number(2, 9), draw.number(2, 9)))
        now = a * b
        text = [f"{words['name']} buys {a} packs of {b} {words['many']} each."]
        steps = [f"{words['name']} has {a} * {b} = {now} {words['many']}."]
    else:
        text = [draw.one(STARTS).format(a=now, **words)]
        steps = [f"{words['name']} has {now} {words['many']}."]
    for kind, phrase in zip(kinds[packs:], phrases, strict=True):
        before = now
        if kind == "double":
            now *= 2
            said, step = DOUBLES[phrase % 2], f"The number doubles: {before} * 2 = {now}."
        else:
            gain = kind == "gain" or now < 3  # of so few none can be lost
            n = draw.number(2, 40) if gain else draw.number(1, now - 1)
            said, verb = GAINS[phrase if kind == "gain" else 0] if gain else LOSSES[phrase]
            now += n if gain else -n
            step = f"{words['He']} {verb} {n}: {before} {'+' if gain else '-'} {n} = {now}."
            words["n"] = n
        text.append(said.format(**words))
        steps.append(step)
    return [" ".join([*text, draw.one(QUESTIONS).format(**words)]), *steps]


def _phrases(draw: Draw) -> tuple[tuple[str, ...], tuple[int, ...]]:
    count = draw.number(1, 3)
    start = ("packs",) if draw.number(1, 4) == 1 else ()
    kinds = tuple(draw.one(("gain", "loss", "gain", "loss", "double")) for _ in range(count))
    return (*start, *kinds), tuple(draw.number(0, 5) for _ in range(count))


def shopping(draw: Draw) -> list[str]:
    """Prices of two goods, or of one and the change."""
    words = _words(draw)
    goods = draw.new("goods", lambda: tuple(draw.some(_THINGS, 2)))
    words |= dict(zip(("one", "ones", "two", "twos"), (*goods[0], *goods[1]), strict=True))
    prices = draw.new("prices", lambda: tuple(draw.number(2, 9) for _ in range(4)))
    words |= dict(zip("apbq", prices, strict=True))
    style = draw.number(0, 2)
    words["have"] = words["a"] * words["p"] + (draw.number(1, 40) if style == 1 else 0)
    words["ask"] = draw.one(SHOPPING_ASKS[style]).format(**words)
    return _filled(SHOPPING[style], words)


def saving(draw: Draw) -> list[str]:
    """So much a week for some weeks, and something spent."""
    words = _words(draw)
    words["a"], words["b"] = draw.new("saving", lambda: (draw.number(2, 9), draw.number(2, 12)))
    words["unit"] = draw.one(("day", "week", "month"))
    words["c"] = draw.number(1, words["a"] * words["b"] - 1)
    words["verb"] = draw.one(("saves", "earns", "puts aside"))
    return _filled(draw.one(SAVING), words)


def ages(draw: Draw) -> list[str]:
    """Someone is older, younger or so many times as old; perhaps some years later."""
    words = _words(draw)
    style, words["a"], words["n"], later = draw.new(
        "ages", lambda: (draw.number(0, 2), draw.number(5, 30), draw.number(2, 4), draw.number(0, 9))
    )
    ask = "How old will {other} be in {later} years?" if later else "How old is {other}?"
    words["ask"] = ask.format(later=later, **words)
    prompt, step = _filled(AGES[style], words)
    if not later:
        return [prompt, step]
    age = int(step.split()[-3])
    return [prompt, step, f"In {later} years: {age} + {later} = {age + later}."]


def sharing(draw: Draw) -> list[str]:
    """Things in boxes, shared evenly, perhaps after some are taken."""
    words = _words(draw)
    words["a"], words["b"] = draw.new("sharing", lambda: (draw.number(2, 9), draw.number(2, 9)))
    words["c"] = draw.number(1, 9)
    return _filled(draw.one(SHARING), words)


def comparing(draw: Draw) -> list[str]:
    """Two people's things: together, or how many more."""
    words = _words(draw)
    words["a"], words["b"] = draw.new("comparing", lambda: (draw.number(5, 60), draw.number(2, 40)))
    return _filled(draw.one(COMPARING), words)


PROBLEMS = (changes, changes, changes, shopping, shopping, saving, ages, sharing, comparing)
