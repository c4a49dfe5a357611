"""The advisor's report as a table, as a chart of intervals, as Markdown and as one HTML file."""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from typing import Any

from specdemo.analysis.advice import AdviceReport
from specdemo.analysis.advice_rows import AdviceRow
from specdemo.analysis.engine_lines import ENGINES
from specdemo.analysis.what_if import Acceptance, predict
from specdemo.drafters import DRAFTERS
from specdemo.settings import Settings
from specdemo.view.assets import WEB
from specdemo.view.export import PAGE_CSS, script_json
from specdemo.view.measured_table import NOTHING, Column, number, rate, table_html
from specdemo.view.progress_text import counted
from specdemo.view.templates import fill

MOST_IN_CHART = 16
LONGEST_TEXT = 60
DASHED = "Dashed: over the runs on these prompts; there are too few prompts to speak of others."
MARKUP = re.compile(r"([\\|<])")
OWN_CHOICE = ("strategy", "drafter", "gamma", "adaptive_gamma", "tree_nodes")
"""Settings that the advisor chooses."""
COLUMNS: tuple[Column, ...] = (
    ("method", "who drafts, and how many tokens a round (γ)", lambda r: r.name),
    (
        "speed-up",
        "geometric mean over the prompts of tokens/s over those of plain decoding in the same block; in brackets "
        "the 95 % interval over prompts; over runs, where prompts are few, it is of these prompts alone",
        lambda r: _speedup(r),
    ),
    ("tokens/s", "decoded tokens / decode time of all its runs", lambda r: rate(r.tokens_per_second)),
    ("accepted", "Σ accepted / Σ drafted", lambda r: number(r.acceptance_rate, ".0%")),
    ("τ", "tokens after the first / rounds", lambda r: number(r.mean_acceptance_length, ".2f")),
    ("c", "median draft step / median target step", lambda r: number(r.draft_cost, ".3f")),
    ("v(γ)", "median forward over γ + 1 tokens / median target step", lambda r: number(r.verify_cost, ".2f")),
    ("memory", "largest peak of its runs", lambda r: NOTHING if r.memory is None else f"{r.memory / 1e9:.2f} GB"),
    ("runs", "each on one prompt", lambda r: number(r.runs, "d")),
    ("seconds", "of the budget", lambda r: number(r.seconds, ".1f")),
    ("verdict", "and why it was dropped", lambda r: f"{r.verdict}: {r.dropped}" if r.dropped else r.verdict),
)
KIND_COLUMNS: tuple[Column, ...] = (
    ("kind", "of the prompts", lambda r: r.kind),
    ("prompts", "of this kind that were decoded", lambda r: number(r.prompts, "d")),
    ("fastest", "on the prompts of this kind", lambda r: r.method),
    ("speed-up", "as in the table above, of these prompts", lambda r: _speedup(r)),
)


def advice_tables(report: AdviceReport) -> str:
    """The table of rows, and the one by kind where there are kinds, as HTML."""
    kinds = table_html(KIND_COLUMNS, report.by_kind) if report.by_kind else ""
    return table_html(COLUMNS, report.rows) + kinds


def forest(report: AdviceReport) -> str:
    """A chart of speed-ups with their intervals, one line a contender, as HTML without scripts.

    Intervals that are of these prompts alone are dashed, with a line that says so. Plain decoding, which the
    others are held against, is shown wherever it ranks.
    """
    known = [row for row in report.rows if row.speedup is not None]
    rows = [row for n, row in enumerate(known) if n < MOST_IN_CHART or row.settings.strategy == "autoregressive"]
    top = 1.08 * max([1.0, *(min(_ends(row)[1], 2.5 * row.speedup) for row in rows)])
    notes = [DASHED] if any(row.interval_over == "runs" for row in rows) else []
    if more := len(known) - len(rows):
        notes.append(f"{counted(more, 'more setting stands', 'more settings stand')} in the table.")
    return fill("advice-forest.html", lines=[_line(row, top) for row in rows], one=100 / top, notes=notes)


def predictions_html(known: Sequence[Acceptance], draft_cost: float, verify_cost: float) -> str:
    """What would be for other costs, clearly as a prediction."""
    found = predict(known, draft_cost, verify_cost)
    items = "".join(f"<li><strong>{p.speedup:.2f}×</strong> {escape(p.method)}, γ {p.gamma}</li>" for p in found)
    return f'<div class="advice-what-if"><p><strong>Prediction</strong>, not measured:</p><ol>{items}</ol></div>'


def command(report: AdviceReport) -> str:
    """The command line that repeats the measurement, prompts apart; a comment where none can."""
    if report.loading is None:
        what = "this server" if report.server else "this pair"
        return f"# No command line can name {what}, which was made in Python: call specdemo.advise with it again."
    base, usual = asdict(report.base), asdict(Settings())
    flags = [_flag(name, value) for name, value in base.items() if value != usual[name] and name not in OWN_CHOICE]
    words = [*([report.loading] if report.loading else []), f"--budget {report.budget_seconds:g}", *flags]
    if report.server is None:
        words.append(f"--methods {' '.join(dict.fromkeys(c.family for c in report.contenders if c.family))}")
    return f"python -m specdemo advise --prompts-file prompts.jsonl {' '.join(words)}"


def markdown(report: AdviceReport) -> str:
    """The whole report as Markdown; names, kinds and prompts are data, so what would be markup is escaped."""
    sections = [
        "# Which setting?",
        _escaped(report.recommendation),
        _escaped(_about(report)),
        _markdown_table(COLUMNS, report.rows),
        *([_markdown_table(KIND_COLUMNS, report.by_kind)] if report.by_kind else []),
        "## Per prompt",
        _per_prompt(report),
        "## To take away",
        *(f"{name}:\n\n```\n{report.code(engine).rstrip()}\n```" for engine, name in ENGINES.items()),
        "## Again",
        f"```\n{command(report)}\n```",
    ]
    return "\n\n".join(sections) + "\n"


def advice_html(report: AdviceReport) -> str:
    """The whole report as one HTML file, which asks for nothing from outside and loads one script, its own."""
    script = (WEB / "advice-what-if.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return fill(
        "advice.html",
        report=report,
        about=_about(report),
        command=command(report),
        engines=ENGINES,
        forest=forest(report),
        measured=table_html(COLUMNS, report.rows),
        kinds=table_html(KIND_COLUMNS, report.by_kind) if report.by_kind else "",
        per_prompt=table_html(*_prompt_table(report)),
        styles=PAGE_CSS + (WEB / "advice.css").read_text(encoding="utf-8"),
        acceptance=script_json(_what_if_data(report)),
        script=script,
        digest=digest,
    )


def _what_if_data(report: AdviceReport) -> list[dict[str, Any]]:
    """What the script predicts from."""
    return [
        {
            "method": DRAFTERS[each.family].label,
            "model": DRAFTERS[each.family].needs is not None,
            **asdict(each),
        }
        for each in report.acceptance
    ]


def _ends(row: AdviceRow) -> list[float]:
    return row.interval or [row.speedup, row.speedup]


def _line(row: AdviceRow, top: float) -> dict[str, Any]:
    """A contender's line of the chart, its places in per cent of the width."""
    low, place, high = (100 * min(value, top) / top for value in (_ends(row)[0], row.speedup, _ends(row)[1]))
    return {
        "state": row.verdict.split(",")[0].replace(" ", "-"),
        "name": row.name,
        "over": row.interval_over,
        "speedup": row.speedup,
        "low": low,
        "place": place,
        "high": max(low, high),
    }


def _speedup(row: Any) -> str:
    if row.speedup is None or not row.interval:
        return number(row.speedup, ".2f", "×")
    over = " over runs" if row.interval_over == "runs" else ""
    return f"{row.speedup:.2f}× [{row.interval[0]:.2f}, {row.interval[1]:.2f}]{over}"


def _about(report: AdviceReport) -> str:
    machine = report.machine or {}
    where = ", ".join(f"{name} {value}" for name, value in machine.items())
    models = f"{report.dtype}, {report.quantization or 'not quantised'}" if report.server is None else "a server"
    return (
        f"{report.pair}, {models}; {counted(report.prompts, 'prompt')}, at most "
        f"{report.base.max_new_tokens} tokens each; {len(report.runs)} runs in {report.seconds:.0f} of "
        f"{report.budget_seconds:g} s. The fastest is dropped with chance of at most {report.error:.0%}. {where}."
    )


def _prompt_table(report: AdviceReport) -> tuple[list[Column], list[dict[str, Any]]]:
    """The plain and the recommended speed on each prompt."""
    race, plain = report.race, 0
    speeds: dict[int, dict[int, list[tuple[int, float]]]] = {}
    for run in report.counted:
        if run.place in (plain, race.leader):
            of_prompt = speeds.setdefault(run.run.prompt, {})
            of_prompt.setdefault(run.place, []).append((run.run.emitted, run.run.seconds))
    rows = [
        {
            "prompt": f"{number_ + 1}{f' ({report.kind_of(number_)})' if report.kinds else ''}",
            "text": _beginning(report.texts[number_]) if report.texts else "",
            "plain": _pace(found.get(plain)),
            "best": _pace(found.get(race.leader)),
            "loops": "loops" if number_ + 1 in report.looping else "does not loop",
        }
        for number_, found in sorted(speeds.items())
    ]
    columns: list[Column] = [
        ("prompt", "its number, and its kind", lambda r: r["prompt"]),
        ("text", "how it begins; the JSON has all of it", lambda r: r["text"]),
        ("plain tokens/s", "plain decoding", lambda r: rate(r["plain"])),
        ("recommended tokens/s", report.names[race.leader], lambda r: rate(r["best"])),
        ("plain output", "whether it loops", lambda r: r["loops"]),
    ]
    return columns, rows


def _pace(runs: list[tuple[int, float]] | None) -> float | None:
    seconds = sum(s for _, s in runs) if runs else 0.0
    return sum(n for n, _ in runs) / seconds if seconds else None


def _per_prompt(report: AdviceReport) -> str:
    return _markdown_table(*_prompt_table(report))


def _markdown_table(columns: Any, rows: Any) -> str:
    names = [name for name, _, _ in columns]
    cells = [[_escaped(read(row)) for _, _, read in columns] for row in rows]
    lines = [names, ["---"] * len(names), *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _escaped(text: str) -> str:
    """Text on one line, in which Markdown finds no table and no HTML."""
    return MARKUP.sub(r"\\\1", " ".join(text.split()))


def _beginning(prompt: str | list[int]) -> str:
    text = " ".join((prompt if isinstance(prompt, str) else f"tokens {', '.join(map(str, prompt))}").split())
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"


def _flag(name: str, value: Any) -> str:
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return flag if value else f"--no-{name.replace('_', '-')}"
    return f"{flag} {shlex.quote(str(value))}"
