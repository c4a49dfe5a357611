"""Models with recurrent and convolution states: what a rejection takes back, a lane puts back."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from families import tiny
from toys import adversary, build, generate, perturbed, prompt_ids

import specdemo
from specdemo import ModelPair, Settings, SettingsError
from specdemo.decoding.engines.eager import EagerRunner

FAMILIES = [
    *(
        "bamba",
        "falcon_h1",
        "granitemoehybrid",
        "inkling_text",
        "kimi_linear",
        "lfm2",
        "lfm3",
        "mamba2",
        "nemotron_h",
    ),
    *("olmo_hybrid", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_next", "zamba2", "zaya"),
]
DRAFTS = {"always rejected": adversary, "often rejected": perturbed, "never rejected": lambda model: model}
SHAPES = ((1, 1, "always rejected"), (40, 5, "never rejected"))
"""Tokens of the prompt, γ, and the draft, for every family."""
TURNS = ((7, 9, "often rejected"), (23, 3, "often rejected"))
"""One of these for a family, in turns."""
COUNT = 60
RUNS = 24  # of a certificate, enough for the fault below


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_output_is_generates_whatever_is_rejected(family: str) -> None:
    """Guards states, positions and crops over rejections in every round and in none, of target and draft alike."""
    target = tiny(family)
    for length, gamma, kind in (*SHAPES, TURNS[FAMILIES.index(family) % len(TURNS)]):
        prompt = prompt_ids(length)
        expected = generate(target, prompt, COUNT)
        pair = ModelPair(target, DRAFTS[kind](target))
        ways = [{"gamma": gamma}]
        if kind == "never rejected":  # by the model: a lookup guesses wrong in any text
            ways += [{"gamma": gamma, "drafter": "prompt_lookup"}, {"strategy": "autoregressive"}]
        traces = [specdemo.run(pair, prompt, Settings(max_new_tokens=COUNT, **way)) for way in ways]
        assert [trace.token_ids for trace in traces] == [expected] * len(ways), (length, gamma, kind)
        rejected = [round_.accepted < round_.drafted for round_ in traces[0].rounds if round_.drafted]
        assert any(rejected) == (kind != "never rejected")
        assert all(rejected) or kind != "always rejected"


@pytest.mark.parametrize("roles", [("llama", "qwen3_5_text"), ("qwen3_5_text", "llama"), ("lfm2", "mamba2")])
def test_states_on_one_side_alone(roles: tuple[str, str]) -> None:
    target, draft = (build(r, eos=None) if r == "llama" else tiny(r, vocab_size=64) for r in roles)
    expected = generate(target, prompt_ids(9), COUNT)
    for gamma in (1, 5):
        trace = specdemo.run(ModelPair(target, draft), prompt_ids(9), Settings(gamma=gamma, max_new_tokens=COUNT))
        assert trace.token_ids == expected


@pytest.mark.parametrize("family", ["qwen3_5_text", "falcon_h1"])
def test_after_two_hundred_rounds_all_is_as_after_one_forward(family: str, runners: Callable[[], list]) -> None:
    """Guards against what adds up: a state once too often, a key too many."""
    target = tiny(family, max_position_embeddings=2048)
    committed = list(prompt_ids(11, vocabulary=96))
    lane = specdemo.stream(ModelPair(target, perturbed(target)), committed, Settings(gamma=3, max_new_tokens=1500))
    accepted = set()
    for _ in range(201):
        round_ = next(lane)
        committed += [token.id for token in round_.emitted]
        accepted.add(round_.accepted)
    assert {0, 3} <= accepted
    for runner in runners():
        fresh = EagerRunner(runner.model)
        fresh.forward(committed[: runner.length])
        for ours, theirs in zip(runner._cache.holding(), fresh._cache.holding(), strict=True):
            assert ours.length == theirs.length == runner.length
        torch.testing.assert_close(runner._cache.states, fresh._cache.states, atol=1e-3, rtol=1e-3)
        got, expected = (each.forward(committed[each.length :]).logits for each in (runner, fresh))
        torch.testing.assert_close(got, expected, atol=1e-3, rtol=1e-3)


def test_samples_are_the_targets_and_would_not_be_if_states_stayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the distribution, by the project's own test, and that test's eye for a state that is not put back."""
    target = tiny("qwen3_next", vocab_size=32)
    pair = ModelPair(target, perturbed(target, 0.05))
    settings = Settings(acceptance="sampling", temperature=1.0, gamma=3)
    assert specdemo.certify(pair, prompt_ids(6, 32), settings, runs=RUNS, tokens=8).verdict != "differs"
    monkeypatch.setattr(
        EagerRunner, "checkpoint", lambda self: setattr(self, "_checkpoint", (self.length, self._cache.states))
    )
    assert specdemo.certify(pair, prompt_ids(6, 32), settings, runs=RUNS, tokens=8).verdict == "differs"


def test_plain_lanes_keep_no_checkpoint_and_a_closed_one_leaves_nothing(runners: Callable[[], list]) -> None:
    """Guards the cost of plain decoding, and memory and the next run after Stop."""
    target = tiny("qwen3_5_text")
    pair, prompt = ModelPair(target, perturbed(target)), prompt_ids(9)
    expected = generate(target, prompt, COUNT)
    specdemo.run(pair, prompt, Settings(max_new_tokens=1))
    for settings in (Settings(strategy="autoregressive"), Settings(gamma=4)):
        lane = specdemo.stream(pair, prompt, settings)
        for _ in range(5):
            next(lane)
        kept = runners()[-1]._checkpoint[1]
        assert bool(kept) == (settings.strategy == "speculative")
        del kept
        lane.close()
        gc.collect()
        assert not any(runners())
        assert specdemo.run(pair, prompt, Settings(gamma=4, max_new_tokens=COUNT)).token_ids == expected
    racing = specdemo.race(pair, prompt, [Settings(gamma=g, max_new_tokens=COUNT) for g in (2, 5)])
    for _ in racing:
        pass
    assert [trace.token_ids for trace in racing.traces()] == [expected] * 2


@pytest.mark.parametrize(
    ("family", "function", "chunk"),
    [
        ("qwen3_5_text", "torch_chunk_gated_delta_rule", None),
        ("kimi_linear", "chunk_kimi_delta_attention", None),
        ("falcon_h1", "mamba2_chunk_scan", 256),
        ("zamba2", "mamba2_chunk_scan", 256),
    ],
)
def test_a_few_tokens_are_one_chunk_and_the_callers_model_keeps_its_own(
    family: str, function: str, chunk: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards the time of a verify: filled up to 64 or 256 tokens it takes three to fifteen steps."""
    model = tiny(family)
    code = sys.modules[type(model).__module__]
    scan, lengths = getattr(code, function), []

    def watched(*args: Any, **kwargs: Any) -> Any:
        lengths.append(kwargs.get("chunk_size"))
        return scan(*args, **kwargs)

    monkeypatch.setattr(code, function, watched)
    runner, ids = EagerRunner(model), prompt_ids(90)
    parts = [runner.forward(part, len(part)).logits for part in (ids[:3], ids[3:8], ids[8:])]
    assert set(lengths) == {3, 5, min(82, chunk or 64)}
    lengths.clear()
    with torch.no_grad():
        torch.testing.assert_close(torch.cat(parts), model(torch.tensor([ids])).logits[0], atol=1e-3, rtol=1e-4)
    assert set(lengths) == {chunk}


def test_what_states_cannot_do_is_refused_in_a_sentence() -> None:
    target = tiny("qwen3_5_text")
    pair = ModelPair(target, perturbed(target))
    for way, said in (
        ({"strategy": "assisted"}, r"strategy: .* takes no tokens back from a Qwen3_5ForCausalLM; choose"),
        ({"drafter": "early_exit"}, r"drafter: .* keeps states there"),
        ({"tree_nodes": 6}, r"tree_nodes: .* reads no draft trees \(its recurrent layers"),
    ):
        with pytest.raises(SettingsError, match=said):
            specdemo.run(pair, prompt_ids(5), Settings(max_new_tokens=4, **way))
