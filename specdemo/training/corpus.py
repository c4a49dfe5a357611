"""The corpus: a folder of gzipped text, tokenised and served in windows; every 50th document is held out."""

from __future__ import annotations

import gzip
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast

from specdemo.files import written_whole
from specdemo.training.recipe import END_OF_TEXT, Recipe, Source

HOLD_OUT_EVERY = 50
LONGEST_PIECE = 6000  # characters: a long file is also shown from its middle, cut at a line end
_SENTENCE = re.compile(r"(?<=[.!?])[\"']?\s+")


@dataclass(frozen=True, slots=True)
class Stream:
    """One source's documents, joined: token ids as uint16 of shape (tokens,)."""

    source: Source
    train: np.ndarray
    held_out: np.ndarray


def read_documents(path: Path) -> list[str]:
    """The documents of one file, in order.

    Raises:
        FileNotFoundError: the corpus folder lacks this file.
    """
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [text for part in file.read().split(f"{END_OF_TEXT}\n") if (text := part.strip())]


def split(documents: list[str]) -> tuple[list[str], list[str]]:
    """(training, held-out): every 50th document, counted from the first, is held out."""
    held_out = documents[::HOLD_OUT_EVERY]
    return [d for i, d in enumerate(documents) if i % HOLD_OUT_EVERY], held_out


def as_dialogue(document: str, wrap: str, rng: random.Random) -> str:
    """The same document as a user turn that the assistant continues.

    A small model that saw stories and code without turns only would respond to the chat template with small talk.
    """
    if wrap == "sentence":
        parts = _SENTENCE.split(document, maxsplit=rng.randint(1, 2))
        start, rest = " ".join(parts[:-1]), parts[-1]
        instruction = rng.choice(("", "Tell me a story. ", "Write a story that begins like this: "))
        return f"User: {instruction}{start}\nAssistant: {rest}" if start else document
    lines = document.split("\n")
    cut = rng.randint(1, min(12, max(1, len(lines) // 2)))
    start, rest = "\n".join(lines[:cut]), "\n".join(lines[cut:])
    return f"User: {start}\nAssistant:\n{rest}"


def pieces(document: str) -> Iterator[str]:
    """A document in chunks of at most LONGEST_PIECE characters, cut at line ends."""
    while len(document) > LONGEST_PIECE:
        cut = document.rfind("\n", 0, LONGEST_PIECE) + 1 or LONGEST_PIECE
        yield document[:cut].rstrip()
        document = document[cut:]
    yield document


def code_pieces(document: str) -> Iterator[str]:
    """A module cut before top-level definitions, so that a piece begins where a person would begin."""
    piece = ""
    for block in re.split(r"\n(?=(?:def|class|async def|@))", document):
        if piece and len(piece) + len(block) > LONGEST_PIECE // 3:
            yield from pieces(piece)
            piece = block
        else:
            piece = f"{piece}\n{block}" if piece else block
    yield from pieces(piece)


def training_texts(documents: list[str], source: Source, seed: int) -> list[str]:
    """Documents as the model reads them: unchanged, or half of them as dialogues where the source is wrapped."""
    if source.wrap is None:
        return documents
    rng = random.Random(seed)
    cut = code_pieces if source.wrap == "lines" else pieces
    texts = [piece for document in documents for piece in cut(document)]
    return [as_dialogue(t, source.wrap, rng) if rng.random() < 0.5 else t for t in texts]


def encode(texts: list[str], tokenizer: PreTrainedTokenizerFast) -> np.ndarray:
    """Each text after the separator that it would follow at inference: uint16, shape (tokens,)."""
    batches = (texts[start : start + 512] for start in range(0, len(texts), 512))
    encodings = (e for batch in batches for e in tokenizer.backend_tokenizer.encode_batch(batch))
    parts = [np.asarray(encoding.ids, dtype=np.uint16) for encoding in encodings]
    return np.concatenate([*parts, np.asarray([tokenizer.bos_token_id], dtype=np.uint16)])


def load_streams(folder: Path, tokenizer: PreTrainedTokenizerFast, recipe: Recipe, cache: Path) -> list[Stream]:
    """All sources tokenised; kept in ``cache`` so that a resumed run starts at once."""
    streams = []
    for source in recipe.sources:
        stored = cache / f"{source.files[0].removesuffix('.txt.gz')}.npz"
        if not stored.exists():
            parts = [split(read_documents(folder / name)) for name in source.files]
            train = training_texts([t for p in parts for t in p[0]], source, recipe.seed)
            held_out = [t for p in parts for t in p[1]]
            cache.mkdir(parents=True, exist_ok=True)
            with written_whole(stored) as partial:
                np.savez(partial, train=encode(train, tokenizer), held_out=encode(held_out, tokenizer))
        with np.load(stored) as arrays:
            streams.append(Stream(source, arrays["train"], arrays["held_out"]))
    return streams


class Windows:
    """Random windows of the training text, each from one source, which is drawn by its share."""

    def __init__(self, streams: list[Stream], shares: list[float], seed: int) -> None:
        self.streams = streams
        self.seed = seed
        self.weights = torch.tensor(shares, dtype=torch.float64)

    def batch(self, step: int, rows: int, length: int) -> torch.Tensor:
        """int64 ids of shape (rows, length); a pure function of seed and step, so a resumed run repeats it."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + step)
        picks = self._picks(rows, generator)
        out = np.empty((rows, length), dtype=np.int64)
        for row, pick in enumerate(picks):
            ids = self.streams[pick].train
            start = int(torch.randint(max(1, len(ids) - length), (1,), generator=generator))
            out[row] = np.resize(ids[start : start + length], length)
        return torch.from_numpy(out)

    def openings(self, separator: int, rows: int, length: int, generator: torch.Generator) -> torch.Tensor:
        """The first ``length`` tokens of random documents, separator included: int64 (rows, length)."""
        picks = self._picks(rows, generator)
        starts = [np.flatnonzero(s.train[:-length] == separator) for s in self.streams]
        out = np.empty((rows, length), dtype=np.int64)
        for row, pick in enumerate(picks):
            choice = int(torch.randint(len(starts[pick]), (1,), generator=generator))
            start = starts[pick][choice]
            out[row] = self.streams[pick].train[start : start + length]
        return torch.from_numpy(out)

    def _picks(self, rows: int, generator: torch.Generator) -> list[int]:
        return torch.multinomial(self.weights, rows, replacement=True, generator=generator).tolist()
