"""Edit: a text of a few sentences or lines, given again with one change; and texts to copy."""

from __future__ import annotations

import re
from collections.abc import Sequence

from specdemo.training.tasks.corpus import TEMPLATES
from specdemo.training.tasks.task import SLOTS, Draw, Task, around, typed

EDIT, INLINE, LIST, FORMS, COPY = (TEMPLATES[p] for p in ("edit", "inline edit", "list", "list forms", "copy"))
ITEM_KINDS = {"replace": 5, "capitals": 1, "quotes": 1, "remove": 1, "add": 1}  # of a text, and of a list
KINDS = ITEM_KINDS | {"replace": 6, "capitals": 2, "upper": 1, "lower": 1, "remove word": 2, "two": 1, "only": 2}
LIST_KINDS = ITEM_KINDS | {"remove item": 2, "add item": 2, "insert": 2}
LISTS = [form for form in FORMS if form != "text"]
# What may be all that a request says of a word: it must be the only one of its kind.
NAMED = {"day": "|".join(SLOTS["day"]), "month": "|".join(SLOTS["month"]), "number": r"\d+"}
_WORD = re.compile(r"#?\w+(?:['-][A-Z0-9]\w*|'(?:t|re|ve|ll|d|m)\b)*")  # such as oven, O'Brien, don't, AB-12


def edit(draw: Draw) -> Task:
    """One to four sentences, or items of a list, and a change that can be made to them."""
    listed = draw.chance(0.35)
    form = draw.one(LISTS) if listed else "text"
    slot = draw.one(("text", "word", "name", "phrase", "number")) if listed else "sentence"
    count = draw.one((2, 3, 3, 4, 5) if listed else (1, 1, 1, 1, 2, 2, 2, 3, 4))
    items = draw.several(count, lambda: draw.slot(slot))
    if draw.chance(0.1):  # as it is typed in haste
        items = [item.lower() for item in items]
    kind = draw.weighted(LIST_KINDS if listed else KINDS)
    index = draw.number(0, len(items) - 1)
    words = _WORD.findall(items[index])
    rare = [w for w in words if w.lower() not in draw.corpus.usual and (len(w) > 2 or w[-1].isdigit())]
    old, second = (draw.one(rare or words) for _ in range(2))
    named = [(name, found[0]) for name, these in NAMED.items() if len(found := _all(these, items)) == 1]
    impossible = {"remove": len(items) == 1, "capitals": old == old.upper(), "two": old == second}
    impossible |= {"only": not named, "lower": items == [item.lower() for item in items]}
    if impossible.get(kind):
        kind = "replace"
    named_by = ""
    if kind == "only":
        named_by, old = draw.one(named)
    first, new, other = draw.chance(0.5), _like(old, draw), _like(second, draw)
    if old == old.lower():
        new = new.lower()
    place = draw.one(EDIT["starts" if first else "ends"])
    if kind in ("remove", "remove item"):
        last = index == len(items) - 1 and draw.chance(0.5)
        place, old = "last" if last else EDIT["ordinals"][index], items[index]
        answer = items[:index] + items[index + 1 :]
    elif kind in ("add", "add item"):
        new = draw.slot(slot)
        answer = [new, *items] if kind == "add" and first else [*items, new]
    elif kind == "insert":
        new, old = draw.slot(slot), items[index]
        answer = [*items[: index + first], new, *items[index + first :]]
    elif kind == "remove word":
        answer = [re.sub(rf" ?{_whole(old)}", "", item).strip() for item in items]
    else:
        put = {"capitals": {old: old.upper()}, "quotes": {old: f'"{old}"'}, "two": {old: new, second: other}}
        by = put.get(kind, {old: new})
        cased = {"upper": str.upper, "lower": str.lower}.get(kind)
        answer = [cased(item) if cased else _exchanged(item, by) for item in items]
    unit = {"text": "sentence", "commas": "item"}.get(form, "line")
    said = {"old": old, "new": new, "second": second, "other": other, "place": place, "unit": unit}
    said |= {"where": "after" if first else "before", "kind": named_by}
    text, result = in_form(items, form), in_form(answer, form)
    if kind in INLINE and "\n" not in text and draw.chance(0.25):
        asked = typed(draw, draw.chosen(INLINE["asks"])).replace("{change}", draw.chosen(INLINE[kind]))
        return Task(kind, draw.say(asked, text=text, **said), result)
    return Task(kind, around(draw, EDIT[kind], text, **said), result)


def in_form(items: Sequence[object], form: str) -> str:
    """A list in one of its forms, or the sentences of a text."""
    mark, join = FORMS[form]
    return join.join(f"{mark.format(i)}{item}" for i, item in enumerate(items, 1))


def _whole(word: str) -> str:
    return rf"(?<!\w){re.escape(word)}(?!\w)"


def _all(these: str, items: list[str]) -> list[str]:
    return re.findall(rf"(?<!\w)(?:{these})(?!\w)", "\n".join(items))


def _exchanged(text: str, by: dict[str, str]) -> str:
    """With these words exchanged, all at once: what was put in is not exchanged again."""
    return re.sub("|".join(map(_whole, by)), lambda found: by[found[0]], text)


def _like(old: str, draw: Draw) -> str:
    """Another word of the same kind."""
    kinds = [name for name, these in NAMED.items() if re.fullmatch(these, old)]
    slot = kinds[0] if kinds else "code" if re.search(r"\d", old) else "proper" if old[0].isupper() else "word"
    while (new := draw.slot(slot)) == old:
        pass
    return new


def relist(draw: Draw) -> Task:
    """The items of a list in another form, or changed alike in the same form."""
    items = draw.several(draw.one((2, 3, 3, 4, 5)), lambda: draw.slot(draw.one(("word", "word", "text"))))
    source = draw.one(LISTS)
    kind = draw.one([name for name in LIST if name != source])
    changed = {"quotes": [f'"{item}"' for item in items], "capitals": [item.upper() for item in items]}
    changed["upside down"] = items[::-1]
    text, answer = in_form(items, source), in_form(changed.get(kind, items), kind if kind in LISTS else source)
    return Task(f"list {kind}", around(draw, LIST[kind], text), answer)


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
