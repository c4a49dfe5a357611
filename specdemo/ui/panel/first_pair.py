"""What to expect of the builtin pair, said under the prompt; and the way to real models."""

from __future__ import annotations

from specdemo.drafters import GGUF
from specdemo.machine import bfloat16_instructions
from specdemo.models.memory import best_device
from specdemo.models.request import CatalogEntry, catalog
from specdemo.runs.store import room
from specdemo.servers.llama_server import is_here
from specdemo.view.assets import fill

EXPECT = "A tiny model for six kinds of task: its speed is real, its knowledge is not."
BITS_PER_SECOND, MOST_OFFERED = 50e6, 3


def is_builtin(pair: str) -> bool:
    """Whether a value of the pair's control is one of those that come with the app."""
    return pair in catalog() and catalog()[pair].target.startswith("assets:")


def size_here(entry: CatalogEntry) -> float:
    """Gigabytes that a pair's weights take here: on a CPU those of 16 bit become float32 if it has none."""
    as_it_is = is_builtin(entry.id) or GGUF in entry.parts or entry.target_quantization
    return entry.memory_gb * (1 if as_it_is or best_device() != "cpu" or bfloat16_instructions() else 2)


def real_pairs() -> list[CatalogEntry]:
    """The smallest real pairs that this memory holds; on a CPU GGUF files first, which are the quickest there."""
    free, cpu = room() / 1e9, best_device() == "cpu" and is_here()
    fitting = [e for e in catalog().values() if e.download_gb and size_here(e) <= free]
    found = (e for e in fitting if cpu or GGUF not in e.parts)
    return sorted(found, key=lambda e: (GGUF not in e.parts, e.download_gb))[:MOST_OFFERED]


def offers() -> str:
    """A list of them that opens, with what they cost; one press goes there."""
    rows = [
        (entry, entry.download_gb * 8e9 / BITS_PER_SECOND / 60, size_here(entry), GGUF in entry.parts)
        for entry in real_pairs()
    ]
    return fill("real-models.html", rows=rows)
