"""The public API: what programs and agents may call. Everything else on the page is private.

Gradio reads the types of these functions, so there are no postponed annotations here, and of what is said of each
parameter the first line.
"""

import json
import logging
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias

import gradio as gr

from specdemo.errors import SpecDemoError
from specdemo.ui.api import requests
from specdemo.ui.jobs.job import WAITING, Job, JobState
from specdemo.ui.jobs.queue import JobRunner, is_agent, visitor_of
from specdemo.ui.jobs.worker import Stop, watched

STATUS_SECONDS = 1.0
GAMMAS = [2, 3, 4, 5, 6, 7, 8]
LANES = [{"strategy": "autoregressive"}, {"strategy": "speculative"}]
_log = logging.getLogger(__name__)


def add_endpoints(runner: JobRunner) -> None:
    if TYPE_CHECKING:
        LaneSettings: TypeAlias = dict[str, Any]
    else:
        LaneSettings = requests.settings_type()

    def answer(request: gr.Request, parse: Callable[[], Job], respond: Callable[..., Any], rounds: Any) -> Any:
        """Run what ``parse`` gives; what goes wrong is one sentence for whoever called, never a stack trace."""
        try:
            result = yield from _follow(runner, parse(), request)
            yield _encoded(request, respond(getattr(result, "recording", result), rounds=bool(rounds)))
        except SpecDemoError as error:
            raise gr.Error(str(error), print_exception=False) from None
        except Exception as error:
            _log.exception("a call failed")
            raise gr.Error(f"The call failed: {type(error).__name__}.", print_exception=False) from None

    def pairs(request: gr.Request) -> list[dict]:
        """List what can be chosen: pairs of models with licence and memory, servers with their strategies."""
        return _encoded(request, requests.pairs_response())

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
        job = partial(requests.parse_run, prompt, settings, pair)
        yield from answer(request, job, requests.run_response, rounds)

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
        job = partial(requests.parse_race, prompt, lanes, pair)
        yield from answer(request, job, requests.race_response, rounds)

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
        job = partial(requests.parse_sweep, prompts, gammas, repeats, settings, pair)
        yield from answer(request, job, requests.report_response, rounds)

    def advise(
        prompts: list[str],
        request: gr.Request,
        budget_seconds: float = 60.0,
        methods: list[str] = [],  # noqa: B006
        kinds: list[str] = [],  # noqa: B006
        settings: LaneSettings = {},  # noqa: B006
        pair: str = "builtin",
        rounds: bool = False,
    ) -> Iterator[dict]:
        """Measure every way of drafting that a pair allows, each with many gammas, and recommend one setting.

        Args:
            prompts: the texts that the models continue.
            budget_seconds: for all runs together.
            methods: drafters to try; all unless given.
            kinds: the kind of each prompt, for advice by kind.
            settings: of all runs, as for "run"; max_new_tokens is 64 unless given.
            pair: an id that the endpoint "pairs" lists; on a server its own gamma and rule hold.
            rounds: also return every round that the figures are made of.
        """
        job = partial(requests.parse_advice, prompts, budget_seconds, methods, kinds, settings, pair)
        yield from answer(request, job, requests.report_response, rounds)

    gr.api(pairs, api_name="pairs")
    for endpoint in (run, race, sweep, advise):
        # Their jobs wait in the queues of the page; Gradio's does not tell where one stands.
        gr.api(endpoint, api_name=endpoint.__name__, concurrency_limit=None)


def _follow(runner: JobRunner, job: Job, request: gr.Request) -> Generator[dict[str, Any], None, Any]:
    """Tell how far a job is; returns its result, also what a server sent before it broke off."""
    stop, updated, state = Stop(), monotonic(), JobState("loading", WAITING)
    say = told = {"state": "waiting", "message": WAITING}
    with closing(watched(lambda: runner.run(job, visitor_of(request), stop))) as updates:
        try:
            for news in updates:
                state = news[-1] if news else state
                if state.phase == "loading":
                    say = {"state": "waiting", "message": state.message}
                elif state.phase == "running":
                    say = {"state": "running", "message": state.message or "Decoding…"}
                # Gradio sees that a client left when it is given something to send.
                if say != told or monotonic() - updated >= STATUS_SECONDS:
                    told, updated = say, monotonic()
                    yield say
        except GeneratorExit:
            stop.set()
            raise
    recorded = getattr(state.result, "recording", None) is not None
    if state.phase != "done" and not (state.phase == "stopped" and recorded and not stop.is_set()):
        raise SpecDemoError(stop.reason or state.message)
    return state.result


def _encoded(request: gr.Request, response: Any) -> Any:
    """The response; Gradio gives agents what Python would print, so they get it as JSON already."""
    return json.dumps(response, ensure_ascii=False) if is_agent(request) else response
