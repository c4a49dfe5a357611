"""A finished race as a recording: its traces, the texts of its prompt, and the machine it ran on."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from specdemo.machine import hardware, versions
from specdemo.models.pair import ModelPair
from specdemo.recording import Hardware, Recording, check_playable
from specdemo.runs.encode import pieces
from specdemo.servers.gguf import GgufPair
from specdemo.servers.pair import ServedPair
from specdemo.trace import Trace


def record(
    pair: ModelPair | ServedPair | None, prompt: str | None, traces: Sequence[Trace], title: str = ""
) -> Recording:
    """The recording of lanes that ran on this machine, or on servers, from one prompt.

    ``pair`` is of the first lane that ran here, or in llama.cpp; anything else if none did, and then no hardware
    is named, since that of servers is not known. ``prompt`` is as it was written; None if given as token ids.

    Raises:
        TraceError: a lane has no rounds yet.
    """
    check_playable(traces)
    ran = pair if isinstance(pair, ModelPair | GgufPair) else None
    here = pair if isinstance(pair, ModelPair) else None
    local = next((t.prompt_ids for t in traces if t.server is None), None)
    # A recording has one list of pieces for all lanes; a server may have kept its prompt's ids, or made others.
    alike = all(t.prompt_ids == local for t in traces)
    return Recording(
        traces=tuple(traces),
        title=title,
        prompt=prompt,
        prompt_pieces=tuple(pieces(here, local)) if here and local and alike else None,
        hardware=Hardware(**hardware(ran.device, ran.threads)) if ran else None,
        versions=versions() if ran else {},
        date=date.today().isoformat(),
    )
