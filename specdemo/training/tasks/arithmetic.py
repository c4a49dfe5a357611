"""Arithmetic: sums worked digit by digit, and word problems worked in steps."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from specdemo.training.tasks.task import Answer, Draw, Grade, Task
from specdemo.training.tasks.word_problems import PROBLEMS

_STEP = re.compile(r"(\d+) ([+\-*/]) (\d+)(?: ([+\-]) (\d+))? = (\d+)")
_FINAL = re.compile(r"The answer is (\d+)")
ASKS = ("What is {}?", "Work out {}.", "Compute {}.", "{} = ?", "How much is {}?", "Find {}.", "Please solve {}.")


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
    """Place by place: ``b`` has one digit."""
    places = [int(digit) * 10 ** (len(str(a)) - 1 - i) for i, digit in enumerate(str(a))]
    parts = [place for place in places if place]
    steps = [f"{part} * {b} = {part * b}" for part in parts]
    total = parts[0] * b
    for part in parts[1:]:
        steps.append(f"{total} + {part * b} = {total + part * b}")
        total += part * b
    return steps


def divided(a: int, b: int) -> list[str]:
    """An exact division, checked by the product."""
    return [f"{a} / {b} = {a // b}", f"{a // b} * {b} = {a}"]


def addition(draw: Draw) -> Task:
    high = draw.one((99, 99, 999))
    a, b = draw.new("+", lambda: (draw.number(10, high), draw.number(2, high)))
    return _worked(draw, "sum", ("{} + {}", "{} + {}", "{} plus {}", "the sum of {} and {}"), a, b, added, a + b)


def subtraction(draw: Draw) -> Task:
    high = draw.one((99, 99, 999))
    a, b = draw.new("-", lambda: _descending(draw.number(2, high), draw.number(10, high)))
    return _worked(draw, "difference", ("{} - {}", "{} - {}", "{} minus {}"), a, b, subtracted, a - b)


def product(draw: Draw) -> Task:
    a, b = draw.new("*", lambda: (draw.number(11, draw.one((99, 99, 299))), draw.number(2, 9)))
    return _worked(draw, "product", ("{} * {}", "{} * {}", "{} times {}"), a, b, multiplied, a * b)


def quotient(draw: Draw) -> Task:
    a, b = draw.new("/", lambda: (draw.number(2, 12), draw.number(2, 9)))
    return _worked(draw, "quotient", ("{} / {}", "{} / {}", "{} divided by {}"), a * b, b, divided, a)


def _descending(a: int, b: int) -> tuple[int, int]:
    return max(a, b), min(a, b)


def _worked(
    draw: Draw,
    kind: str,
    forms: Sequence[str],
    a: int,
    b: int,
    steps: Callable[[int, int], list[str]],
    result: int,
) -> Task:
    form = draw.one(forms).format(a, b)
    return Task(kind, draw.one(ASKS).format(form), "\n".join([*steps(a, b), f"The answer is {result}."]))


def word_problem(draw: Draw) -> Task:
    prompt, *steps = draw.one(PROBLEMS)(draw)
    result = steps[-1].rpartition("= ")[2].split()[0].rstrip(".")  # of the last equation
    return Task("word problem", prompt, "\n".join([*steps, f"The answer is {result}."]))


def equations(draw: Draw) -> Task:
    """Practice only: the single steps that word problems have a few of, without their words.

    A sum that is held out is not among them.
    """
    steps = [_equation(draw) for _ in range(draw.number(6, 10))]
    ask = draw.one(("Fill in.", "Complete these.", "Give the results."))
    text = "\n".join(f"{left} =" for left, _ in steps)
    return Task("equations", f"{ask}\n{text}", "\n".join(f"{left} = {result}" for left, result in steps))


def _equation(draw: Draw) -> tuple[str, int]:
    sign = draw.one("++---*/")
    if sign == "+":
        a, b = draw.new("+", lambda: (draw.number(2, draw.one((99, 99, 999))), draw.number(1, 99)))
        return f"{a} + {b}", a + b
    if sign == "-":
        a, b = draw.new("-", lambda: _descending(draw.number(1, 99), draw.number(2, draw.one((99, 99, 199)))))
        return f"{a} - {b}", a - b
    if sign == "*":
        a, b = draw.new("*", lambda: (draw.number(2, 99), draw.one((2, 2, draw.number(2, 12)))))
        return f"{a} * {b}", a * b
    a, b = draw.new("/", lambda: (draw.number(2, 12), draw.number(2, 9)))
    return f"{a * b} / {b}", a


def grades(tasks: Sequence[Task], answers: Sequence[Answer]) -> list[Grade]:
    """The final number, or all equations where there is none; and the single steps: one is right if it holds.

    A step that is missing counts as wrong.
    """
    graded: list[Grade] = []
    for task, answer in zip(tasks, answers, strict=True):
        steps = _STEP.findall(answer.text)
        count = max(len(steps), len(_STEP.findall(task.answer)))
        right = int(answer.ended and _result(answer.text) == _result(task.answer))
        graded.append({"final number": (right, 1), "steps": (sum(map(_holds, steps)), count)})
    return graded


def _result(text: str) -> list:
    return _FINAL.findall(text) or _STEP.findall(text)


def _holds(step: tuple[str, ...]) -> bool:
    a, sign, b, more, c, result = step
    left, right = int(a), int(b)
    if sign == "/":
        return left == right * int(result)
    value = {"+": left + right, "-": left - right, "*": left * right}[sign]
    return value + (int(f"{more}{c}") if more else 0) == int(result)
