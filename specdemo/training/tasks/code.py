"""Code: a signature and a docstring with an example, or one sentence, answered by a short function over a list."""

from __future__ import annotations

import builtins
import keyword
import re
import subprocess
import sys
from typing import Any, NamedTuple

from specdemo.training.tasks.corpus import TEMPLATES
from specdemo.training.tasks.task import Answer, Draw, Grade, Task, rows, typed

SECONDS = 5  # for one answer, with the start of its process
TRIES = 40  # examples, of which one shows something at best


class Piece(NamedTuple):
    """A part of a function: a word for its name, what its docstring says, and its expression."""

    word: str = ""
    says: str = ""
    code: str = ""


CODE = TEMPLATES["code"]
# Of numbers and of words: which items are looked at, and what is made of each.
KEEPS, CHANGES = (
    [[Piece(*row) for row in rows(CODE[f"{items} {what}"])] for items in ("numbers", "words")]
    for what in ("kept", "changed")
)
ENDS = rows(CODE["ends"])
SAID = [line.split(" ⟶ ") for line in CODE["said"]]
_VERBS = CODE["verbs"][0].split()
# Ends that make nothing of the items, are of numbers alone, or of texts alone.
ONLY_KEPT, OF_TEXTS = {"count", "any"}, {"joined", "text", "longest"}
OF_NUMBERS = {"sum", "largest", "smallest", "mean"}
_TAKEN = frozenset(["result", "total", "count", "found", "text"])


def function(draw: Draw) -> Task:
    """A function over a list: which items, what of each, and how they end up together; under open names."""
    texts, keep, change, end = draw.new("function", lambda: _parts(draw))
    kind, phrase, start, step, returned = ENDS[end]
    items, item = ("words", "w") if texts else ("numbers", "n")
    parts = (kind, *draw.one(((keep.word, change.word), (change.word, keep.word))), items)
    told = "_".join(word for word in parts if word not in ("", "list"))
    name = told if draw.chance(0.4) else _free(draw, "identifier")
    argument = items if draw.chance(0.4) else _free(draw, "nouns")
    item = item if draw.chance(0.6) else draw.one(("x", "item", "value", _free(draw, "word")))
    words = {"i": item, "k": draw.number(2, 4 if texts else 9), "letter": draw.one("aeiostrnlpbmd")}
    made, mark = draw.say(change.code or "{i}", **words), draw.one((",", "-", " ", "+"))
    body = [start, f"for {item} in {argument}:"]
    depth = 1 + bool(keep.code)
    body += [f"    if {draw.say(keep.code, **words)}:"] * bool(keep.code)
    body += ["    " * (depth + i) + line for i, line in enumerate(step.format(made, mark=mark).split("@"))]
    code = "\n".join([f"def {name}({argument}):", *(f"    {line}" for line in [*body, f"return {returned}"])])
    phrase, keeps, changes = (_reworded(draw, text) for text in (phrase, keep.says, change.says))
    comma = "," * ("{} " in phrase)
    what = draw.say((keeps or items) + (f", {changes}{comma}" if changes else ""), **words)
    given, result = _shown(draw, texts, code, name)
    said = phrase.format(what, mark=mark)
    if draw.chance(0.15):
        asked = {"name": name, "argument": argument, "does": _does(said)}
        return Task(items, draw.say(typed(draw, draw.chosen(CODE["sentences"])), **asked), code)
    if draw.chance(0.15):  # the signature has types
        some = "list[str]" if texts else "list[int]"
        returns = draw.one(("", " -> list")) if kind == "list" else ""
        code = code.replace(f"({argument})", f"({argument}: {some}){returns}", 1)
    ask = draw.say(CODE["asks"])  # some ask with nothing but the code
    said = said[0].lower() + said[1:].removesuffix(".") if draw.chance(0.2) else said
    shown = {"call": f"{name}({given!r})", "result": repr(result), "given": repr(given)}
    says = f'{code.splitlines()[0]}\n    """{said}{draw.say(draw.one(CODE["examples"]), **shown)}"""'
    after = ask and draw.chance(0.15)
    return Task(items, f"{says}\n\n{ask}" if after else f"{ask}\n{says}".lstrip(), code)


def _reworded(draw: Draw, text: str) -> str:
    """What a docstring says, now and then in other words. The parts and so their split stay as they are."""
    for usual, other in SAID:
        if usual in text and draw.chance(0.3):
            return text.replace(usual, other)
    return text


def _does(said: str) -> str:
    """What a docstring says, in the third person: "Count the words." → "counts the words"."""
    verb, _, rest = said.removesuffix(".").partition(" ")
    does = f"{verb.lower()}s" if verb in _VERBS else f"returns {verb if verb == 'True' else verb.lower()}"
    return f"{does} {rest}"


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
        wrong = (kind in OF_NUMBERS and gives_text) or (kind in OF_TEXTS and not gives_text)
        idle = not (keep.code or change.code) if kind == "list" else kind in ONLY_KEPT and not keep.code
        if not wrong and not idle and not (kind in ONLY_KEPT and change.code):
            return texts, keep, change, end


def _shown(draw: Draw, texts: bool, code: str, name: str) -> tuple[list, object]:
    """Some items and what the function makes of them; at best one that shows something."""
    namespace: dict = {}
    exec(code, namespace)
    for _ in range(TRIES):
        count = draw.number(2, 4)
        given = [draw.word() if texts else draw.number(-9, 20) for _ in range(count)]
        if result := namespace[name](given):
            break
    return given, result


# What a short function over a list may need: no files, no imports.
_ALLOWED = """
abs all any bool dict enumerate filter float int isinstance len list map max min range repr reversed round set
sorted str sum tuple zip IndexError KeyError TypeError ValueError
"""
_PROGRAM = """
import builtins, os, resource, sys
code, calls, expected, allowed = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
names = {"__builtins__": {name: getattr(builtins, name) for name in allowed.split()}}
try:
    exec(code, names)
    os._exit(repr(eval(calls, names)) != expected)
except BaseException:
    os._exit(1)
"""
"""Runs an answered function; the exit status 0 says that it is right."""
OTHERS: dict[str, list[list]] = {
    "numbers": [[], [7, -3, 12, 0, 7, 2, -8, 25, 1, 4], [5], [-6, -1], [3, 9, 30, 10, 8, 6]],
    "words": [[], ["stone", "an", "echo", "eel", "stone", "bad", "sail", "Oslo"], ["tree"], ["at", "ease"]],
}
"""A task's kind, which is what its lists are of → those that a function is tried on beside its example's."""


def _example(prompt: str) -> list[str]:
    """What a docstring's example calls its function with, in [], where there is one."""
    head, _, says = prompt.partition('"""')
    name = head.rpartition("def ")[2].partition("(")[0]
    given = re.search(rf"{name}\((\[[^\]]*\]|[^)]*)\)", says) or re.search(r"For (\[[^\]]*\])", says)
    return [given[1]] if given else []


def grade(task: Task, answer: Answer) -> Grade:
    """Right: ended, and the function gives what it should.

    It is run on its example and on further lists of such items, in a process with a time limit.
    """
    name, known = task.answer.partition("(")[0].removeprefix("def "), dict[str, Any]()
    exec(task.answer, known)
    calls = ", ".join(f"{name}({some})" for some in (*_example(task.prompt), *OTHERS[task.kind]))
    arguments = [answer.text.replace("\0", ""), f"[{calls}]", repr(eval(f"[{calls}]", known)), _ALLOWED]
    command = [sys.executable, "-I", "-S", "-c", _PROGRAM, *arguments]
    try:
        passed = subprocess.run(command, timeout=SECONDS, capture_output=True).returncode == 0
    except subprocess.TimeoutExpired:
        passed = False
    return {"right": [answer.ended and passed]}
