"""The whole loop at temperature > 0: its outputs must be draws from the target's own distribution.

Each token of many runs is held against the exact distribution given all before it, which is computed from the
target's logits in float64 with the warpers applied by the tests' own code. If the token x is a draw from p, then
F(x) − u·p(x) is uniform on [0, 1) whatever was drawn before (the randomised probability integral transform; Czado,
Gneiting & Held 2009, Biometrics 65); F sums p up to x in the order of falling probability. A χ² test of its
distribution after each last token gives p > 0.001 for a correct loop but once in a thousand seeds; the seeds are
fixed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from scipy.stats import chi2
from toys import TOY_PROMPT, no_residual, toy, warped

import specdemo
from specdemo import ModelPair, Settings
from specdemo.decoding import speculative
from specdemo.settings import DRAFTERS, LOSSLESS_RULES, LOSSY_RULES

SAMPLES = 2_000
TOKENS = 24  # a run's, unless an end token comes first
BINS = 4
LEAST = 5 * BINS  # samples after one token, below which they are counted with others of few


def p_value(pair: ModelPair, samples: int = SAMPLES, **fields: object) -> float:
    """How likely so many tokens are to stray so far from the target's distribution by chance."""
    random = np.random.default_rng(0)
    counts = np.zeros((pair.vocabulary, BINS))
    seed = 0
    while counts.sum() < samples:
        settings = Settings(seed=seed, max_new_tokens=TOKENS, **fields)
        ids = [*TOY_PROMPT, *specdemo.run(pair, TOY_PROMPT, settings).token_ids]
        with torch.no_grad():
            logits = pair.target(torch.tensor([ids])).logits[0].tolist()
        for at in range(len(TOY_PROMPT), len(ids)):
            p = warped(logits[at - 1], settings, ids[:at])
            if p[ids[at]] == 0:
                return 0.0
            order = np.argsort(-p, kind="stable").tolist()
            upto = p[order[: order.index(ids[at]) + 1]].sum()
            counts[ids[at - 1], int(BINS * max(upto - random.random() * p[ids[at]], 0.0))] += 1
        seed += 1
    few = counts.sum(1) < LEAST
    rows = [row for row in (*counts[~few], counts[few].sum(0)) if row.sum() >= LEAST]
    statistic = sum(((row - row.mean()) ** 2 / row.mean()).sum() for row in rows)
    return float(chi2.sf(statistic, len(rows) * (BINS - 1)))


CASES = {
    "top-p, an end token, a narrower draft": (
        ("llama", 7, 5, 4),
        {"temperature": 1.3, "top_p": 0.85, "gamma": 3},
    ),
    "repetition penalty and all warpers": (
        ("gpt2", 10),
        {"temperature": 0.7, "repetition_penalty": 1.6, "top_k": 6, "top_p": 0.95, "gamma": 2},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_speculative_sampling_draws_from_the_targets_distribution(name: str) -> None:
    """Guards the loop's part of losslessness: which row, which q, which history, which token is committed.

    False alarm: 1 in 1,000 seeds for each case.
    """
    model, fields = CASES[name]
    pair = toy(*model)
    assert p_value(pair, acceptance="sampling", **fields) > 0.001


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("rule", [name for name in LOSSLESS_RULES if name != "exact"])
def test_every_lossless_rule_with_every_drafter_draws_from_the_targets_distribution(
    rule: str, drafter: str
) -> None:
    """Guards the pairing: a drafter that copies or shares a cache must hand each rule the q it really drew from.

    False alarm: 1 in 1,000 seeds for each case.
    """
    pair = toy("llama", 6, layers=2 if drafter == "early_exit" else 1)
    fields = {"acceptance": rule, "drafter": drafter, "temperature": 1.0, "gamma": 2}
    assert p_value(pair, **fields) > 0.001


@pytest.mark.parametrize("drafter", [name for name, spec in DRAFTERS.items() if spec.trees])
@pytest.mark.parametrize("rule", ["sampling", "token_match"])
def test_draft_trees_draw_from_the_targets_distribution(rule: str, drafter: str) -> None:
    """Guards trees through the whole loop, each drafter's q included. False alarm: 1 in 1,000 seeds for each."""
    pair = toy("llama", 6, layers=2 if drafter == "early_exit" else 1)
    fields = {"acceptance": rule, "drafter": drafter, "temperature": 1.0, "gamma": 2, "tree_nodes": 5}
    assert p_value(pair, **fields) > 0.001


@pytest.mark.parametrize("drafter", ["model", "prompt_lookup"])
def test_transformers_own_lane_draws_from_the_targets_distribution(drafter: str) -> None:
    """Guards the translation of the settings: a sampling lane of transformers must sample the same p."""
    pair = toy("llama", 6)
    fields = {"strategy": "assisted", "drafter": drafter, "temperature": 0.8, "top_k": 5, "gamma": 2}
    assert p_value(pair, **fields) > 0.001


def test_autoregressive_sampling_draws_from_the_targets_distribution() -> None:
    """Guards the baseline's sampling, penalty included. False alarm: 1 in 1,000 seeds."""
    pair = toy("gpt2", 6)
    fields = {"strategy": "autoregressive", "temperature": 0.8, "repetition_penalty": 1.4, "top_k": 5}
    assert p_value(pair, **fields) > 0.001


def test_a_broken_rule_is_caught_through_the_whole_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the test: no residual must fail it. A correct rule would pass here once in a million seeds."""
    monkeypatch.setattr(speculative, "rule_for", lambda settings: no_residual)
    pair = toy("llama", 6)
    fields = {"acceptance": "sampling", "temperature": 1.0, "gamma": 2}
    assert p_value(pair, 2 * SAMPLES, **fields) < 1e-6


@pytest.mark.parametrize("rule", LOSSY_RULES)
def test_lossy_rules_are_caught_through_the_whole_loop(rule: str) -> None:
    """Guards the label: they must change the distribution (a lossless rule does so once in a million seeds).

    The draft is the target itself: a lossless rule then changes nothing, these favour what is likely anyway.
    """
    target = toy("llama", 6).target
    pair = ModelPair(target, target, None)
    fields = {"acceptance": rule, "accept_top_k": 2, "temperature": 1.0, "gamma": 2}
    assert p_value(pair, 2 * SAMPLES, **fields) < 1e-6


@pytest.mark.parametrize("strategy", ["autoregressive", "speculative"])
def test_the_same_seed_gives_the_same_output_and_another_seed_another(strategy: str) -> None:
    """Guards reproducibility: no draw may come from torch's global generator, and the seed must be used."""
    pair = toy("llama", 20)

    def ids(seed: int) -> Sequence[int]:
        fields = {"acceptance": "sampling", "temperature": 1.0, "gamma": 3, "max_new_tokens": 24}
        return specdemo.run(pair, TOY_PROMPT, Settings(strategy=strategy, seed=seed, **fields)).token_ids

    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = ids(5)
    assert torch.equal(torch.get_rng_state(), before), "the caller's generator was used"
    torch.manual_seed(2)
    assert ids(5) == first
    assert ids(6) != first


def test_sampling_at_temperature_zero_is_greedy() -> None:
    """Guards the table of rules: at temperature 0 ``sampling`` and ``exact`` are the same run."""
    pair = toy("llama", 20)
    fields = {"gamma": 3, "max_new_tokens": 24, "top_k": 5, "top_p": 0.5}
    one = specdemo.run(pair, TOY_PROMPT, Settings(acceptance="sampling", **fields))
    other = specdemo.run(pair, TOY_PROMPT, Settings(acceptance="exact", **fields))
    assert one.token_ids == other.token_ids
    assert [t.kind for t in one.tokens] == [t.kind for t in other.tokens]


@pytest.mark.parametrize("fields", [{"temperature": 1e-4}, {"top_p": 1e-9}, {"top_k": 1}])
def test_settings_that_leave_one_token_decode_like_greedy(fields: dict[str, float]) -> None:
    """Guards the edges of the warpers: a vanishing temperature must not end in NaN and a crash of the draw."""
    pair = toy("llama", 20)
    greedy = specdemo.run(pair, TOY_PROMPT, Settings(gamma=3, max_new_tokens=12))
    settings = Settings(
        **{"acceptance": "sampling", "temperature": 1.0, "gamma": 3, "max_new_tokens": 12, **fields}
    )
    assert specdemo.run(pair, TOY_PROMPT, settings).token_ids == greedy.token_ids
