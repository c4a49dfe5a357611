"""Arithmetic: sums worked digit by digit, and word problems of one to four steps, each with its equation."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import accumulate
from operator import add, floordiv, mul, sub

from specdemo.training.tasks.corpus import TEMPLATES
from specdemo.training.tasks.task import Answer, Draw, Grade, Task, typed

_STEP = re.compile(r"(\d+) ([+\-*/]) (\d+)(?: ([+\-]) (\d+))? = (\d+)")
_COMPUTED = re.compile(r"\{([a-e]|[^}]*[*+/-][^}]*)\}")
_FINAL = re.compile(r"The answer is (\d+)")


def added(a: int, b: int) -> list[str]:
    """Digit by digit from the right, with carries."""
    steps, carry = [], 0
    width = max(len(str(a)), len(str(b)))
    for x, y in zip(reversed(f"{a:0{width}}"), reversed(f"{b:0{width}}"), strict=True):
        total = int(x) + int(y) + carry
        steps.append(f"{x} + {y}{f' + {carry}' if carry else ''} = {total}, write {total % 10}")
        carry = total // 10
        steps[-1] += f", carry {carry}" if carry else ""
    return [*steps, f"write {carry}"] if carry else steps


def subtracted(a: int, b: int) -> list[str]:
    """Digit by digit from the right; a borrowed ten is shown in the upper digit and taken from the next."""
    steps, borrow = [], 0
    for x, y in zip(reversed(str(a)), reversed(f"{b:0{len(str(a))}}"), strict=True):
        upper = int(x) - borrow
        if borrow:
            steps.append(f"{x} - 1 = {upper}" if upper >= 0 else f"1{x} - 1 = {upper + 10}")
        short = upper < int(y)
        shown = upper + 10 if short else upper
        steps.append(f"{shown} - {y} = {shown - int(y)}, write {shown - int(y)}{', borrow 1' if short else ''}")
        borrow = int(short)
    return steps


def multiplied(a: int, b: int) -> list[str]:
    """Place by place; with ten of ``b`` and the rest of it, where that has two digits."""
    if b > 9:
        tens, ones = b // 10 * 10, b % 10
        steps = [f"{a} * {part} = {a * part}" for part in (tens, ones) if part]
        return [*steps, f"{a * tens} + {a * ones} = {a * b}"] if ones else steps
    parts = [int(digit) * 10 ** (len(str(a)) - 1 - i) for i, digit in enumerate(str(a)) if digit != "0"]
    steps = [f"{part} * {b} = {part * b}" for part in parts]
    total = parts[0] * b
    for part in parts[1:]:
        steps.append(f"{total} + {part * b} = {total + part * b}")
        total += part * b
    return steps


def divided(a: int, b: int) -> list[str]:
    """An exact division, checked by the product."""
    return [f"{a} / {b} = {a // b}", f"{a // b} * {b} = {a}"]


SUMS: dict[str, tuple[Callable[[int, int], list[str]], Callable[[int, int], int]]] = {
    "+": (added, add),
    "-": (subtracted, sub),
    "*": (multiplied, mul),
    "/": (divided, floordiv),
}
"""Sign → how it is worked, and the result."""
ORDERS = [line.split(" ⟶ ") for line in TEMPLATES["sums"]["orders"]]
SAID, PROBLEMS, CHANGES = TEMPLATES["sums"], TEMPLATES["problems"], TEMPLATES["changes"]


def numbers(draw: Draw, sign: str) -> tuple[int, int]:
    """Two numbers for a sum on this side of the split."""

    def make() -> tuple[int, int]:
        if sign in "+-":
            high = draw.one((99, 99, 999))
            low, big = sorted((draw.number(2, high), draw.number(10, high)))
            return (big, low) if sign == "-" or draw.chance(0.5) else (low, big)
        if sign == "*" and draw.chance(0.2):
            return draw.number(11, 30), draw.number(10, 15)
        a, b = draw.number(2, draw.one((12, 99, 299) if sign == "*" else (12, 12, 30))), draw.number(2, 9)
        return (a, b) if sign == "*" else (a * b, b)

    return draw.new(sign, make)


def worked_sum(draw: Draw) -> Task:
    sign = draw.one("++--**/")
    steps, result = SUMS[sign]
    a, b = numbers(draw, sign)
    order = typed(draw, draw.chosen([text for of, text in ORDERS if of == sign]))
    ask = order if draw.chance(0.2) else draw.chosen(SAID["asks"]).replace("{sum}", draw.chosen(SAID[sign]))
    ask = draw.say(ask, a=a, b=b)
    return Task("sum", ask, "\n".join([*steps(a, b), f"The answer is {result(a, b)}."]))


def several(draw: Draw) -> Task:
    """Three or four numbers, added one after another."""
    addends = draw.new("several", lambda: [draw.number(2, draw.one((20, 99))) for _ in range(draw.number(3, 4))])
    totals = [*accumulate(addends)]
    steps = [f"{a} + {b} = {a + b}" for a, b in zip(totals, addends[1:], strict=False)]
    *first, last = map(str, addends)
    said = {"plus": draw.one((" + ", "+")).join([*first, last]), "numbers": f"{', '.join(first)} and {last}"}
    return Task("several", draw.say(SAID["several"], **said), "\n".join([*steps, f"The answer is {totals[-1]}."]))


def equations(draw: Draw) -> Task:
    """Practice: the single steps that word problems have a few of. A sum that is held out is not among them."""
    steps = [(sign, *numbers(draw, sign)) for sign in (draw.one("++--**/") for _ in range(draw.number(4, 8)))]
    left = [f"{a} {sign} {b} =" for sign, a, b in steps]
    text = "\n".join(f"{line} {SUMS[sign][1](a, b)}" for line, (sign, a, b) in zip(left, steps, strict=True))
    return Task("equations", "\n".join([draw.say(SAID["practice"]), *left]), text)


def word_problem(draw: Draw) -> Task:
    prompt, *steps = draw.one((_template, _template, _changes))(draw)
    result = steps[-1].rpartition("= ")[2].split()[0].rstrip(".")
    return Task("word problem", prompt, "\n".join([*steps, f"The answer is {result}."]))


def _words(draw: Draw) -> dict[str, str]:
    thing, name, other = draw.noun(), draw.proper(), draw.proper()
    return {"name": name, "other": other, "thing": thing, "things": f"{thing}s", "others": draw.slot("nouns")}


def _template(draw: Draw) -> list[str]:
    def make() -> str:
        template = draw.one(PROBLEMS["told"])
        values = {n: draw.number(2, high) for n, high in zip("abcde", (12, 9, 12, 60, 9), strict=True)}
        computed = {e: eval(e, {}, values) for e in _COMPUTED.findall(template)}
        if min(computed.values()) <= 0:
            return make()
        return _COMPUTED.sub(lambda match: str(computed[match[1]]), template)

    said, words = draw.new("problem", make), _words(draw)
    words["ask"] = draw.say(PROBLEMS["how_many"], **words)
    return draw.say(said, **words).split(" ⟶ ")


def _changes(draw: Draw) -> list[str]:
    """Something to start with, then one to three changes, each of which the answer works out."""
    words, now = _words(draw), draw.number(3, 60)
    text = [draw.say(CHANGES["start"], now=now, **words)]
    steps = [f"{words['name']} has {now} {words['things']}."]
    for _ in range(draw.number(1, 3)):
        before, kind = now, draw.one("++--*" if now > 2 else "+")
        n = 2 if kind == "*" else draw.number(1, 40 if kind == "+" else now - 1)
        now = {"+": now + n, "-": now - n, "*": now * 2}[kind]
        text.append(draw.say(CHANGES[kind], n=n, **words))
        steps.append(f"{before} {kind} {n} = {now}.")
    return [" ".join([*text, draw.say(CHANGES["left"], **words)]), *steps]


def grade(task: Task, answer: Answer) -> Grade:
    """The final number, or all equations where there is none; and the single steps: one is right if it holds.

    A step that is missing counts as wrong.
    """
    steps, missing = _STEP.findall(answer.text), len(_STEP.findall(task.answer))
    holds = [*map(_holds, steps), *[False] * (missing - len(steps))]
    return {"final number": [answer.ended and _result(answer.text) == _result(task.answer)], "steps": holds}


def _result(text: str) -> list:
    return _FINAL.findall(text) or _STEP.findall(text)


def _holds(step: tuple[str, ...]) -> bool:
    a, sign, b, more, c, result = step
    if sign == "/":
        return int(a) == int(b) * int(result)
    return SUMS[sign][1](int(a), int(b)) + int(f"{more}{c}" or 0) == int(result)
