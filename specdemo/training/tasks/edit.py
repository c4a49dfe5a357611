"""Edit: a text of a few sentences or lines, given again with one change; and texts to copy."""

from __future__ import annotations

import re

from specdemo.training.tasks.corpus import TEMPLATES
from specdemo.training.tasks.task import Draw, Task, around

EDIT, LIST, COPY = (TEMPLATES[part] for part in ("edit", "list", "copy"))
KINDS = {"replace": 6, "capitals": 2, "quotes": 1, "upper": 1, "remove word": 2, "remove": 1, "add": 1}
LIST_KINDS = {"replace": 5, "capitals": 1, "quotes": 1, "remove item": 2, "remove": 1, "add": 1, "add item": 2}
# Before each item of a list, and between two.
MARKS = (
    ("- ", "\n"),
    ("", "\n"),
    ("* ", "\n"),
    ("", ", "),
    ("{}. ", "\n"),
)
_WORD = re.compile(r"#?\w+(?:['-][A-Z0-9]\w*)*")  # such as oven, O'Brien, AB-12


def edit(draw: Draw) -> Task:
    """One to four sentences, or items of a list, and a change that can be made to them."""
    listed = draw.chance(0.35)
    mark, join = (
        draw.one((("- ", "\n"), ("", "\n"), ("* ", "\n"), ("", ", "), ("{}. ", "\n"))) if listed else ("", " ")
    )
    slot = draw.one(("text", "word", "name", "phrase", "number")) if listed else "sentence"
    count = draw.one((2, 3, 3, 4, 5) if listed else (1, 1, 1, 1, 2, 2, 2, 3, 4))
    items = draw.several(count, lambda: draw.slot(slot))
    kind = draw.weighted(LIST_KINDS if listed else KINDS)
    index = draw.number(0, len(items) - 1)
    words = _WORD.findall(items[index])
    rare = [w for w in words if w.lower() not in draw.corpus.usual and (len(w) > 2 or w[-1].isdigit())]
    old = draw.one(rare or words)
    if (kind == "remove" and len(items) == 1) or (kind == "capitals" and old == old.upper()):
        kind = "replace"
    there = re.compile(rf"(?<!\w){re.escape(old)}(?!\w)")
    first, new = draw.chance(0.5), _like(old, draw)
    place = draw.one(EDIT["starts" if first else "ends"])
    if kind in ("remove", "remove item"):
        last = index == len(items) - 1 and draw.chance(0.5)
        place, old = "last" if last else EDIT["ordinals"][index], items[index]
        answer = items[:index] + items[index + 1 :]
    elif kind in ("add", "add item"):
        new = draw.slot(slot)
        answer = [new, *items] if kind == "add" and first else [*items, new]
    elif kind == "remove word":
        answer = [re.sub(rf" ?{there.pattern}", "", item).strip() for item in items]
    else:
        put = {"replace": new, "capitals": old.upper(), "quotes": f'"{old}"'}
        answer = [item.upper() if kind == "upper" else there.sub(put[kind], item) for item in items]
    unit = "sentence" if not listed else "item" if join == ", " else "line"
    change = draw.say(EDIT[kind], old=old, new=new, place=place, unit=unit)
    text, result = (join.join(mark.format(i) + item for i, item in enumerate(some, 1)) for some in (items, answer))
    return Task(kind, around(draw, change, text), result)


def _like(old: str, draw: Draw) -> str:
    """Another word of the same kind."""
    slot = "number" if old.isdigit() else "code" if re.search(r"\d", old) else ""
    slot = slot or ("proper" if old[0].isupper() else "word")
    while (new := draw.slot(slot)) == old:
        pass
    return new


def relist(draw: Draw) -> Task:
    """The items of a list in another form."""
    items = draw.several(draw.one((2, 3, 3, 4, 5)), lambda: draw.slot(draw.one(("word", "word", "text"))))
    source, kind = draw.one((", ", "\n", "\n- ")), draw.one(list(LIST))
    mark = source.removeprefix("\n") if source != ", " else ""
    answer = {
        "bullets": "\n".join(f"- {item}" for item in items),
        "numbers": "\n".join(f"{i}. {item}" for i, item in enumerate(items, 1)),
        "commas": ", ".join(items),
        "quotes": ", ".join(f'"{item}"' for item in items),
        "capitals": mark + source.join(items).upper(),
        "upside down": mark + source.join(reversed(items)),
    }[kind]
    return Task(f"list {kind}", around(draw, draw.say(LIST[kind]), mark + source.join(items)), answer)


def copy(draw: Draw) -> Task:
    """Practice: nearly all of the answer stands in the prompt. A text again, some of it, or what stands by it."""
    kind = draw.one(("text", "text", "text", "twice", "next", "value", "value"))
    if kind in ("text", "twice"):
        slot = draw.one(("text", "text", "sentence", "identifier", "code"))
        text = draw.one((" ", ", ", "\n")).join(draw.slot(slot) for _ in range(draw.one((1, 1, 2, 3, 5))))
        ask = draw.say(COPY["text"], text=text)
        return Task(kind, ask, text) if kind == "text" else Task(kind, ask + COPY["twice"][0], f"{text}\n{text}")
    keys = draw.several(draw.number(3, 7), lambda: draw.slot(draw.one(("word", "proper"))))
    index = draw.number(0, len(keys) - 2)
    ask = draw.say(COPY[kind], key=keys[index])
    if kind == "next":
        return Task(kind, f"{' '.join(keys)}\n{ask}", keys[index + 1])
    values = [draw.slot("text" if draw.chance(0.5) else "number") for _ in keys]
    sign = draw.one((": ", " = ", " -> ", " "))
    text = "\n".join(f"{key}{sign}{value}" for key, value in zip(keys, values, strict=True))
    return Task(kind, f"{text}\n{ask}", values[index])
