"""``sweep``: measures every γ against autoregressive decoding, and recommends one."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.progress import Progress, TextColumn

from specdemo.cli.files import check_targets, read_input, reported, write
from specdemo.cli.options import add_settings, typed_settings
from specdemo.cli.pairs import add_pair, loaded_for
from specdemo.cli.terminal import consoles, rows_table
from specdemo.runs.prompts import examples, read_prompts
from specdemo.runs.sweep import GAMMAS, stream_sweep
from specdemo.settings import Settings
from specdemo.view.measured_table import number
from specdemo.view.progress_text import left

COLUMNS = ("γ", "speed-up", "predicted", "tokens/s", "accepted", "τ")


def add_sweep(parser: argparse.ArgumentParser) -> None:
    """Options of ``sweep``."""
    parser.add_argument("prompts", nargs="*", help="texts; - reads the input. Default: the page's first example")
    parser.add_argument("--prompts-file", metavar="FILE", help="more prompts: a .txt or .jsonl file, one a line")
    parser.add_argument("--gammas", type=int, nargs="+", default=list(GAMMAS), metavar="γ", help="Default: 2 to 8")
    parser.add_argument("--repeats", type=int, default=1, help="times each run is made. Default: 1")
    parser.add_argument("--json", metavar="FILE", help="write the report as JSON; - is the output")
    parser.add_argument("--csv", metavar="FILE", help="write the rows as CSV; - is the output")
    add_pair(parser)
    add_settings(parser, without=("strategy", "gamma", "adaptive_gamma"))
    parser.set_defaults(run=run_sweep)


def run_sweep(args: argparse.Namespace) -> None:
    """Measure; the progress goes to the error stream, the table to the output."""
    check_targets([args.json, args.csv])
    out, errors = consoles("-" if "-" in (args.json, args.csv) else args.json)
    settings, prompts = Settings(**typed_settings(args)), _prompts(args)
    with loaded_for(args, [settings], errors) as pair:
        runs = stream_sweep(pair, prompts, settings, args.gammas, args.repeats)
        with Progress(
            *Progress.get_default_columns()[:3], TextColumn("{task.fields[left]}"), console=errors
        ) as bar:
            task = bar.add_task("Sweeping", total=None, left="")
            for progress in runs:
                report = progress.report
                about = left(progress.seconds_left) if progress.done < progress.total else "done"
                bar.update(task, completed=progress.done, total=progress.total, left=about)
    rows = [
        (
            number(row.gamma, "d"),
            number(row.speedup, ".2f", "×"),
            number(row.predicted_speedup, ".2f", "×"),
            number(row.tokens_per_second, ".1f"),
            number(row.acceptance_rate, ".0%"),
            number(row.mean_acceptance_length, ".2f"),
        )
        for row in report.rows
    ]
    out.print(rows_table(COLUMNS, rows))
    out.print(f"\n{report.recommendation}", markup=False, soft_wrap=not out.is_terminal)
    if args.json:
        write(args.json, report.to_json())
    if args.csv:
        write(args.csv, report.to_csv())


def _prompts(args: argparse.Namespace) -> list[str]:
    prompts = [read_input(prompt) for prompt in args.prompts]
    if args.prompts_file:
        with reported(args.prompts_file, "read"):
            prompts += read_prompts(Path(args.prompts_file))
    return prompts or [examples()[0].prompt]
