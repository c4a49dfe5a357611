"""What the page says of a lane on a server: whose clock it is, and what the server reports of its rounds."""

from __future__ import annotations

from typing import Any

from specdemo.server_record import IN_TURN, LEVELS, ServerRecord
from specdemo.servers.catalog import label_of, shares_machine
from specdemo.settings import Settings
from specdemo.trace import Trace

CLOCK = "client’s clock"
"""Times of such a lane are taken on this machine, when a piece of the answer arrives."""
LATER = "its rounds are told when its answer ends at the latest"
WAITS = "runs alone, in its turn, since it is on this machine"
RAN_ALONE = "lanes one after the other: it is on this machine"


def server_names(lanes: list[Settings]) -> list[str | None]:
    """What people call the server of each lane; None for a lane here."""
    return [None if s.engine != "server" else label_of(s.server) if s.server else "server" for s in lanes]


def server_header(settings: Settings, name: str, *, alone: bool) -> dict[str, Any]:
    """A lane's header before it runs, when only its server is known.

    Args:
        settings: of the lane.
        name: of its server.
        alone: whether all lanes of the race are on this server; if not, the title names it.
    """
    plain = settings.strategy == "autoregressive"
    deployment = "plain" if plain else "speculative"
    waits = (WAITS,) if shares_machine(settings) else ()
    return {
        "title": deployment.capitalize() if alone else f"{name}: {deployment}",
        "detail": name if alone else "on a server",
        "gamma": 0 if plain else settings.gamma,  # its own is not known before the end
        "adaptive": False,
        "lossy": False,
        "server": {"line": "; ".join((CLOCK, *(() if plain else (LATER,)), *waits)), "notes": []},
    }


def complete_header(header: dict[str, Any], trace: Trace, record: ServerRecord) -> None:
    """Add to the header of a lane what its server reported; it has ended, and has at least its first round."""
    if record.gamma:
        header["detail"] += f", γ\u00a0{record.gamma}"
    header["server"] = {"line": _line(record, trace.settings), "notes": _notes(record)}
    header["reported"] = _head_figures(trace)
    header["broken"] = record.incomplete is not None


def _line(record: ServerRecord, settings: Settings) -> str:
    network = record.network_seconds
    clock = CLOCK if network is None else f"{CLOCK}, network ~{_milliseconds(network)}\u00a0ms"
    if record.engine:
        clock = f"{record.engine} · {clock}"
    if record.decode_seconds and record.completion_tokens and record.completion_tokens > 1:
        speed = (record.completion_tokens - 1) / record.decode_seconds
        clock += f", its own clock {speed:.1f}\u00a0tokens/s"
    if IN_TURN in record.notes:
        clock += f" · {RAN_ALONE}"
    # Plain decoding has nothing to report: every token is a pass of the target.
    if settings.strategy == "autoregressive" or record.incomplete:
        return clock
    return f"{clock} · {LEVELS[record.level]}"


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.0f}" if seconds >= 0.0095 else f"{1000 * seconds:.1f}"


def _notes(record: ServerRecord) -> list[str]:
    broken = [f"Incomplete: {record.incomplete}"] if record.incomplete else []
    return [_sentence(text) for text in (*broken, *record.notes) if text != IN_TURN]


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def _head_figures(trace: Trace) -> dict[str, float | None]:
    """The figures above the lane, which cannot be counted where tokens have no kinds or are pieces of text."""
    figures = trace.metrics()
    return {
        "tokens_per_second": figures.tokens_per_second,
        "seconds": figures.seconds,
        "tokens": None if figures.emitted is None else figures.emitted + 1,
        "passes": None if figures.rounds is None else figures.rounds + 1,
        "tau": figures.mean_acceptance_length,
        "acceptance_rate": figures.acceptance_rate,
    }
