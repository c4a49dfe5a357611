"""The corpus: gzipped text files of documents, of which every 50th is held out."""

from __future__ import annotations

import gzip
from pathlib import Path

END_OF_TEXT = "<|endoftext|>"
HOLD_OUT_EVERY = 50


def read_documents(path: Path) -> tuple[list[str], list[str]]:
    """(training, held-out) documents of one file, in order; the first and every 50th after it are held out.

    Raises:
        FileNotFoundError: the corpus folder lacks this file.
    """
    with gzip.open(path, "rt", encoding="utf-8") as file:
        documents = [text for part in file.read().split(f"{END_OF_TEXT}\n") if (text := part.strip())]
    return [d for i, d in enumerate(documents) if i % HOLD_OUT_EVERY], documents[::HOLD_OUT_EVERY]
