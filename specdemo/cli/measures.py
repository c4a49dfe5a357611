"""``sweep`` and ``advise``: measure decoding on some prompts, print a table and recommend a setting."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress, TextColumn

from specdemo.analysis.advice import AdviceReport
from specdemo.analysis.engine_lines import ENGINES
from specdemo.analysis.sweep_report import SweepReport
from specdemo.cli.files import Exports, add_exports, checked_targets, read_input, reported, write_exports
from specdemo.cli.options import add_settings, typed_settings
from specdemo.cli.pairs import add_pair, loaded_for
from specdemo.cli.terminal import consoles, rows_table, shown
from specdemo.drafters import DRAFTERS
from specdemo.runs.advise import BUDGET_SECONDS, stream_advice
from specdemo.runs.prompts import Example, examples, read_with_kinds
from specdemo.runs.sweep import GAMMAS, stream_sweep
from specdemo.settings import Settings
from specdemo.view.advice_view import OWN_CHOICE
from specdemo.view.measured_table import Column
from specdemo.view.progress_text import advice_progress, left
from specdemo.view.report_table import KIND_COLUMNS, columns

SWEEP_FILES: Exports = {
    "json": ("write the report as JSON; - is the output", SweepReport.to_json),
    "csv": ("write the rows as CSV; - is the output", SweepReport.to_csv),
}
ADVICE_FILES: Exports = {
    "json": (SWEEP_FILES["json"][0], AdviceReport.to_json),
    "csv": (SWEEP_FILES["csv"][0], AdviceReport.to_csv),
}
SWEEP_COLUMNS = columns(("γ", "speed-up", "predicted", "tokens/s", "accepted", "τ"))
ADVICE_COLUMNS = columns(("method", "speed-up", "tokens/s", "accepted", "τ", "c", "v(γ)", "verdict"))


def add_sweep(parser: argparse.ArgumentParser) -> None:
    """Options of ``sweep``."""
    _add_prompts(parser, "the page's first example", "more prompts: a .txt or .jsonl file, one a line")
    parser.add_argument("--gammas", type=int, nargs="+", default=list(GAMMAS), metavar="γ", help="Default: 2 to 8")
    parser.add_argument("--repeats", type=int, default=1, help="times each run is made. Default: 1")
    add_exports(parser, SWEEP_FILES)
    add_pair(parser)
    add_settings(parser, without=("strategy", "gamma", "adaptive_gamma"))
    parser.set_defaults(run=run_sweep)


def add_advise(parser: argparse.ArgumentParser) -> None:
    """Options of ``advise``."""
    _add_prompts(parser, "the page's examples", "more prompts: .txt, one a line, or .jsonl, which may name a kind")
    parser.add_argument("--budget", type=float, default=BUDGET_SECONDS, help="seconds. Default: 120")
    parser.add_argument(
        "--methods",
        nargs="+",
        metavar="DRAFTER",
        help=f"of {', '.join(DRAFTERS)}. Default: all that the pair allows",
    )
    parser.add_argument("--code", choices=ENGINES, help="also print the lines that set the advice in this engine")
    add_exports(parser, ADVICE_FILES)
    add_pair(parser)
    add_settings(parser, without=OWN_CHOICE)
    parser.set_defaults(run=run_advise)


def run_sweep(args: argparse.Namespace) -> None:
    """Measure every γ."""
    targets = checked_targets(args, SWEEP_FILES)
    out, errors = consoles("-" in targets.values())
    settings, (prompts, _) = Settings(**typed_settings(args)), _prompts(args, examples()[:1])
    with loaded_for(args, [settings], errors) as pair:
        runs = stream_sweep(pair, prompts, settings, args.gammas, args.repeats)
        report, interrupt = _measured(runs, "Sweeping", errors)
    _print(out, [(SWEEP_COLUMNS, report.rows)], report.recommendation)
    write_exports(targets, SWEEP_FILES, report)
    if interrupt is not None:
        raise interrupt


def run_advise(args: argparse.Namespace) -> None:
    """Measure every method."""
    targets = checked_targets(args, ADVICE_FILES)
    out, errors = consoles("-" in targets.values())
    settings, (prompts, kinds) = Settings(**typed_settings(args)), _prompts(args, examples())
    with loaded_for(args, [settings], errors) as pair:
        runs = stream_advice(pair, prompts, settings, args.budget, args.methods, kinds)
        report, interrupt = _measured(runs, "Warming up", errors)
    _print(out, [(ADVICE_COLUMNS, report.rows), (KIND_COLUMNS, report.by_kind)], report.recommendation)
    if args.code:
        out.print(f"\n{report.code(args.code)}", markup=False, highlight=False, soft_wrap=True)
    write_exports(targets, ADVICE_FILES, report)
    if interrupt is not None:
        raise interrupt


def _measured(runs: Iterator[Any], title: str, errors: Console) -> tuple[Any, KeyboardInterrupt | None]:
    """The report, while a bar shows the progress; Ctrl-C ends the runs and keeps what is known, as Stop does."""
    report, interrupt = None, None
    with Progress(*Progress.get_default_columns()[:3], TextColumn("{task.fields[left]}"), console=errors) as bar:
        task = bar.add_task(title, total=None, left="")
        try:
            for progress in runs:
                report = progress.report
                if isinstance(report, AdviceReport):
                    bar.update(task, description=shown(advice_progress(report, progress.run)))
                about = "done" if report.complete else left(progress.seconds_left)
                bar.update(task, completed=progress.done, total=progress.total, left=about)
        except KeyboardInterrupt as error:
            if report is None:
                raise
            interrupt = error
    return report, interrupt


def _print(out: Console, tables: Iterable[tuple[Sequence[Column], Sequence[Any]]], advice: str) -> None:
    for shown_columns, rows in tables:
        if rows:
            cells = [[read(row) for _, _, read in shown_columns] for row in rows]
            out.print(rows_table([name for name, _, _ in shown_columns], cells))
    out.print(f"\n{shown(advice)}", markup=False, soft_wrap=not out.is_terminal)


def _add_prompts(parser: argparse.ArgumentParser, default: str, file: str) -> None:
    parser.add_argument("prompts", nargs="*", help=f"texts; - reads the input. Default: {default}")
    parser.add_argument("--prompts-file", metavar="FILE", help=file)


def _prompts(args: argparse.Namespace, default: Sequence[Example]) -> tuple[list[str], list[str]]:
    """The prompts and their kinds."""
    found = [(read_input(prompt), "") for prompt in args.prompts]
    if args.prompts_file:
        with reported(args.prompts_file, "read"):
            found += read_with_kinds(Path(args.prompts_file))
    found = found or [(example.prompt, example.domain) for example in default]
    return [prompt for prompt, _ in found], [kind for _, kind in found]
