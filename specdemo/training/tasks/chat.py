"""Chat: dialogues of the corpus about a service, such as a restaurant, a flight or a bank."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from specdemo.training.tasks.documents import read_documents, split
from specdemo.training.tasks.task import Answer, Draw, Grade, Task

FILE = "chat.txt.gz"
LONGEST_DIALOGUE = 750  # characters: what fits a window with its neighbours
MOST_TURNS = 12
LONGEST_TURN = 80  # tokens in which an answer must end

# Words that only talk about one service has. A prompt with words of one service alone belongs to it.
SERVICES: dict[str, tuple[str, ...]] = {
    "restaurant": ("restaurant", "restaurants", "eat", "dine", "dinner", "cuisine", "table"),
    "flight": ("flight", "flights", "fly", "flying", "airline", "airlines", "plane"),
    "hotel": ("hotel", "hotels", "check-in"),
    "bank": ("bank", "balance", "savings", "checking", "transfer"),
    "movie": ("movie", "movies", "film", "films", "theater", "cinema"),
    "music": ("music", "song", "songs", "album", "playlist"),
    "weather": ("weather", "temperature", "rain", "humidity", "forecast"),
    "bus": ("bus", "buses"),
    "doctor": ("doctor", "dentist", "dermatologist", "gynecologist", "psychiatrist", "therapist"),
    "car": ("rental", "suv", "sedan", "hatchback", "pickup"),
    "home": ("apartment", "apartments", "bedroom", "bedrooms", "rent"),
    "salon": ("salon", "salons", "haircut", "stylist", "unisex"),
    "ride": ("taxi", "cab", "uber", "lyft"),
    "event": ("event", "events", "concert", "game", "games"),
    "alarm": ("alarm", "alarms"),
    "attraction": ("attraction", "attractions", "museum", "museums"),
}
_OWNER = {word: service for service, words in SERVICES.items() for word in words}


def services(text: str) -> set[str]:
    """The services that a text has words of."""
    return {_OWNER[word] for word in re.findall(r"[a-z][a-z-]*", text.lower()) if word in _OWNER}


def turns(document: str) -> list[str]:
    """A dialogue's turns, the user's first, cleaned; [] where the two do not take turns."""
    found = re.split(r"^(User|Assistant): ?", document, flags=re.MULTILINE)[1:]
    speakers, texts = found[::2], [_clean(text) for text in found[1::2]]
    in_turn = all(speaker == ("User", "Assistant")[i % 2] for i, speaker in enumerate(speakers))
    return texts if in_turn and all(texts) and len(texts) > 1 else []


def _clean(text: str) -> str:
    """One line, with single spaces and none before a full stop."""
    return re.sub(r" +([.,?!])", r"\1", " ".join(text.split()))


class Chat:
    """Dialogues from their first turn on, as many turns as fit; a held-out prompt is in no training dialogue."""

    name = "chat"
    longest = LONGEST_TURN

    def __init__(self, folder: Path) -> None:
        train, held_out = split(read_documents(folder / FILE))
        self._train = [t for d in train if (t := turns(d))]
        known = {t[0].lower() for t in self._train}
        self._held_out = [
            t for d in held_out if (t := turns(d)) and t[0].lower() not in known and len(services(t[0])) == 1
        ]

    def task(self, draw: Draw) -> Task:
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
            ended = answer.ended
            silent = not re.search(r"<\|user\|>|^ *User *:", answer.text, re.MULTILINE)
            named, wanted = services(answer.text), services(task.prompt)
            stays = bool(answer.text.strip()) and (not named or bool(named & wanted))
            figures = {
                "all three": ended and silent and stays,
                "ends its turn": ended,
                "speaks for itself only": silent,
                "stays with the service": stays,
            }
            graded.append({name: (int(ok), 1) for name, ok in figures.items()})
        return graded
