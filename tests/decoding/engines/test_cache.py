"""A lane's cache: the logits of transformers' own, room that grows by doubling, rollback by a number."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toys import FAMILIES, FIRST_PLAIN, MORE_FAMILIES, build, endless_pair, prompt_ids
from transformers import DynamicCache

from specdemo.decoding.engines.eager import EagerRunner
from specdemo.decoding.engines.eager_forward import Forward
from specdemo.decoding.engines.kv_cache import FIRST_CAPACITY, LaneCache

ATTENTIONS = [(family, "eager") for family in (*FAMILIES, *MORE_FAMILIES)] + [
    (family, "sdpa") for family in (*FAMILIES, *MORE_FAMILIES) if family != "gemma2"
]
MOVES = st.lists(
    st.tuples(st.lists(st.integers(FIRST_PLAIN, 63), min_size=1, max_size=9), st.integers(0, 12)),
    min_size=1,
    max_size=8,
)
"""Tokens fed, then how many are taken back."""


@pytest.mark.parametrize(("family", "attention"), ATTENTIONS)
def test_logits_equal_those_of_transformers_own_cache(family: str, attention: str) -> None:
    """Guards what is read after any feeding and rollback, windows (8 tokens here) and groups included."""
    model = build(family, layers=3)
    model.set_attn_implementation(attention)
    forward = Forward(model)

    @given(MOVES)
    def check(moves: list[tuple[list[int], int]]) -> None:
        ours, theirs = LaneCache(), DynamicCache()
        for feed, surplus in moves:
            tokens = torch.tensor([feed])
            got, expected = (forward(tokens, cache, len(feed)) for cache in (ours, theirs))
            torch.testing.assert_close(got, expected, atol=1e-6, rtol=1e-6)
            surplus = min(surplus, theirs.get_seq_length() - 1)
            if surplus:
                for cache in (ours, theirs):
                    for layer in cache.layers:
                        layer.crop(-surplus)
            assert ours.get_seq_length() == theirs.get_seq_length()

    check()


@pytest.mark.parametrize("engine", ["auto", "eager"])
def test_growing_past_the_room_keeps_every_token(engine: str) -> None:
    """Guards the move to larger room: what is read afterwards must be what was written before it."""
    model = build("llama", context=1024)
    grown, whole = EagerRunner(model, engine=engine), EagerRunner(model, engine=engine)
    ids = list(prompt_ids(3 * FIRST_CAPACITY))
    for begin in range(0, len(ids), 7):
        logits = grown.forward(ids[begin : begin + 7]).logits
    torch.testing.assert_close(logits, whole.forward(ids).logits, atol=1e-5, rtol=1e-5)


def test_a_token_is_moved_a_few_times_at_most() -> None:
    """Guards the cost of a token, which must not grow with the text: rooms double, so moves add up to little."""
    runner, rooms = EagerRunner(endless_pair("llama").target, engine="eager"), [FIRST_CAPACITY]
    runner.forward([20])
    for _ in range(255):
        runner.forward([20])
        room = runner._cache.layers[0].keys.shape[2]
        if room != rooms[-1]:
            rooms.append(room)
    assert rooms == [128, 256]


def test_rollback_copies_nothing_and_the_slots_are_written_over() -> None:
    """Guards O(1): the memory is the same, and as many tokens fit again."""
    runner = EagerRunner(endless_pair("llama").target)
    runner.forward(list(range(20, 60)))
    layer = runner._cache.layers[0]
    place, held = layer.keys.data_ptr(), runner.nbytes
    runner.rollback_to(8)
    runner.forward(list(range(20, 52)))
    assert (layer.keys.data_ptr(), runner.nbytes, layer.length) == (place, held, 40)


@pytest.mark.parametrize(("engine", "feed"), [("direct", 1), ("direct", 5), ("eager", 1)])
def test_a_step_copies_none_of_the_context(engine: str, feed: int) -> None:
    """Guards every copy of all keys, by the largest tensor that any operation of a step makes.

    Not transformers' own code for several tokens: it repeats a group's keys for each of its queries.
    """
    model = build("llama", heads=4, hidden=64, context=4096)
    runner = EagerRunner(model, engine="auto" if engine == "direct" else engine)
    assert runner.engine == engine
    runner.forward([20] * 2000)
    runner.forward([20] * feed, keep=feed)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        runner.forward([20] * feed, keep=feed)
    keys_of_a_layer = 2000 * 2 * 16 * 4  # tokens, heads, numbers, bytes
    largest = max(event.self_cpu_memory_usage for event in profile.events())
    assert largest < keys_of_a_layer / 2


@pytest.mark.parametrize("surplus", [3, -1])
def test_taking_back_more_than_there_is_is_refused(surplus: int) -> None:
    cache = LaneCache()
    cache.update(torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 2, 4), 0)
    with pytest.raises(ValueError, match="of 2 tokens back"):
        cache.layers[0].crop(-surplus)
    assert cache.get_seq_length() == 2
