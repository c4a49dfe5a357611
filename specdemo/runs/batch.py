"""Several prompts decoded together: ``stream_batch`` gives their rounds as they come, ``run_batch`` the traces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from specdemo.decoding.batch.drafters import ApartDrafter, BatchDrafter, BatchModelDrafter
from specdemo.decoding.batch.loop import Rounds, batched_autoregressive, batched_speculative
from specdemo.decoding.batch.runner import RaggedRunner
from specdemo.decoding.drafters.prompt_lookup import LookupDrafter
from specdemo.decoding.drafters.registry import check_drafter
from specdemo.decoding.engines.open import batch_engine
from specdemo.decoding.lane import Lane
from specdemo.errors import MemoryShortage, PairError, SettingsError
from specdemo.models.failures import out_of_memory
from specdemo.models.pair import ModelPair
from specdemo.runs.encode import encode_all
from specdemo.runs.single import Prompt, checked, lane_clock, open_lane, trace_of
from specdemo.servers.pair import check_here
from specdemo.settings import SEEDS, Settings
from specdemo.trace import Round, Trace


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
    rows, ids = _prepared(pair, prompts, settings)
    rounds: list[list[Round]] = [[] for _ in ids]
    for number, round_ in _stream(pair, ids, rows):
        rounds[number].append(round_)
    return [trace_of(pair, i, s, tuple(r), batch_engine(s)) for i, s, r in zip(ids, rows, rounds, strict=True)]


def stream_batch(
    pair: ModelPair, prompts: Sequence[Prompt], settings: Settings | Sequence[Settings] | None = None
) -> Iterator[tuple[int, Round]]:
    """The same batch as it goes: (row, round), the rows' rounds of one time one after the other.

    Closing the generator frees its caches. What ``run_batch`` raises before it decodes is raised here at once.
    """
    rows, ids = _prepared(pair, prompts, settings)
    return _stream(pair, ids, rows)


def row_settings(settings: Settings | None, count: int) -> list[Settings]:
    """The settings of each of ``count`` rows: the same, but for the seed."""
    settings = checked(settings)
    return [replace(settings, seed=(settings.seed + row) % SEEDS) for row in range(count)]


def _prepared(
    pair: ModelPair, prompts: Sequence[Prompt], settings: Settings | Sequence[Settings] | None
) -> tuple[list[Settings], list[list[int]]]:
    """Everything that can be wrong is said here, before anything runs."""
    rows = None
    if isinstance(settings, Iterable) and not isinstance(settings, str):
        rows = list(settings)
        if not rows or None in rows:
            raise SettingsError("settings", "one is missing; give one Settings for all rows, or one a row.")
        rows = [checked(s) for s in rows]
    ids = encode_all(pair, prompts, (rows[0] if rows else checked(settings)).chat)
    rows = rows or row_settings(settings, len(ids))
    if len(rows) != len(ids):
        raise SettingsError(
            "settings",
            f"as many as prompts are needed, {len(ids)} and not {len(rows)}; or give one for all rows.",
        )
    check_batch(pair, rows)
    return rows, ids


def can_batch(pair: ModelPair, settings: Settings) -> bool:
    """Whether :func:`check_batch` would let these settings pass. Runs the models the first time it is asked."""
    try:
        check_batch(pair, [settings])
    except (SettingsError, PairError):
        return False
    return True


def check_batch(pair: ModelPair, rows: Sequence[Settings]) -> None:
    """Refuse what a batch or this pair cannot do.

    Raises:
        SettingsError: names the field, and what would work.
        PairError: a model that cannot decode rows of unequal lengths together.
    """
    check_here(rows, "a batch")
    first = rows[0]
    for field in ("strategy", "drafter", "chat"):
        if len({getattr(row, field) for row in rows}) > 1:
            raise SettingsError(field, "must be the same in all rows of a batch.")
    if first.strategy == "assisted":
        raise SettingsError(
            "strategy", "'assisted' decodes one prompt at a time; choose 'speculative' or 'autoregressive'."
        )
    if first.strategy == "speculative":
        if first.drafter == "early_exit":
            raise SettingsError("drafter", "'early_exit' has no batch; choose 'model' or 'prompt_lookup'.")
        if first.drafter == "model" and pair.draft_tokenizer is not None:
            raise SettingsError(
                "drafter",
                "'model' passes text between two tokenizers here, which has no batch; choose 'prompt_lookup', or "
                "a draft with the target's tokenizer.",
            )
        if first.drafter == "model" and pair.draft is None:
            raise SettingsError(
                "drafter", "'model' needs a draft model, and this pair has none; choose 'prompt_lookup'."
            )
        for row in rows:
            check_drafter(pair, row)
    pair.check_batches(drafting=first.strategy == "speculative" and first.drafter == "model")


def _stream(pair: ModelPair, ids: list[list[int]], rows: list[Settings]) -> Iterator[tuple[int, Round]]:
    pair.warm_up()
    clock = lane_clock(pair)
    lanes = [open_lane(pair, i, s, clock) for i, s in zip(ids, rows, strict=True)]
    target = RaggedRunner(pair.target, len(lanes))
    steps: Iterator[Rounds]
    if rows[0].strategy == "autoregressive":
        steps = batched_autoregressive(lanes, target, clock)
    else:
        steps = batched_speculative(lanes, target, _drafter(pair, lanes), clock)
    try:
        for rounds in steps:
            yield from rounds
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        raise MemoryShortage(
            f"memory: it ran out with {len(rows)} rows; decode fewer prompts at a time, or shorter ones, or "
            "choose a smaller pair, a 16-bit dtype or a quantisation."
        ) from error


def _drafter(pair: ModelPair, lanes: Sequence[Lane]) -> BatchDrafter:
    settings = lanes[0].settings
    if settings.drafter == "prompt_lookup":
        return ApartDrafter([LookupDrafter(lane.settings.lookup_ngram) for lane in lanes])
    return BatchModelDrafter(RaggedRunner(pair.draft, len(lanes)))
