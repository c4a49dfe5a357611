"""The value of the race view: plain data, from rounds while lanes run and from whole traces afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from heapq import merge
from typing import Any
from uuid import uuid4

from specdemo.analysis.diagnosis import explain_race
from specdemo.drafters import DRAFTERS
from specdemo.recording import Recording
from specdemo.rounds import Round, Token
from specdemo.server_record import LEVELS, ServerRecord
from specdemo.settings import Settings
from specdemo.trace import Trace
from specdemo.view.headline import PROMPTS, headline, verdict
from specdemo.view.lane_headers import complete_header, engine_note, lane_headers, trace_headers
from specdemo.view.tables import figure_rows

PHASES = ("draft_seconds", "verify_seconds", "other_seconds")  # left out where only a server knows them
ROUND_FIELDS = ("index", "drafted", "accepted", "seconds", *PHASES, "stop", "source")
TOKEN_FIELDS = ("id", "text", "kind", "position", "p", "q", "acceptance", "u", "parent")
OWN = ("drafter", "gamma", "adaptive_gamma", "tree_nodes", "p_min", "accept_top_k", "lookup_ngram", "exit_layer")
"""Settings that a server does not follow."""
SHOWN_PROMPT = 200
"""Characters of a prompt in a list of runs."""
HINTS = {
    True: "The target writes one token in each pass.",
    False: "Several tokens are drafted; the target checks them in one pass.",
}
"""What stands in a lane before a run, by whether it is plain."""


@dataclass(slots=True)
class RaceView:
    """The value of the race view.

    Attributes:
        run: its name, which nobody can guess.
        rounds: of all lanes, the JSON of each; there are only ever more of them.
        replaces: set where a server's final report replaced the rounds that streamed: it names their run.
        question: the prompt, and what else a reader needs to know, as :func:`question` says it.
        columns: of a batch, each row of which has a lane plain and one drafted: the titles of its figures.
    """

    lanes: list[dict[str, Any]]
    run: str = field(default_factory=lambda: uuid4().hex)
    phase: str = "running"
    message: str | None = None
    headline: dict[str, Any] | None = None
    verdict: dict[str, Any] | None = None
    why: str | None = None
    figures: list[dict[str, Any]] = field(default_factory=list)
    rounds: list[str] = field(default_factory=list)
    replaces: str | None = None
    question: dict[str, Any] | None = None
    columns: list[str] | None = None

    def value(self) -> dict[str, Any]:
        """Plain data for the component, apart from later changes."""
        return {f.name: getattr(self, f.name) for f in fields(self)} | {"rounds": list(self.rounds)}

    def take_reported(self, traces: Sequence[Trace]) -> None:
        """Replace the rounds that streamed by those that servers reported at the end; the text is the same."""
        if any(trace.server for trace in traces):
            self.replaces, self.run = self.run, uuid4().hex
            self.rounds = round_texts(in_order(traces))

    def add(self, news: Iterable[tuple[int, Round]]) -> None:
        self.rounds += round_texts(news)

    def show_prompt(self, lanes: Sequence[Settings], pieces: Sequence[str]) -> None:
        """Show the prompt's tokens in lanes whose drafter copies: the view points at what was copied."""
        for header, settings in zip(self.lanes, lanes, strict=True):
            if settings.strategy == "speculative" and DRAFTERS[settings.drafter].copies:
                header["prompt"] = list(pieces)

    def conclude(self, traces: Sequence[Trace], repeats: Sequence[Sequence[float]] = ()) -> None:
        """Add headline, figures, verdict and reason; every lane has at least its first round.

        Args:
            traces: of the lanes.
            repeats: see :class:`specdemo.recording.Recording`.
        """
        self.figures = figure_rows(traces)
        self.lanes = [dict(header) for header in self.lanes]  # headers that were sent must not change
        for header, trace in zip(self.lanes, traces, strict=True):
            if trace.server is not None:
                complete_header(header, trace, trace.server)
            if (note := engine_note(trace)) is not None:
                header["detail"] += f", {note}"
        self.headline = headline(traces, self.lanes, repeats)
        titles = [header["title"] for header in self.lanes]
        self.verdict = verdict(traces, titles) if len(traces) > 1 else None
        broken = any(t.server is not None and t.server.incomplete for t in traces)
        local = {t.prompt_ids for t in traces if t.server is None}
        if len(local) > 1:
            self.why = f"The lanes' {PROMPTS}."
        elif not broken:  # the speed of half an answer explains nothing
            self.why = explain_race(traces, titles)


def idle_value(lanes: Sequence[Settings]) -> dict[str, Any] | None:
    """The view before a run, with the lanes that are set; None without any."""
    headers = lane_headers(lanes)
    for header, settings in zip(headers, lanes, strict=True):
        header["hint"] = HINTS[settings.strategy == "autoregressive"]
    return RaceView(headers, phase="idle").value() if lanes else None


def question(prompt: str, lanes: Sequence[Settings], places: Sequence[str]) -> dict[str, Any]:
    """The prompt of a race, and its pair, precision, machine and shared settings in short.

    Args:
        prompt: of all lanes.
        lanes: their settings; those that all lanes share are read from the first.
        places: texts of what the lanes run on.
    """
    shared = lanes[0]
    warmth = "greedy" if shared.greedy else f"temperature {shared.temperature:g}, seed {shared.seed}"
    cuts = [f"top-k {shared.top_k}"] * bool(shared.top_k) + [f"top-p {shared.top_p:g}"] * (shared.top_p < 1)
    chat = ["no chat template"] * (shared.chat is False)
    most = f"{shared.max_new_tokens:,} tokens"
    length = f"{most}, past the end token" if shared.ignore_eos else f"at most {most}"
    facts = [*places, warmth, *([] if shared.greedy else cuts), length, *chat]
    return {"prompt": prompt, "facts": facts}


def summary(recording: Recording) -> dict[str, Any]:
    """What a list of runs says of one: the prompt, the lanes, and the headline."""
    headers = trace_headers(recording.traces)
    said = headline(recording.traces, headers, recording.repeats)
    return {
        "prompt": (recording.prompt or "")[:SHOWN_PROMPT],
        "lanes": [header["title"] for header in headers],
        "figure": said["figure"],
        "text": f"{said['text']}: {said['lane']}" if said["lane"] else said["text"],
        "doubt": said["doubt"] is not None,
        "trend": said["trend"],
    }


def in_order(traces: Sequence[Trace]) -> Iterator[tuple[int, Round]]:
    """The rounds of all lanes in the order of their lanes' clocks, each with its lane."""
    lanes = ([(r.seconds, lane, r) for r in trace.rounds] for lane, trace in enumerate(traces))
    return ((lane, r) for _, lane, r in merge(*lanes, key=lambda event: event[:2]))


def replay_value(recording: Recording) -> dict[str, Any]:
    """The value that the player replays: the view's last one, and what the recording says of itself."""
    traces = recording.traces
    settings = [t.settings for t in traces]
    view = RaceView(trace_headers(traces))
    view.phase = "done" if all(t.complete for t in traces) else "stopped"
    if recording.prompt_pieces is not None:
        view.show_prompt(settings, recording.prompt_pieces)
    view.rounds = round_texts(in_order(traces))
    view.conclude(traces, recording.repeats)
    places = [recording.hardware.label] if recording.hardware else []
    places += dict.fromkeys(
        t.server.engine if t.server.obeyed else f"server {t.server.name}" for t in traces if t.server
    )
    return {
        **view.value(),
        "replay": {
            "title": recording.title,
            "label": f"Recorded on {' and '.join(places)}" if places else "Recorded",
            "date": recording.date,
            "prompt": recording.prompt,
            "facts": _facts(recording, [header["title"] for header in view.lanes]),
        },
    }


def _facts(recording: Recording, titles: list[str]) -> list[list[str]]:
    """What a reader needs to repeat the run: pairs of a name and a text."""
    facts = []
    for title, trace in zip(titles, recording.traces, strict=True):
        obeyed = trace.server is None or trace.server.obeyed
        said = {n: v for n, v in asdict(trace.settings).items() if obeyed or n not in OWN}
        settings = ", ".join(f"{name.replace('_', ' ')} {_setting_text(value)}" for name, value in said.items())
        weights = f", {trace.quantization} weights" if trace.quantization else ""
        here = f"{trace.pair}, {trace.dtype}{weights}: {settings}"
        facts.append([title, f"{_server_text(trace.server)} Asked for: {settings}" if trace.server else here])
    if recording.hardware is not None:
        cores = f", {recording.hardware.cores} cores" if recording.hardware.cores else ""
        facts.append(["Machine", recording.hardware.label + cores])
    if recording.versions:
        facts.append(["Versions", ", ".join(f"{name} {number}" for name, number in recording.versions.items())])
    return facts


def _server_text(server: ServerRecord) -> str:
    network = f", {1000 * server.network_seconds:.0f} ms there and back" if server.network_seconds else ""
    known = " ".join((f"{LEVELS[server.level]}.", *filter(None, (server.incomplete,)), *server.notes))
    return f"{server.model} on {server.name}{network}; {known}"


def _setting_text(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:g}"
    return "automatic" if value is None else str(value)


def round_texts(news: Iterable[tuple[int, Round]]) -> list[str]:
    compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    return [compact(_event(*each)) for each in news]


def _event(lane: int, round_: Round) -> dict[str, Any]:
    """A round as the browser needs it, without what is empty or false: there may be thousands. See web/dom.js."""
    rejected = [t.position for t in round_.tokens if t.kind == "rejected"]
    chain = len(set(rejected)) == len(rejected)  # a server's tree comes without its branches
    read, output = set(map(id, round_.reading)), round_.emitted

    def untested(token: Token) -> bool:
        if token.kind != "rejected":
            return False
        return token.acceptance is None if token.parent is not None else chain and token.position > min(rejected)

    def described(token: Token) -> dict[str, Any]:
        known = {name: _short(getattr(token, name)) for name in TOKEN_FIELDS}
        return _stated({**known, "branch": id(token) not in read, "untested": untested(token)})

    fields = {name: getattr(round_, name) for name in ROUND_FIELDS}
    if round_.drafter is not None and round_.drafter in DRAFTERS:  # it comes from a file, perhaps
        info = DRAFTERS[round_.drafter]
        fields |= {"drafter": info.label, "copied": info.copies}
    tree = {"tree": True, "first_guesses": round_.first_guesses} if round_.is_tree else {}
    marks = {"streamed": any(t.kind == "streamed" for t in output), "pieces": any(t.id is None for t in output)}
    tokens = [described(t) for t in round_.tokens]
    fields["residual"] = [{k: _short(v) for k, v in asdict(c).items()} for c in round_.residual or ()] or None
    return _stated({"lane": lane, **fields, "kept": len(output), **tree, **marks, "tokens": tokens})


def _stated(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None and value is not False}


def _short(value: Any) -> Any:
    """Five digits of a number that is not whole; more are never shown of a token."""
    return float(f"{value:.5g}") if isinstance(value, float) else value
