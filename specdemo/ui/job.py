"""One race in the models' thread: decoding never waits for the browser."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count
from threading import Event
from typing import Any

from specdemo.analysis.diagnosis import explain_race
from specdemo.analysis.losslessness import compare
from specdemo.errors import SpecDemoError
from specdemo.lanes import trace_of
from specdemo.models.failures import out_of_memory
from specdemo.models.pair import ModelPair
from specdemo.models.store import Load
from specdemo.prompt import encode, pieces
from specdemo.race import race
from specdemo.settings import Settings
from specdemo.trace import Round, Trace
from specdemo.ui.figures import figure_rows
from specdemo.ui.lane_headers import lane_headers
from specdemo.ui.progress_text import await_load
from specdemo.ui.worker import gathered

STOPPED = "Stopped. Press Run to start again."
BUSY = "Too many runs are waiting here. Press Run again in a minute."
MEMORY = "Memory ran out. Choose fewer lanes, a shorter length, a smaller pair or a quantisation, and press Run."
ROUND_FIELDS = (
    "index",
    "drafted",
    "accepted",
    "seconds",
    "draft_seconds",
    "verify_seconds",
    "other_seconds",
    "stop",
    "source",
)
TOKEN_FIELDS = ("id", "text", "kind", "round", "position", "p", "q", "acceptance", "seconds")
GRAVITY = ("identical", "partial", "sampled", "tie", "diverged")
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
    figures: list[dict[str, Any]] = field(default_factory=list)
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
            "figures": self.figures,
            "rounds": list(self.rounds),
        }


def waiting(lanes: list[dict[str, Any]]) -> dict[str, Any]:
    """The view of a run that waits for its turn."""
    return RaceView(lanes, phase="loading", message="Waiting for a turn…").value()


def failed(message: str) -> dict[str, Any]:
    """The view of a run that could not begin."""
    return RaceView([], phase="error", message=message).value()


def race_updates(
    thread: Executor, loads: Sequence[Load], prompt: str, lanes: list[Settings], stop: Event
) -> Iterator[dict[str, Any]]:
    """Run a race in ``thread`` and yield view values about ten times a second, the last one final.

    Args:
        thread: where models run.
        loads: the pair of each lane, there or on its way.
        prompt: for all lanes.
        lanes: the settings of each.
        stop: ends the run, the wait for the pairs included.

    Errors a person can cause, and any other, end as a message in the view. Setting ``stop`` or closing the
    generator ends decoding within one round.
    """
    view = RaceView(lane_headers(lanes, [load.request.target_quantization for load in loads]))
    try:
        yield from _wait(view, loads, stop)
        pairs = [load.future.result() for load in loads]
        job = _Job(pairs, encode(pairs[0], prompt, lanes[0].chat), lanes, stop)
        _show_prompt(view, pairs[0], job.ids, lanes)
        view.phase, view.message = "running", None
        yield from job.updates(view, thread)
    except SpecDemoError as error:
        view.phase, view.message = "error", str(error)
    except Exception as error:
        if out_of_memory(error):
            view.phase, view.message = "error", MEMORY
            yield view.value()
            return
        _log.exception("a race failed")
        view.phase, view.message = "error", f"The run failed: {type(error).__name__}. Press Run to try again."
    if view.phase != "running":
        yield view.value()


def _wait(view: RaceView, loads: Sequence[Load], stop: Event) -> Iterator[dict[str, Any]]:
    """The page says how far the load is instead of standing still.

    Raises:
        LoadCancelled: stopped meanwhile; the load goes on if others wait for it.
    """
    view.phase = "loading"
    for load in dict.fromkeys(loads):
        for view.message in await_load(load, stop):
            yield view.value()


def _show_prompt(view: RaceView, pair: ModelPair, ids: list[int], lanes: list[Settings]) -> None:
    """A lane that copies shows the prompt's tokens, so that the view can point at what was copied."""
    for header, settings in zip(view.lanes, lanes, strict=True):
        if settings.strategy == "speculative" and settings.drafter == "prompt_lookup":
            header["prompt"] = pieces(pair, ids)


class _Job:
    """A race under way, and what it gave so far."""

    def __init__(self, pairs: list[ModelPair], ids: list[int], lanes: list[Settings], stop: Event) -> None:
        self._pairs, self.ids, self._lanes, self._stop = pairs, ids, lanes, stop
        self._rounds: list[list[Round]] = [[] for _ in lanes]

    def updates(self, view: RaceView, thread: Executor) -> Iterator[dict[str, Any]]:
        """Decode in ``thread``; yields ``view`` as it fills, but for its last state, which has the verdict."""
        with closing(gathered(thread, lambda: race(self._pairs, self.ids, self._lanes), self._stop)) as updates:
            for news in updates:
                for lane, round_ in news:
                    self._rounds[lane].append(round_)
                view.rounds.append(bundled(news))
                yield view.value()
        self._conclude(view)

    def _conclude(self, view: RaceView) -> None:
        lanes = zip(self._pairs, self._lanes, self._rounds, strict=True)
        traces = [trace_of(pair, self.ids, settings, rounds) for pair, settings, rounds in lanes]
        stopped = not all(t.complete for t in traces)
        view.phase, view.message = ("stopped", STOPPED) if stopped else ("done", None)
        if not all(t.rounds for t in traces):
            return
        view.figures = figure_rows(traces)
        if len(traces) < 2:
            return
        view.verdict = _verdict(traces, [header["title"] for header in view.lanes])
        view.why = explain_race(traces)


def _verdict(traces: list[Trace], titles: list[str]) -> dict[str, str]:
    """The judgement on all lanes, each against the first of the same weights: quantised ones are another model.

    Where the judgements differ each is called by its lane's name, and the gravest is the kind.
    """
    first = {t.quantization: t for t in reversed(traces)}
    judged = {
        title: compare(first[t.quantization], t)
        for title, t in zip(titles, traces, strict=True)
        if t is not first[t.quantization]
    }
    if not judged:
        return {
            "kind": "partial",
            "text": "not compared: the lanes' weights differ; add a plain lane with the same weights",
        }
    kind = max((j.outcome for j in judged.values()), key=GRAVITY.index)
    texts = list(dict.fromkeys(j.text for j in judged.values()))
    if len(texts) > 1 or len(judged) < len(traces) - 1:
        texts = [f"{title}: {j.text}" for title, j in judged.items()]
    return {"kind": kind, "text": "; ".join(texts)}


def bundled(news: Iterable[tuple[int, Round]]) -> str:
    """Rounds with their lanes as the browser takes them: one string of JSON."""
    return json.dumps([_event(*each) for each in news], ensure_ascii=False, separators=(",", ":"))


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
