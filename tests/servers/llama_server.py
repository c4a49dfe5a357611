"""llama.cpp's server with files of the tests, and its lanes' rounds."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil

from specdemo import Trace
from specdemo.servers.llama_server import LlamaServer


def llama_server(model: Path, *flags: str, port: int | None = None) -> LlamaServer:
    """A server with one thread, without a warm-up run; later flags overrule these."""
    return LlamaServer(("-m", str(model), "-t", "1", "--no-warmup", *flags), port=port)


def processes() -> set[psutil.Process]:
    """The servers that this process has now, and what they started; a browser of other tests is none of them."""
    found = set()
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it has just ended
            if any("llama" in word for word in process.cmdline()):
                found.add(process)
    return found


def shape(trace: Trace) -> list[tuple]:
    """Its rounds, but for times, probabilities and what a rejected token was.

    The round of an end token is left out: llama.cpp's draft was never seen to propose that token, and ours does.
    """
    return [
        (r.drafted, r.accepted, r.stop, [(t.kind, None if t.kind == "rejected" else t.id) for t in r.tokens])
        for r in trace.rounds
        if r.stop != "eos"
    ]
