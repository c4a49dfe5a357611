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
from specdemo.decoding import acceptance
from specdemo.settings import DRAFTERS, LOSSLESS_RULES

SAMPLES = 1_000
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


DRAWN = {"temperature": 1.0, "gamma": 2}
CASES: list[tuple[tuple, dict[str, object]]] = [
    # An end token, and a draft of fewer tokens.
    (("llama", 7, 5, 4), {"acceptance": "sampling", "temperature": 1.3, "top_p": 0.85, "gamma": 3}),
    (
        ("gpt2", 10),
        {"acceptance": "sampling", "temperature": 0.7, "repetition_penalty": 1.6, "top_k": 6, "top_p": 0.95},
    ),
    (("gpt2", 6), {"strategy": "autoregressive", "temperature": 0.8, "repetition_penalty": 1.4, "top_k": 5}),
    *(
        (("llama", 6), {"strategy": "assisted", "drafter": name, "temperature": 0.8, "top_k": 5, "gamma": 2})
        for name in ("model", "prompt_lookup")
    ),
    # Every drafter with one rule; the others with a q of a model, with certain tokens, and with both in a row.
    *(
        (("llama", 6), {"acceptance": rule, "drafter": name, **DRAWN})
        for rule, names in (
            ("sampling", [*DRAFTERS, "suffix,model", "prompt_lookup,early_exit"]),
            *(
                (rule, ("model", "prompt_lookup", "suffix,model"))
                for rule in LOSSLESS_RULES
                if rule not in ("exact", "sampling")
            ),
        )
        for name in names
    ),
    *(
        (("llama", 6), {"acceptance": "sampling", "drafter": name, "tree_nodes": nodes, "p_min": 0.3, **DRAWN})
        for name, nodes in (("model", 0), ("model", 5), ("suffix", 0), ("suffix,model", 5))
    ),
    *(
        (("llama", 6), {"acceptance": rule, "drafter": name, "tree_nodes": 5, **DRAWN})
        for rule, names in (
            ("sampling", [name for name, spec in DRAFTERS.items() if spec.trees]),
            ("token_match", ("model", "suffix")),
        )
        for name in names
    ),
]


@pytest.mark.parametrize(("models", "fields"), CASES, ids=str)
def test_lanes_draw_from_the_targets_distribution(models: tuple, fields: dict[str, object]) -> None:
    """Guards the loop's part of losslessness: which row, which q, which history, which token is committed.

    A drafter that copies or shares a cache must hand each rule the q it really drew from. False alarm: 1 in 1,000
    seeds for each case.
    """
    pair = toy(*models, layers=2 if "early_exit" in str(fields.get("drafter")) else 1)
    assert p_value(pair, **fields) > 0.001


def test_a_broken_rule_is_caught_through_the_whole_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the test: no residual must fail it. A correct rule would pass here once in a million seeds."""
    monkeypatch.setattr(acceptance, "rule_for", lambda settings: no_residual)
    pair = toy("llama", 6)
    fields = {"acceptance": "sampling", "temperature": 1.0, "gamma": 2}
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


@pytest.mark.parametrize(
    "fields",
    [{"temperature": 0.0, "top_k": 5, "top_p": 0.5}, {"temperature": 1e-4}, {"top_p": 1e-9}, {"top_k": 1}],
)
def test_settings_that_leave_one_token_decode_like_greedy(fields: dict[str, float]) -> None:
    """Guards the table of rules, and the warpers' edges: a vanishing temperature must not crash the draw."""
    pair, length = toy("llama", 20), {"gamma": 3, "max_new_tokens": 24}
    wanted = Settings(**{"acceptance": "sampling", "temperature": 1.0, **length, **fields})
    traces = [specdemo.run(pair, TOY_PROMPT, settings) for settings in (Settings(**length), wanted)]
    one, other = ([(t.id, t.kind) for t in trace.tokens] for trace in traces)
    assert one == other
