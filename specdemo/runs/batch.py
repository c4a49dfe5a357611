"""Several prompts decoded together: ``stream_batch`` gives their rounds as they come, ``run_batch`` the traces."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from specdemo.decoding.batch.loop import batched
from specdemo.decoding.batch.runner import RaggedRunner
from specdemo.decoding.drafters.registry import check_drafter, open_batch_drafter
from specdemo.decoding.lane import lane_clock, new_lane
from specdemo.decoding.trials import check_batches
from specdemo.drafters import DRAFTERS, DrafterInfo, offered_with
from specdemo.errors import MemoryShortage, PairError, SettingsError
from specdemo.models.failures import out_of_memory
from specdemo.models.packing import engine_name
from specdemo.models.pair import ModelPair
from specdemo.rounds import Round
from specdemo.runs.encode import encode_all
from specdemo.runs.load import warm_up
from specdemo.runs.single import LaneRecord, Prompt, checked
from specdemo.runs.threads import decoding_threads
from specdemo.servers.pair import check_here
from specdemo.settings import SEEDS, Settings
from specdemo.trace import Trace

NO_GRAPHS = "batches have no graphs"


def run_batch(
    pair: ModelPair, prompts: Sequence[Prompt], settings: Settings | Sequence[Settings] | None = None
) -> list[Trace]:
    """Decode several prompts together, each row to its own end; one trace a prompt, in their order.

    A row's tokens are those of its own run: ``run(pair, prompt, trace.settings)`` gives them again (in float32).
    All rows of a batch share one clock.

    Args:
        pair: the models.
        prompts: texts, or lists of token ids; they may be of any lengths.
        settings: of all rows, of which row i draws with ``seed + i``; or one for each row, taken as they are,
            which may differ in everything but strategy, drafter and chat.

    Raises:
        PromptError: there is no prompt, or one cannot be decoded; says which.
        SettingsError: the settings ask for what a batch or this pair does not have.
        PairError: a model that cannot decode rows of unequal lengths together.
        MemoryShortage: memory ran out on the way.
    """
    with closing(stream_batch(pair, prompts, settings)) as batch:
        for _ in batch:
            pass
        return batch.traces()


def stream_batch(
    pair: ModelPair, prompts: Sequence[Prompt], settings: Settings | Sequence[Settings] | None = None
) -> Batch:
    """The same batch as it goes: (row, round), the rows' rounds of one time one after the other.

    Closing the iterator frees its caches. What ``run_batch`` raises before it decodes is raised here at once.
    """
    given: list[Any] = [settings]
    several = isinstance(settings, Iterable) and not isinstance(settings, str)
    if several:
        given = [*settings]  # type: ignore[misc]  # what else is given, is refused next
        if not given or None in given:
            raise SettingsError("settings", "one is missing; give one Settings for all rows, or one a row.")
    lanes = [checked(each) for each in given]
    ids = encode_all(pair, prompts, lanes[0].chat, lanes)
    rows = lanes if several else row_settings(lanes[0], len(ids))
    if len(rows) != len(ids):
        raise SettingsError(
            "settings", f"as many as prompts are needed, {len(ids)} and not {len(rows)}; or give one for all rows."
        )
    check_batch(pair, rows)
    return Batch(pair, ids, rows)


class Batch(Iterator[tuple[int, Round]]):
    """A batch under way: an iterator of (row, round), and at any time the rows' traces.

    ``rows`` are the settings of each, which :func:`check_batch` let pass.
    """

    def __init__(self, pair: ModelPair, ids: Sequence[Sequence[int]], rows: Sequence[Settings]) -> None:
        self._pair = pair
        self._records = [LaneRecord(pair, i, s, residuals=False) for i, s in zip(ids, rows, strict=True)]
        self._rounds = self._decode(rows)

    def __next__(self) -> tuple[int, Round]:
        with decoding_threads(self._pair):
            return next(self._rounds)

    def close(self) -> None:
        self._rounds.close()

    def traces(self) -> list[Trace]:
        """What each row did so far."""
        engine = engine_name("eager", self._pair.target)
        engines = {"graphs": f"{engine}: {NO_GRAPHS}"}
        return [record.trace(engines.get(record.settings.engine, engine)) for record in self._records]

    def _decode(self, rows: Sequence[Settings]) -> Generator[tuple[int, Round]]:
        pair = self._pair
        try:
            warm_up(pair)
            clock = lane_clock(pair)
            lanes = [new_lane(pair, record.ids, s, clock) for record, s in zip(self._records, rows, strict=True)]
            target = RaggedRunner(pair.target, len(lanes))
            drafter = None if rows[0].strategy == "autoregressive" else open_batch_drafter(pair, lanes)
            for together in batched(lanes, target, clock, drafter):
                for row, raw in together:
                    yield row, self._records[row].add(raw)
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            raise MemoryShortage(
                f"memory: it ran out with {len(self._records)} rows; decode fewer prompts at a time, or shorter "
                "ones, or choose a smaller pair, a 16-bit dtype or a quantisation."
            ) from error


def row_settings(settings: Settings, count: int) -> list[Settings]:
    """The settings of each of ``count`` rows: the same, but for the seed."""
    return [replace(settings, seed=(settings.seed + row) % SEEDS) for row in range(count)]


def can_batch(pair: ModelPair, settings: Settings) -> bool:
    """Whether :func:`check_batch` would let these settings pass. Runs the models the first time it is asked."""
    try:
        check_batch(pair, [settings])
    except (SettingsError, PairError):
        return False
    return True


def check_batch(pair: ModelPair, rows: Sequence[Settings]) -> None:
    """Refuse what a batch or this pair cannot do: SettingsError, or PairError of models that cannot."""
    check_here(rows, "a batch")
    first = rows[0]
    for field in ("strategy", "drafter", "chat"):
        if len({getattr(row, field) for row in rows}) > 1:
            raise SettingsError(field, "must be the same in all rows of a batch.")
    if first.strategy == "assisted":
        raise SettingsError(
            "strategy", "'assisted' decodes one prompt at a time; choose 'speculative' or 'autoregressive'."
        )
    if any(row.drafts_trees for row in rows):
        raise SettingsError("tree_nodes", "a batch drafts chains; set tree nodes to 0, or run prompts one by one.")
    drafts = first.needs == "draft"
    if first.strategy == "speculative":
        name, others = repr(first.drafter), _batching(offered_with(()))
        if not DRAFTERS[first.drafter].batches:
            raise SettingsError("drafter", f"{name} has no batch; choose {_batching(DRAFTERS.values())}.")
        lacks = "needs a draft model, and this pair has none" if pair.draft is None else ""
        if pair.draft_tokenizer is not None:
            lacks = "passes text between two tokenizers here, which has no batch"
        if drafts and lacks:
            raise SettingsError("drafter", f"{name} {lacks}; choose {others}.")
        for row in rows:
            check_drafter(pair, row)
    check_batches(pair, drafting=drafts)


def _batching(drafters: Iterable[DrafterInfo]) -> str:
    return " or ".join(repr(info.name) for info in drafters if info.batches)
