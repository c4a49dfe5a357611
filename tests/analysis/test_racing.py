"""The advisor's race on simulated pairs: acceptance and costs are known, and durations are simulated."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest

from specdemo.analysis.advice import interval_of
from specdemo.analysis.contenders import GRID, P_MINS, contenders_of
from specdemo.analysis.racing import EFFECT, ERROR, PLACE_OF_PLAIN, Race, log_evidence
from specdemo.theory import expected_tokens

SEEDS, PROMPTS, BUDGET, PLAIN_SECONDS, NOISE = 200, 24, 120.0, 0.5, 0.04
POPULATION = 2000
SPREAD = 0.35  # of the logit of α over prompts: of all drafters together, and of each


@dataclass
class SimulatedPair:
    """Three drafters with their α and c on a machine with its v(γ) = 1 + slope · γ."""

    alphas: dict[str, float]
    costs: dict[str, float]
    slope: float

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> SimulatedPair:
        alphas = {"model": rng.uniform(0.3, 0.9), "copies": rng.uniform(0.1, 0.8), "exit": rng.uniform(0.05, 0.6)}
        costs = {"model": rng.uniform(0.03, 0.6), "copies": 0.003, "exit": rng.uniform(0.3, 0.5)}
        return cls(alphas, costs, rng.uniform(0.0, 0.08))

    def log_speedups(self, prompts: int, rng: np.random.Generator) -> np.ndarray:
        """(contenders, prompts), each prompt with an α of its own for every drafter."""
        shared, rows = rng.normal(0, SPREAD, prompts), [np.zeros(prompts)]
        for family, alpha in self.alphas.items():
            logit = math.log(alpha / (1 - alpha)) + shared + rng.normal(0, SPREAD, prompts)
            own = 1 / (1 + np.exp(-logit))
            cost = {g: g * self.costs[family] + 1 + self.slope * g for g in GRID}
            speedups = {g: np.log((1 - own ** (g + 1)) / (1 - own) / cost[g]) for g in GRID}
            best = max(GRID, key=lambda g: expected_tokens(alpha, g) / cost[g])
            rows += [*speedups.values(), speedups[best] + math.log(0.95)]  # adaptive γ, a little worse
        return np.array(rows)


@dataclass
class Result:
    """How one race ended: regret of the choice, whether it lost the best, and whether each interval covers."""

    regret: float
    lost: bool
    covered: list[bool]


def simulate(seed: int) -> Result:
    rng = np.random.default_rng(seed)
    pair = SimulatedPair.drawn(rng)
    race = Race(contenders_of([*pair.alphas]))
    true = pair.log_speedups(POPULATION, np.random.default_rng(seed + 10**6)).mean(axis=1)
    logs = pair.log_speedups(PROMPTS, rng)
    clock, seen = 0.0, {}
    while not race.decided or race.blocks < PROMPTS:
        prompt, running = race.blocks % PROMPTS, race.running
        seconds = PLAIN_SECONDS * np.exp(rng.normal(0, NOISE, len(running)) - logs[running, prompt])
        clock += float(seconds.sum())
        if clock > BUDGET:
            break
        plain = seconds[running.index(PLACE_OF_PLAIN)]
        found = {n: float(plain / s) for n, s in zip(running, seconds, strict=True) if n != PLACE_OF_PLAIN}
        race.add(found)
        for place, speedup in found.items():
            seen.setdefault(place, {}).setdefault(prompt, []).append(math.log(speedup))
    intervals = {place: interval_of(values)[0] for place, values in seen.items()}
    covered = [low <= math.exp(true[n]) <= high for n, (low, high) in ((n, i) for n, i in intervals.items() if i)]
    return Result(math.exp(true.max() - true[race.leader]) - 1, int(true.argmax()) in race.dropped, covered)


def test_races_end_with_what_is_about_the_best_and_their_stated_errors_hold() -> None:
    """Guards the choice, the chance that the best is dropped, and that intervals cover the true speed-up."""
    results = [simulate(seed) for seed in range(SEEDS)]
    assert np.mean([r.regret <= 0.03 for r in results]) >= 0.95
    assert np.mean([r.lost for r in results]) <= ERROR
    covered = [c for r in results for c in r.covered]
    assert len(covered) > 10 * SEEDS
    assert np.mean(covered) == pytest.approx(0.95, abs=0.02)


def test_what_does_not_differ_is_called_different_no_more_often_than_stated() -> None:
    """Guards the certainty: looked at after each of 40 blocks, over 1,000 races between two equals."""
    rng, count = np.random.default_rng(1), np.arange(1, 41)
    values = rng.normal(0, 0.1, (1000, 40))
    mean = np.cumsum(values, axis=1) / count
    square = np.cumsum(values**2, axis=1)
    variance = (square - count * mean**2) / np.maximum(count - 1, 1)
    peak = np.vectorize(log_evidence)(count, mean, variance).max(axis=1)
    for certainty in (0.8, 0.95, 0.99):
        assert np.mean(peak >= -math.log(1 - certainty)) <= 1 - certainty


def test_the_evidence_is_the_bayes_factor_of_the_t_test() -> None:
    """Against the integral over the effect that it stands for, for n = 4 and t = 5."""
    from scipy import integrate, stats

    n, t = 4, 5.0
    density = lambda effect: stats.nct.pdf(t, n - 1, effect * math.sqrt(n)) * stats.norm.pdf(effect, 0, EFFECT)  # noqa: E731
    wanted = integrate.quad(density, -40, 40, limit=400)[0] / stats.t.pdf(t, n - 1)
    found = math.exp(log_evidence(n, t * 0.1 / math.sqrt(n), 0.01))
    assert found == pytest.approx(wanted, rel=1e-3)


def test_who_leads_on_a_kind_of_prompt_stays_in_the_race() -> None:
    race = Race(contenders_of(["model"], adaptive=False))
    first, second, third = race.running[1:]
    for block in range(12):
        noise = 1 + 0.01 * (-1) ** block
        code = block % 4 == 0
        race.add({first: 2.0 * noise, second: 2.2 if code else 1.2, third: 0.5}, "code" if code else "chat")
    assert third in race.dropped
    assert second not in race.dropped
    assert race.leader == first
    assert race.best(race.live, "code") == second


def test_what_is_a_step_from_the_best_enters_by_gamma_and_by_p_min() -> None:
    contenders = contenders_of(["model"], adaptive=False, sure=P_MINS)
    race = Race(contenders)
    tried = {(c.gamma, c.p_min) for c in (contenders[n] for n in race.entered) if c.gamma}
    assert tried == {(2, 0.0), (4, 0.0), (8, 0.0), (8, 0.4)}
    speeds = [2 - 0.05 * abs(GRID.index(c.gamma or 1) - GRID.index(12)) - abs(c.p_min - 0.7) for c in contenders]
    for _ in range(20):
        race.add({n: speeds[n] for n in race.running[1:]})
    best = contenders[race.leader]
    assert (best.gamma, best.p_min) == (12, 0.7)
    assert len(race.entered) < len(contenders) / 2
