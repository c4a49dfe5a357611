"""Does a model decode here as it should? Found out by trying, before anybody waits for its output."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import torch

from specdemo.decoding.batch.runner import RaggedRunner
from specdemo.decoding.engines.eager import EagerRunner, Engine
from specdemo.decoding.engines.open import choose
from specdemo.decoding.tree import Tree
from specdemo.decoding.trial_cache import MadeUpPast, TrialCache, TrialRows
from specdemo.errors import PairError, SettingsError, SpecDemoError
from specdemo.models.failures import not_finite, out_of_memory
from specdemo.models.pair import ModelPair, context_of, embeddings_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TOKENS = 16
"""Of a trial from the beginning of a text."""
TREE = Tree([0] * 8 + [1] * 3 + [9] * 3)
"""A path of three tokens whose slots are far from their depths, among others that it must not see."""
PATH = TREE.path(12)
ROWS = (((1, 2, 3), (4,)), ((5,), (6, 7)))
"""Two forwards of two rows, none as long as the one beside it."""
TOLERANCE, ROUGH_TOLERANCE = 0.005, 0.25
"""Of differences, in float32 and in coarser types; what is wrong altogether is off by more than one."""


def check_chain(role: str, model: PreTrainedModel, engine: Engine = "auto") -> None:
    """Whether tokens fed one by one and several at once, behind a rollback, give the logits of one forward.

    These are the forwards that a first run would have to warm up anyway.

    Raises:
        PairError: they do not, or the model fails.
    """

    def off() -> float:
        runner = EagerRunner(model, engine)
        count = min(TOKENS, context_of(model) or TOKENS)
        ids, begin = tokens_of(model, count), count // 2
        whole = runner.forward(ids, count).logits
        runner.rollback_to(begin)
        feeds = [feed for feed in (ids[begin : begin + 1], ids[begin + 1 :]) if feed]
        parts = torch.cat([runner.forward(feed, len(feed)).logits for feed in feeds])
        rows = differences(parts, whole[begin:]).nan_to_num(0.0)  # a run of NaN is told when it ends
        # In coarse types a mixture of experts may choose another at a near tie in one row, and is not wrong.
        return float(rows.max() if model.dtype == torch.float32 else rows.median())

    def refused(reason: str) -> PairError:
        return PairError(
            f"{role}: {type(model).__name__} cannot decode with a KV cache ({reason}); choose another model."
        )

    _try(role, model, off, refused, "its logits there are not those of one forward over all tokens")


def check_trees(role: str, model: PreTrainedModel, engine: str) -> None:
    """Whether the tokens of a draft tree give the logits of a path alone, past every window.

    Raises:
        SettingsError: they do not, or the model takes no such tokens.
        PairError: the logits are not finite.
    """
    if choose(model, engine).name == "direct":  # which is our own code, for models known to the last detail
        return

    def off(past: MadeUpPast) -> float:
        ids, begin = tokens_of(model, len(TREE.depths)), past.length
        runner = EagerRunner(model, "eager", cache=TrialCache(past, begin))
        runner.length = begin
        together = runner.forward(ids[:1], len(ids), torch.tensor(ids[1:]), TREE.mask(begin)).logits
        runner.rollback_to(begin)
        alone = runner.forward([ids[0], *(ids[slot] for slot in PATH)], 1 + len(PATH)).logits
        return differences(together[[*PATH]], alone[1:]).max().item()

    def refused(reason: str) -> SettingsError:
        return SettingsError(
            "tree_nodes", f"the {role}, a {type(model).__name__}, reads no draft trees ({reason}); set it to 0."
        )

    for empty in (True, False):
        wrong = "tokens of a path come out otherwise than without the rest of the tree"
        _try(role, model, partial(off, MadeUpPast(model, empty)), refused, wrong)


def check_rows(role: str, model: PreTrainedModel) -> None:
    """Whether rows of unequal lengths give together the logits of each alone, past every window.

    Raises:
        PairError: the model takes no positions or masks of its own, its rows are not independent, or it computes
            no finite numbers.
    """

    def from_the_beginning() -> float:
        together, alone = RaggedRunner(model, rows=2), [EagerRunner(model), EagerRunner(model)]
        rows = [
            (logits, runner.forward(feed).logits[0])
            for feeds in ROWS
            for runner, feed, logits in zip(alone, feeds, together.forward(feeds, last=True), strict=True)
        ]
        return differences(*map(torch.stack, zip(*rows, strict=True))).max().item()

    def past_windows() -> float:
        past, feeds, together = MadeUpPast(model), ROWS[0], RaggedRunner(model, rows=2)
        lengths = [past.length, past.shorter]
        together.cache = TrialRows(past, lengths, together.device)
        alone = [
            EagerRunner(model, "eager", cache=TrialCache(past, length)).forward(feed).logits[0]
            for length, feed in zip(lengths, feeds, strict=True)
        ]
        return differences(together.forward(feeds, last=True), torch.stack(alone)).max().item()

    def refused(reason: str) -> PairError:
        return PairError(
            f"{role}: {type(model).__name__} cannot decode a batch of unequal rows ({reason}); "
            "choose another pair, or run the prompts one after the other."
        )

    for off in (from_the_beginning, past_windows):
        _try(role, model, off, refused, "its rows come out otherwise than each alone")


def check_batches(pair: ModelPair, *, drafting: bool) -> None:
    """:func:`check_rows` of a pair's target, and of its draft model where that takes part; once a pair."""
    for role, model in zip(("target", "draft"), pair.models if drafting else [pair.target], strict=False):
        once(pair, f"{role} in batches", partial(check_rows, role, model))


def once(pair: ModelPair, name: str, check: Callable[[], None]) -> None:
    """Run a check that a pair has not passed yet."""
    if name not in pair.prepared:
        check()
        pair.prepared.add(name)


def tokens_of(model: PreTrainedModel, count: int) -> list[int]:
    """Ids that the model knows, unlike one another as far as it has so many; a filler is often the first."""
    known = embeddings_of(model)
    return [(1 + token) % known for token in range(count)]


def differences(got: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """(n,) how far each row of logits (n, V) is off, in standard deviations of that row; NaN where any is."""
    return (got - expected).pow(2).mean(-1).sqrt() / expected.std(-1)


def _try(
    role: str,
    model: PreTrainedModel,
    measured: Callable[[], float],
    refused: Callable[[str], SpecDemoError],
    wrong: str,
) -> None:
    """Refuse a model that is off by more than rounding, or that raises; memory that ran out says nothing of it."""
    try:
        off = measured()
    except SpecDemoError:
        raise
    except Exception as error:  # a family's own code, which may raise anything
        if out_of_memory(error):
            raise
        raise refused(f"{type(error).__name__}: {' '.join(str(error).split())[:120]}") from error
    if math.isnan(off):
        raise not_finite(role)
    if off > (TOLERANCE if model.dtype == torch.float32 else ROUGH_TOLERANCE):
        raise refused(wrong)
