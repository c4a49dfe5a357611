"""What the page says of a lane on a server: whose clock it is, and what the server told of its rounds."""

from __future__ import annotations

from typing import Any

from specdemo.server_record import LEVELS, ServerRecord
from specdemo.servers.catalog import label_of
from specdemo.settings import Settings
from specdemo.trace import Trace

CLOCK = "client’s clock"
"""Every time of such a lane is taken here, when a piece of the answer arrives."""
LATER = "its rounds are told when its answer ends"


def server_names(lanes: list[Settings]) -> list[str | None]:
    """What people call the server of each lane; None for a lane here."""
    return [None if s.engine != "server" else label_of(s.server) if s.server else "server" for s in lanes]


def server_header(settings: Settings, name: str, *, alone: bool) -> dict[str, Any]:
    """A lane's header while nothing is known yet but where it runs.

    Args:
        settings: of the lane.
        name: of its server.
        alone: whether all lanes of the race are on this server, so that its name need not tell them apart.
    """
    plain = settings.strategy == "autoregressive"
    way = "plain" if plain else "speculative"
    return {
        "title": way.capitalize() if alone else f"{name}: {way}",
        "detail": name if alone else "on a server",
        "gamma": 0 if plain else settings.gamma,  # its own is not known before the end
        "adaptive": False,
        "lossy": False,
        "server": {"line": CLOCK if plain else f"{CLOCK}; {LATER}", "notes": []},
    }


def settled(header: dict[str, Any], trace: Trace) -> None:
    """Complete the header of a lane that has ended, and has at least its first round."""
    record = trace.server
    if record.gamma:
        header["detail"] += f", γ\u00a0{record.gamma}"
    header["server"] = {"line": _line(record, trace.settings), "notes": _notes(record)}
    header["told"] = _told(trace)
    header["broken"] = record.incomplete is not None


def _line(record: ServerRecord, settings: Settings) -> str:
    parts = [CLOCK]
    if record.network_seconds is not None:
        parts.append(f"network ~{_milliseconds(record.network_seconds)}\u00a0ms")
    clock = ", ".join(parts)
    # Of plain decoding there is nothing to be told: every token is a pass of the target.
    if settings.strategy == "autoregressive" or record.incomplete:
        return clock
    return f"{clock} · {LEVELS[record.level]}"


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.0f}" if seconds >= 0.0095 else f"{1000 * seconds:.1f}"


def _notes(record: ServerRecord) -> list[str]:
    broken = [f"Incomplete: {record.incomplete}"] if record.incomplete else []
    return [_sentence(text) for text in (*broken, *record.notes)]


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def _told(trace: Trace) -> dict[str, float | None]:
    """The figures of its head, which the view cannot count where tokens have no kinds, or are pieces of text."""
    figures = trace.metrics()
    return {
        "tokens_per_second": figures.tokens_per_second,
        "seconds": figures.seconds,
        "tokens": None if figures.emitted is None else figures.emitted + 1,
        "passes": None if figures.rounds is None else figures.rounds + 1,
        "tau": figures.mean_acceptance_length,
        "acceptance_rate": figures.acceptance_rate,
    }
