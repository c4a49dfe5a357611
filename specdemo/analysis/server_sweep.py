"""The row of a sweep on a server: its γ is its own, and of its rounds only the counts are known."""

from __future__ import annotations

from itertools import zip_longest

from specdemo.analysis.metrics import Metrics, ratio
from specdemo.analysis.sweep_rows import SweepRow, SweepRun, by_repeat, middle, speed, speedups


def server_row(gamma: int | None, runs: list[SweepRun], plain: list[SweepRun]) -> SweepRow:
    """The figures of a server's speculation from its runs, against the plain runs of the same prompts and repeats.

    Args:
        gamma: the most tokens it drafts in a step; None if it does not say.
        runs, plain: with their figures; a count that one of the runs lacks is None.
    """
    figures = [run.figures for run in runs]
    rounds, proposed, accepted = (_sum(figures, name) for name in ("rounds", "proposed", "accepted"))
    emitted = sum(run.emitted for run in runs)
    histogram = _added([m.accepted_histogram for m in figures])
    known = rounds and histogram and sum(histogram) == rounds
    speeds = [v for v in map(speed, by_repeat(runs).values()) if v is not None]
    faster = speedups(runs, plain)
    return SweepRow(
        gamma=gamma,
        runs=len(runs),
        rounds=rounds,
        proposed=proposed,
        accepted=accepted,
        emitted=emitted,
        acceptance_rate=ratio(accepted, proposed) if proposed else None,
        mean_acceptance_length=ratio(emitted, rounds) if rounds else None,
        tokens_per_second=middle(speeds),
        tokens_per_second_low=min(speeds, default=None),
        tokens_per_second_high=max(speeds, default=None),
        speedup=middle(faster),
        speedup_low=min(faster, default=None),
        speedup_high=max(faster, default=None),
        predicted_speedup=None,
        expected_speedup=None,
        leviathan_speedup=None,
        draft_cost=None,
        verify_cost=None,
        overhead_cost=None,
        accepted_histogram=histogram if known else [],
        per_position=[sum(histogram[j + 1 :]) / rounds for j in range(len(histogram) - 1)] if known else [],
        conditional_per_position=[],
        draft_seconds=None,
        verify_seconds=None,
        other_seconds=None,
    )


def _sum(figures: list[Metrics], name: str) -> int | None:
    values = [getattr(m, name) for m in figures]
    return None if None in values else sum(values)


def _added(lists: list[list[int]]) -> list[int]:
    return [sum(column) for column in zip_longest(*lists, fillvalue=0)]
