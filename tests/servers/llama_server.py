"""llama.cpp's server with files of the tests, and its lanes' rounds."""

from __future__ import annotations

from pathlib import Path

from specdemo import Trace
from specdemo.servers.llama_server import LlamaServer


def llama_server(model: Path, *flags: str, port: int | None = None) -> LlamaServer:
    """A server with one thread, without a warm-up run; later flags overrule these."""
    return LlamaServer(("-m", str(model), "-t", "1", "--no-warmup", *flags), port=port)


def shape(trace: Trace) -> list[tuple]:
    """Its rounds, but for times, probabilities and what a rejected token was.

    The round of an end token is left out: llama.cpp's draft was never seen to propose that token, and ours does.
    """
    return [
        (r.drafted, r.accepted, r.stop, [(t.kind, None if t.kind == "rejected" else t.id) for t in r.tokens])
        for r in trace.rounds
        if r.stop != "eos"
    ]
