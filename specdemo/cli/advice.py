"""``advise``: measures every method that a pair allows, recommends one, and prints the lines that set it."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.progress import Progress, TextColumn

from specdemo.analysis.advice import AdviceReport
from specdemo.analysis.engine_lines import ENGINES
from specdemo.cli.files import check_targets, read_input, reported, write
from specdemo.cli.options import add_settings, typed_settings
from specdemo.cli.pairs import add_pair, loaded_for
from specdemo.cli.terminal import consoles, rows_table, shown
from specdemo.drafters import DRAFTERS
from specdemo.runs.advise import BUDGET_SECONDS, stream_advice
from specdemo.runs.prompts import examples, read_with_kinds
from specdemo.settings import Settings
from specdemo.view.advice_view import COLUMNS, KIND_COLUMNS, OWN_CHOICE, advice_html, markdown
from specdemo.view.progress_text import advice_progress, left

FILES = {"json": AdviceReport.to_json, "csv": AdviceReport.to_csv, "markdown": markdown, "html": advice_html}
SHOWN = ("method", "speed-up", "tokens/s", "accepted", "τ", "c", "v(γ)", "verdict")


def add_advise(parser: argparse.ArgumentParser) -> None:
    """Options of ``advise``."""
    parser.add_argument("prompts", nargs="*", help="texts; - reads the input. Default: the page's examples")
    parser.add_argument(
        "--prompts-file", metavar="FILE", help="more prompts: .txt, one a line, or .jsonl, which may name a kind"
    )
    parser.add_argument("--budget", type=float, default=BUDGET_SECONDS, help="seconds. Default: 120")
    parser.add_argument(
        "--methods",
        nargs="+",
        metavar="DRAFTER",
        help=f"of {', '.join(DRAFTERS)}. Default: all that the pair allows",
    )
    parser.add_argument("--code", choices=ENGINES, help="also print the lines that set the advice in this engine")
    for name in FILES:
        parser.add_argument(f"--{name}", metavar="FILE", help=f"write the report as {name}; - is the output")
    add_pair(parser)
    add_settings(parser, without=OWN_CHOICE)
    parser.set_defaults(run=run_advise)


def run_advise(args: argparse.Namespace) -> None:
    """Measure; the progress goes to the error stream, the table to the output.

    Ctrl-C ends the runs and keeps what is known, as Stop does on the page.
    """
    targets = {name: getattr(args, name) for name in FILES}
    check_targets([*targets.values()])
    out, errors = consoles("-" if "-" in targets.values() else args.json)
    settings, (prompts, kinds) = Settings(**typed_settings(args)), _prompts(args)
    report, interrupt = None, None
    with loaded_for(args, [settings], errors) as pair:
        runs = stream_advice(pair, prompts, settings, args.budget, args.methods, kinds)
        parts = [*Progress.get_default_columns()[:3], TextColumn("{task.fields[left]}")]
        with Progress(*parts, console=errors) as bar:
            task = bar.add_task("Warming up", total=args.budget, left="")
            try:
                for progress in runs:
                    report = progress.report
                    about = "done" if report.complete else left(progress.seconds_left)
                    text = shown(advice_progress(report, progress.run))
                    bar.update(task, description=text, completed=progress.done, left=about)
            except KeyboardInterrupt as error:
                if report is None:
                    raise
                interrupt = error
    picked = [column for column in COLUMNS if column[0] in SHOWN]
    for columns, rows in ((picked, report.rows), (KIND_COLUMNS, report.by_kind)):
        if rows:
            cells = [[shown(read(row)) for _, _, read in columns] for row in rows]
            out.print(rows_table([name for name, _, _ in columns], cells))
    out.print(f"\n{shown(report.recommendation)}", markup=False, soft_wrap=not out.is_terminal)
    if args.code:
        out.print(f"\n{report.code(args.code)}", markup=False, highlight=False, soft_wrap=True)
    for name, target in targets.items():
        if target:
            write(target, FILES[name](report))
    if interrupt is not None:
        raise interrupt


def _prompts(args: argparse.Namespace) -> tuple[list[str], list[str]]:
    """The prompts and their kinds."""
    found = [(read_input(prompt), "") for prompt in args.prompts]
    if args.prompts_file:
        with reported(args.prompts_file, "read"):
            found += read_with_kinds(Path(args.prompts_file))
    found = found or [(example.prompt, example.domain) for example in examples()]
    prompts, kinds = zip(*found, strict=True)
    return list(prompts), list(kinds)
