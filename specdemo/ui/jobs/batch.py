"""A batch as a job: its rows are decoded together, plain and then drafted."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle, islice
from threading import Event

from specdemo.analysis.batch_metrics import measure_batch
from specdemo.analysis.diagnosis import explain_batch
from specdemo.analysis.disturbance import disturbance
from specdemo.analysis.wording import counted
from specdemo.losslessness.compare import compare
from specdemo.models.pair import ModelPair
from specdemo.rounds import Round
from specdemo.runs.batch import Batch, check_batch, row_settings
from specdemo.runs.encode import encode_all, models_here
from specdemo.settings import Settings
from specdemo.trace import Trace
from specdemo.ui.jobs.job import Job, JobState, LaneRequest, Work
from specdemo.ui.jobs.worker import gathered, in_thread, reason_of
from specdemo.view.headline import GRAVITY
from specdemo.view.lane_headers import lane_headers
from specdemo.view.race_value import RaceView
from specdemo.view.tables import BATCH_FIGURES, rows_of

STOPPED = "Stopped. What was decoded until then is shown."
SHOWN_PROMPT = 200
"""Characters of a prompt that the page gets; the rest is only decoded."""


@dataclass(frozen=True, slots=True)
class BatchJob(Job):
    """Rows that begin with the prompts in turn."""

    prompts: list[str]  # may be more or fewer than rows
    lane: LaneRequest  # how the drafted rows are decoded
    rows: int  # how many

    kind = "batch"
    noun = "batch"

    @property
    def work(self) -> Sequence[Work]:
        return [Work(settings, rows=self.rows) for settings in self.contenders]

    @property
    def contenders(self) -> tuple[Settings, Settings]:
        return replace(self.lane.settings, strategy="autoregressive"), self.lane.settings

    @property
    def titles(self) -> list[str]:
        return [header["title"] for header in lane_headers(self.contenders)]

    @property
    def texts(self) -> list[str]:
        """The prompt of each row."""
        return [*islice(cycle(self.prompts), self.rows)]

    def states(self, pairs: Sequence[ModelPair | None], thread: Executor, stop: Event) -> Generator[JobState]:
        """As :meth:`Job.states`; results are values of the race view."""
        pair, view = models_here(pairs[0]), self._view()
        ids = encode_all(pair, self.texts, self.lane.settings.chat)
        # What the second of the two cannot do is said before the first runs; the models may be tried for it.
        in_thread(thread, check_batch, pair, row_settings(self.lane.settings, len(ids)))
        batches: list[list[Trace]] = []
        for number, settings in enumerate(self.contenders):
            message = f"{self.titles[number]}: {counted(self.rows, 'row')}…"
            rounds: list[list[Round]] = [[] for _ in ids]
            decoding = Batch(pair, ids, row_settings(settings, len(ids)))
            with closing(gathered(thread, partial(iter, decoding), stop)) as updates:
                for news in updates:
                    for row, round_ in news:
                        rounds[row].append(round_)
                    view.add((row * len(self.contenders) + number, round_) for row, round_ in news)
                    done = (number + _share(rounds, settings.max_new_tokens)) / len(self.contenders)
                    yield JobState("running", message, done, view.value())
            batches.append(decoding.traces())
            if not all(t.complete for t in batches[-1]):
                break
        phase, message = self._conclude(view, batches, stop)
        yield JobState(phase, message, result=view.value())

    def _view(self) -> RaceView:
        """With a lane for each row of both contenders; the first of the two says the row's prompt."""
        headers = lane_headers(self.contenders)
        lanes = []
        for number, prompt in enumerate(self.texts, start=1):
            details = (prompt[:SHOWN_PROMPT], headers[1]["detail"])
            for header, detail in zip(headers, details, strict=True):
                lanes.append(header | {"title": f"Row {number}: {header['title']}", "detail": detail})
        return RaceView(lanes, columns=self.titles)

    def _conclude(self, view: RaceView, batches: list[list[Trace]], stop: Event) -> tuple[str, str]:
        """Add figures, and of two batches that came to their end what they say; returns phase and message."""
        figures = [measure_batch(batch) for batch in batches if all(t.rounds for t in batch)]
        view.figures = rows_of(BATCH_FIGURES, figures)
        known = zip(self.titles, figures, strict=False)
        rates = [f"{title} {f.tokens_per_second:.0f} tok/s" for title, f in known if f.tokens_per_second]
        together = f"All {self.rows} rows together" if self.rows > 1 else "The row"
        view.headline = {"text": f"{together}: {', '.join(rates)}" if rates else ""}
        if len(batches) < 2 or not all(t.complete for batch in batches for t in batch):
            return "stopped", reason_of(stop, STOPPED)
        plain, drafted = figures
        if plain.tokens_per_second and drafted.tokens_per_second and disturbance(plain.pace, drafted.pace) is None:
            ratio = drafted.tokens_per_second / plain.tokens_per_second
            view.headline |= {"figure": f"{ratio:.2f}×", "trend": "slower" if ratio < 1 else "faster"}
        view.verdict, view.why = _verdict(*batches), explain_batch(plain, drafted)
        tokens = [counted((f.emitted or 0) + f.rows, "token") for f in figures]
        return "done", f"Done: {counted(self.rows, 'row')}, {tokens[0]} plain and {tokens[1]} drafted."


def _share(rounds: list[list[Round]], length: int) -> float:
    """How far a batch is: of all tokens it may emit, those it did, and all of a row that ended."""
    done = [length if row and row[-1].stop else sum(len(round_.emitted) for round_ in row) for row in rounds]
    return sum(done) / (length * len(rounds))


def _verdict(plain: list[Trace], drafted: list[Trace]) -> dict[str, str]:
    """The gravest judgement of all rows; where they differ, with the number of the first row it holds for."""
    judged = [compare(*pair) for pair in zip(plain, drafted, strict=True)]
    worst = max(judged, key=lambda j: GRAVITY.index(j.outcome))
    if len({j.outcome for j in judged}) == 1:
        rows = f"all {len(judged)} rows: " if len(judged) > 1 and worst.outcome != "sampled" else ""
        tokens = sum(j.position for j in judged)
        text = (
            f"identical to plain, checked at all {tokens:,} tokens" if worst.outcome == "identical" else worst.text
        )
        return {"kind": worst.outcome, "text": rows + text}
    return {"kind": worst.outcome, "text": f"row {judged.index(worst) + 1}: {worst.text}"}
