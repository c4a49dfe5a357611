"""The acceptance rules on toy distributions: what comes out must be the target's own distribution.

Next tokens follow a Markov table p(.|last token), so the joint distribution of the first two tokens is known
exactly. The second token comes from the same round, or from the next one where the first draft was rejected.
A correct rule fails a χ² test at p > 0.001 once in a thousand seeds; the seeds are fixed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from toys import no_residual, p_value, warped

from specdemo import Settings
from specdemo.decoding.acceptance import (
    Verdict,
    among_top_k,
    block_verification,
    rejection_sampling,
    rule_for,
    typical,
)
from specdemo.decoding.sampling import Sampler
from specdemo.settings import LOSSLESS_RULES, LOSSY_RULES

DRAWS = 100_000
START = 0
CPU = torch.device("cpu")

WARPERS = {
    "off": {},
    "temperature": {"temperature": 0.7},
    "top_k": {"top_k": 3},
    "top_p": {"top_p": 0.8},
    "all": {"temperature": 1.4, "top_k": 4, "top_p": 0.9},
}


def sampling(**fields: object) -> Settings:
    return Settings(**{"acceptance": "sampling", "temperature": 1.0, **fields})


def table(vocabulary: int, seed: int) -> torch.Tensor:
    """Random logits of the next token for every last token."""
    return torch.randn(vocabulary, vocabulary, generator=torch.Generator().manual_seed(seed)) * 1.5


def first_two(
    rule: Callable,
    target: torch.Tensor,
    draft: torch.Tensor,
    settings: Settings,
    gamma: int,
    *,
    greedy_draft: bool = False,
    claimed: torch.Tensor | None = None,
) -> Counter:
    """Counts of the first two emitted tokens over many runs at once.

    Args:
        greedy_draft: the draft always takes its best token, and says so (q is None).
        claimed: draft scores that the rule is told, if not those that the tokens were drawn from.
    """
    sampler = Sampler(settings, target.shape[1], CPU)
    p_scores, q_scores = sampler.scores(target, []), sampler.scores(draft, [])
    told = q_scores if claimed is None else claimed

    def play(last: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        ids, q = [last], []
        for _ in range(gamma):
            scores = q_scores[ids[-1]]
            q.append(sampler.probabilities(told[ids[-1]]))
            ids.append(scores.argmax(-1) if greedy_draft else sampler.draw(sampler.probabilities(scores)))
        drafted = torch.stack(ids[1:], dim=1)
        scores = p_scores[torch.stack(ids, dim=1)]
        verdict = rule(scores, drafted, None if greedy_draft else torch.stack(q, dim=1), sampler)
        out = torch.nn.functional.pad(drafted, (0, 1))
        out[torch.arange(len(out)), verdict.accepted] = verdict.token
        return out, verdict.accepted + 1

    block, length = play(torch.full((DRAWS,), START))
    first, second = block[:, 0], block[:, 1].clone()
    short = length == 1
    if short.any():
        second[short] = play(first[short])[0][:, 0]
    return Counter(zip(first.tolist(), second.tolist(), strict=True))


def exact_joint(target: torch.Tensor, settings: Settings) -> dict[tuple[int, int], float]:
    rows = [warped(row, settings) for row in target.tolist()]
    span = range(len(rows))
    return {(a, b): float(rows[START][a] * rows[a][b]) for a in span for b in span}


def drawn(name: str, gamma: int, vocabulary: int, draft: int = 2, width: int | None = None, **how: object) -> dict:
    """A case: warpers, γ, the vocabulary and the draft's seed (1 is the target's own) and width."""
    tables = table(vocabulary, 1), table(vocabulary, draft)[:, :width]
    return {"warpers": WARPERS[name], "gamma": gamma, "tables": tables, "how": how}


CASES = {
    **{f"{n}, γ {g}": drawn(n, g, v) for n in WARPERS for g, v in ((1, 5), (2, 9), (3, 20))},
    # The one-hot q of greedy and n-gram drafts (q=None).
    **{f"{n}, a certain draft": drawn(n, 3, 7, greedy_draft=True) for n in ("off", "top_k")},
    # Nothing is left to draw from.
    **{f"{n}, p = q": drawn(n, 3, 7, 1) for n in ("off", "all")},
    # q is padded with zeros: what the draft cannot say must come from the residual.
    "a narrower draft": drawn("off", 3, 8, width=5),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("rule", [name for name in LOSSLESS_RULES if name != "exact"])
def test_lossless_rules_give_the_targets_joint_distribution(rule: str, case: str) -> None:
    """Guards losslessness with every warper, where q is what the draft token was really drawn from.

    False alarm: 1 in 1,000 seeds for each case.
    """
    drawn = CASES[case]
    settings = sampling(seed=10 + drawn["gamma"], acceptance=rule, **drawn["warpers"])
    observed = first_two(rule_for(settings), *drawn["tables"], settings, drawn["gamma"], **drawn["how"])
    assert p_value(observed, exact_joint(drawn["tables"][0], settings)) > 0.001


@pytest.mark.parametrize("gamma", [2, 4])
def test_block_keeps_more_than_rejection_sampling_and_token_match_less(gamma: int) -> None:
    """Guards what each rule is for: theorem 2 of arXiv 2403.10444, and min(1, p/q) ≥ p."""
    target, draft = table(9, 1), table(9, 2)

    def mean_accepted(rule: str) -> float:
        sampler = Sampler(sampling(seed=1), 9, CPU)
        ids, q = [torch.full((DRAWS,), START)], []
        for _ in range(gamma):
            q.append(sampler.probabilities(draft[ids[-1]]))
            ids.append(sampler.draw(q[-1]))
        scores = target[torch.stack(ids, dim=1)]
        judge = rule_for(sampling(acceptance=rule))
        return judge(scores, torch.stack(ids[1:], 1), torch.stack(q, 1), sampler).accepted.double().mean().item()

    block, sampled, matched = (mean_accepted(rule) for rule in ("block", "sampling", "token_match"))
    assert block > 1.01 * sampled, "the toy must show the difference beyond chance"
    assert matched < 0.8 * sampled


@pytest.mark.parametrize("rule", [*LOSSLESS_RULES, *LOSSY_RULES])
def test_every_rule_takes_a_round_that_drafted_nothing(rule: str) -> None:
    """Guards the last round before the end, where γ is 0 and there is only the target's own token."""
    settings = Settings(acceptance=rule, temperature=0.0 if rule == "exact" else 1.0)
    scores, drafted = torch.tensor([[[0.0, 50.0, 0.0]]]), torch.zeros(1, 0, dtype=torch.long)
    verdict = rule_for(settings)(scores, drafted, torch.zeros(1, 0, 3), Sampler(settings, 3, CPU))
    assert (verdict.accepted.tolist(), verdict.token.tolist()) == ([0], [1])
    assert verdict.probability.shape == (1, 0)


def misjudged(scores: torch.Tensor, drafted: torch.Tensor, q: None, sampler: Sampler) -> Verdict:
    """A greedy draft that claims to have sampled."""
    last = torch.cat([torch.full_like(drafted[:, :1], START), drafted[:, :-1]], dim=1)
    return rejection_sampling(scores, drafted, sampler.probabilities(table(9, 2)[last]), sampler)


@pytest.mark.parametrize(
    ("rule", "fields", "how"),
    [
        (no_residual, {}, {}),
        (
            rejection_sampling,
            {"top_k": 3},
            {"claimed": table(9, 2)},
        ),  # drafted by top-k
        (misjudged, {}, {"greedy_draft": True}),
        *((None, {"acceptance": rule, "accept_top_k": 3}, {}) for rule in LOSSY_RULES),
    ],
)
def test_a_rule_that_is_not_lossless_is_caught(rule: Callable | None, fields: dict, how: dict) -> None:
    """Guards the test and the label *lossy*. A correct rule would pass here once in a million seeds."""
    settings = sampling(seed=7, **fields)
    target = table(9, 1)
    observed = first_two(rule or rule_for(settings), target, table(9, 2), settings, 2, **how)
    assert p_value(observed, exact_joint(target, settings)) < 1e-6
    assert settings.lossless == (rule is not None)


def test_a_token_impossible_for_the_target_never_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards ``u·q < p`` against ``<=``: at u = 0 a token with p = 0 would slip through."""
    monkeypatch.setattr(Sampler, "uniforms", lambda self, *shape: torch.zeros(shape))
    scores = torch.tensor([[[0.0, 0.0, float("-inf")], [0.0, 0.0, 0.0]]])
    q = torch.tensor([[[0.1, 0.1, 0.8]]])
    verdict = rejection_sampling(scores, torch.tensor([[2]]), q, Sampler(sampling(), 3, CPU))
    assert verdict.accepted.tolist() == [0]
    assert verdict.probability.tolist() == [[0.0]]
    assert verdict.token.item() in (0, 1)


def test_probability_and_overlap_are_min_of_p_over_q_and_sum_of_min() -> None:
    """Guards the figures shown beside each token, against numbers worked out by hand."""
    p = torch.tensor([[[0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [1.0, 0.0, 0.0]]])
    q = torch.tensor([[[0.25, 0.6, 0.15], [0.1, 0.5, 0.4]]])
    verdict = rejection_sampling(p.log(), torch.tensor([[1, 2]]), q, Sampler(sampling(), 3, CPU))
    torch.testing.assert_close(verdict.probability, torch.tensor([[0.5, 1.0]]))
    torch.testing.assert_close(verdict.overlap, torch.tensor([[0.25 + 0.3 + 0.15, 0.1 + 0.1 + 0.4]]))
    certain = rejection_sampling(p[:, :2].log(), torch.tensor([[1]]), None, Sampler(sampling(), 3, CPU))
    assert certain.probability.item() == certain.overlap.item() == pytest.approx(0.3), "q is one-hot: both are p"


def test_top_k_passes_the_k_best_and_nothing_that_warpers_cut() -> None:
    """Guards the lossy rule's threshold, and a cut token (score −inf) passing because fewer than k are left."""
    cut = float("-inf")
    scores = torch.tensor([[[4.0, 3.0, 2.0, cut]]]).expand(4, 2, 4)
    drafted = torch.tensor([[0], [1], [2], [3]])
    sampler = Sampler(Settings(acceptance="top_k"), 4, CPU)
    assert among_top_k(2)(scores, drafted, None, sampler).accepted.tolist() == [1, 1, 0, 0]
    assert among_top_k(10)(scores, drafted, None, sampler).accepted.tolist() == [1, 1, 1, 0]
    assert among_top_k(2)(scores, drafted, None, sampler).token.tolist() == [0, 0, 0, 0]


def test_typical_asks_less_of_an_unsure_target() -> None:
    """Guards min(ε, δ·exp(−H)) by hand: sure rows ask for 0.09, a flat row of 20 for 0.3/20 = 0.015."""
    flat = torch.full((20,), 1 / 20)
    sure = torch.tensor([0.92, 0.08, *[0.0] * 18])
    scores = torch.stack([flat, sure, flat]).log().unsqueeze(0)
    sampler = Sampler(sampling(acceptance="typical"), 20, CPU)
    assert typical(scores, torch.tensor([[3, 0]]), None, sampler).accepted.tolist() == [2]
    assert typical(scores, torch.tensor([[3, 1]]), None, sampler).accepted.tolist() == [1]


def test_block_weights_are_worked_out_by_hand() -> None:
    """Guards wᵢ = min(1, wᵢ₋₁·p/q), capped at every step, and the certain acceptance of p = q."""
    p = torch.tensor([[[0.6, 0.4], [0.2, 0.8], [0.5, 0.5]]])
    q = torch.tensor([[[0.3, 0.7], [0.4, 0.6]]])
    sampler = Sampler(sampling(), 2, CPU)
    verdict = block_verification(p.log(), torch.tensor([[0, 0]]), q, sampler)
    torch.testing.assert_close(verdict.probability, torch.tensor([[1.0, 0.5]]))
    verdict = block_verification(p.log(), torch.tensor([[1, 0]]), q, sampler)
    torch.testing.assert_close(verdict.probability, torch.tensor([[0.4 / 0.7, 0.4 / 0.7 * 0.5]]))
    same = block_verification(p.log(), torch.tensor([[1, 0]]), p[:, :-1], sampler)
    assert same.accepted.tolist() == [2]
