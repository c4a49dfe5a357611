"""How the advisor's findings are written for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdemo.analysis.contenders import SERVER
from specdemo.analysis.racing import PLACE_OF_PLAIN, Dropped
from specdemo.analysis.reasons import LEAST_CHECK
from specdemo.analysis.speedup import FEWEST
from specdemo.analysis.wording import LEVEL, trend_of
from specdemo.drafters import DRAFTERS
from specdemo.settings import LOSSY_RULES

if TYPE_CHECKING:
    from specdemo.analysis.advice import AdviceReport
    from specdemo.analysis.rows import Row

SURE = 0.5
"""A certainty below this is none."""
HARDLY = 0.97
"""Of the best speed: γ of the same drafter above this do as well."""
LEAST_RUNS = 3
"""Of a setting, before its costs are called hopeless: one run's times may be an accident."""


def dropped_text(dropped: Dropped, names: list[str]) -> str:
    """Why a contender was not measured further."""
    return (
        f"{names[dropped.by]} is {dropped.lead:.2f} times as fast, by {dropped.blocks} runs of both "
        f"(certainty {_percent(dropped.certainty)})"
    )


def verdict(report: AdviceReport, place: int) -> str:
    """How one contender stands. Standings are of common blocks, figures of all blocks of each."""
    race = report.race
    if place == race.leader:
        proven = place == PLACE_OF_PLAIN or race.behind(PLACE_OF_PLAIN, place).certainty >= 1 - report.error
        return "recommended" if proven else "recommended, not proven"
    if place in race.dropped:
        return "beaten"
    if place in race.resting:
        return "far behind, not proven"
    return "undecided" if report.complete else "in the race"


def recommendation(report: AdviceReport) -> str:
    """The advice, its certainty, and what casts doubt on it."""
    best = report.best
    if best is None:
        return _nothing(report)
    says = (_hopeless, _as_good, _kinds, _lossy, _loops, _doubt, _extent)
    parts = [_claim(report, best), *(say(report, best) for say in says)]
    if not report.complete:
        parts.insert(0, "So far:")
    return " ".join(filter(None, parts))


def _nothing(report: AdviceReport) -> str:
    if report.runs and not any(run.emitted for run in report.runs):
        if report.server is not None:
            return "No run has a speed: the answers end with their first token, or the server counts no tokens."
        return (
            "The answers are too short to time: they end with their first token. Give other prompts, or switch "
            "ignore_eos on."
        )
    if not report.complete:
        return "Nothing was measured yet: advice needs a plain run and a drafted one of the same prompt."
    return (
        f"Nothing was measured: {report.budget_seconds:g} s were too few for a plain run and a drafted one of the "
        "same prompt. Give more seconds, or fewer tokens."
    )


def _claim(report: AdviceReport, best: Row) -> str:
    if report.race.leader == PLACE_OF_PLAIN:
        top = _top(report, best)
        found = f"{top.name} runs at {_figure(top)} of its speed"
        if report.pays is None:
            return f"Whether speculation pays here is open: plain decoding is ahead; {found}{_behind(report)}."
        return f"None: plain decoding is fastest; {found}{_behind(report)}."
    name = best.name[:1].upper() + best.name[1:]
    if report.pays is None and trend_of(best.speedup) != "faster":
        found = f"the best, {best.name}, runs at {_figure(best)}{_behind(report)}"
        return f"Whether speculation pays here is open: {found}."
    open_ = "" if report.pays else ", though it is not proven that this beats plain decoding"
    return f"{name}: {_figure(best)}{open_}{_behind(report)}."


def _top(report: AdviceReport, best: Row) -> Row:
    """The recommended row; where that is plain decoding, the one whose speed is told."""
    others = [row for row in report.rows if row.speedup is not None and row is not best]
    return max(others, key=lambda row: row.speedup) if report.race.leader == PLACE_OF_PLAIN else best


def _figure(row: Row) -> str:
    """A speed-up with as many digits as its interval, outside which it would seem to lie with fewer."""
    over = "" if row.interval_over != "runs" else " on these prompts"
    between = f" [{row.interval[0]:.2f}, {row.interval[1]:.2f}]{over}" if row.interval else ""
    return f"{row.speedup:.2f}×{between}"


def _behind(report: AdviceReport) -> str:
    """The rival, and how sure it is that it is one."""
    rival = report.rival
    if rival is None or (rival.contender == PLACE_OF_PLAIN and report.pays is None):  # which is said already
        return ""
    name = "it" if report.race.leader == PLACE_OF_PLAIN else report.names[rival.contender]
    if rival.certainty < SURE:
        return f"; {name} cannot be told apart from it yet"
    # Blocks that repeat a prompt are no evidence about other prompts, which the interval is for.
    again = report.race.blocks > len({run.prompt for run in report.counted})
    return f"; {name} is slower (certainty {_percent(rival.certainty)}{' on these prompts' if again else ''})"


def _percent(certainty: float) -> str:
    return "over 99.9 %" if certainty > 0.999 else f"{int(1000 * certainty) / 10:g} %"


def _as_good(report: AdviceReport, best: Row) -> str:
    """Other γ of the same drafter that do as well on the prompts that both decoded."""
    race, contenders = report.race, report.contenders
    if best.gamma is None or race.leader == PLACE_OF_PLAIN:
        return ""
    family = contenders[race.leader].family
    near = [n for n in {*race.live} - race.resting - {race.leader} if contenders[n].family == family]
    stands = {contenders[n].gamma: race.behind(n, race.leader) for n in near if contenders[n].gamma is not None}
    level = sorted(gamma for gamma, found in stands.items() if found.blocks and found.lead < 1 / HARDLY)
    if not level:
        return ""
    return f"γ {', '.join(map(str, level))} {'does' if len(level) == 1 else 'do'} as well, within 3 %."


def _hopeless(report: AdviceReport, best: Row) -> str:
    """The drafters that could not pay even if the target kept every drafted token, and what is too dear."""
    found: dict[str, list[tuple[float, Row]]] = {}
    for row in report.rows:
        timed = row.gamma and row.draft_cost is not None and (row.verify_cost or 0.0) >= LEAST_CHECK
        if timed and row.runs >= LEAST_RUNS and row.method != best.method:
            most = (row.gamma + 1) / (row.gamma * row.draft_cost + row.verify_cost)
            found.setdefault(row.method, []).append((most, row))
    said = []
    for method, rows in found.items():
        most, row = max(rows, key=lambda each: each[0])
        # A single γ must fail by as much as another may be better.
        if most < (1 + LEVEL if len(rows) > 1 else 1 - LEVEL):
            drafts = row.gamma * row.draft_cost > row.verify_cost - 1
            cost = (
                f"A step of {method} costs {row.draft_cost:.2f} of the target's"
                if drafts
                else f"Checking {row.gamma + 1} tokens of {method} costs {row.verify_cost:.2f} steps of the target"
            )
            tried = ", ".join(str(gamma) for gamma in sorted(each.gamma for _, each in rows))
            said.append(f"{cost}: with γ {tried} it cannot pay even if all were kept.")
    return " ".join(said)


def _kinds(report: AdviceReport, best: Row) -> str:
    """The kinds for which something else is faster, as far as that is more likely than not."""
    names, leader = report.names, report.race.leader
    apart = [
        f"{row.kind} ({row.method}, {row.speedup:.2f}×)"
        for row in report.by_kind
        if row.method != names[leader]
        and report.race.behind(leader, names.index(row.method), row.kind).certainty >= SURE
    ]
    return f"For some kinds of prompts something else is faster: {', '.join(apart)}." if apart else ""


def _lossy(report: AdviceReport, best: Row) -> str:
    if report.race.leader == PLACE_OF_PLAIN or report.base.acceptance not in LOSSY_RULES:
        return ""
    return f"The rule {report.base.acceptance!r} is lossy: the output is not the target's."


def _loops(report: AdviceReport, best: Row) -> str:
    if not report.looping:
        return ""
    numbers = ", ".join(map(str, report.looping))
    some = "prompt" if len(report.looping) == 1 else "prompts"
    return f"The plain output of {some} {numbers} loops, which flatters every drafter."


def _doubt(report: AdviceReport, best: Row) -> str:
    """What speaks against the figure that is told, as in a race."""
    top = _top(report, best)
    said = [report.impossible(top)]
    if top.emitted < FEWEST:
        said.append(f"Only {top.emitted} tokens were timed: too few to be sure.")
    return " ".join(filter(None, said))


def _extent(report: AdviceReport, best: Row) -> str:
    """How much of what was asked for was not reached."""
    ran = {run.contender for run in report.counted}
    families = dict.fromkeys(c.family for c in report.contenders)
    tried = {c.family for c in ran}
    missing = [DRAFTERS[name].label for name in families if name not in tried and name not in ("", SERVER)]
    reached = {run.prompt for run in report.counted}
    said = [f"Measured on {len(reached)} of {report.prompts} prompts"] if len(reached) < report.prompts else []
    said += [f"not tried: {', '.join(missing)}"] if missing else []
    said += ["give more seconds"] if said and report.complete else []
    text = "; ".join(said)
    parts = [f"{text[0].upper()}{text[1:]}."] if text else []
    mute = reached - {run.prompt for run in report.counted if run.emitted}
    if mute:
        numbers = ", ".join(str(number + 1) for number in sorted(mute))
        parts.append(f"Without a speed, since their answers end with the first token: prompt {numbers}.")
    return " ".join(parts)
