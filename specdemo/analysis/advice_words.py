"""How the advisor's findings are written for people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from specdemo.analysis.contenders import SERVER
from specdemo.analysis.disturbance import FEWEST
from specdemo.analysis.racing import PLACE_OF_PLAIN, Standing
from specdemo.analysis.wording import LEVEL, trend_of
from specdemo.drafters import DRAFTERS
from specdemo.settings import LOSSY_RULES

if TYPE_CHECKING:
    from specdemo.analysis.advice import AdviceReport
    from specdemo.analysis.rows import Row

SURE = 0.5
"""A certainty below this is none."""
LEAST_RUNS = 3
"""Of a setting, before its costs are called hopeless: one run's times may be an accident."""


def dropped_text(dropped: Standing, names: list[str]) -> str:
    """Why a contender was not measured further."""
    return (
        f"{names[dropped.by]} is {dropped.lead:.2f} times as fast, by {dropped.blocks} runs of both "
        f"(certainty {_percent(dropped.certainty)})"
    )


def verdict(report: AdviceReport, place: int) -> str:
    """How one contender stands. Standings are of common blocks, figures of all blocks of each."""
    race = report.race
    if report.noisy:
        return "open"
    if place == race.leader:
        return "ahead, not proven" if report.pays is None else "recommended"
    if place in race.dropped:
        return "beaten"
    if place in race.resting:
        return "far behind, not proven"
    return "undecided" if report.complete else "in the race"


def recommendation(report: AdviceReport) -> str:
    """The advice, its certainty, and what casts doubt on it."""
    best, plain_leads = report.best, report.race.leader == PLACE_OF_PLAIN
    if report.noisy:
        return " ".join(filter(None, (report.noise, _extent(report))))
    if best is None:
        return _nothing(report)
    shown = max((row for row in report.known if row is not best), key=lambda r: r.range) if plain_leads else best
    acceptance, loops, timed = report.base.acceptance, _numbers(report.looping), shown.emitted or 0
    parts = [
        "" if report.complete else "So far:",
        _claim(report, best, shown),
        _hopeless(report, best),
        "" if shown.copied is None else f"It copies in {shown.copied:.0%} of the rounds.",
        f"The rule {acceptance!r} is lossy: the output is not the target's."
        if acceptance in LOSSY_RULES and not plain_leads
        else "",
        f"The plain output of {loops} loops, which flatters every drafter." if report.looping else "",
        f"Only {timed} tokens were timed: too few to be sure." if timed < FEWEST else "",
        _extent(report),
    ]
    return " ".join(filter(None, parts))


def _nothing(report: AdviceReport) -> str:
    if report.runs and not any(run.emitted for run in report.runs):
        more = "Give other prompts, or switch ignore_eos on."
        if report.server is not None:
            more = "Give other prompts, or see whether the server counts its tokens."
        return f"The answers are too short to time: they end with their first token. {more}"
    pair = "a plain run and a drafted one of the same prompt."
    if not report.complete:
        return f"Nothing was measured yet: advice needs {pair}"
    too_few = f"{report.budget_seconds:g} s were too few for {pair}"
    return f"Nothing was measured: {too_few} Give more seconds, or fewer tokens."


def _claim(report: AdviceReport, best: Row, shown: Row) -> str:
    """Who is the fastest, with a speed-up of as many digits as its interval, and the rival.

    Args:
        report: the advice.
        best: the recommended row.
        shown: whose speed is given: that one, or the fastest that drafts where plain decoding leads.
    """
    over = " on these prompts" if shown.interval_over == "runs" else ""
    between = f" [{shown.interval[0]:.2f}, {shown.interval[1]:.2f}]{over}" if shown.interval else ""
    figure, behind = f"{shown.speedup:.2f}×{between}", _behind(report)
    unsure = "Whether speculation pays here is open:"
    if shown is not best:
        found = f"{shown.name} runs at {figure} of its speed{behind}."
        if report.pays is None:
            return f"{unsure} plain decoding is ahead; {found}"
        return f"None: plain decoding is fastest; {found}"
    if report.pays is None and trend_of(shown.range[0]) != "faster":
        return f"{unsure} the best, {best.name}, runs at {figure}{behind}."
    open_ = "" if report.pays else ", though it is not proven that this beats plain decoding"
    return f"{best.name[:1].upper()}{best.name[1:]}: {figure}{open_}{behind}."


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


def _numbers(prompts: Iterable[int]) -> str:
    found = [*map(str, prompts)]
    return f"prompt{'s' if len(found) > 1 else ''} {', '.join(found)}"


def _hopeless(report: AdviceReport, best: Row) -> str:
    """The drafters that could not pay even if the target kept every drafted token, and what is too dear."""
    found: dict[str, list[tuple[float, int, float, float]]] = {}
    for row in report.rows:
        gamma, c, v = row.gamma, row.draft_cost, row.verify_cost
        if gamma and c is not None and v is not None and row.runs >= LEAST_RUNS:
            found.setdefault(row.method, []).append(((gamma + 1) / (gamma * c + v), gamma, c, v))
    said = []
    for method, costs in found.items():
        most, gamma, c, v = max(costs)
        # A single γ must fail by as much as another may be better.
        if method != best.method and most < (1 + LEVEL if len(costs) > 1 else 1 - LEVEL):
            step, check = (
                f"A step of {method} costs {c:.2f} of the target's",
                f"Checking {gamma + 1} tokens of {method}",
            )
            cost = step if gamma * c > v - 1 else f"{check} costs {v:.2f} steps of the target"
            tried = ", ".join(map(str, sorted(gamma for _, gamma, *_ in costs)))
            said.append(f"{cost}: with γ {tried} it cannot pay even if all were kept.")
    return " ".join(said)


def _extent(report: AdviceReport) -> str:
    """How much of what was asked for was not reached."""
    tried, reached = ({getattr(run, name) for run in report.counted} for name in ("contender", "prompt"))
    known = {"", SERVER, *(contender.family for contender in tried)}
    said = [f"Measured on {len(reached)} of {report.prompts} prompts"] if len(reached) < report.prompts else []
    if missing := dict.fromkeys(c.family for c in report.contenders if c.family not in known):
        said.append(f"not tried: {', '.join(DRAFTERS[family].label for family in missing)}")
    text = "; ".join([*said, *["give more seconds"] * bool(said and report.complete)])
    mute = sorted(number + 1 for number in reached - {run.prompt for run in report.counted if run.emitted})
    parts = [f"{text[0].upper()}{text[1:]}."] if text else []
    if mute:
        parts.append(f"Without a speed, since their answers end with the first token: {_numbers(mute)}.")
    return " ".join(parts)
