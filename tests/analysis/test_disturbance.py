"""The one guard of all figures: what shows that a machine was busy, and what is then neither said nor offered."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from threading import Event

import pytest
from made_traces import PLAIN as PLAIN_SETTINGS
from made_traces import lane_of

from specdemo import Settings, Trace
from specdemo.analysis.advice import AdviceReport
from specdemo.analysis.contenders import PLAIN, SERVER, Contender
from specdemo.analysis.disturbance import Pace, disturbance, pace_of
from specdemo.analysis.rows import Run
from specdemo.analysis.speedup import speedup_of
from specdemo.analysis.sweep_report import SweepReport
from specdemo.metrics import Metrics, RoundCounts
from specdemo.runs.measuring import TIMES_AGAIN, Driver
from specdemo.ui.tabs.results import _headline
from specdemo.view.charts import NOTHING_DRAWN, forest, speedup_figure
from specdemo.view.headline import headline, headline_text
from specdemo.view.lane_headers import trace_headers
from specdemo.view.tables import report_table

MODEL, LOOKUP = Contender("model", 4), Contender("prompt_lookup", 4)


def rounds(count: int, kept: int, verify: float, draft: float = 0.0, drafted: int = 4) -> tuple[RoundCounts, ...]:
    return (RoundCounts(drafted, kept, kept + 1, draft, verify, 0.0),) * count


STEPS, ROUNDS = rounds(64, 0, 0.01, drafted=0), rounds(16, 3, 0.012, 0.004)
SLOWED = (*STEPS[:32], *rounds(32, 0, 0.02, drafted=0))
HICCUP = (*ROUNDS[:-1], replace(ROUNDS[0], verify_seconds=0.2))
UNSURE = (*STEPS[:60], *rounds(4, 0, 0.3, drafted=0))


@pytest.mark.parametrize(
    ("plain", "drafted", "said"),
    [
        (STEPS, ROUNDS, None),
        (STEPS, rounds(16, 3, 0.008, 0.004), "Checking several tokens took 0.80 of a plain step"),
        (STEPS, rounds(16, 3, 0.0046), "Rounds that keep 4.00 tokens seemed cheaper than plain steps"),
        (SLOWED, ROUNDS, "A plain step took 10 ms at one time and 20 at another"),
        (STEPS, HICCUP, "Some steps took far longer than most"),
        (UNSURE, ROUNDS, "seemed cheaper than plain steps"),
        (STEPS[:8], rounds(2, 3, 0.008, 0.004), None),  # too few for anything
        (STEPS[:8], rounds(2, 3, 0.004), "seemed cheaper than plain steps"),  # but what cannot be
        (STEPS, (*rounds(40, 0, 0.01, drafted=0), *rounds(6, 3, 0.012)), None),  # a lookup that finds little
        (STEPS, (*rounds(8, 1, 0.011, 0.002, 2), *rounds(8, 5, 0.014, 0.006, 6)), None),  # adaptive γ
        (STEPS, rounds(16, 4, 0.015, 0.004, 24), None),  # trees
    ],
)
def test_what_shows_a_busy_machine(
    plain: tuple[RoundCounts, ...], drafted: tuple[RoundCounts, ...], said: str | None
) -> None:
    """Guards each sign, and silence where there is none."""
    found = disturbance(pace_of(plain), pace_of(drafted))
    assert found is None if said is None else said in (found or "")


def test_other_weights_servers_and_batches_are_not_held_to_what_does_not_bind_them() -> None:
    slow, fast = pace_of(rounds(64, 0, 0.03, drafted=0)), pace_of(ROUNDS)
    assert disturbance(slow, fast) is not None
    assert disturbance(slow, fast, alike=False) is None, "quantised weights may be faster than one step of others"
    served = Metrics(10, 40, 30, 40, **dict.fromkeys(SERVED), seconds=1.0)
    assert Run(Contender(SERVER), 0, 0, figures=served).pace is None
    plain, batch = Pace(64, 100.0, 100.0, 0.02, None, 4.0), Pace(64, 600.0, 600.0, 0.01, None, 2.0)
    assert disturbance(plain, batch) is None, "fewer rows in a round are cheaper, and its τ bounds nothing"
    assert "took 0.50 of a plain step" in (disturbance(plain, replace(batch, rows=4.0)) or "")


SERVED = (
    *("wasted", "usual_draft", "tree_nodes", "tree_depth", "saved_rounds", "first_guess_length", "draft_cost"),
    *("verify_cost", "tokens_per_second", "end_to_end_tokens_per_second", "ttft", "tpot", "draft_share"),
    *("verify_share", "other_share", "peak_memory"),
)


def swept(*repeats: tuple[tuple[RoundCounts, ...], tuple[RoundCounts, ...]]) -> SweepReport:
    """A sweep of γ 4: of each repeat its plain steps and its rounds."""
    runs = [
        Run(contender, 0, n, steps)
        for n, both in enumerate(repeats)
        for contender, steps in zip((PLAIN, MODEL), both, strict=True)
    ]
    return SweepReport(
        base=Settings(), contenders=(PLAIN, MODEL), prompts=1, repeats=len(repeats), runs=tuple(runs)
    )


BUSY = swept((SLOWED, rounds(16, 3, 0.004)), (STEPS, ROUNDS))


def test_a_noisy_sweep_recommends_nothing_and_its_figures_are_bounds() -> None:
    """15× of the first repeat at τ 4, and 2.5× of the second, stand nowhere; a file has the rounds behind them."""
    quiet = swept((STEPS, ROUNDS), (STEPS, ROUNDS))
    assert (quiet.noisy, quiet.pays, quiet.best_gamma) == (False, True, 4)
    assert (BUSY.noisy, BUSY.pays, BUSY.best_gamma) == (True, None, None)
    assert "By the tokens of its rounds no setting here can pass 4.00×." in BUSY.recommendation
    assert _headline(BUSY)[0] == "≤ 4.00×"
    table = report_table(BUSY)
    assert "at most 4.00×" in table
    for figure in (f"{BUSY.rows[0].speedup:.2f}", f"{BUSY.rows[0].speedup_high:.2f}"):
        assert figure not in table + BUSY.recommendation
    drawn = [(series.name, series.y) for series in speedup_figure(BUSY).data if series.y]
    assert drawn == [("at most τ", (4.0,))]
    (line,) = csv.DictReader(BUSY.to_csv().splitlines())
    assert ("speedup" in line, line["doubt"]) == (False, BUSY.doubt)
    record = json.loads(BUSY.to_json())
    assert (record["noisy"], record["best_gamma"], record["rows"][0]["speedup"]) == (True, None, None)
    assert "doubt" not in quiet.to_csv()


def test_a_speedup_just_above_what_its_rounds_allow_is_shown_as_that() -> None:
    """A lookup that costs nothing may measure 1.02× at τ 1.00: no noise, and no such figure either."""
    report = swept((rounds(64, 0, 0.0102, drafted=0), rounds(64, 0, 0.01, drafted=0)))
    assert not report.noisy
    assert report.rows[0].speedup == pytest.approx(1.02)
    assert report.shown[0].speedup == report.best.range[0] == 1.0
    assert "1.02" not in report_table(report) + report.recommendation


@dataclass
class Clocked(Driver[SweepReport]):
    """Makes runs of made-up steps, a second each on its own clock."""

    script: Iterator[tuple[RoundCounts, ...]] = field(default_factory=lambda: iter(()))
    now: float = 0.0

    def __post_init__(self) -> None:
        self.clock = lambda: self.now

    def decoded(self, contender: Contender, prompt: int, repeat: int, shared: Settings) -> Run:
        self.now += 1.0
        return Run(contender, prompt, repeat, next(self.script))


def measured(*script: tuple[RoundCounts, ...], repeats: int = 2) -> tuple[SweepReport, float]:
    """The last report of a sweep whose runs take these times, the last two without end, and its seconds."""

    def endless() -> Iterator[tuple[RoundCounts, ...]]:
        yield from script
        while True:
            yield from script[-2:]

    report = replace(swept(*[(STEPS, ROUNDS)] * repeats), runs=())
    driver = Clocked(None, [(1,)], report, Event(), script=endless())
    *_, last = driver.steps(8, ())
    return last.report, driver.now


def test_what_was_disturbed_is_measured_again_when_plain_steps_are_steady() -> None:
    """The second repeat, whose plain run comes last, was slowed twice; or a drafted run had a hiccup."""
    report, seconds = measured(STEPS, ROUNDS, ROUNDS, SLOWED, SLOWED, STEPS)
    assert (report.noisy, report.again, seconds) == (False, 2, 6.0)
    report, seconds = measured(STEPS, ROUNDS, HICCUP, STEPS, STEPS, ROUNDS)
    assert (report.noisy, report.again, seconds) == (False, 2, 6.0)
    assert report.complete
    assert len(report.runs) == 4
    assert report.pays


@pytest.mark.parametrize("busy", [(SLOWED, SLOWED), (STEPS, rounds(16, 3, 0.004))])
def test_a_machine_that_stays_busy_is_not_measured_forever(busy: tuple[tuple[RoundCounts, ...], ...]) -> None:
    """A few times, and no longer than all else took."""
    report, seconds = measured(STEPS, ROUNDS, busy[1], busy[0], *busy, repeats=2)
    assert report.noisy
    assert seconds <= 8.0
    assert report.again <= 2 * TIMES_AGAIN


def advised(*blocks: dict[Contender, tuple[RoundCounts, ...]], **fields: object) -> AdviceReport:
    runs = [
        Run(contender, n, n, steps, wall_seconds=1.0)
        for n, block in enumerate(blocks)
        for contender, steps in ({PLAIN: STEPS} | block).items()
    ]
    about = {"base": Settings(), "contenders": (PLAIN, MODEL, LOOKUP), "prompts": len(blocks), "ended": True}
    return AdviceReport(runs=tuple(runs), **{**about, **fields})


def wobbling(n: int) -> dict[Contender, tuple[RoundCounts, ...]]:
    """A block in which the draft model does 2.5×, and lookup 0.9×, give or take a per cent."""
    return {MODEL: rounds(16, 3, 0.012 * (1 + 0.01 * (-1) ** n), 0.004), LOOKUP: rounds(64, 0, 0.011)}


DISTURBED = {MODEL: rounds(16, 3, 0.004), LOOKUP: rounds(64, 0, 0.004)}


def test_advice_leaves_a_few_disturbed_blocks_out_and_gives_none_where_they_are_many() -> None:
    few = advised(*(DISTURBED if n == 5 else wobbling(n) for n in range(8)))
    assert (few.noisy, few.pays, few.best.name) == (False, True, "draft model, γ 4")
    assert few.best.speedup == pytest.approx(2.5, rel=0.01)
    assert few.best.prompts == 7
    many = advised(*(wobbling(n) if n < 4 else DISTURBED for n in range(8)))
    assert (many.noisy, many.pays, many.best, many.by_kind) == (True, None, None, ())
    assert many.settings().strategy == "autoregressive"
    assert many.code("vllm").startswith("# The machine was busy")
    assert {row.verdict for row in many.rows} == {"open"}
    assert "×</span></div>" not in forest(many)
    assert NOTHING_DRAWN in forest(many)
    assert NOTHING_DRAWN not in forest(few)
    assert "recommended" not in report_table(many) + many.recommendation
    assert many.recommendation.startswith("The machine was busy")


@pytest.mark.parametrize("prompts", [1, 2, 8])
@pytest.mark.parametrize("kept", [0, 1, 3])
def test_the_table_never_recommends_what_the_sentence_leaves_open(prompts: int, kept: int) -> None:
    """Guards a table that said more than its sentence, whoever leads, with little and with much evidence."""
    report = advised(*({MODEL: rounds(16, kept, 0.0125 + 0.0002 * (-1) ** n, 0.004)} for n in range(prompts)))
    open_ = report.pays is None
    assert open_ is ("is open" in report.recommendation or "not proven" in report.recommendation)
    assert ("recommended" in report_table(report)) is not open_


def raced(plain: tuple[float, ...], checks: tuple[float, ...]) -> list[Trace]:
    kinds = ["accepted"] * 3 + ["rejected", "corrected"]
    lanes = [
        lane_of(PLAIN_SETTINGS, [(["target"], (0.0, step, 0.0)) for step in plain]),
        lane_of(Settings(gamma=4), [(kinds, (0.004, check, 0.0)) for check in checks]),
    ]
    return [replace(t, rounds=(*t.rounds[:-1], replace(t.rounds[-1], stop="length"))) for t in lanes]


def test_a_busy_race_says_bounds_below_what_its_rounds_allow() -> None:
    lanes = raced((*[0.01] * 32, *[0.04] * 32), (0.012,) * 16)
    found = speedup_of(*lanes)
    assert found.doubt is not None
    assert found.ratio <= found.most == 4.0
    assert found.high <= 4.0
    said = headline(lanes, trace_headers(lanes))
    assert said["figure"] == "at most 4.0×"
    assert "6.2" not in headline_text(said)
