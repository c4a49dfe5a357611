"""The corpus: documents, of which every 50th is held out, and an open vocabulary, of which a tenth is.

A word's hash decides. Words of the training documents and of ``templates.toml`` are always known: they cannot be
kept out of training.
"""

from __future__ import annotations

import gzip
import re
import tomllib
from collections import Counter
from pathlib import Path
from zlib import crc32

END_OF_TEXT = "<|endoftext|>"
HOLD_OUT_EVERY = 50  # documents
UNSEEN_SHARE = 10  # one word of so many
STORIES = ("stories_tiny", "stories_pratham", "stories_african")
VOCABULARY = ("chat_topical", "maths", "stories_fairy", "books_children")
"""Files that words alone are taken from, and questions of the first."""
CHARACTERS = 20_000_000  # that are read of a file for its words
_LEFT_OUT = re.compile(
    "nigg|negro|redskin|squaw|savage|slave|whore|nazi|rape|kill|murder|damn|fuck|shit|sex|retard|nude"
)
USUAL = 300  # words that are the most frequent; nobody asks to have them changed
LEAST = 3  # times that a word stands in the corpus: rarer ones are often misprints
TEMPLATES: dict[str, dict[str, list[str]]] = tomllib.loads(
    Path(__file__).with_name("templates.toml").read_text(encoding="utf-8")
)
"""Part of a task → what is said → its templates, one of which is drawn."""

Sides = tuple[list[str], list[str]]
"""Texts that are trained on, and those that are held out."""


def read_documents(path: Path) -> Sides:
    """The documents of one file, in order; the first and every 50th after it are held out."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        documents = [text for part in file.read().split(f"{END_OF_TEXT}\n") if (text := part.strip())]
    return [d for i, d in enumerate(documents) if i % HOLD_OUT_EVERY], documents[::HOLD_OUT_EVERY]


class Corpus:
    """A folder of gzipped texts.

    Attributes:
        chat, stories: dialogues and stories; only the first file of stories has held-out ones that are asked.
        questions, sentences: turns of open conversation that ask something, and sentences of stories.
        names, nouns, words: by whether training never has them. Names are written with a capital, nouns have a
            plural with s, words are of any kind.
        usual: the most frequent words, in small letters.

    Raises:
        SystemExit: a file is not in the folder.
    """

    def __init__(self, folder: Path) -> None:
        try:
            read = {f: read_documents(folder / f"{f}.txt.gz") for f in ("chat", *STORIES, *VOCABULARY)}
        except (FileNotFoundError, NotADirectoryError) as error:
            raise SystemExit(f"--corpus: there is no {error.filename}; give the folder of the corpus.") from None
        self.chat = read["chat"]
        self.stories = [d for name in STORIES for d in read[name][0]], read[STORIES[0]][1]
        self.questions = _found(r"^User: ([^\n]{15,90}\?)$", read[VOCABULARY[0]])
        self.sentences = _found(r"(?:^|[.!?] )([A-Z][^.!?\"\n]{12,70}[.!?])", self.stories)
        templates = (text for part in TEMPLATES.values() for some in part.values() for text in some)
        taught = [*self.chat[0], *self.stories[0], *self.questions[0], *templates]
        self._known = {_stem(word) for text in taught for word in set(re.findall(r"[^\W\d_]+", text.lower()))}
        count, after_the = Counter[str](), Counter[str]()
        for name in (*STORIES, *VOCABULARY):
            text = "\n".join(d for side in read[name] for d in side)[:CHARACTERS]
            count.update(re.findall("[A-Za-z]+", text))
            after_the.update(re.findall(r"\b(?:an?|the|this) ([a-z]+)", text))
        self.usual = frozenset(word for word, _ in count.most_common(USUAL))
        found = [
            w for w, n in count.items() if n >= LEAST and 3 <= len(w) <= 12 and not _LEFT_OUT.search(w.lower())
        ]
        self.words = self._sides([w for w in found if w.islower()])
        self.names = self._sides([w for w in found if w.istitle() and count[w] > 5 * count[w.lower()]])
        self.nouns = self._sides(
            [w for w in found if w.islower() and count[w + "s"] >= LEAST and 20 * after_the[w] > count[w]]
        )
        self.all_names = frozenset(self.names[False] + self.names[True])

    def is_unseen(self, word: str) -> bool:
        """Whether no training task has the word, in capital or small letters."""
        stem = _stem(word.lower())
        return crc32(stem.encode()) % UNSEEN_SHARE == 0 and stem not in self._known

    def _sides(self, words: list[str]) -> dict[bool, tuple[str, ...]]:
        return {side: tuple(w for w in sorted(words) if self.is_unseen(w) == side) for side in (False, True)}


def _found(pattern: str, sides: Sides) -> Sides:
    train, held_out = ([s for d in side for s in re.findall(pattern, d, re.MULTILINE)] for side in sides)
    return train, held_out


def _stem(word: str) -> str:
    """A noun and its plural are one word."""
    return word.rstrip("s")
