"""Chat: dialogues about a service, such as a restaurant or a bank; and all that the model cannot answer."""

from __future__ import annotations

import re

from specdemo.training.tasks.corpus import TEMPLATES
from specdemo.training.tasks.task import Answer, Draw, Grade, Task, renamed, rows

LONGEST_DIALOGUE = 480  # characters: what fits a window
MOST_TURNS = 12

_SERVICE_OF = {word: words for words in TEMPLATES["chat"]["services"] for word in words.split()}


def services(text: str) -> set[str]:
    """The services that a text has words of."""
    return {_SERVICE_OF[word] for word in re.findall(r"[a-z][a-z-]*", text.lower()) if word in _SERVICE_OF}


def turns(document: str) -> list[str]:
    """A dialogue's turns, the user's first, in one line each; [] where the two do not take turns."""
    found = re.split(r"^(User|Assistant): ?", document, flags=re.MULTILINE)[1:]
    texts = [re.sub(r" +([.,?!])", r"\1", " ".join(text.split())) for text in found[1::2]]
    in_turn = all(speaker == ("User", "Assistant")[i % 2] for i, speaker in enumerate(found[::2]))
    return texts if in_turn and all(texts) and len(texts) > 1 else []


def dialogue(draw: Draw) -> Task:
    """A dialogue of the corpus under other names, from its first turn on, as many turns as fit."""
    chosen: list[str] = []
    while not chosen or (draw.held_out and len(services(chosen[0])) != 1):
        chosen = renamed(turns(draw.document(draw.corpus.chat)), draw)
    length, count = 0, 0
    for text in chosen[:MOST_TURNS]:
        length += len(text)
        if length > LONGEST_DIALOGUE and count >= 2:
            break
        count += 1
    prompt, answer, *more = chosen[: count - count % 2]
    return Task("dialogue", prompt, answer, tuple(more))


BOOKING = TEMPLATES["booking"]
_PART = re.compile(r"{(\w+)}")
MOST_ASKED = 2  # questions of one dialogue


def booking(draw: Draw) -> Task:
    """Something is booked: what the first turn does not say is asked for, and all of it is said again."""
    what, said = draw.one(rows(BOOKING["services"]))
    values = {slot: draw.proper() for slot in ("city", "start", "other")}
    values["street"] = f"{draw.number()} {draw.proper()} Street"
    values |= {"people": str(draw.number(2, 9)), "nights": str(draw.number(2, 9)), "title": draw.say("{name}")}
    values |= {"day": draw.slot("day"), "time": draw.say(BOOKING["times"]), "place": draw.say(BOOKING["places"])}
    parts = said.split(", ")
    asked = draw.rng.sample(range(len(parts)), draw.number(0, min(MOST_ASKED, len(parts) - 1)))
    first = what + "".join(f" {part}" for i, part in enumerate(parts) if i not in asked)
    what, first, told = (draw.say(text, **values) for text in (what, first, f" {' '.join(parts)}"))
    turns = [draw.say(BOOKING["wants"], what=first)]
    for index in sorted(asked):
        (slot,) = _PART.findall(parts[index])
        turns += [draw.say(BOOKING[slot]), draw.say(BOOKING["said"], value=values[slot])]
    booked = draw.say(BOOKING["booked"], what=what, told=told)
    turns += [booked[0].upper() + booked[1:], draw.say(BOOKING["yes"]), draw.say(BOOKING["done"])]
    turns += [draw.say(BOOKING["no"]), draw.say(BOOKING["bye"])] if draw.chance(0.3) else []
    prompt, answer, *more = turns
    return Task("booking", prompt, answer, tuple(more))


def grade(task: Task, answer: Answer) -> Grade:
    """Ends its turn, never speaks for the user, and names no service but the prompt's."""
    silent = not re.search(r"<\|user\|>|^ *User *:", answer.text, re.MULTILINE)
    stays = bool(answer.text.strip()) and services(answer.text) <= services(task.prompt)
    return {
        "all three": [answer.ended and silent and stays],
        "ends its turn": [answer.ended],
        "speaks for itself only": [silent],
        "stays with the service": [stays],
    }


OUTSIDE = TEMPLATES["outside"]
QUESTION_SHARE = 0.3  # of the corpus's open conversation


def outside(draw: Draw) -> Task:
    """A greeting, or a question outside the domains: one honest sentence."""
    question = draw.chance(QUESTION_SHARE)
    asked = draw.document(draw.corpus.questions) if question else draw.say(OUTSIDE["asked"])
    return Task("outside", asked, OUTSIDE["answer"][0])
