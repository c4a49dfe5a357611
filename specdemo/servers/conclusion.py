"""From what a server sent to the lane's trace: the best level that its own words bear out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from specdemo.server_record import Counts, Level
from specdemo.servers.answer import Piece
from specdemo.servers.counters import difference, read_counters
from specdemo.servers.reader import Reader
from specdemo.servers.rounds import Output, outputs, reconstructed
from specdemo.servers.speculation import Speculation, read_speculation
from specdemo.settings import Settings
from specdemo.trace import Round, Stop

ENDS: dict[str, Stop] = {"stop": "eos", "length": "length"}
STOPPED, RUNNING = "it was stopped here", "it has not ended yet"


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What the end of an answer showed.

    Attributes:
        rounds: reconstructed ones, or those that streamed.
        level, counts: what is known of the speculation.
        incomplete: why the answer broke off; None if it did not.
        notes: what did not add up, or is not known.
    """

    rounds: tuple[Round, ...]
    level: Level = "speed"
    counts: Counts | None = None
    incomplete: str | None = None
    notes: tuple[str, ...] = ()


def so_far(rounds: Sequence[Round], stopped: bool) -> Conclusion:
    """Of an answer that nobody has read to its end."""
    return Conclusion(tuple(rounds), incomplete=STOPPED if stopped else RUNNING)


def conclude(reader: Reader, settings: Settings, pieces: Sequence[Piece], rounds: Sequence[Round]) -> Conclusion:
    """The conclusion from an answer that has ended, and was read to its end.

    Args:
        reader: which read it.
        settings: of the lane.
        pieces, rounds: what has streamed.
    """
    answer = reader.answer
    notes = list(reader.notes)
    stop, incomplete = _end(reader, settings)
    if incomplete:
        return Conclusion(tuple(rounds), incomplete=incomplete, notes=tuple(notes))
    tokens = _tokens(pieces, reader.texts)
    ended = (*rounds[:-1], replace(rounds[-1], stop=stop)) if rounds else ()
    notes += _miscounted(reader, len(tokens))
    spoken = read_speculation(answer.speculation)
    notes += [f"{complaint}." for complaint in spoken.complaints]
    if spoken.counts is None:
        return _from_counters(reader, ended, notes)
    if settings.strategy == "autoregressive" and spoken.counts.drafted:
        notes.append("this deployment speculates, though it is the baseline.")
    if spoken.steps is None or not answer.has_ids:
        return _from_totals(reader, ended, spoken, notes)
    ends = list(accumulate(len(p.ids or ()) for p in pieces))
    found = reconstructed(tokens, ends, spoken.steps, settings.max_new_tokens, stop)
    if found is None:
        notes.append(_misfit(spoken.counts, len(tokens)))
        return Conclusion(ended, notes=tuple(notes))
    made, whole = found
    if not whole:
        unknown = sum(t.kind == "streamed" for r in made for t in r.tokens)
        notes.append(
            f"{unknown} tokens stay uncoloured: the server does not say which of its steps drafted nothing there."
        )
    return Conclusion(made, "detailed", spoken.counts, None, tuple(notes))


def _tokens(pieces: Sequence[Piece], texts: list[tuple[str, ...]] | None) -> list[Output]:
    """The output's tokens, or pieces of text, each with its own text where the server cut them."""
    if texts is None:
        return [output for piece in pieces for output in outputs(piece)]
    return [
        replace(output, text=text)
        for piece, cut in zip(pieces, texts, strict=True)
        for output, text in zip(outputs(piece), cut, strict=True)
    ]


def _end(reader: Reader, settings: Settings) -> tuple[Stop | None, str | None]:
    """Why the output ends, or why it broke off."""
    if reader.incomplete:
        return None, reader.incomplete
    finish = reader.answer.finish or ""
    if finish not in ENDS:
        return None, f"the server ended it with {finish[:40]!r}"
    told = reader.answer.usage[1]
    if finish == "length" and told is not None and told < settings.max_new_tokens:
        return "context", None
    return ENDS[finish], None


def _miscounted(reader: Reader, count: int) -> list[str]:
    told = reader.answer.usage[1]
    if told is None:
        return ["the server did not count its tokens."]
    if reader.answer.has_ids and told != count:
        return [f"the server counts {told} tokens, but gave the ids of {count}."]
    return []


def _misfit(counts: Counts, tokens: int) -> str:
    return (
        f"the server's steps do not fit its answer: {counts.steps} steps that kept {counts.accepted} tokens "
        f"cannot give {tokens}, the first one apart."
    )


def _from_totals(reader: Reader, rounds: tuple[Round, ...], spoken: Speculation, notes: list[str]) -> Conclusion:
    told = reader.answer.usage[1]
    counts = spoken.counts
    if spoken.steps is not None:
        notes.append("the server gave no token ids, so its text cannot be cut into tokens; its totals are used.")
    # The last step may be cut, so up to γ of its accepted tokens never came.
    slack = counts.gamma if counts.gamma is not None else counts.accepted
    if told is not None and counts.steps + counts.accepted - slack > told - 1:
        return Conclusion(rounds, notes=(*notes, _misfit(counts, told)))
    return Conclusion(rounds, "summary", counts, None, tuple(notes))


def _from_counters(reader: Reader, rounds: tuple[Round, ...], notes: list[str]) -> Conclusion:
    if None in reader.counters:
        return Conclusion(rounds, notes=tuple(notes))
    try:
        before, after = (read_counters(page) for page in reader.counters)
    except ValueError:
        return Conclusion(rounds, notes=(*notes, "the server's page of metrics cannot be read."))
    counts, complaint = difference(before, after, reader.answer.usage[1])
    notes += [complaint] if complaint else []
    return Conclusion(rounds, "metrics" if counts else "speed", counts, None, tuple(notes))
