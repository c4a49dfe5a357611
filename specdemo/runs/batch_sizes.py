"""Drafted batches against plain ones, size by size: does drafting still pay?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import cycle, islice
from threading import Event

from specdemo.analysis.batch_metrics import measure_batch
from specdemo.analysis.batch_sizes import SizeReport
from specdemo.analysis.contenders import Contender
from specdemo.analysis.rows import Run
from specdemo.models.pair import ModelPair
from specdemo.runs.batch import check_batch, row_settings, stream_batch
from specdemo.runs.encode import encode_all, models_here
from specdemo.runs.measuring import Block, Driver, Found, Progress, drafting, measured_on, to_its_end
from specdemo.runs.single import Prompt
from specdemo.settings import SEEDS, Settings, at_least_one, whole_numbers

SIZES = (1, 2, 4, 8, 16)
LARGEST = 256
WARM_UP_TOKENS = 16


def stream_batch_sizes(
    pair: ModelPair,
    prompts: Prompt | Sequence[Prompt],
    settings: Settings | None = None,
    sizes: Sequence[int] = SIZES,
    repeats: int = 1,
    stop: Event | None = None,
) -> Iterator[Progress[SizeReport]]:
    """Measure drafted batches of every size against plain ones; each step holds the report so far.

    ``batch_sizes`` gives the last one. Memory that runs out ends the larger sizes, and the report says at which.

    Args:
        pair: the models.
        prompts: one or several; every size decodes the same ones, as many as the largest has rows, taken again
            from the first where they are fewer, in sampled runs with other seeds.
        settings: of the drafted batches.
        sizes: rows decoded together.
        repeats: times each batch is made.
        stop: ends it within one round; a batch that was not finished is not counted.

    Raises:
        PromptError, SettingsError, PairError: at once, as :func:`specdemo.run_batch`.
    """
    settings = drafting(settings, "{} drafts no batch to compare")
    ids = encode_all(pair, prompts, settings.chat, [settings])
    check_batch(pair, [settings])
    wanted = whole_numbers("sizes", sizes, LARGEST, "(1, 2, 4, 8, 16)")
    drafter = Contender(settings.drafter, None if settings.adaptive_gamma else settings.gamma)
    contenders = [replace(c, size=size) for size in wanted for c in (drafter.plain, drafter)]
    times = at_least_one("repeats", repeats)
    report = SizeReport(
        base=settings, contenders=tuple(contenders), prompts=len(ids), repeats=times, **measured_on(pair)
    )
    return Batches(pair, ids, report, stop or Event()).steps(
        WARM_UP_TOKENS, [c for c in contenders if c.size == 1]
    )


batch_sizes = to_its_end("batch_sizes", stream_batch_sizes)


class Batches(Driver[Found]):
    """A run is a batch, and a prompt as many of them as it has rows."""

    def blocks(self) -> Iterator[Block]:
        """Repeat by repeat, the sizes ascending, plain and drafted first in turns."""
        for repeat in range(self.report.repeats):
            for size in self.report.sizes:
                both = [c for c in self.report.contenders if c.size == size]
                for part in range(self.report.parts(size)):
                    if self.report.fits(both[0]):
                        yield part, repeat, both if (repeat + part) % 2 else both[::-1]

    def decoded(self, contender: Contender, prompt: int, repeat: int, shared: Settings) -> Run | None:
        """As of every driver."""
        began, size = self.clock(), contender.size
        pool, first = list(islice(cycle(self.prompts), self.report.each)), prompt * size
        ids = list(islice(cycle(pool), first, first + size))
        # A prompt has the same seed in batches of any size, so that sizes do not differ by luck.
        settings = contender.settings(replace(shared, seed=(shared.seed + first) % SEEDS))
        with closing(stream_batch(models_here(self.pair), ids, row_settings(settings, size))) as steps:
            for _ in steps:
                if self.stop.is_set():
                    return None
            figures = measure_batch(steps.traces())
        return Run(contender, prompt, repeat, (), figures, self.clock() - began)
