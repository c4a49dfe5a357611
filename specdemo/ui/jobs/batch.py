"""One batch for one visitor, plain and then drafted, in the models' thread."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import count, cycle, islice
from threading import Event
from typing import Any

from specdemo.analysis.batch_metrics import BatchMetrics, measure_batch
from specdemo.analysis.diagnosis import explain_batch
from specdemo.errors import SpecDemoError
from specdemo.losslessness.compare import compare
from specdemo.models.failures import out_of_memory
from specdemo.models.pair import ModelPair
from specdemo.runs.batch import Batch, check_batch, row_settings
from specdemo.runs.encode import encode_all
from specdemo.runs.store import Load
from specdemo.settings import Settings
from specdemo.trace import Round, Trace
from specdemo.ui.jobs.gpu_time import decode_seconds
from specdemo.ui.jobs.race import MEMORY
from specdemo.ui.jobs.stops import reason_of
from specdemo.ui.jobs.worker import gathered, in_thread, named
from specdemo.ui.jobs.zero_gpu import on_gpu
from specdemo.view.figures import batch_figures
from specdemo.view.lane_headers import lane_headers
from specdemo.view.progress_text import await_load, counted
from specdemo.view.race_value import GRAVITY, bundled

STOPPED = "Stopped. What was decoded until then is shown."
SHOWN_PROMPT = 200
"""Characters of a prompt that the page gets; the rest is only decoded."""
_run_numbers = count(1)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """What a visitor wants decoded: so many rows, from the prompts in turn, and how they are drafted."""

    prompts: list[str]
    rows: int
    settings: Settings

    @property
    def used(self) -> list[str]:
        """The prompts that rows begin with."""
        return self.prompts[: self.rows]

    @property
    def told(self) -> str:
        """Which of the prompts these are, where it is not one a row."""
        given = counted(len(self.prompts), "prompt")
        if len(self.prompts) > self.rows:
            return f" (the first {self.rows} of {given})" if self.rows > 1 else f" (the first of {given})"
        return f" ({given} by turns)" if len(self.prompts) < self.rows else ""

    @property
    def contenders(self) -> tuple[Settings, Settings]:
        """Plain first, then drafted."""
        return replace(self.settings, strategy="autoregressive"), self.settings


@dataclass(slots=True)
class BatchView:
    """The value of the batch view; like a race's, with ``lane`` = contender · rows + row in its rounds."""

    prompts: list[str]
    contenders: list[dict[str, Any]]
    run: str = field(default_factory=lambda: f"b{next(_run_numbers)}")
    phase: str = "loading"
    message: str = "Waiting for a turn…"
    fraction: float = 0.0
    speedup: float | None = None
    verdict: dict[str, str] | None = None
    why: str | None = None
    figures: list[dict[str, Any]] = field(default_factory=list)
    rounds: list[str] = field(default_factory=list)

    def value(self) -> dict[str, Any]:
        """Plain data for the component, apart from later changes."""
        names = ("run", "phase", "prompts", "contenders", "speedup", "verdict", "why", "figures")
        return {**{name: getattr(self, name) for name in names}, "rounds": list(self.rounds)}


@on_gpu(lambda plan: sum(map(decode_seconds, plan.contenders)))
def batch_views(thread: Executor, load: Load, plan: BatchPlan, stop: Event) -> Iterator[BatchView]:
    """Decode in ``thread`` and yield the view about ten times a second, the last one final.

    Errors a person can cause, and any other, end as its message. Setting ``stop`` or closing the generator ends
    decoding within one round.
    """
    shown = [prompt[:SHOWN_PROMPT] for prompt in islice(cycle(plan.used), plan.rows)]
    view = BatchView(shown, lane_headers(plan.contenders))
    try:
        for view.message in await_load(load, stop):
            yield view
        view.phase = "running"
        yield from _decode(thread, load.future.result(), plan, stop, view)
    except SpecDemoError as error:
        view.phase, view.message = "error", str(error)
    except Exception as error:
        if not out_of_memory(error):
            _log.exception("a batch failed")
        failed = f"The batch failed: {named(error)}. Run it again."
        view.phase, view.message = "error", MEMORY if out_of_memory(error) else failed
    yield view


def _decode(
    thread: Executor, pair: ModelPair, plan: BatchPlan, stop: Event, view: BatchView
) -> Iterator[BatchView]:
    """Both contenders one after the other; leaves the view with its conclusion."""
    ids = list(islice(cycle(encode_all(pair, plan.used, plan.settings.chat)), plan.rows))
    # What the second of the two cannot do is said before the first runs; the models may be tried for it.
    in_thread(thread, check_batch, pair, row_settings(plan.settings, len(ids)))
    batches: list[list[Trace]] = []
    for number, settings in enumerate(plan.contenders):
        view.message = f"{view.contenders[number]['title']}: {counted(plan.rows, 'row')}{plan.told}…"
        rows = row_settings(settings, len(ids))
        rounds: list[list[Round]] = [[] for _ in ids]
        decoding = Batch(pair, ids, rows)
        with closing(gathered(thread, lambda decoding=decoding: decoding, stop)) as updates:
            for news in updates:
                for row, round_ in news:
                    rounds[row].append(round_)
                view.fraction = (number + _share(rounds, settings.max_new_tokens)) / len(plan.contenders)
                view.rounds.append(bundled((number * len(ids) + row, round_) for row, round_ in news))
                yield view
        batches.append(decoding.traces())
        if not all(t.complete for t in batches[-1]):
            break
    _conclude(view, batches, plan, reason_of(stop, STOPPED))


def _share(rounds: list[list[Round]], length: int) -> float:
    """How far a batch is: of all tokens it may emit, those it did, and all of a row that ended."""
    done = [length if row and row[-1].stop else sum(len(round_.emitted) for round_ in row) for row in rounds]
    return sum(done) / (length * len(rounds))


def _conclude(view: BatchView, batches: list[list[Trace]], plan: BatchPlan, stopped: str) -> None:
    begun = [batch for batch in batches if all(t.rounds for t in batch)]
    figures = [measure_batch(batch) for batch in begun]
    view.figures = batch_figures(figures)
    if len(batches) < 2 or not all(t.complete for batch in batches for t in batch):
        view.phase, view.message = "stopped", stopped
        return
    view.phase, view.message = "done", _counted(figures, plan)
    plain, drafted = figures
    if plain.tokens_per_second and drafted.tokens_per_second:
        view.speedup = drafted.tokens_per_second / plain.tokens_per_second
    view.verdict = _verdict(*batches)
    view.why = explain_batch(plain, drafted)


def _counted(figures: list[BatchMetrics], plan: BatchPlan) -> str:
    tokens = [counted(f.emitted + f.rows, "token") for f in figures]
    return f"Done: {counted(plan.rows, 'row')}{plan.told}, {tokens[0]} plain and {tokens[1]} drafted."


def _verdict(plain: list[Trace], drafted: list[Trace]) -> dict[str, str]:
    """The gravest judgement of all rows; where they differ, with the number of the first row it holds for."""
    judged = [compare(*pair) for pair in zip(plain, drafted, strict=True)]
    worst = max(judged, key=lambda j: GRAVITY.index(j.outcome))
    if len({j.outcome for j in judged}) == 1:
        rows = f"all {len(judged)} rows: " if len(judged) > 1 and worst.outcome != "sampled" else ""
        tokens = sum(j.position for j in judged)
        text = (
            f"identical output, checked at all {tokens:,} tokens" if worst.outcome == "identical" else worst.text
        )
        return {"kind": worst.outcome, "text": rows + text}
    return {"kind": worst.outcome, "text": f"row {judged.index(worst) + 1}: {worst.text}"}
