"""Chat: dialogues of the corpus about a service, such as a restaurant, a flight or a bank."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from specdemo.training.tasks.corpus import read_documents
from specdemo.training.tasks.task import Answer, Draw, Grade, Task, lines

LONGEST_DIALOGUE = 750  # characters: what fits a window with its neighbours
MOST_TURNS = 12

# A service on each line, with words that only talk about it has.
SERVICES = lines("""
restaurant restaurants eat dine dinner cuisine table
flight flights fly flying airline airlines plane
hotel hotels check-in
bank balance savings checking transfer
movie movies film films theater cinema
music song songs album playlist
weather temperature rain humidity forecast
bus buses
doctor dentist dermatologist gynecologist psychiatrist therapist
rental suv sedan hatchback pickup
apartment apartments bedroom bedrooms rent
salon salons haircut stylist unisex
taxi cab uber lyft
event events concert game games
alarm alarms
attraction attractions museum museums
""")
_SERVICE_OF = {word: service for service in SERVICES for word in service.split()}


def services(text: str) -> set[str]:
    """The services that a text has words of."""
    return {_SERVICE_OF[word] for word in re.findall(r"[a-z][a-z-]*", text.lower()) if word in _SERVICE_OF}


def turns(document: str) -> list[str]:
    """A dialogue's turns, the user's first, in one line each; [] where the two do not take turns."""
    found = re.split(r"^(User|Assistant): ?", document, flags=re.MULTILINE)[1:]
    texts = [re.sub(r" +([.,?!])", r"\1", " ".join(text.split())) for text in found[1::2]]
    in_turn = all(speaker == ("User", "Assistant")[i % 2] for i, speaker in enumerate(found[::2]))
    return texts if in_turn and all(texts) and len(texts) > 1 else []


class Chat:
    """Dialogues from their first turn on, as many turns as fit; a held-out prompt is in no training dialogue."""

    def __init__(self, folder: Path) -> None:
        self._train, held_out = (
            [t for d in side if (t := turns(d))] for side in read_documents(folder / "chat.txt.gz")
        )
        known = {t[0].lower() for t in self._train}
        self._held_out = [t for t in held_out if t[0].lower() not in known and len(services(t[0])) == 1]

    def dialogue(self, draw: Draw) -> Task:
        chosen = draw.one(self._held_out if draw.held_out else self._train)
        length, count = 0, 0
        for text in chosen[:MOST_TURNS]:
            length += len(text)
            if length > LONGEST_DIALOGUE and count >= 2:
                break
            count += 1
        prompt, answer, *more = chosen[: count - count % 2]
        return Task("dialogue", prompt, answer, tuple(more))

    def grades(self, tasks: Sequence[Task], answers: Sequence[Answer]) -> list[Grade]:
        """Ends its turn, never speaks for the user, and names no service but the prompt's."""
        graded = []
        for task, answer in zip(tasks, answers, strict=True):
            silent = not re.search(r"<\|user\|>|^ *User *:", answer.text, re.MULTILINE)
            named = services(answer.text)
            stays = bool(answer.text.strip()) and (not named or bool(named & services(task.prompt)))
            figures = {
                "all three": answer.ended and silent and stays,
                "ends its turn": answer.ended,
                "speaks for itself only": silent,
                "stays with the service": stays,
            }
            graded.append({name: (int(ok), 1) for name, ok in figures.items()})
        return graded
