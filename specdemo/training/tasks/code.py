"""Code: a signature and a docstring with an example, answered by a short function that passes the example."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from specdemo.training.tasks.task import Answer, Draw, Grade, Task
from specdemo.training.tasks.words import listed

name = "code"
longest = 110
FEWEST_KEPT = 3  # words: else an example would show nothing
SECONDS = 2  # of processor time for one answer

ASKS = (
    "Write this function.",
    "Complete the function.",
    "Implement this.",
    "Finish this Python function.",
    "Write the body of this function.",
    "Program this function.",
)


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a function: a word for its name, what its docstring says, and its expression."""

    word: str
    says: str
    code: str


def _keeps(k: int, letter: str) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """Which items are looked at: of numbers, of words."""
    numbers = (
        Piece("even", "even numbers", "n % 2 == 0"),
        Piece("odd", "odd numbers", "n % 2 == 1"),
        Piece("positive", "positive numbers", "n > 0"),
        Piece("negative", "negative numbers", "n < 0"),
        Piece("large", f"numbers above {k}", f"n > {k}"),
        Piece("small", f"numbers below {k}", f"n < {k}"),
        Piece("other", f"numbers that are not {k}", f"n != {k}"),
        Piece("multiple", f"multiples of {k}", f"n % {k} == 0"),
    )
    words = (
        Piece("long", f"words longer than {k}", f"len(w) > {k}"),
        Piece("short", f"words shorter than {k}", f"len(w) < {k}"),
        Piece("starting", f'words that start with "{letter}"', f'w.startswith("{letter}")'),
        Piece("ending", f'words that end with "{letter}"', f'w.endswith("{letter}")'),
        Piece("having", f'words with "{letter}"', f'"{letter}" in w'),
        Piece("lacking", f'words without "{letter}"', f'"{letter}" not in w'),
    )
    return numbers, words


def _changes(k: int) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """What is made of each item: of numbers, of words."""
    numbers = (
        Piece("plus", f"plus {k}", f"n + {k}"),
        Piece("minus", f"minus {k}", f"n - {k}"),
        Piece("times", f"times {k}", f"n * {k}"),
        Piece("squared", "squared", "n * n"),
        Piece("negated", "with the sign changed", "-n"),
        Piece("absolute", "without the sign", "abs(n)"),
        Piece("text", "as text", "str(n)"),
    )
    words = (
        Piece("upper", "in capitals", "w.upper()"),
        Piece("reversed", "reversed", "w[::-1]"),
        Piece("first", "cut to the first letter", "w[0]"),
        Piece("last", "cut to the last letter", "w[-1]"),
        Piece("doubled", "written twice", "w + w"),
        Piece("lengths", "as lengths", "len(w)"),
        Piece("title", "with a capital first", "w.title()"),
        Piece("start", f"cut to {k} letters", f"w[:{k}]"),
    )
    return numbers, words


PLAIN = Piece("", "", "")
# How the items end up: (word, phrase before "the …", start, step, what is returned).
ENDS = (
    ("list", "Return a list of the {}.", "result = []", "result.append({})", "result"),
    ("sum", "Return the sum of the {}.", "total = 0", "total += {}", "total"),
    ("count", "Count the {}.", "count = 0", "count += 1", "count"),
    ("last_of", "Return the last of the {}, or None.", "found = None", "found = {}", "found"),
    ("back", "Return the {} from back to front.", "result = []", "result.insert(0, {})", "result"),
    (
        "unique",
        "Return the {}, each one once.",
        "result = []",
        "if {0} not in result:\n@result.append({0})",
        "result",
    ),
    ("joined", 'Write the {} in a row, each followed by "{}".', 'text = ""', 'text += {} + "{}"', "text"),
)
WORDS = listed(
    "apple pear tree house sun moon river stone bird fish lamp road milk salt wind rain snow leaf boat train "
    "table chair green blue small long open kind warm cold"
)


def task(draw: Draw) -> Task:
    return draw.task(_function)


def _function(draw: Draw) -> Task:
    """A function over a list: which items, what of each, and how they end up together."""

    def make() -> tuple[bool, Piece, Piece, int, str]:
        texts = draw.one((False, True))
        k, letter = draw.number(2, 9), draw.one("aeiostrnlpbmd")
        keep = draw.one((PLAIN, *_keeps(min(k, 5) if texts else k, letter)[texts]))
        change = draw.one((PLAIN, *_changes(min(k, 3) if texts else k)[texts]))
        return texts, keep, change, draw.number(0, len(ENDS) - 1), draw.one((",", "-", " ", "+"))

    texts, keep, change, end, mark = draw.new("function", lambda: _sensible(make))
    return _written(draw, texts, keep, change, end, mark)


@functools.cache
def _words_kept(condition: str) -> int:
    """How many words of the examples meet a condition."""
    return sum(eval(condition, {"w": word}) for word in WORDS)


def _sensible(make: Callable[[], tuple[bool, Piece, Piece, int, str]]) -> tuple[bool, Piece, Piece, int, str]:
    """Leaves out what Python cannot do (a sum of words) and what nobody asks for (a count of changed items)."""
    while True:
        texts, keep, change, end, _ = made = make()
        kind = ENDS[end][0]
        makes_text = (texts and change.word != "lengths") or change.word == "text"
        if (kind == "sum" and makes_text) or (kind == "joined" and not makes_text):
            continue
        if kind == "count" and (change is not PLAIN or keep is PLAIN):
            continue
        if kind == "list" and change is PLAIN and keep is PLAIN:
            continue
        if texts and keep.code and _words_kept(keep.code) < FEWEST_KEPT:
            continue
        return made if kind == "joined" else (texts, keep, change, end, "")


def _written(draw: Draw, texts: bool, keep: Piece, change: Piece, end: int, mark: str) -> Task:
    kind, phrase, start, step, returned = ENDS[end]
    items, item = ("words", "w") if texts else ("numbers", "n")
    what = (keep.says or items) + (f", {change.says}" if change.says else "")
    made = change.code or item
    lines = [start, f"for {item} in {items}:"]
    inner = step.format(made, mark).split("\n")
    depth = 1
    if keep.code:
        lines.append(f"    if {keep.code}:")
        depth = 2
    lines += ["    " * (depth + line.startswith("@")) + line.removeprefix("@") for line in inner]
    lines.append(f"return {returned}")
    function = "_".join(word for word in (kind, keep.word, change.word, items) if word)
    code = "\n".join([f"def {function}({items}):", *(f"    {line}" for line in lines)])
    given, result = draw.new("example", lambda: _example(draw, texts, code, function))
    says = phrase.format(what, mark)
    head = f'def {function}({items}):\n    """{says}\n\n    >>> {function}({given!r})\n    {result!r}\n    """'
    return Task("function", f"{draw.one(ASKS)}\n{head}", code)


def _example(draw: Draw, texts: bool, code: str, function: str) -> tuple[list, object]:
    """Some items and what the function makes of them; at best one that shows something."""
    namespace: dict = {}
    exec(code, namespace)
    for _ in range(40):
        given = draw.some(WORDS, draw.number(2, 4)) if texts else _numbers(draw)
        result = namespace[function](given)
        if result:
            break
    return given, result


def _numbers(draw: Draw) -> list[int]:
    return [
        draw.number(-9, 20) if draw.number(1, 3) == 1 else draw.number(0, 20) for _ in range(draw.number(2, 5))
    ]


_EXAMPLE = re.compile(r"^    >>> (.+)\n    (.+)$", re.MULTILINE)


def grades(tasks: Sequence[Task], answers: Sequence[Answer]) -> list[Grade]:
    """Right: ended, and the function gives what the docstring's example says, in a process with a time limit."""
    jobs = [[a.text, *_EXAMPLE.search(t.prompt).groups()] for t, a in zip(tasks, answers, strict=True)]
    runner = Path(__file__).with_name("run_examples.py")
    done = subprocess.run(
        [sys.executable, "-I", str(runner), str(SECONDS)],
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
        check=True,
        timeout=60 + 2 * SECONDS * len(jobs),
    )
    passed = json.loads(done.stdout)
    return [{"right": (int(a.ended and ok), 1)} for a, ok in zip(answers, passed, strict=True)]
