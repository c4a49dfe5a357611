"""Code: a signature and a docstring with an example, answered by a short function that passes the example."""

from __future__ import annotations

import builtins
import keyword
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

from specdemo.training.tasks.task import Answer, Draw, Grade, Task, lines

SECONDS = 5  # for one answer, with the start of its process
TRIES = 40  # examples, of which one shows something at best
ASKS = lines("""
<Write|Complete|Implement|Finish|Program> this<| Python> function<.|:|, please.>
<Write the body of this function.|Fill in the body:|Complete this:|Python:|Finish the code.>
<Can|Could> you <write|complete|finish> this<| function| code>?
""")


class Piece(NamedTuple):
    """A part of a function: a word for its name, what its docstring says, and its expression."""

    word: str = ""
    says: str = ""
    code: str = ""


def _rows(table: str) -> Iterator[list[str]]:
    return (re.split(" +[|] +", line) for line in lines(table))


def _pieces(table: str) -> tuple[Piece, ...]:
    return tuple(Piece(*row) for row in _rows(table))


# Which items are looked at, of numbers and of words. In braces: the item, a number, a letter.
KEEPS = (
    _pieces("""
even     | even numbers                     | {i} % 2 == 0
odd      | odd numbers                      | {i} % 2 == 1
positive | positive numbers                 | {i} > 0
negative | negative numbers                 | {i} < 0
large    | numbers above {k}                | {i} > {k}
small    | numbers below {k}                | {i} < {k}
other    | numbers that are not {k}         | {i} != {k}
multiple | multiples of {k}                 | {i} % {k} == 0
"""),
    _pieces("""
long     | words longer than {k}            | len({i}) > {k}
short    | words shorter than {k}           | len({i}) < {k}
starting | words that start with "{letter}" | {i}.startswith("{letter}")
ending   | words that end with "{letter}"   | {i}.endswith("{letter}")
having   | words with "{letter}"            | "{letter}" in {i}
lacking  | words without "{letter}"         | "{letter}" not in {i}
"""),
)
# What is made of each item, of numbers and of words.
CHANGES = (
    _pieces("""
plus     | plus {k}                         | {i} + {k}
minus    | minus {k}                        | {i} - {k}
times    | times {k}                        | {i} * {k}
squared  | squared                          | {i} * {i}
negated  | with the sign changed            | -{i}
absolute | without the sign                 | abs({i})
text     | as text                          | str({i})
"""),
    _pieces("""
upper    | in capitals                      | {i}.upper()
reversed | reversed                         | {i}[::-1]
first    | cut to the first letter          | {i}[0]
twice    | twice in a row                   | {i} + {i}
lengths  | as lengths                       | len({i})
title    | with a capital first             | {i}.title()
start    | cut to {k} letters               | {i}[:{k}]
"""),
)
# How the items end up: a word, the docstring, the start, the step (after @ inside an if), what is returned.
ENDS = tuple(
    _rows("""
list   | Return a list of the {}.                               | result = []  | result.append({})     | result
sum    | Return the sum of the {}.                              | total = 0    | total += {}           | total
count  | Count the {}.                                          | count = 0    | count += 1            | count
last   | Return the last of the {}, or None.                    | found = None | found = {}            | found
back   | Return the {} from back to front.                      | result = []  | result.insert(0, {})  | result
unique | Return the {}, each one once.   | result = [] | if {0} not in result:@result.append({0}) | result
joined | Write the {} in a row, each followed by "{mark}".      | text = ""    | text += {} + "{mark}" | text
""")
)
_TAKEN = frozenset(["result", "total", "count", "found", "text"])


def function(draw: Draw) -> Task:
    """A function over a list: which items, what of each, and how they end up together; under open names."""
    texts, keep, change, end = draw.new("function", lambda: _parts(draw))
    kind, phrase, start, step, returned = ENDS[end]
    items, item = ("words", "w") if texts else ("numbers", "n")
    parts = [word for word in (kind, keep.word, change.word, items) if word]
    name = "_".join(parts) if draw.chance(0.3) else _free(draw, "identifier")
    argument = items if draw.chance(0.4) else _free(draw, "nouns")
    item = item if draw.chance(0.6) else draw.one(("x", "item", "value", _free(draw, "word")))
    words = {"i": item, "k": draw.number(2, 4 if texts else 9), "letter": draw.one("aeiostrnlpbmd")}
    made, mark = draw.say(change.code or "{i}", **words), draw.one((",", "-", " ", "+"))
    body = [start, f"for {item} in {argument}:"]
    depth = 1 + bool(keep.code)
    body += [f"    if {draw.say(keep.code, **words)}:"] * bool(keep.code)
    body += ["    " * (depth + i) + line for i, line in enumerate(step.format(made, mark=mark).split("@"))]
    code = "\n".join([f"def {name}({argument}):", *(f"    {line}" for line in [*body, f"return {returned}"])])
    what = draw.say((keep.says or items) + (f", {change.says}" if change.says else ""), **words)
    given, result = _example(draw, texts, code, name)
    head = f'def {name}({argument}):\n    """{phrase.format(what, mark=mark)}\n\n'
    head += f'    >>> {name}({given!r})\n    {result!r}\n    """'
    return Task("function", f"{draw.say(draw.one(ASKS))}\n{head}", code)


def _free(draw: Draw, slot: str) -> str:
    """A name that means nothing yet to Python or to the function."""
    while keyword.iskeyword(name := draw.slot(slot)) or hasattr(builtins, name) or name in _TAKEN:
        pass
    return name


def _parts(draw: Draw) -> tuple[bool, Piece, Piece, int]:
    """Leaves out what Python cannot do (a sum of words) and what nobody asks for (a count of changed items)."""
    while True:
        texts, end = draw.chance(0.5), draw.number(0, len(ENDS) - 1)
        keep, change = draw.one((Piece(), *KEEPS[texts])), draw.one((Piece(), *CHANGES[texts]))
        kind, gives_text = ENDS[end][0], (texts and change.word != "lengths") or change.word == "text"
        wrong = (kind == "sum" and gives_text) or (kind == "joined" and not gives_text)
        idle = not (keep.code or change.code) if kind == "list" else kind == "count" and not keep.code
        if not wrong and not idle and not (kind == "count" and change.code):
            return texts, keep, change, end


def _example(draw: Draw, texts: bool, code: str, name: str) -> tuple[list, object]:
    """Some items and what the function makes of them; at best one that shows something."""
    namespace: dict = {}
    exec(code, namespace)
    for _ in range(TRIES):
        count = draw.number(2, 4)
        given = [draw.word() if texts else draw.number(-9, 20) for _ in range(count)]
        if result := namespace[name](given):
            break
    return given, result


_EXAMPLE = re.compile(r"^    >>> (.+)\n    (.+)$", re.MULTILINE)
# What a short function over a list may need: no files, no imports.
_ALLOWED = """
abs all any bool dict enumerate filter float int isinstance len list map max min range repr reversed round set
sorted str sum tuple zip IndexError KeyError TypeError ValueError
"""
_PROGRAM = """
import builtins, os, resource, sys
code, call, expected, allowed = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
names = {"__builtins__": {name: getattr(builtins, name) for name in allowed.split()}}
try:
    exec(code, names)
    os._exit(repr(eval(call, names)) != expected)
except BaseException:
    os._exit(1)
"""
"""Runs an answered function on its example; the exit status 0 says that it is right."""


def grade(task: Task, answer: Answer) -> Grade:
    """Right: ended, and the function gives what the docstring's example says, in a process with a time limit."""
    (example,) = _EXAMPLE.findall(task.prompt)
    command = [sys.executable, "-I", "-S", "-c", _PROGRAM, answer.text.replace("\0", ""), *example, _ALLOWED]
    try:
        passed = subprocess.run(command, timeout=SECONDS, capture_output=True).returncode == 0
    except subprocess.TimeoutExpired:
        passed = False
    return {"right": [answer.ended and passed]}
