"""How the page calls the lanes of a race; of a lane on a server, whose clock it is and what the server reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specdemo.analysis.wording import claim, counted
from specdemo.drafters import DRAFTERS
from specdemo.server_record import IN_TURN, LEVELS, ServerRecord
from specdemo.servers.catalog import label_of, shares_machine
from specdemo.settings import LLAMA_CPP, Settings
from specdemo.trace import Trace

CLOCK = "client’s clock"
"""Times of such a lane are taken on this machine, when a piece of the answer arrives."""
LATER = "its rounds are told when its answer ends at the latest"
WAITS = "runs alone, in its turn, since it is on this machine"
RAN_ALONE = "lanes one after the other: it is on this machine"


def lane_headers(
    lanes: Sequence[Settings],
    quantizations: Sequence[str | None] | None = None,
    servers: Sequence[str | None] | None = None,
) -> list[dict[str, Any]]:
    """Title, detail and marks of every lane; equal titles get what tells their lanes apart.

    Args:
        lanes: in the order of the page.
        quantizations: of each lane's target; mentioned if any target is quantised.
        servers: the name of each lane's server, None for a lane here; taken from the settings if not given.
    """
    own = [(label_of(s.server) if s.server else "server") if s.engine == "server" else None for s in lanes]
    names = own if servers is None else list(servers)
    alone = len(set(names)) == 1
    headers = [_header(s, name, alone) for s, name in zip(lanes, names, strict=True)]
    if any(s.engine == LLAMA_CPP for s in lanes):
        for header, settings in zip(headers, lanes, strict=True):
            inside = settings.engine == LLAMA_CPP
            header["title"] += f" in {LLAMA_CPP}" if inside else ""
            header["detail"] += "" if inside or "server" in header else ", in this process"
    if quantizations and any(quantizations):
        for header, weights in zip(headers, quantizations, strict=True):
            served = "server" in header
            header["weights"] = "the server’s weights" if served else f"{weights or 'unquantised'} weights"
            header["detail"] += "" if served else f", {header['weights']}"
    titles = _distinct(*([header[part] for header in headers] for part in ("title", "detail")))
    for header, title in zip(headers, titles, strict=True):
        header["title"] = title
    _add_claims(headers, lanes)
    return headers


def _add_claims(headers: Sequence[dict[str, Any]], lanes: Sequence[Settings]) -> None:
    """Add to the lanes that a headline may compare while they run: with which lane, and what is then said.

    That is what :func:`specdemo.analysis.speedup.compared` chooses of lanes that have ended.
    """
    places = [
        (header.get("weights"), s.server, s.engine == LLAMA_CPP) for header, s in zip(headers, lanes, strict=True)
    ]
    plain = [n for n, settings in enumerate(lanes) if settings.strategy == "autoregressive"]
    own = [next((p for p in plain if p != n and places[p] == place), None) for n, place in enumerate(places)]
    drafting = [n for n in range(len(lanes)) if n not in plain and (n or own[n] is not None)]
    for n in drafting or range(1, len(lanes)):
        baseline = own[n] or 0
        names = lane_names(headers, n, baseline)
        said = {trend: claim(trend, *names) for trend in ("faster", "slower", "even")}
        here = own[n] is not None and lanes[n].engine == lanes[baseline].engine != "server"
        bounded = here and n in drafting
        headers[n]["claims"] = {"baseline": baseline, "bounded": bounded, "lane": names[0], **said}


def lane_names(headers: Sequence[dict[str, Any]], *places: int) -> list[str]:
    """The lanes there; where their weights differ a speed-up has two causes, and the names tell both."""
    both = [headers[n] for n in places]
    if len({header.get("weights") for header in both}) == 1:
        return [header["title"] for header in both]
    return [f"{header['title']} with {header.get('weights', 'other weights')}" for header in both]


def _distinct(titles: list[str], details: list[str]) -> list[str]:
    """The titles; lanes with the same one say what the details of the others have not, or else their numbers."""
    names = list(titles)
    for title in {t for t in titles if titles.count(t) > 1}:
        alike = {i: details[i].split(", ") for i, t in enumerate(titles) if t == title}
        shared = set.intersection(*map(set, alike.values()))
        own = {i: ", ".join(part for part in parts if part not in shared) for i, parts in alike.items()}
        for i, said in own.items():
            names[i] = f"{title} {said}".strip() if [*own.values()].count(said) == 1 else f"{title} {i + 1}"
    return names


def _gamma(settings: Settings) -> str:
    if settings.drafts_trees:
        return f"tree of {settings.tree_nodes}, depth {settings.gamma}"
    return "adaptive γ" if settings.adaptive_gamma else f"γ {settings.gamma}"


def _rule(settings: Settings) -> str:
    return (
        f"top-{settings.accept_top_k}" if settings.acceptance == "top_k" else settings.acceptance.replace("_", " ")
    )


def trace_headers(traces: Sequence[Trace]) -> list[dict[str, Any]]:
    """The headers of lanes that ran; servers have the names that their traces recorded."""
    names = [t.server.name if t.server and not t.server.obeyed else None for t in traces]
    return lane_headers([t.settings for t in traces], [t.quantization for t in traces], names)


def engine_note(trace: Trace) -> str | None:
    """The lane's engine, if a person chose one or if the lane ran on another than it should have."""
    if trace.engine is None or (trace.settings.engine in ("auto", LLAMA_CPP) and ":" not in trace.engine):
        return None
    return trace.engine


def _header(settings: Settings, server: str | None, alone: bool) -> dict[str, Any]:
    """``server``: the name of the lane's, of which no more is known yet; ``alone``: all lanes are in one place."""
    plain = settings.strategy == "autoregressive"
    marks: dict[str, Any] = {"gamma": 0 if plain else settings.gamma, "adaptive": False, "lossy": False}
    if server is not None:
        deployment = "plain" if plain else "speculative"
        title = deployment.capitalize() if alone else f"{server}: {deployment}"
        waits = (WAITS,) if shares_machine(settings) else ()
        line = "; ".join((CLOCK, *(() if plain else (LATER,)), *waits))
        place = server if alone else "on a server"
        return {"title": title, "detail": place, **marks, "server": {"line": line, "notes": []}}
    if plain:
        return {"title": "Plain", "detail": "target only", **marks}
    spec, rule, assisted = DRAFTERS[settings.drafter], _rule(settings), settings.strategy == "assisted"
    title = "transformers" if assisted else spec.label[:1].upper() + spec.label[1:]
    layers, ngram = settings.exit_layer, settings.lookup_ngram
    parts = [
        spec.label if assisted else "",
        f"first {counted(layers, 'layer')}" if layers is not None and "exit_layer" in spec.reads else "",
        "its own γ" if assisted and settings.adaptive_gamma else _gamma(settings),
        f"p_min {settings.p_min:g}" if settings.p_min else "",
        "" if assisted else rule,
        f"matches of {ngram}" if ngram != Settings().lookup_ngram and "lookup_ngram" in spec.reads else "",
        "no earlier outputs" if not settings.earlier_outputs and "earlier_outputs" in spec.reads else "",
    ]
    detail = ", ".join(filter(None, parts))
    if assisted or (settings.greedy and settings.acceptance not in ("top_k", "typical")):
        rule = "exact" if settings.greedy else "sampling"
    marks |= {"adaptive": settings.adaptive_gamma, "lossy": not settings.lossless, "rule": rule}
    return {"title": title, "detail": detail, **marks}


def complete_header(header: dict[str, Any], trace: Trace, record: ServerRecord) -> None:
    """Add to the header of a lane what its server reported; it has ended, and has at least its first round."""
    if record.gamma and not record.obeyed:
        header["detail"] += f", γ\u00a0{record.gamma}"
    header["server"] = {"line": _line(record, trace.settings), "notes": _notes(record)}
    figures = trace.metrics()
    # Above the lane stand these, which cannot be counted where tokens have no kinds or are pieces of text.
    header["reported"] = {
        "tokens_per_second": figures.tokens_per_second,
        "seconds": figures.seconds,
        "tokens": None if figures.emitted is None else figures.emitted + 1,
        "tau": figures.rounds and figures.emitted and [figures.emitted, figures.rounds],
        "acceptance_rate": figures.acceptance_rate,
    }


def _line(record: ServerRecord, settings: Settings) -> str:
    network = record.network_seconds
    clock = CLOCK if network is None else f"{CLOCK}, network ~{1000 * network:.{network < 0.0095:d}f}\u00a0ms"
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


def _notes(record: ServerRecord) -> list[str]:
    """What was found, as sentences."""
    found = [f"incomplete: {record.incomplete}"] if record.incomplete else []
    found += [text for text in record.notes if text != IN_TURN]
    return [text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".") for text in found]
