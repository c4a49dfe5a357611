"""Every way to draft: greedy output is ``generate``'s whatever is proposed, and no model is changed."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toys import build, endless_pair, generate, prompt_ids, scripted

import specdemo
from specdemo import ModelPair, Settings, SettingsError
from specdemo.decoding.drafters.early_exit import first_layers
from specdemo.decoding.drafters.prompt_lookup import LookupDrafter
from specdemo.settings import DRAFTERS

TOKENS = 48


# --- prompt lookup ----------------------------------------------------------------------------------------


def longest_recent_match(ids: Sequence[int], longest: int) -> int | None:
    """The definition, by search: the longest end first, its most recent earlier occurrence."""
    for n in range(min(longest, len(ids) - 1), 0, -1):
        for end in range(len(ids) - 1, n - 1, -1):
            if list(ids[end - n : end]) == list(ids[-n:]):
                return end
    return None


@given(
    ids=st.lists(st.integers(0, 3), min_size=1, max_size=40),
    longest=st.integers(1, 5),
    cut=st.integers(1, 40),
)
def test_the_index_finds_what_a_search_finds(ids: list[int], longest: int, cut: int) -> None:
    """Guards the incremental index, grown in two steps, against the definition."""
    drafter = LookupDrafter(longest)
    drafter.prefill(ids[:cut])
    drafter.commit(ids)
    assert drafter.propose(ids, 1).source == longest_recent_match(ids, longest)


def test_a_copy_past_the_end_goes_on_with_itself() -> None:
    """Guards short periods: of "a b a b" a full γ is proposed, not two tokens."""
    drafter = LookupDrafter(3)
    drafter.prefill([5, 1, 2, 1, 2])
    proposal = drafter.propose([5, 1, 2, 1, 2], 5)
    assert proposal.ids == (1, 2, 1, 2, 1)
    assert proposal.source == 3
    assert proposal.q is None


def test_a_text_that_repeats_is_copied_and_says_from_where() -> None:
    """Guards the whole way of ``source``, into the trace and back from JSON."""
    block = list(range(20, 32))
    model = scripted(block, start=len(block) + 1, vocabulary=40)
    lane = Settings(drafter="prompt_lookup", gamma=4, max_new_tokens=len(block))
    trace = specdemo.run(ModelPair(model), [*block, 13], lane)
    assert trace.token_ids == block
    assert trace.metrics().acceptance_rate > 0.7
    whole = [*trace.prompt_ids, *trace.token_ids]
    for round_ in trace.rounds:
        if round_.source is not None:
            copied = [t.id for t in round_.tokens if t.kind in ("accepted", "rejected")]
            assert whole[round_.source : round_.source + len(copied)] == copied
    assert any(r.source is not None for r in trace.rounds)
    assert specdemo.Trace.from_json(trace.to_json()) == trace


def test_where_nothing_matches_every_round_is_a_plain_step() -> None:
    """Guards the empty proposal: no drafted tokens, kind ``target``, and the output unchanged."""
    script = list(range(20, 36))
    model = scripted(script, start=3, vocabulary=40)
    settings = Settings(drafter="prompt_lookup", max_new_tokens=len(script))
    trace = specdemo.run(ModelPair(model, None, None), [13, 14, 15], settings)
    assert trace.token_ids == script
    assert {t.kind for t in trace.tokens} == {"target"}
    assert trace.metrics().proposed == 0


# --- early exit -------------------------------------------------------------------------------------------


def truncated(model: torch.nn.Module, layers: int) -> torch.nn.Module:
    """A model of its own with the first layers of another: what early exit should draft like."""
    config = copy.deepcopy(model.config)
    config.num_hidden_layers = layers
    small = type(model)(config).eval()
    kept = {k: v for k, v in model.state_dict().items() if k in small.state_dict()}
    small.load_state_dict(kept)
    return small


@pytest.mark.parametrize("layers", [1, 3])
def test_early_exit_drafts_like_a_model_of_the_first_layers(layers: int) -> None:
    """Guards the shared cache: a stale or missing position would change what is drafted, not what is output."""
    target = build("llama", layers=4, eos=None)
    settings = {"gamma": 4, "max_new_tokens": TOKENS}
    shared = Settings(drafter="early_exit", exit_layer=layers, **settings)
    own = Settings(**settings), ModelPair(target, truncated(target, layers))
    traces = [specdemo.run(pair, prompt_ids(9), lane) for lane, pair in ((shared, ModelPair(target)), own)]
    one, other = ([(t.id, t.kind) for t in trace.tokens] for trace in traces)
    assert one == other


@pytest.mark.parametrize(
    "way",
    [
        *({"drafter": drafter} for drafter in DRAFTERS),
        # Which read between the target's modules.
        *({"drafter": drafter, "engine": "eager"} for drafter in ("eagle3", "mtp")),
        *({"strategy": "assisted", "drafter": drafter} for drafter in ("model", "prompt_lookup")),
    ],
    ids=str,
)
def test_an_abandoned_run_leaves_the_models_bit_identical(way: dict[str, str]) -> None:
    """Guards invariant 7 at every round: weights, layers, hooks, configs, and the next run's output."""

    def hooks() -> list[tuple]:
        tables = ("_forward_hooks", "_forward_pre_hooks")
        return [tuple(module.__dict__[t]) for part in parts for module in part.modules() for t in tables]

    pair = endless_pair("llama")
    expected = generate(pair.target, prompt_ids(17), TOKENS)
    parts = (pair.target, pair.draft, *pair.heads)
    before = [{k: v.clone() for k, v in part.state_dict().items()} for part in parts]
    layers = list(pair.target.model.layers)
    configs = [(m.config.to_dict(), m.generation_config.to_dict()) for m in (pair.target, pair.draft)]
    before_hooks = hooks()
    settings = Settings(**way, gamma=4, max_new_tokens=TOKENS)
    for stop in (0, 1, 2, 5):
        rounds = specdemo.stream(pair, prompt_ids(17), settings)
        for _ in range(stop):
            next(rounds)
        rounds.close()
        assert specdemo.run(pair, prompt_ids(17), settings).token_ids == expected
    for part, weights in zip(parts, before, strict=True):
        assert all(torch.equal(v, weights[k]) for k, v in part.state_dict().items())
        assert not any(p.grad is not None for p in part.parameters())
    assert list(pair.target.model.layers) == layers
    assert hooks() == before_hooks
    assert [(m.config.to_dict(), m.generation_config.to_dict()) for m in (pair.target, pair.draft)] == configs


def test_a_shallow_model_shares_the_weights_and_spares_the_original() -> None:
    """Guards memory and the caller's model: no weight is copied, no module of the original replaced."""
    model = build("gpt2", layers=4)
    shallow = first_layers(model, 1)
    assert len(shallow.transformer.h) == 1
    assert len(model.transformer.h) == 4
    assert {p.data_ptr() for p in shallow.parameters()} <= {p.data_ptr() for p in model.parameters()}


# --- what a pair offers -----------------------------------------------------------------------------------


def test_a_pair_without_a_draft_drafts_without_one() -> None:
    """Guards a target alone: the drafters that need no model work, the other says what to choose."""
    pair = ModelPair(endless_pair("llama").target, None, None)
    for drafter in ("prompt_lookup", "early_exit"):
        trace = specdemo.run(pair, prompt_ids(17), Settings(drafter=drafter, max_new_tokens=TOKENS))
        assert trace.token_ids == generate(pair.target, prompt_ids(17), TOKENS)
    with pytest.raises(SettingsError, match=r"drafter: 'model' needs a draft model.*choose 'prompt_lookup'"):
        specdemo.run(pair, prompt_ids(17), Settings())


def test_an_exit_behind_the_last_layer_is_refused_before_anything_runs() -> None:
    """Guards the bound that only the pair knows."""
    settings = Settings(drafter="early_exit", exit_layer=2)
    with pytest.raises(SettingsError, match="exit_layer: must be below the target's 2 layers"):
        specdemo.stream(endless_pair("llama"), prompt_ids(5), settings)
    with pytest.raises(SettingsError, match="several layers"):
        specdemo.stream(ModelPair(build("llama", layers=1)), prompt_ids(5), Settings(drafter="early_exit"))
