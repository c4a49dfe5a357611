"""The cache with rows of their own lengths, and the model over it: what a row reads is its own."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toys import FIRST_PLAIN, build, endless_pair

from specdemo import PairError
from specdemo.decoding.batch.runner import RaggedRunner
from specdemo.decoding.engines.eager import EagerRunner
from specdemo.decoding.trials import check_rows

ATTENTIONS = [("gemma2", "eager"), ("llama", "eager"), *((f, "sdpa") for f in ("llama", "gpt2", "gemma3", "opt"))]
Moves = list[list[tuple[list[int], int]]]


def moves(rows: int) -> st.SearchStrategy[Moves]:
    """Steps of a batch: each row is fed some tokens and then forgets some."""
    feed = st.lists(st.integers(FIRST_PLAIN, 63), min_size=1, max_size=7)
    step = st.lists(st.tuples(feed, st.integers(0, 7)), min_size=rows, max_size=rows)
    return st.lists(step, min_size=1, max_size=6)


@pytest.mark.parametrize(("family", "attention"), ATTENTIONS)
def test_every_row_gets_the_logits_it_gets_alone(family: str, attention: str) -> None:
    """Guards positions, masks, windows (8 tokens here) and slots, whatever was rolled back before."""
    model = build(family, layers=3)
    model.set_attn_implementation(attention)

    @given(moves(rows=3))
    def check(steps: Moves) -> None:
        together, alone = RaggedRunner(model, 3), [EagerRunner(model) for _ in range(3)]
        for step in steps:
            logits = together.forward([feed for feed, _ in step])
            for row, (feed, surplus) in enumerate(step):
                expected = alone[row].forward(feed, keep=len(feed)).logits
                torch.testing.assert_close(logits[row, : len(feed)], expected, atol=1e-4, rtol=1e-4)
                alone[row].rollback_to(alone[row].length - min(surplus, len(feed) - 1))
            together.rollback_to([runner.length for runner in alone])

    check()


def test_rows_that_stay_keep_their_own_keys_in_the_order_asked_for() -> None:
    """Guards the rows that leave: the ones behind them move up, and their memory is given back."""
    model = endless_pair("llama").target
    batch = RaggedRunner(model, 3)
    feeds = [list(range(20, 60)), [20, 21, 22], [23, 24]]
    batch.forward(feeds, last=True)
    before = batch.cache.stores["keys", 0].nbytes
    batch.keep([2, 1])
    assert batch.lengths == [2, 3]
    assert batch.cache.stores["keys", 0].nbytes < before / 5
    alone = EagerRunner(model)
    alone.forward([20, 21, 22])
    torch.testing.assert_close(batch.forward([[30], [31]])[1], alone.forward([31]).logits, atol=1e-5, rtol=1e-5)


def test_a_row_beyond_the_last_learned_position_does_not_break_the_others() -> None:
    """Guards rows that are filled up: what stands there has no position any more, and nobody reads it."""
    model = build("gpt2", context=16)
    batch, alone = RaggedRunner(model, 2), EagerRunner(model)
    batch.forward([list(range(20, 35)), [20]], last=True)
    logits = batch.forward([[40], [41, 42, 43]])
    alone.forward([20])
    torch.testing.assert_close(logits[1], alone.forward([41, 42, 43], keep=3).logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("lengths", [[3, 1], [-1, 1]])
def test_rolling_back_to_what_is_not_there_is_refused(lengths: list[int]) -> None:
    """Guards against reading slots that hold nothing."""
    batch = RaggedRunner(endless_pair("llama").target, 2)
    batch.forward([[20, 21], [22, 23]])
    with pytest.raises(ValueError, match="cannot roll back"):
        batch.rollback_to(lengths)


def test_what_was_rolled_back_leaves_no_nan_behind() -> None:
    """Guards masked slots: 0 times NaN is NaN, so what is hidden must still be a number."""
    batch = RaggedRunner(endless_pair("llama").target, 2)
    batch.forward([[20] * 9, [21]], last=True)
    assert batch.forward([[22], [23, 24]]).isfinite().all()


# --- models whose rows are not independent ----------------------------------------------------------------


def test_a_model_that_ignores_its_positions_is_refused() -> None:
    """Guards architectures that count positions themselves: their rows would silently be wrong."""
    model = copy.deepcopy(build("llama"))
    forward = model.model.rotary_emb.forward

    def counting(x: torch.Tensor, position_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return forward(x, position_ids[:1].expand_as(position_ids))

    model.model.rotary_emb.forward = counting
    with pytest.raises(PairError, match=r"target: LlamaForCausalLM cannot decode a batch.*; choose another pair"):
        check_rows("target", model)
