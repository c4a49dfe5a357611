"""A recording: the traces of one race and what they ran on, as one JSON file; files of strangers are checked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from specdemo.errors import TraceError
from specdemo.records import parsed, plain_data, validated
from specdemo.rounds import LONGEST_SECONDS
from specdemo.trace import Trace, trace_of

SCHEMA = 1
KIND: Literal["specdemo recording"] = "specdemo recording"
LARGEST_FILE = 20_000_000
MOST_LANES = 8
NOT_ONE = f"This is not a {KIND}: "
ADVICE = "Choose a file that was saved here and not changed."


@dataclass(frozen=True, slots=True)
class Hardware:
    """What the lanes ran on: the device's name, the processor, its cores, and the number of threads used."""

    device: str
    processor: str
    cores: int | None
    threads: int

    @property
    def label(self) -> str:
        threads = f"{self.threads} thread" + ("s" if self.threads != 1 else "")
        processor = f"{self.device} ({self.processor}), {threads}"
        return processor if self.device in ("CPU", "MPS") else self.device


@dataclass(frozen=True)
class Recording:
    """The traces of one race, or of one run, to be kept and replayed."""

    traces: tuple[Trace, ...]  # a lane each, with its settings; at least one, and none without rounds
    title: str = ""  # what it is called; may be empty
    prompt: str | None = None  # as it was written; None if it was given as ids, or is not known
    prompt_pieces: tuple[str, ...] | None = None  # the text of each prompt token, chat template included
    hardware: Hardware | None = None  # what the lanes ran on
    versions: dict[str, str] = field(default_factory=dict)  # of python and of the libraries that decoded, by name
    date: str = ""  # the day, such as ``2025-06-30``; may be empty
    # tokens a second of each lane, for each time that the race was run again for its speeds alone
    repeats: tuple[tuple[float, ...], ...] = ()
    kind: Literal["specdemo recording"] = KIND
    schema: int = SCHEMA  # version of this record

    def as_dict(self) -> dict[str, Any]:
        return plain_data(self)

    def to_json(self) -> str:
        """This recording as JSON; ``Recording.from_json`` reads it back."""
        return json.dumps(self.as_dict(), ensure_ascii=False, allow_nan=False, separators=(",", ":"))

    @staticmethod
    def from_json(text: str | bytes) -> Recording:
        """A recording, or traces as ``Trace.to_json`` writes them; a TraceError where they cannot be replayed."""
        if len(text) > LARGEST_FILE:
            raise TraceError(_too_large(len(text)))
        try:
            return _read(parsed(text, KIND))
        except TraceError as error:
            said = str(error)
            raise TraceError(f"{said} {ADVICE}" if said.startswith(NOT_ONE) else said) from error

    @staticmethod
    def load(path: str | Path) -> Recording:
        """Read a recording from a file; a TraceError where it cannot be opened or replayed."""
        path = Path(path)
        try:
            if path.stat().st_size > LARGEST_FILE:
                raise TraceError(_too_large(path.stat().st_size))
            return Recording.from_json(path.read_bytes())
        except OSError as error:
            raise TraceError(f"{path.name} cannot be read: {error.strerror}. Choose another file.") from error


def check_playable(traces: Sequence[Trace]) -> None:
    """Refuse traces that cannot be replayed: none, one without rounds, or one whose clock runs backwards."""
    if not traces:
        raise TraceError("There is nothing to replay: give at least one trace.")
    for lane, trace in enumerate(traces, start=1):
        if not trace.rounds:
            raise TraceError(f"Lane {lane} has no rounds; let it run before it is recorded.")
        clock = 0.0
        for index, round_ in enumerate(trace.rounds):
            wrong = ""
            if round_.index != index:
                wrong = f"its index is {round_.index}; rounds must be numbered from 0"
            elif not clock <= round_.seconds <= LONGEST_SECONDS:
                wrong = f"its clock is at {round_.seconds:g} s, after {clock:g} s"
            if wrong:
                raise TraceError(f"{NOT_ONE}lane {lane}, round {index}: {wrong}.")
            clock = round_.seconds


def _read(data: Any) -> Recording:
    """A recording from plain data, which may be one trace or a list of them."""
    if not isinstance(data, dict) or "traces" not in data:
        data = {"traces": data if isinstance(data, list) else [data], "schema": SCHEMA}
    found, schema = data["traces"], data.get("schema")
    if schema is None:
        raise TraceError(f"{NOT_ONE}it names no schema.")
    if schema != SCHEMA:
        raise TraceError(
            f"This recording has schema {schema!s:.40}; this version reads schema {SCHEMA}. "
            "Open it with the version of specdemo that saved it."
        )
    if not isinstance(found, list) or not found:
        raise TraceError(f"{NOT_ONE}it has no traces.")
    if len(found) > MOST_LANES:
        raise TraceError(f"This recording has {len(found):,} lanes; at most {MOST_LANES} can be replayed.")
    traces = [_trace(lane, each) for lane, each in enumerate(found, start=1)]
    recording = validated(Recording, {**data, "traces": traces}, KIND)
    check_playable(traces)
    for number, speeds in enumerate(recording.repeats, start=1):
        if len(speeds) != len(traces) or not all(speed > 0 for speed in speeds):
            raise TraceError(f"{NOT_ONE}repeats, run {number}: each lane must have a speed above 0.")
    pieces = recording.prompt_pieces
    if pieces is not None and any(len(t.prompt_ids) != len(pieces) for t in traces):
        raise TraceError(f"{NOT_ONE}prompt_pieces: there must be one for each token of the prompt.")
    return recording


def _trace(lane: int, data: Any) -> Trace:
    try:
        return trace_of(data)
    except TraceError as error:
        reason = str(error).removeprefix("This is not a specdemo trace: ")
        raise TraceError(f"{NOT_ONE}lane {lane}: {reason[:240].rstrip('.')}.") from error


def _too_large(size: int) -> str:
    return (
        f"This recording has {size / 1e6:.1f} MB; at most {LARGEST_FILE / 1e6:.0f} MB can be opened. "
        "Record a shorter run."
    )
