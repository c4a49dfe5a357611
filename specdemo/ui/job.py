"""One race in the models' thread: decoding never waits for the browser."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, wait
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count
from queue import SimpleQueue
from threading import Event
from typing import Any

from specdemo.analysis.diagnosis import explain
from specdemo.analysis.losslessness import compare
from specdemo.errors import SpecDemoError
from specdemo.lanes import trace_of
from specdemo.models.pair import ModelPair
from specdemo.prompt import encode
from specdemo.race import race
from specdemo.settings import Settings
from specdemo.trace import Round, Trace

UPDATE_SECONDS = 0.1
STOPPED = "Stopped. Press Run to start again."
ROUND_FIELDS = (
    "index",
    "drafted",
    "accepted",
    "seconds",
    "draft_seconds",
    "verify_seconds",
    "other_seconds",
    "stop",
)
TOKEN_FIELDS = ("id", "text", "kind", "round", "position", "p", "q", "acceptance", "seconds")
_run_numbers = count(1)
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class RaceView:
    """The value of the race view: what the browser has been told so far.

    ``rounds`` grows by one string an update, the JSON of all rounds since the last one. Gradio compares the
    old value with the new at every update, and a few strings compare faster than thousands of small objects.
    """

    lanes: list[dict[str, Any]]
    run: str = field(default_factory=lambda: f"r{next(_run_numbers)}")
    phase: str = "running"
    message: str | None = None
    verdict: dict[str, Any] | None = None
    why: str | None = None
    rounds: list[str] = field(default_factory=list)

    def value(self) -> dict[str, Any]:
        """Plain data for the component, apart from later changes."""
        return {
            "run": self.run,
            "phase": self.phase,
            "message": self.message,
            "lanes": self.lanes,
            "verdict": self.verdict,
            "why": self.why,
            "rounds": list(self.rounds),
        }


def lane_header(settings: Settings) -> dict[str, Any]:
    """How the page calls a lane."""
    if settings.strategy == "autoregressive":
        return {"title": "Plain", "detail": "target only", "gamma": 0, "lossy": False}
    rule = f"top-{settings.accept_top_k}" if settings.acceptance == "top_k" else settings.acceptance
    return {
        "title": "Speculative",
        "detail": f"γ {settings.gamma}, {rule}",
        "gamma": settings.gamma,
        "lossy": not settings.lossless,
    }


def waiting(lanes: list[dict[str, Any]]) -> dict[str, Any]:
    """The view of a run that waits for its turn."""
    return RaceView(lanes, phase="loading", message="Waiting for a turn…").value()


def failed(message: str) -> dict[str, Any]:
    """The view of a run that could not begin."""
    return RaceView([], phase="error", message=message).value()


def race_updates(
    thread: Executor, get_pair: Callable[[], ModelPair], prompt: str, lanes: list[Settings], stop: Event
) -> Iterator[dict[str, Any]]:
    """Run a race in ``thread`` and yield view values about ten times a second, the last one final.

    Errors a person can cause, and any other, end as a message in the view. Setting ``stop`` or closing the
    generator ends decoding within one round.
    """
    view = RaceView([lane_header(s) for s in lanes])
    try:
        # The first load takes seconds; the page says so instead of standing still.
        view.phase, view.message = "loading", "Loading the models…"
        yield view.value()
        pair = get_pair()
        ids = encode(pair, prompt, lanes[0].chat)
        events: SimpleQueue[tuple[int, Round]] = SimpleQueue()
        view.phase, view.message = "running", None
        worker = thread.submit(_decode, pair, ids, lanes, stop, events)
        try:
            yield from _drain(view, worker, events, stop, pair, ids, lanes)
        finally:
            stop.set()
            wait([worker])
    except SpecDemoError as error:
        view.phase, view.message = "error", str(error)
    except Exception as error:
        _log.exception("a race failed")
        view.phase, view.message = "error", f"The run failed: {type(error).__name__}. Press Run to try again."
    if view.phase != "running":
        yield view.value()


def _decode(pair: ModelPair, ids: list[int], lanes: list[Settings], stop: Event, events: SimpleQueue) -> None:
    """The worker: puts every round into the queue until the race is over or stopped."""
    with closing(race(pair, ids, lanes)) as rounds:
        for event in rounds:
            events.put(event)
            if stop.is_set():
                break


def _drain(
    view: RaceView,
    worker: Future[None],
    events: SimpleQueue,
    stop: Event,
    pair: ModelPair,
    ids: list[int],
    lanes: list[Settings],
) -> Iterator[dict[str, Any]]:
    """Bundle what the worker sent into one update a tenth of a second; the last update has the verdict."""
    rounds: list[list[Round]] = [[] for _ in lanes]
    running = True
    while running:
        # One sleep an update: waking for every token would take the interpreter from the decoding thread.
        running = bool(wait([worker], timeout=UPDATE_SECONDS).not_done)
        news = []
        while not events.empty():
            lane, round_ = events.get()
            rounds[lane].append(round_)
            news.append(_event(lane, round_))
        if news:
            view.rounds.append(json.dumps(news, ensure_ascii=False, separators=(",", ":")))
        if running and news:
            yield view.value()
    worker.result()  # raises what ended the worker, if anything did
    traces = [trace_of(pair, ids, s, r) for s, r in zip(lanes, rounds, strict=True)]
    _conclude(view, traces, stopped=stop.is_set() and not all(t.complete for t in traces))


def _event(lane: int, round_: Round) -> dict[str, Any]:
    """A round as the browser needs it: empty fields left out, since thousands of tokens carry them."""
    return {
        "lane": lane,
        **{name: getattr(round_, name) for name in ROUND_FIELDS},
        "tokens": [
            {name: value for name in TOKEN_FIELDS if (value := getattr(token, name)) is not None}
            for token in round_.tokens
        ],
    }


def _conclude(view: RaceView, traces: list[Trace], *, stopped: bool) -> None:
    view.phase, view.message = ("stopped", STOPPED) if stopped else ("done", None)
    if len(traces) < 2 or not all(t.rounds for t in traces):
        return
    judgement = compare(traces[0], traces[1])
    view.verdict = {"kind": judgement.outcome, "text": judgement.text}
    view.why = explain(traces[0], traces[1])
