"""A recording: the traces of one race and what they ran on, as one JSON file; files of strangers are checked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from specdemo.errors import TraceError
from specdemo.rounds import Round, Token
from specdemo.trace import Trace

SCHEMA = 1
KIND: Literal["specdemo recording"] = "specdemo recording"
LARGEST_FILE = 20_000_000
MOST_LANES = 8
LONGEST_SECONDS = 7 * 24 * 3600.0
LARGEST_NUMBER = 2**63
DEEPEST = 12
ROUNDING = 1e-5  # by which a float32 softmax may pass 1
NOT_ONE = "This is not a specdemo recording: "
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
        """For people."""
        threads = f"{self.threads} thread" + ("s" if self.threads != 1 else "")
        processor = f"{self.device} ({self.processor}), {threads}"
        return processor if self.device in ("CPU", "MPS") else self.device


@dataclass(frozen=True)
class Recording:
    """The traces of one race, or of one run, to be kept and replayed.

    Attributes:
        traces: a lane each, with its settings; at least one, and none without rounds.
        title: what it is called; may be empty.
        prompt: as it was written; None if it was given as ids, or is not known.
        prompt_pieces: the text of each prompt token, chat template included.
        hardware: what the lanes ran on.
        versions: of python and of the libraries that decoded, by name.
        date: the day, such as ``2025-06-30``; may be empty.
        repeats: tokens a second of each lane, for each time that the race was run again for its speeds alone.
        schema: version of this record.
    """

    traces: tuple[Trace, ...]
    title: str = ""
    prompt: str | None = None
    prompt_pieces: tuple[str, ...] | None = None
    hardware: Hardware | None = None
    versions: dict[str, str] = field(default_factory=dict)
    date: str = ""
    repeats: tuple[tuple[float, ...], ...] = ()
    kind: Literal["specdemo recording"] = KIND
    schema: int = SCHEMA

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as in the JSON."""
        return asdict(self)

    def to_json(self) -> str:
        """This recording as JSON; ``Recording.from_json`` reads it back."""
        return json.dumps(self.as_dict(), ensure_ascii=False, allow_nan=False, separators=(",", ":"))

    @staticmethod
    def from_json(text: str | bytes) -> Recording:
        """Read a saved recording, or one trace or a list of traces as ``Trace.to_json`` writes them.

        Raises:
            TraceError: it cannot be replayed; one sentence says where it fails and what to do.
        """
        data = _parsed(text)
        if isinstance(data, dict) and "traces" in data:
            _check_version(data)
        else:
            data = {"traces": data if isinstance(data, list) else [data]}
        recording = _validated({**data, "traces": _traces(data["traces"])})
        check_playable(recording.traces)
        _check_tokens(recording.traces)
        _check_repeats(recording)
        pieces = recording.prompt_pieces
        if pieces is not None and any(len(t.prompt_ids) != len(pieces) for t in recording.traces):
            raise TraceError(f"{NOT_ONE}prompt_pieces: there must be one for each token of the prompt. {ADVICE}")
        return recording

    @staticmethod
    def load(path: str | Path) -> Recording:
        """Read a recording from a file.

        Raises:
            TraceError: the file cannot be opened, or what ``from_json`` raises.
        """
        path = Path(path)
        try:
            if path.stat().st_size > LARGEST_FILE:
                raise TraceError(_too_large(path.stat().st_size))
            return Recording.from_json(path.read_bytes())
        except OSError as error:
            raise TraceError(f"{path.name} cannot be read: {error.strerror}. Choose another file.") from error


def check_playable(traces: Sequence[Trace]) -> None:
    """Refuse traces that cannot be replayed: none, one without rounds, or one whose clock runs backwards.

    Raises:
        TraceError: says which lane and round.
    """
    if not traces:
        raise TraceError("There is nothing to replay: give at least one trace.")
    for lane, trace in enumerate(traces, start=1):
        if not trace.rounds:
            raise TraceError(f"Lane {lane} has no rounds; let it run before it is recorded.")
        clock = 0.0
        for index, round_ in enumerate(trace.rounds):
            place = f"{NOT_ONE}lane {lane}, round {index}: "
            if round_.index != index:
                raise TraceError(f"{place}its index is {round_.index}; rounds must be numbered from 0.")
            if not clock <= round_.seconds <= LONGEST_SECONDS:
                raise TraceError(f"{place}its clock is at {round_.seconds:g} s, after {clock:g} s.")
            if not all(spent is None or 0 <= spent <= LONGEST_SECONDS for spent in _phases(round_)):
                raise TraceError(f"{place}a part of it took less than no time.")
            clock = round_.seconds


def _phases(round_: Round) -> tuple[float | None, ...]:
    return round_.draft_seconds, round_.verify_seconds, round_.other_seconds


def _check_tokens(traces: Sequence[Trace]) -> None:
    """Refuse what no run can have measured of a token.

    Raises:
        TraceError: says which lane and round.
    """
    for lane, trace in enumerate(traces, start=1):
        for index, round_ in enumerate(trace.rounds):
            place = f"{NOT_ONE}lane {lane}, round {index}: "
            for token in round_.tokens:
                if not all(0 <= p <= 1 + ROUNDING for p in _probabilities(token)):
                    raise TraceError(f"{place}a probability of a token is not between 0 and 1. {ADVICE}")
                if not 0 <= token.seconds <= LONGEST_SECONDS:
                    raise TraceError(f"{place}the clock of a token is at {token.seconds:g} s. {ADVICE}")


def _check_repeats(recording: Recording) -> None:
    """Refuse speeds that are not one a lane, or none."""
    for number, speeds in enumerate(recording.repeats, start=1):
        if len(speeds) != len(recording.traces) or not all(speed > 0 for speed in speeds):
            raise TraceError(f"{NOT_ONE}repeats, run {number}: each lane must have a speed above 0. {ADVICE}")


def _probabilities(token: Token) -> Iterator[float]:
    return (p for p in (token.p, token.q, token.acceptance) if p is not None)


def _parsed(text: str | bytes) -> Any:
    import pydantic_core

    if len(text) > LARGEST_FILE:
        raise TraceError(_too_large(len(text)))
    try:
        data = pydantic_core.from_json(text, allow_inf_nan=False)
    except (TypeError, ValueError) as error:  # TypeError: text that is no valid Unicode
        raise TraceError(f"{NOT_ONE}it is not JSON ({error}). {ADVICE}") from error
    _check_values(data)
    return data


def _check_values(data: Any) -> None:
    """Refuse what is nested too deeply and numbers that nothing measures, level by level: files may be large."""
    level = [data]
    for _ in range(DEEPEST + 1):
        inner: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                inner.extend(value.values())
            elif isinstance(value, list):
                inner.extend(value)
            elif isinstance(value, int | float) and not abs(value) <= LARGEST_NUMBER:
                raise TraceError(f"{NOT_ONE}it holds a number too large for a measurement. {ADVICE}")
        level = inner
    if level:
        raise TraceError(f"{NOT_ONE}its lists are nested too deeply. {ADVICE}")


def _check_version(data: dict[str, Any]) -> None:
    if data.get("schema") is None:
        raise TraceError(f"{NOT_ONE}it names no schema. {ADVICE}")
    if data["schema"] != SCHEMA:
        raise TraceError(
            f"This recording has schema {_short(data['schema'])}; this version reads schema {SCHEMA}. "
            "Open it with the version of specdemo that saved it."
        )


def _traces(found: Any) -> list[Trace]:
    if not isinstance(found, list) or not found:
        raise TraceError(f"{NOT_ONE}it has no traces. {ADVICE}")
    if len(found) > MOST_LANES:
        raise TraceError(f"This recording has {len(found):,} lanes; at most {MOST_LANES} can be replayed.")
    return [_trace(lane, data) for lane, data in enumerate(found, start=1)]


def _trace(lane: int, data: Any) -> Trace:
    try:
        return Trace.from_json(json.dumps(data))
    except TraceError as error:
        reason = str(error).removeprefix("This is not a specdemo trace: ")
        raise TraceError(f"{NOT_ONE}lane {lane}: {_short(reason.rstrip('.'), 240)}. {ADVICE}") from error


def _validated(data: dict[str, Any]) -> Recording:
    import pydantic

    try:
        return pydantic.TypeAdapter(Recording).validate_python(data)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        place = ".".join(_short(part) for part in first["loc"]) or "the file"
        raise TraceError(f"{NOT_ONE}{place}: {first['msg']}. {ADVICE}") from error


def _short(value: Any, most: int = 40) -> str:
    """Text of a stranger's file, cut to fit a message."""
    text = str(value)
    return text if len(text) <= most else text[: most - 1] + "…"


def _too_large(size: int) -> str:
    return (
        f"This recording has {size / 1e6:.1f} MB; at most {LARGEST_FILE / 1e6:.0f} MB can be opened. "
        "Record a shorter run."
    )
