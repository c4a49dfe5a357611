"""transformers' assisted generation as a lane: its output, and rounds that are observed, not guessed."""

from __future__ import annotations

import copy
from threading import Event

import pytest
import torch
from toys import EOS, build, endless_pair, generate, prompt_ids, toy_pair, widened

import specdemo
from specdemo import ModelPair, Settings, SettingsError


def run(pair: ModelPair, **fields: object) -> specdemo.Trace:
    return specdemo.run(pair, prompt_ids(9), Settings(strategy="assisted", **{"max_new_tokens": 40, **fields}))


def test_prompt_lookup_ends_before_the_last_position() -> None:
    """Guards learned positions: transformers' own lookup drafts past the end, where the model has none."""
    pair = ModelPair(build("gpt2", eos=None, context=24))
    for length in (15, 20, 22, 23):
        plain = specdemo.run(pair, [20] * length, Settings(strategy="autoregressive", max_new_tokens=12))
        for gamma in (1, 2, 5, 16):
            wanted = Settings(strategy="assisted", drafter="prompt_lookup", gamma=gamma, max_new_tokens=12)
            trace = specdemo.run(pair, [20] * length, wanted)
            assert trace.token_ids == plain.token_ids[: max(24 - length - max(gamma - 2, 0), 1)]
            assert trace.rounds[-1].stop == "context"


def test_an_end_token_ends_the_lane_with_its_reason() -> None:
    """Guards the end inside a block of accepted tokens, where transformers cuts what it hands over."""
    pair = toy_pair("llama")
    expected = generate(pair.target, prompt_ids(9), 200)
    assert expected[-1] in EOS, "the yardstick must end by itself"
    trace = run(pair, gamma=4, max_new_tokens=200)
    assert trace.token_ids == expected
    assert trace.rounds[-1].stop == "eos"


def test_every_round_holds_what_the_draft_really_proposed() -> None:
    """Guards against guessing: the drafted tokens are those the draft says itself after the same prefix."""
    pair = endless_pair("qwen2")
    trace = run(pair, gamma=3)
    committed = list(prompt_ids(9))
    kinds = set()
    for round_ in trace.rounds:
        drafted = [t for t in round_.tokens if t.kind in ("accepted", "rejected")]
        assert [t.id for t in drafted] == generate(pair.draft, committed, 3)[: len(drafted)]
        for place, token in enumerate(drafted):
            with torch.no_grad():
                logits = pair.draft(torch.tensor([[*committed, *[t.id for t in drafted[:place]]]])).logits[0, -1]
            assert token.q == pytest.approx(logits.softmax(-1)[token.id].item(), abs=1e-4)
        committed += [t.id for t in round_.emitted]
        kinds |= {t.kind for t in round_.tokens}
    assert kinds == {"accepted", "rejected", "corrected", "bonus"}
    assert trace.rounds[2].drafted == 3


def test_a_draft_that_is_the_target_is_always_right() -> None:
    """Guards the accounting: γ+1 tokens in every round, and time booked to both phases."""
    target = endless_pair("llama").target
    trace = run(ModelPair(target, target, None), gamma=4, max_new_tokens=30)
    assert [len(r.emitted) for r in trace.rounds] == [5] * 6
    metrics = trace.metrics()
    assert metrics.acceptance_rate == 1.0
    assert metrics.mean_acceptance_length == 5.0
    assert metrics.draft_seconds > 0
    assert metrics.verify_seconds > 0


def test_sampling_is_seeded_and_spares_the_callers_generator() -> None:
    """Guards reproducibility: transformers draws from torch's global generator, which is put back."""
    pair = endless_pair("llama")
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first = run(pair, gamma=3, temperature=1.0, seed=5)
    assert torch.equal(torch.get_rng_state(), before)
    assert run(pair, gamma=3, temperature=1.0, seed=5).token_ids == first.token_ids
    assert run(pair, gamma=3, temperature=1.0, seed=6).token_ids != first.token_ids
    chances = [t.acceptance for t in first.tokens if t.acceptance is not None]
    assert all(0 <= c <= 1 for c in chances)
    assert any(0 < c < 1 for c in chances)


@pytest.mark.parametrize("drafter", ["model", "prompt_lookup"])
def test_a_stop_signal_ends_it_after_the_round_under_way(drafter: str) -> None:
    """Guards Stop, closed tabs and time limits: nobody waits for more than a round of transformers' own."""
    target, stop, verified = copy.deepcopy(endless_pair("llama").target), Event(), []
    lanes = [Settings(strategy="assisted", drafter=drafter, gamma=3), Settings(strategy="autoregressive")]
    race = specdemo.race(ModelPair(target, endless_pair("llama").draft, None), prompt_ids(9), lanes, stop)

    def verify(*_: object) -> None:
        verified.append(1)
        if len(verified) == 3:
            stop.set()

    target.register_forward_pre_hook(verify)
    rounds = [round_ for lane, round_ in race if lane == 0]
    assert [r.index for r in rounds] == [0, 1, 2]
    assert not race.traces()[0].complete
    alone = run(endless_pair("llama"), drafter=drafter, gamma=3)
    assert race.traces()[0].token_ids == alone.token_ids[: len(race.traces()[0].token_ids)]


def test_what_transformers_does_not_do_is_refused() -> None:
    """Guards the messages: transformers takes different widths for different tokenizers."""
    with pytest.raises(SettingsError, match="drafter: 'assisted' drafts with"):
        Settings(strategy="assisted", drafter="early_exit")
    narrow = endless_pair("llama").target
    with pytest.raises(SettingsError, match="strategy: 'assisted' takes models of one vocabulary width only"):
        run(ModelPair(widened(narrow, 80), narrow, None))
