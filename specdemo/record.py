"""A finished race as a recording: its traces, the texts of its prompt, and the machine it ran on."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from specdemo.machine import hardware, versions
from specdemo.models.pair import ModelPair
from specdemo.prompt import pieces
from specdemo.recording import Hardware, Recording, check_playable
from specdemo.trace import Trace


def record(pair: ModelPair, prompt: str | None, traces: Sequence[Trace], title: str = "") -> Recording:
    """The recording of lanes that ran on this machine, from one prompt.

    Args:
        pair: of the first lane.
        prompt: as it was written; None if it was given as token ids.
        traces: one a lane.
        title: what the recording is called.

    Raises:
        TraceError: a lane has no rounds yet.
    """
    check_playable(traces)
    return Recording(
        traces=tuple(traces),
        title=title,
        prompt=prompt,
        prompt_pieces=tuple(pieces(pair, traces[0].prompt_ids)),
        hardware=Hardware(**hardware(pair.device, pair.threads)),
        versions=versions(),
        date=date.today().isoformat(),
    )
