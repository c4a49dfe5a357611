"""Word problems of one to three steps with small numbers; every step stands on a line with its equation."""

from __future__ import annotations

from collections.abc import Callable

from specdemo.training.tasks.task import Draw
from specdemo.training.tasks.words import NAMES, SHE, THINGS

Worked = tuple[str, list[str], int]
"""A problem, the lines that work it out, and the result."""

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
QUESTIONS = (
    "How many {many} does {name} have now?",
    "How many {many} does {name} have in the end?",
    "How many {many} are left?",
    "How many {many} has {name} got now?",
    "What number of {many} does {he} have now?",
)
STARTS = ("{name} has {a} {many}.", "{name} owns {a} {many}.", "There are {a} {many} in the bag of {name}.")


def _words(draw: Draw) -> dict[str, str]:
    """Two people and a thing; the composition of all three is new."""
    name, other, (one, many) = draw.new("people", lambda: (*draw.some(NAMES, 2), draw.one(THINGS)))
    she = name in SHE
    return {
        "name": name,
        "other": other,
        "one": one,
        "many": many,
        "he": "she" if she else "he",
        "He": "She" if she else "He",
        "him": "her" if she else "him",
        "his": "her" if she else "his",
    }


def changes(draw: Draw) -> Worked:
    """Something to start with, then one to three changes."""
    words = _words(draw)
    kinds, phrases = draw.new("changes", lambda: _phrases(draw))
    now = draw.number(10, 60)
    packs = kinds[0] == "packs"
    if packs:
        a, b = draw.new("packs", lambda: (draw.number(2, 9), draw.number(2, 9)))
        now = a * b
        text = [f"{words['name']} buys {a} packs of {b} {words['many']} each."]
        lines = [f"{words['name']} has {a} * {b} = {now} {words['many']}."]
    else:
        text = [draw.one(STARTS).format(a=now, **words)]
        lines = [f"{words['name']} has {now} {words['many']}."]
    for kind, phrase in zip(kinds[packs:], phrases, strict=True):
        before = now
        if kind == "gain" or (kind == "loss" and now < 3):
            phrase = phrase if kind == "gain" else 0
            n = draw.number(2, 40)
            said, verb = GAINS[phrase]
            now += n
            lines.append(f"{words['He']} {verb} {n}: {before} + {n} = {now}.")
            text.append(said.format(n=n, **words))
        elif kind == "loss":
            n = draw.number(1, now - 1)
            said, verb = LOSSES[phrase]
            now -= n
            lines.append(f"{words['He']} {verb} {n}: {before} - {n} = {now}.")
            text.append(said.format(n=n, **words))
        else:
            now *= 2
            lines.append(f"The number doubles: {before} * 2 = {now}.")
            text.append(
                ("Then the number doubles.", "After that {he} has twice as many.")[phrase % 2].format(**words)
            )
    return " ".join([*text, draw.one(QUESTIONS).format(**words)]), lines, now


def _phrases(draw: Draw) -> tuple[tuple[str, ...], tuple[int, ...]]:
    count = draw.number(1, 3)
    start = ("packs",) if draw.number(1, 4) == 1 else ()
    kinds = tuple(draw.one(("gain", "loss", "gain", "loss", "double")) for _ in range(count))
    return (*start, *kinds) if start else kinds, tuple(draw.number(0, 5) for _ in range(count))


def shopping(draw: Draw) -> Worked:
    """Prices of two goods, or of one and the change."""
    words = _words(draw)
    first, second = draw.new("goods", lambda: tuple(draw.some(THINGS, 2)))
    a, p, b, q = draw.new("prices", lambda: tuple(draw.number(2, 9) for _ in range(4)))
    name, he = words["name"], words["He"]
    style = draw.number(0, 2)
    lines = [f"The {first[1]} cost {a} * {p} = {a * p} dollars."]
    if style == 0:
        text = f"{name} buys {a} {first[1]} for ${p} each and {b} {second[1]} for ${q} each. "
        text += draw.one(("How much does {he} spend in total?", "How much does {he} pay?")).format(**words)
        lines.append(f"The {second[1]} cost {b} * {q} = {b * q} dollars.")
        lines.append(f"Together: {a * p} + {b * q} = {a * p + b * q} dollars.")
        return text, lines, a * p + b * q
    if style == 1:
        have = a * p + draw.number(1, 40)
        text = f"{name} has ${have}. {he} buys {a} {first[1]} for ${p} each. "
        text += draw.one(("How much money is left?", "How many dollars does {he} have left?")).format(**words)
        lines.append(f"Left: {have} - {a * p} = {have - a * p} dollars.")
        return text, lines, have - a * p
    text = f"One {first[0]} costs ${p} and one {second[0]} costs ${q}. "
    text += f"How much do {a} {first[1]} and one {second[0]} cost?"
    lines.append(f"With the {second[0]}: {a * p} + {q} = {a * p + q} dollars.")
    return text, lines, a * p + q


def saving(draw: Draw) -> Worked:
    """So much a week for some weeks, and something spent."""
    words = _words(draw)
    a, weeks = draw.new("saving", lambda: (draw.number(2, 9), draw.number(2, 12)))
    unit = draw.one(("day", "week", "month"))
    total = a * weeks
    spent = draw.number(1, total - 1)
    verb = draw.one(("saves", "earns", "puts aside"))
    opening = f"{words['name']} {verb} ${a} a {unit}. "
    lines = [f"After {weeks} {unit}s: {a} * {weeks} = {total} dollars."]
    style = draw.number(0, 2)
    if style == 0:
        return opening + f"How much is that after {weeks} {unit}s?", lines, total
    if style == 1:
        text = f"After {weeks} {unit}s {words['he']} spends ${spent} on a {words['one']}. How much money is left?"
        return opening + text, [*lines, f"Left: {total} - {spent} = {total - spent} dollars."], total - spent
    text = f"{words['He']} had ${spent} before. How much money does {words['he']} have after {weeks} {unit}s?"
    return (
        opening + text,
        [*lines, f"With the ${spent}: {total} + {spent} = {total + spent} dollars."],
        total + spent,
    )


def ages(draw: Draw) -> Worked:
    """Someone is older, younger or so many times as old; perhaps some years later."""
    words = _words(draw)
    style, a, n, later = draw.new(
        "ages", lambda: (draw.number(0, 2), draw.number(5, 30), draw.number(2, 4), draw.number(0, 9))
    )
    name, other = words["name"], words["other"]
    if style == 0:
        relation, result, equation = f"{n} times as old as {name}", a * n, f"{a} * {n} = {a * n}"
    elif style == 1:
        relation, result, equation = f"{n} years older than {name}", a + n, f"{a} + {n} = {a + n}"
    else:
        relation, result, equation = f"{n} years younger than {name}", a - n, f"{a} - {n} = {a - n}"
    text = f"{name} is {a} years old. {other} is {relation}. "
    lines = [f"{other} is {equation} years old."]
    if not later:
        return text + f"How old is {other}?", lines, result
    lines.append(f"In {later} years: {result} + {later} = {result + later}.")
    return text + f"How old will {other} be in {later} years?", lines, result + later


def sharing(draw: Draw) -> Worked:
    """Things in boxes, shared evenly, perhaps after some are taken."""
    words = _words(draw)
    each, parts = draw.new("sharing", lambda: (draw.number(2, 9), draw.number(2, 9)))
    total, taken = each * parts, draw.number(1, 9)
    name, many = words["name"], words["many"]
    style = draw.number(0, 2)
    if style == 0:
        text = f"{name} shares {total} {many} evenly among {parts} friends. How many does each friend get?"
        return text, [f"Each friend gets {total} / {parts} = {each} {many}."], each
    if style == 1:
        text = f"{name} has {total + taken} {many} and keeps {taken}. {words['He']} puts the rest into {parts} "
        text += f"boxes, the same number in each. How many {many} are in a box?"
        lines = [f"The rest: {total + taken} - {taken} = {total} {many}."]
        return text, [*lines, f"In a box: {total} / {parts} = {each} {many}."], each
    text = f"There are {parts} boxes with {each} {many} in each, and one more box with {taken}. "
    text += f"How many {many} does {name} have in all?"
    lines = [f"In the {parts} boxes: {parts} * {each} = {total} {many}."]
    return text, [*lines, f"With the last box: {total} + {taken} = {total + taken} {many}."], total + taken


def comparing(draw: Draw) -> Worked:
    """Two people's things: together, or how many more."""
    words = _words(draw)
    a, b = draw.new("comparing", lambda: (draw.number(5, 60), draw.number(2, 40)))
    name, other, many = words["name"], words["other"], words["many"]
    style = draw.number(0, 3)
    if style == 0:
        text = f"{name} has {a} {many} and {other} has {b}. How many {many} do they have together?"
        return text, [f"Together: {a} + {b} = {a + b} {many}."], a + b
    if style == 1:
        a, b = max(a, b), min(a, b)
        text = f"{name} has {a} {many}. {other} has {b}. How many more {many} does {name} have than {other}?"
        return text, [f"The difference: {a} - {b} = {a - b} {many}."], a - b
    if style == 2:
        text = f"{name} has {a} {many}. {other} has {b} more than {name}. How many do they have together?"
        lines = [f"{other} has {a} + {b} = {a + b} {many}."]
        return text, [*lines, f"Together: {a} + {a + b} = {2 * a + b} {many}."], 2 * a + b
    text = f"{name} has {a} {many}. {other} has twice as many. How many {many} do they have together?"
    lines = [f"{other} has {a} * 2 = {2 * a} {many}."]
    return text, [*lines, f"Together: {a} + {2 * a} = {3 * a} {many}."], 3 * a


PROBLEMS: tuple[Callable[[Draw], Worked], ...] = (
    changes,
    changes,
    changes,
    shopping,
    shopping,
    saving,
    ages,
    sharing,
    comparing,
)
