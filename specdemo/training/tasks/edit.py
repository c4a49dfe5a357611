"""Edit: a text of a few sentences or lines, given again with one change; and texts to copy."""

from __future__ import annotations

import re

from specdemo.training.tasks.task import Draw, Task, lines

ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh")
ASKS = lines("""
{change}\\n{text}
{change}\\n{text}
{text}\\n{change}
<Write|Give me|Copy> <this|the> text <again|>. {change}\\n{text}
<Edit|Change|Correct> this <text|>.\\n{text}\\n{change}
Here is a text:\\n{text}\\n{change}
""")
CHANGES = {
    "replace": "Change {old} to {new}.|Replace {old} <by|with> {new}.|<Write|Put|Use> {new} instead of {old}.|"
    'Put "{new}" where it says "{old}".|Say {new} and not {old}.|{new}, not {old}.|Swap {old} for {new}.|'
    "It is {new}, not {old}.|{new} for {old}.",
    "remove": "<Remove|Delete|Leave out|Drop|Take out> the {place} {unit}<|, please>.|Without the {place} {unit}.",
    "remove word": "<Remove|Delete|Leave out|Drop|Take out> <the word |>{old}.|Without {old}<, please|>.",
    "add": "Add <this {unit} |>at the {place}: {new}|At the {place}, add: {new}|Put this at the {place}: {new}",
    "capitals": "<Write|Put|Make> {old} in <capitals|capital letters>.|Make {old} all capitals.|"
    'The word "{old}" should be in capitals.|{old} in capitals<, please|>.',
    "quotes": "<Put|Set> {old} in quotes.|Put quotes around {old}.|{old} in quotes<, please|>.",
}
WEIGHTS = (("replace", 5), ("remove", 2), ("remove word", 1), ("add", 2), ("capitals", 2), ("quotes", 1))


def edit(draw: Draw) -> Task:
    """One to five sentences, or items of a list, and a change that can be made to them."""
    listed = draw.chance(0.4)
    mark, join = draw.one((("- ", "\n"), ("", "\n"), ("* ", "\n"))) if listed else ("", " ")
    slot = draw.one(("text", "text", "phrase")) if listed else "sentence"
    parts = [mark + draw.slot(slot) for _ in range(draw.number(2, 6) if listed else draw.number(1, 5))]
    kind = draw.rng.choices(*zip(*WEIGHTS, strict=True))[0]
    if len(parts) == 1 and kind == "remove":
        kind = "replace"
    place, unit = draw.one(("start", "end")), "line" if listed else "sentence"
    index = draw.number(0, len(parts) - 1)
    words = re.findall(r"[A-Za-z]+|\d+", parts[index].removeprefix(mark))
    old, new = draw.one([word for word in words if len(word) > 3] or words), draw.slot("text")
    if kind == "remove":
        place = "last" if index == len(parts) - 1 and draw.chance(0.5) else ORDINALS[index]
        answer = parts[:index] + parts[index + 1 :]
    elif kind == "add":
        new = draw.slot(slot)
        answer = [mark + new, *parts] if place == "start" else [*parts, mark + new]
    elif kind == "remove word":
        answer = [re.sub(rf"\b{old}\b ?", "", part).rstrip() for part in parts]
    else:
        if kind == "replace" and not listed:
            new = draw.proper() if old[0].isupper() else draw.word()
        put = {"replace": new, "capitals": old.upper(), "quotes": f'"{old}"'}[kind]
        answer = [re.sub(rf"\b{old}\b", put, part) for part in parts]
    change = draw.say(f"<{CHANGES[kind]}>", old=old, new=new, place=place, unit=unit)
    ask = draw.say(draw.one(ASKS).replace("\\n", "\n"), change=change, text=join.join(parts))
    return Task(kind, ask, join.join(answer))


LISTS = {
    "bullets": "Write <this|it> as a <|bullet >list.|One <item|word> a line<, please|>.|As a list<|, please>:",
    "numbers": "Number <these|the lines|the items>.|Make <this|it> a numbered list.|Numbered<|, please>:",
    "commas": "<Write|Put> <these|them> in one line, with commas.|<Separate|Join> <these|them> <by|with> commas.",
    "quotes": "Put <each|every one> in quotes.|Quotes around each<, please|>.|Put quotes around <each|every one>:",
    "capitals": "<Write|Put> <these|them|all of them> in capital<s| letters>.|All <in |>capitals<, please|>:",
    "upside down": "<Reverse|Turn around> <the list|the order|these>.|From last to first<, please|>:",
}


def relist(draw: Draw) -> Task:
    """The items of a list in another form."""
    items = [draw.say("<{word}|{word}|{text}>") for _ in range(draw.number(2, 7))]
    source, kind = draw.one((", ", "\n", "\n- ")), draw.one(list(LISTS))
    mark = source.removeprefix("\n") if source != ", " else ""
    answer = {
        "bullets": "\n".join(f"- {item}" for item in items),
        "numbers": "\n".join(f"{i}. {item}" for i, item in enumerate(items, 1)),
        "commas": ", ".join(items),
        "quotes": ", ".join(f'"{item}"' for item in items),
        "capitals": mark + source.join(items).upper(),
        "upside down": mark + source.join(reversed(items)),
    }[kind]
    return Task(f"list {kind}", f"{draw.say(f'<{LISTS[kind]}>')}\n{mark}{source.join(items)}", answer)


COPIES = lines("""
<Say|Write|Repeat|Copy|Type|Echo>: {text}
<Say|Repeat|Copy|Write> <this|after me|exactly this|the same><:|.>\\n{text}
{text}\\n<Say|Write|Repeat|Copy> <this|that|it> <again|once more|>.
<Say|Write|Repeat> "{text}".
Copy.\\n{text}
""")


def copy(draw: Draw) -> Task:
    """Practice: nearly all of the answer stands in the prompt. A text again, some of it, or what stands by it."""
    kind = draw.one(("text", "text", "text", "twice", "next", "value", "value"))
    if kind in ("text", "twice"):
        slot = draw.one(("text", "text", "sentence", "identifier", "code"))
        text = draw.one((" ", ", ", "\n")).join(draw.slot(slot) for _ in range(draw.one((1, 1, 2, 3, 5))))
        ask = draw.say(draw.one(COPIES).replace("\\n", "\n"), text=text)
        return Task(kind, ask, text) if kind == "text" else Task(kind, f"{ask} Twice.", f"{text}\n{text}")
    keys = list(dict.fromkeys(draw.say("<{word}|{proper}>") for _ in range(draw.number(3, 7))))
    index = draw.number(0, len(keys) - 2)
    if kind == "next":
        ask = draw.say("<<What|Which word> <comes after|follows> {key}?|After {key}:>", key=keys[index])
        return Task(kind, f"{' '.join(keys)}\n{ask}", keys[index + 1])
    values = [draw.slot("text" if draw.chance(0.5) else "number") for _ in keys]
    sign = draw.one((": ", " = ", " -> ", " "))
    text = "\n".join(f"{key}{sign}{value}" for key, value in zip(keys, values, strict=True))
    ask = draw.say("<What is {key}?|{key}?|What <goes with|stands by> {key}?|{key}:>", key=keys[index])
    return Task(kind, f"{text}\n{ask}", values[index])
