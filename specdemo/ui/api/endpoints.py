"""The public API: what programs and agents may call. Everything else on the page is private.

Gradio reads the types of these functions, so there are no postponed annotations here, and of what is said of each
parameter the first line.
"""

import json
import logging
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext
from time import monotonic
from typing import Any

import gradio as gr

from specdemo.errors import SpecDemoError
from specdemo.models.request import request_pair
from specdemo.recording import Recording
from specdemo.runs.store import PairStore
from specdemo.settings import Settings
from specdemo.ui.api.requests import LaneSettings, asked_lane, asked_lanes, asked_prompt, asked_sweep, on_pair
from specdemo.ui.api.responses import pairs_answer, race_answer, run_answer, sweep_answer
from specdemo.ui.jobs.limits import check_lanes, check_prompts
from specdemo.ui.jobs.measuring import measure_states
from specdemo.ui.jobs.queue import Lines, is_agent, visitor_of
from specdemo.ui.jobs.race import race_updates
from specdemo.ui.jobs.server_jobs import place_of
from specdemo.ui.jobs.stops import Stop
from specdemo.ui.jobs.sweep import Plan
from specdemo.ui.tabs.tab_parts import AT_ONCE

TOLD_SECONDS = 1.0
GAMMAS = [2, 3, 4, 5, 6, 7, 8]
LANES = [{"strategy": "autoregressive"}, {"strategy": "speculative"}]
_log = logging.getLogger(__name__)
Told = Generator[dict[str, Any], None, Any]


def add_endpoints(store: PairStore, lines: Lines) -> None:
    """Add the endpoints to the page that is being built."""

    def pairs(request: gr.Request) -> list[dict]:
        """List what can be chosen: pairs of models with licence and memory, servers with their strategies."""
        return _said(request, pairs_answer())

    def run(
        prompt: str,
        request: gr.Request,
        settings: LaneSettings = {},  # noqa: B006
        pair: str = "builtin",
        rounds: bool = False,
    ) -> Iterator[dict]:
        """Decode one prompt, plainly or speculatively, and measure it: output, tokens/s, acceptance and time.

        Args:
            prompt: the text that the models continue.
            settings: any of specdemo's settings; the rest is speculative, greedy, gamma 5, 128 tokens.
            pair: an id that the endpoint "pairs" lists; on a server its own gamma and rule hold.
            rounds: also return the whole recording, with every round and token.
        """
        with _clear_errors():
            lanes = on_pair(pair, [asked_lane(settings)])
            recording = yield from _race(store, lines, request, prompt, lanes, pair)
            yield _said(request, run_answer(recording, whole=bool(rounds)))

    def race(
        prompt: str,
        request: gr.Request,
        lanes: list[LaneSettings] = LANES,
        pair: str = "builtin",
        rounds: bool = False,
    ) -> Iterator[dict]:
        """Decode one prompt in several ways side by side and compare them: speed-ups, outputs, and why.

        Args:
            prompt: the text that the models continue.
            lanes: the settings of each way; the first one is what the others are compared with.
            pair: an id that the endpoint "pairs" lists; on a server its own gamma and rule hold.
            rounds: also return the whole recording, with every round and token; the page can open and replay it.
        """
        with _clear_errors():
            wanted = on_pair(pair, asked_lanes(lanes))
            recording = yield from _race(store, lines, request, prompt, wanted, pair)
            yield _said(request, race_answer(recording, whole=bool(rounds)))

    def sweep(
        prompts: list[str],
        request: gr.Request,
        gammas: list[int] = GAMMAS,
        repeats: int = 1,
        settings: LaneSettings = {},  # noqa: B006
        pair: str = "builtin",
        rounds: bool = False,
    ) -> Iterator[dict]:
        """Measure how many tokens should be drafted in a round (gamma): each against plain decoding, with advice.

        Args:
            prompts: the texts that the models continue.
            gammas: the numbers to try, each from 1 to 16.
            repeats: how many times over.
            settings: of the speculative runs, as for "run"; max_new_tokens is 64 unless given.
            pair: an id that the endpoint "pairs" lists; on a server its own gamma and rule hold.
            rounds: also return every round that the figures are made of.
        """
        with _clear_errors():
            plan = asked_sweep(prompts, gammas, repeats, settings, pair)
            report = yield from _sweep(store, lines, request, plan, pair)
            yield _said(request, sweep_answer(report, whole=bool(rounds)))

    gr.api(pairs, api_name="pairs")
    for endpoint in (run, race, sweep):
        # They take turns in the lines of the page; Gradio's queue does not tell where one stands.
        gr.api(endpoint, api_name=endpoint.__name__, concurrency_limit=None)


def _race(
    store: PairStore, lines: Lines, request: gr.Request, prompt: Any, lanes: list[Settings], pair: Any
) -> Told:
    """Tell what a race waits for and how far it is; returns its recording.

    Raises:
        SpecDemoError: it cannot run, or ended before its end.
    """
    text = asked_prompt(prompt)
    check_prompts([text])
    check_lanes(lanes)
    kept: list[Recording] = []
    stop, told = Stop(), monotonic()
    here = [settings.server is None for settings in lanes]
    with store.using(request_pair(pair)) if any(here) else nullcontext() as load:
        loads = [load if local else None for local in here]
        thread, line = place_of(loads, store, lines.of("race"), lines.of_servers())
        with line.place(visitor_of(request)) as place:
            for message in place.wait(stop, loads):
                yield _news("waiting", message)
            for value in race_updates(thread, loads, text, lanes, stop, kept.append):
                if value["phase"] == "running" and monotonic() - told >= TOLD_SECONDS:
                    told = monotonic()
                    yield _news("running", "Decoding…")
    # What a server sent before it broke off is kept, and its lane says so.
    if stop.is_set() or not kept or value["phase"] == "error":
        raise SpecDemoError(stop.reason or value["message"])
    return kept[0]


def _sweep(store: PairStore, lines: Lines, request: gr.Request, plan: Plan, pair: Any) -> Told:
    """The same for a sweep; returns its report.

    Raises:
        SpecDemoError: it cannot run, or ended before its end.
    """
    stop = Stop()
    with store.using(request_pair(pair)) if plan.settings.server is None else nullcontext() as load:
        thread, line = place_of([load], store, lines.of("sweep", AT_ONCE), lines.of_servers())
        with line.place(visitor_of(request)) as place:
            for message in place.wait(stop, [load]):
                yield _news("waiting", message)
            for state in measure_states(thread, load, plan.measurement, stop):
                if state.phase == "running":
                    yield _news("running", state.message)
    if state.phase != "done":
        raise SpecDemoError(stop.reason or state.message)
    return state.report


def _said(request: gr.Request, answer: Any) -> Any:
    """The answer; Gradio tells agents what Python would print, so they get it as JSON already."""
    return json.dumps(answer, ensure_ascii=False) if is_agent(request) else answer


def _news(state: str, message: str) -> dict[str, Any]:
    return {"state": state, "message": message}


@contextmanager
def _clear_errors() -> Iterator[None]:
    """What went wrong, as one sentence for whoever called; never a stack trace."""
    try:
        yield
    except SpecDemoError as error:
        raise gr.Error(str(error), print_exception=False) from None
    except Exception as error:
        _log.exception("a call failed")
        raise gr.Error(f"The call failed: {type(error).__name__}.", print_exception=False) from None
