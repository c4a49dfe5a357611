"""A load test: several users at a time send requests to a server, without speculation and with it, in turns."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass, replace
from itertools import cycle, islice
from threading import Event
from typing import Any

from specdemo.analysis.batch_sizes import LoadReport
from specdemo.analysis.contenders import SERVER, Contender
from specdemo.analysis.load_metrics import Answer, measure_load
from specdemo.analysis.rows import Run
from specdemo.errors import SettingsError
from specdemo.models.pair import ModelPair
from specdemo.runs.batch import row_settings
from specdemo.runs.batch_sizes import LARGEST, SIZES, WARM_UP_TOKENS, Batches
from specdemo.runs.beside import in_engine
from specdemo.runs.measuring import Progress, complete, drafting, measured_on, opened, to_its_end
from specdemo.runs.single import Prompt
from specdemo.servers.gguf import GgufPair
from specdemo.servers.pair import ServedPair, on_server
from specdemo.settings import SEEDS, Settings, at_least_one, whole_numbers
from specdemo.trace import Trace

REQUESTS_A_USER, MOST_REQUESTS = 2, 4096
"""At the largest number of users, unless said otherwise: the second is sent while others decode."""
BUDGET_SECONDS = 600.0
TEMPLATE_TOKENS = 512  # at most, which a chat template adds to a prompt
LOOK_SECONDS = 0.05


def stream_load_test(
    pair: ModelPair | ServedPair | None,
    prompts: Prompt | Sequence[Prompt],
    settings: Settings | None = None,
    users: Sequence[int] = SIZES,
    repeats: int = 3,
    requests: int | None = None,
    budget_seconds: float = BUDGET_SECONDS,
    stop: Event | None = None,
) -> Iterator[Progress[LoadReport]]:
    """Measure a server's speculation against its baseline with several users; each step holds the report so far.

    Each user sends a request, waits for the whole answer, and sends the next. ``load_test`` gives the last report.
    Greedy answers are compared with those that one user got from the baseline before anything is timed.

    Args:
        pair: the deployments, or None if the settings name a configured server; GGUF files get servers with a slot
            for each user.
        prompts, settings, repeats: as of :func:`specdemo.sweep`; the prompts are sent in turn.
        users: at the same time, up to 256.
        requests: that every number of users sends in all; two for each of the largest number unless given.
        budget_seconds: the longest time. What is not finished then, or when ``stop`` is set, is left out.

    Raises:
        PromptError, SettingsError, ServerError: at once, as :func:`specdemo.sweep`; or a server fails on the way.
    """
    settings = drafting(settings, "{} drafts nothing to compare")
    wanted = whole_numbers("users", users, LARGEST, "(1, 2, 4, 8, 16)")
    (sent,) = whole_numbers(
        "requests", REQUESTS_A_USER * wanted[-1] if requests is None else requests, MOST_REQUESTS, "32"
    )
    if sent < wanted[-1]:
        raise SettingsError("requests", f"{sent} are fewer than the {wanted[-1]} users, so some would send none.")
    if not budget_seconds > 0:
        raise SettingsError("budget_seconds", f"must be above 0, not {budget_seconds!r:.40}.")
    pair = in_engine(pair, settings)
    if not isinstance(pair, ServedPair) and not on_server(pair, settings):
        reason = "a load test sends requests; give a ServerPair, GGUF files or the name of a configured server. "
        raise SettingsError("server", f"{reason}Models in this process are measured by batch_sizes.")
    pair, given = opened(pair, prompts, settings)
    assert isinstance(pair, ServedPair), "that is what was opened"
    drafter = Contender(SERVER)
    if isinstance(pair, GgufPair):
        longest = max(len(p.encode() if isinstance(p, str) else p) for p in given)
        pair = pair.with_slots(wanted[-1], longest + settings.max_new_tokens + TEMPLATE_TOKENS)
        drafter = Contender(settings.drafter, settings.gamma)
    contenders = tuple(replace(c, size=size) for size in wanted for c in (drafter.plain, drafter))
    counts: dict[str, Any] = {"prompts": len(given), "repeats": at_least_one("repeats", repeats), "requests": sent}
    report = LoadReport(base=settings, contenders=contenders, **counts, **measured_on(pair))
    clock = pair.clock if isinstance(pair, GgufPair) else time.perf_counter
    load = _Load(pair, given, report, stop or Event(), clock, until=clock() + budget_seconds)
    return load.steps(WARM_UP_TOKENS, contenders[-2:])


load_test = to_its_end("load_test", stream_load_test)


@dataclass
class _Load(Batches[LoadReport]):
    """A run is all requests of so many users. ``alone`` has the answers that one user got."""

    until: float = 0.0  # by the clock
    alone: tuple[Trace, ...] = ()

    def steps(self, tokens: int, warmed: Sequence[Contender]) -> Iterator[Progress[LoadReport]]:
        """As of every driver, after the answers that others are compared with. Servers of its own end with it."""
        with self.pair if isinstance(self.pair, GgufPair) else nullcontext():
            if self.report.base.greedy:
                plain = warmed[0].plain.settings(self.report.base)
                found = self._answers(min(len(self.prompts), self.report.each), 1, plain)
                self.alone = tuple(trace for _, trace in found or ())
            yield from super().steps(tokens, warmed)
        if not self.report.runs and not self.stop.is_set():
            raise SettingsError(
                "budget_seconds", "they were over before the first run; give more, or fewer requests."
            )

    def decoded(self, contender: Contender, prompt: int, repeat: int, shared: Settings) -> Run | None:
        """As of every driver."""
        began = self.clock()
        settings = contender.settings(replace(shared, seed=(shared.seed + repeat) % SEEDS))
        answers = self._answers(self.report.each, contender.size, settings)
        if answers is None:
            return None
        # What warms up is shorter, and counts for nothing.
        alone = [*islice(cycle(self.alone), len(answers))] if self.alone and shared == self.report.base else ()
        figures = measure_load(answers, contender.size, alone)
        return Run(contender, prompt, repeat, (), figures, self.clock() - began)

    def over(self, contender: Contender) -> bool:
        return self.clock() > self.until

    def _answers(self, count: int, users: int, settings: Settings) -> list[Answer] | None:
        """So many requests of these users; None if they were stopped, or the time was over."""
        from specdemo.servers.lane import ServerLane  # with the libraries that only servers need

        lanes, end = list[ServerLane](), Event()
        with ExitStack() as stack:
            # All are prepared before the first is sent, so that nothing but requests reaches the server.
            for text, each in zip(cycle(self.prompts), row_settings(settings, count), strict=False):
                if self.stop.is_set():
                    return None
                lane = ServerLane(self.pair, text, each, self.stop, *lanes[:1])
                lanes.append(stack.enter_context(closing(lane)))
            with ThreadPoolExecutor(users, "user") as pool:
                try:
                    work = [pool.submit(complete, lane, end) for lane in lanes]
                    while (left := wait(work, LOOK_SECONDS, FIRST_EXCEPTION)).not_done:
                        failed = any(each.exception() for each in left.done)
                        if failed or self.stop.is_set() or self.clock() > self.until:
                            break
                finally:
                    end.set()
            traces = [each.result() for each in work]
        now = time.perf_counter()
        found = [(now - lane.elapsed, t) for lane, t in zip(lanes, traces, strict=True) if t is not None]
        return found if len(found) == count else None
