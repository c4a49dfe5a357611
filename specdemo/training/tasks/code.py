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

from specdemo.training.tasks.task import Answer, Draw, Grade, Task, lines, listed

FEWEST_KEPT = 3  # words: else an example would show nothing
SECONDS = 2  # of processor time for one answer

ASKS = lines("""
Write this function.
Complete the function.
Implement this.
Finish this Python function.
Write the body of this function.
Program this function.
""")


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a function: a word for its name, what its docstring says, and its expression."""

    word: str
    says: str
    code: str

    def filled(self, k: int, letter: str) -> Piece:
        return Piece(self.word, self.says.format(k=k, letter=letter), self.code.format(k=k, letter=letter))


def _pieces(table: str) -> tuple[Piece, ...]:
    return tuple(Piece(*re.split(" +[|] +", line)) for line in lines(table))


# Which items are looked at, of numbers and of words.
KEEPS = (
    _pieces("""
even     | even numbers                     | n % 2 == 0
odd      | odd numbers                      | n % 2 == 1
positive | positive numbers                 | n > 0
negative | negative numbers                 | n < 0
large    | numbers above {k}                | n > {k}
small    | numbers below {k}                | n < {k}
other    | numbers that are not {k}         | n != {k}
multiple | multiples of {k}                 | n % {k} == 0
"""),
    _pieces("""
long     | words longer than {k}            | len(w) > {k}
short    | words shorter than {k}           | len(w) < {k}
starting | words that start with "{letter}" | w.startswith("{letter}")
ending   | words that end with "{letter}"   | w.endswith("{letter}")
having   | words with "{letter}"            | "{letter}" in w
lacking  | words without "{letter}"         | "{letter}" not in w
"""),
)
# What is made of each item, of numbers and of words.
CHANGES = (
    _pieces("""
plus     | plus {k}                         | n + {k}
minus    | minus {k}                        | n - {k}
times    | times {k}                        | n * {k}
squared  | squared                          | n * n
negated  | with the sign changed            | -n
absolute | without the sign                 | abs(n)
text     | as text                          | str(n)
"""),
    _pieces("""
upper    | in capitals                      | w.upper()
reversed | reversed                         | w[::-1]
first    | cut to the first letter          | w[0]
last     | cut to the last letter           | w[-1]
doubled  | written twice                    | w + w
lengths  | as lengths                       | len(w)
title    | with a capital first             | w.title()
start    | cut to {k} letters               | w[:{k}]
"""),
)
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


def function(draw: Draw) -> Task:
    """A function over a list: which items, what of each, and how they end up together."""

    def make() -> tuple[bool, Piece, Piece, int, str]:
        texts = draw.one((False, True))
        k, letter = draw.number(2, 9), draw.one("aeiostrnlpbmd")
        keep = draw.one((PLAIN, *KEEPS[texts])).filled(min(k, 5) if texts else k, letter)
        change = draw.one((PLAIN, *CHANGES[texts])).filled(min(k, 3) if texts else k, letter)
        return texts, keep, change, draw.number(0, len(ENDS) - 1), draw.one((",", "-", " ", "+"))

    return _written(draw, *draw.new("function", lambda: _sensible(make)))


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
        if kind == "count" and (change != PLAIN or keep == PLAIN):
            continue
        if kind == "list" and change == PLAIN and keep == PLAIN:
            continue
        if texts and keep.code and _words_kept(keep.code) < FEWEST_KEPT:
            continue
        return made if kind == "joined" else (texts, keep, change, end, "")


def _written(draw: Draw, texts: bool, keep: Piece, change: Piece, end: int, mark: str) -> Task:
    kind, phrase, start, step, returned = ENDS[end]
    items, item = ("words", "w") if texts else ("numbers", "n")
    what = (keep.says or items) + (f", {change.says}" if change.says else "")
    made = change.code or item
    body = [start, f"for {item} in {items}:"]
    inner = step.format(made, mark).split("\n")
    depth = 1
    if keep.code:
        body.append(f"    if {keep.code}:")
        depth = 2
    body += ["    " * (depth + line.startswith("@")) + line.removeprefix("@") for line in inner]
    body.append(f"return {returned}")
    name = "_".join(word for word in (kind, keep.word, change.word, items) if word)
    code = "\n".join([f"def {name}({items}):", *(f"    {line}" for line in body)])
    given, result = draw.new("example", lambda: _example(draw, texts, code, name))
    says = phrase.format(what, mark)
    head = f'def {name}({items}):\n    """{says}\n\n    >>> {name}({given!r})\n    {result!r}\n    """'
    return Task("function", f"{draw.one(ASKS)}\n{head}", code)


def _example(draw: Draw, texts: bool, code: str, name: str) -> tuple[list, object]:
    """Some items and what the function makes of them; at best one that shows something."""
    namespace: dict = {}
    exec(code, namespace)
    for _ in range(40):
        given = draw.some(WORDS, draw.number(2, 4)) if texts else _numbers(draw)
        result = namespace[name](given)
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
    jobs = [[a.text, *_EXAMPLE.findall(t.prompt)[0]] for t, a in zip(tasks, answers, strict=True)]
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
