"""How the advisor's findings are written for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdemo.analysis.racing import PLAIN, Dropped
from specdemo.analysis.wording import ratio, trend_of

if TYPE_CHECKING:
    from specdemo.analysis.advice import AdviceReport
    from specdemo.analysis.advice_rows import AdviceRow

SURE = 0.5
"""A certainty below this is none."""
HARDLY = 0.97
"""Of the best speed: γ of the same drafter above this do as well."""
IN_RACE = "in the race"


def dropped_text(dropped: Dropped, names: list[str]) -> str:
    """Why a contender was not measured further."""
    return (
        f"{names[dropped.by]} is {ratio(dropped.lead)[:-1]} times as fast, by {dropped.blocks} runs of both "
        f"(certainty {_percent(dropped.certainty)})"
    )


def verdict(report: AdviceReport, place: int) -> str:
    """How one contender stands."""
    race = report.race
    if place == race.leader:
        return "recommended"
    if place in race.dropped:
        return "beaten"
    if place in race.resting:
        return "far behind, not proven"
    return IN_RACE


def recommendation(report: AdviceReport) -> str:
    """The advice, its certainty, and what casts doubt on it."""
    best = report.best
    if best is None:
        return "Nothing was measured yet: advice needs a plain run and a drafted one of the same prompt."
    parts = [_claim(report, best), _hopeless(report), _as_good(report, best), _kinds(report), _loops(report)]
    if not report.complete:
        parts.insert(0, "So far:")
    return " ".join(filter(None, parts))


def _claim(report: AdviceReport, best: AdviceRow) -> str:
    if report.race.leader == PLAIN:
        others = [row for row in report.rows if row.speedup is not None and row is not best]
        top = max(others, key=lambda row: row.speedup)
        return f"None: plain decoding is fastest; {top.name} runs at {_figure(top)} of its speed{_behind(report)}."
    name = best.name[:1].upper() + best.name[1:]
    if report.pays is None and trend_of(best.speedup) != "faster":
        found = f"the best, {best.name}, runs at {_figure(best)}{_behind(report)}"
        return f"Whether speculation pays here is open: {found}."
    open_ = "" if report.pays else ", though it is not proven that this beats plain decoding"
    return f"{name}: {_figure(best)}{open_}{_behind(report)}."


def _figure(row: AdviceRow) -> str:
    over = "" if row.interval_over != "runs" else " on these prompts"
    between = f" [{row.interval[0]:.2f}, {row.interval[1]:.2f}]{over}" if row.interval else ""
    return f"{ratio(row.speedup)}{between}"


def _behind(report: AdviceReport) -> str:
    """The rival, and how sure it is that it is one."""
    rival = report.rival
    if rival is None:
        return ""
    name = report.names[rival.contender]
    if rival.certainty < SURE:
        return f"; {name} cannot be told apart from it yet"
    return f"; {name} is behind with {_percent(rival.certainty)}"


def _percent(certainty: float) -> str:
    return "over 99.9 %" if certainty > 0.999 else f"{int(1000 * certainty) / 10:g} %"


def _as_good(report: AdviceReport, best: AdviceRow) -> str:
    """Other γ of the same drafter that do as well."""
    rows = [r for r in report.rows if r.method == best.method and r.gamma is not None and r.verdict == IN_RACE]
    level = sorted(r.gamma for r in rows if (r.speedup or 0) > HARDLY * best.speedup)
    if not level or best.gamma is None or report.race.leader == PLAIN:
        return ""
    return f"γ {', '.join(map(str, level))} {'does' if len(level) == 1 else 'do'} as well, within 3 %."


def _hopeless(report: AdviceReport) -> str:
    """A drafter that could not pay even if the target kept every drafted token."""
    if report.race.leader != PLAIN:
        return ""
    found = {}
    for row in report.rows:
        if row.gamma and row.draft_cost is not None and row.verify_cost is not None:
            most = (row.gamma + 1) / (row.gamma * row.draft_cost + row.verify_cost)
            found.setdefault(row.method, []).append((most, row.draft_cost))
    said = [
        f"A step of {method} costs {costs[0][1]:.2f} of the target's: it cannot pay even if all were kept."
        for method, costs in found.items()
        if max(most for most, _ in costs) < 1 + 0.05
    ]
    return " ".join(said)


def _kinds(report: AdviceReport) -> str:
    """The kinds for which something else is faster, as far as that is more likely than not."""
    names, leader = report.names, report.race.leader
    apart = [
        f"{row.kind} ({row.method}, {ratio(row.speedup)})"
        for row in report.by_kind
        if row.method != names[leader]
        and report.race.behind(leader, names.index(row.method), row.kind).certainty >= SURE
    ]
    return f"For some kinds of prompts something else is faster: {', '.join(apart)}." if apart else ""


def _loops(report: AdviceReport) -> str:
    if not report.looping:
        return ""
    numbers = ", ".join(map(str, report.looping))
    some = "prompt" if len(report.looping) == 1 else "prompts"
    return f"The plain output of {some} {numbers} loops, which flatters every drafter."
