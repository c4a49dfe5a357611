"""``sweep``, ``advise`` and ``load`` measure decoding on prompts and recommend a setting; ``compare`` judges it.

All print a table and write files.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress, TextColumn

from specdemo.analysis.advice import AdviceReport
from specdemo.analysis.batch_sizes import LoadReport
from specdemo.analysis.engine_lines import FRAMEWORKS
from specdemo.cli.files import Exports, Outputs, add_exports, read_input, reported
from specdemo.cli.options import add_settings, typed_settings
from specdemo.cli.pairs import add_pair, loaded_for
from specdemo.cli.terminal import rows_table, shown
from specdemo.drafters import DRAFTERS
from specdemo.losslessness.certificate import USUALLY_ENOUGH
from specdemo.losslessness.certify import ERROR_RATE, RUNS
from specdemo.losslessness.deployments import TOKENS, stream_comparison
from specdemo.runs.advise import BUDGET_SECONDS, stream_advice
from specdemo.runs.batch_sizes import SIZES
from specdemo.runs.load_test import BUDGET_SECONDS as LOAD_SECONDS
from specdemo.runs.load_test import REQUESTS_A_USER, stream_load_test
from specdemo.runs.prompts import Example, by_domain, examples, read_with_kinds
from specdemo.runs.sweep import GAMMAS, stream_sweep
from specdemo.settings import ROW, Settings
from specdemo.view.losslessness_view import deployment_rows
from specdemo.view.progress_text import advice_progress, duration
from specdemo.view.tables import SHOWN, Column, columns, kind_tables

FILES: Exports = {
    "json": ("write the report as JSON; - is the output", lambda report: report.to_json()),
    "csv": ("write the rows as CSV; - is the output", lambda report: report.to_csv()),
}
CHECK_FILES: Exports = {
    "json": ("write the result as JSON, without addresses; - is the output", lambda check: check.to_json()),
    "bash": ("write the lines that reproduce it, for bash and a bug report", lambda check: check.reproduction()),
}
TEST = {
    "runs": (RUNS, "pairs of runs at most"),
    "tokens": (TOKENS, "of a run"),
    "error-rate": (ERROR_RATE, "of false alarms"),
}
SWEEP_COLUMNS = columns(("γ", "speed-up", "predicted", "tokens/s", "accepted", "τ"))
ADVICE_COLUMNS = columns(("method", "speed-up", "tokens/s", "accepted", "τ", "c", "v(γ)", "verdict"))
Stream = Callable[[Any, list[str], list[str], Settings], Iterator[Any]]
"""The progress of a measurement on a pair, of prompts and their kinds, with settings."""


def add_sweep(parser: argparse.ArgumentParser) -> None:
    known = "equal numbers count once. Default: 2 to 8"
    parser.add_argument("--gammas", type=int, nargs="+", default=list(GAMMAS), metavar="γ", help=known)
    parser.add_argument("--repeats", type=int, default=1, help="times each run is made. Default: 1")
    _add_common(parser, "the page's first example", ("strategy", "gamma", "adaptive_gamma"), run_sweep)


def add_advise(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--budget", type=float, default=BUDGET_SECONDS, help="seconds. Default: 120")
    known = f"of {', '.join(DRAFTERS)}, or two in a row such as {ROW}. Default: all that the pair allows"
    parser.add_argument("--methods", nargs="+", metavar="DRAFTER", help=known)
    parser.add_argument(
        "--code",
        choices=FRAMEWORKS,
        help="also print the lines that set the advice in this engine. Default: of GGUF files llama.cpp's",
    )
    chosen = ("strategy", "drafter", "gamma", "adaptive_gamma", "tree_nodes")  # by the advisor
    _add_common(parser, "the page's examples", chosen, run_advise)


def add_load(parser: argparse.ArgumentParser) -> None:
    known = f"at the same time; equal numbers count once. Default: {' '.join(map(str, SIZES))}"
    parser.add_argument("--users", type=int, nargs="+", default=list(SIZES), metavar="N", help=known)
    parser.add_argument("--repeats", type=int, default=3, help="times each number is measured. Default: 3")
    known = f"that each number of users sends. Default: {REQUESTS_A_USER} for each of the most users"
    parser.add_argument("--requests", type=int, help=known)
    parser.add_argument("--budget", type=float, default=LOAD_SECONDS, help="seconds at most. Default: 600")
    _add_common(parser, "the page's examples", ("strategy", "adaptive_gamma", "tree_nodes"), run_load)


def add_compare(parser: argparse.ArgumentParser) -> None:
    for name, (first, meaning) in TEST.items():
        text = f"above temperature 0: {meaning}. Default: {first}"
        parser.add_argument(f"--{name}", type=type(first), default=first, help=text)
    _add_common(parser, "the first example of each kind", ("strategy",), run_compare, CHECK_FILES)


def _add_common(
    parser: argparse.ArgumentParser,
    default: str,
    without: tuple[str, ...],
    run: Callable[[Any], None],
    files: Exports = FILES,
) -> None:
    parser.add_argument("prompts", nargs="*", help=f"texts; - reads the input. Default: {default}")
    more = "more prompts: .txt, one a line, or .jsonl, as of MT-Bench and Spec-Bench"
    parser.add_argument("--prompts-file", metavar="FILE", help=more)
    add_exports(parser, files)
    add_pair(parser)
    add_settings(parser, without)
    parser.set_defaults(run=run)


def run_sweep(args: argparse.Namespace) -> None:
    _measure(
        args,
        examples()[:1],
        lambda pair, prompts, _, settings: stream_sweep(pair, prompts, settings, args.gammas, args.repeats),
        lambda report: [(SWEEP_COLUMNS, report.shown)],
    )


def run_advise(args: argparse.Namespace) -> None:
    _measure(
        args,
        examples(),
        lambda pair, prompts, kinds, settings: stream_advice(
            pair, prompts, settings, args.budget, args.methods, kinds
        ),
        lambda report: [(ADVICE_COLUMNS, report.shown), *kind_tables(report)],
    )


def run_load(args: argparse.Namespace) -> None:
    how = args.users, args.repeats, args.requests, args.budget
    _measure(
        args,
        examples(),
        lambda pair, prompts, _, settings: stream_load_test(pair, prompts, settings, *how),
        lambda report: [(columns(SHOWN[LoadReport]), report.shown)],
    )


def _measure(
    args: argparse.Namespace,
    default: Sequence[Example],
    stream: Stream,
    tables: Callable[[Any], list[tuple[Sequence[Column], Sequence[Any]]]],
) -> None:
    outputs = Outputs(args, FILES)
    settings, (prompts, kinds) = Settings(**typed_settings(args)), typed_prompts(args, default)
    with loaded_for(args, [settings], outputs.errors) as pair:
        report, interrupt = _followed(stream(pair, prompts, kinds, settings), outputs.errors)
    for shown_columns, rows in tables(report):
        if rows:
            cells = [[read(row) for _, _, read in shown_columns] for row in rows]
            outputs.out.print(rows_table([name for name, _, _ in shown_columns], cells))
    outputs.say(report.conclusion if isinstance(report, LoadReport) else report.recommendation)
    if isinstance(report, AdviceReport) and (engine := args.code or ("llama.cpp" if report.of_gguf else None)):
        outputs.out.print(f"\n{report.code(engine)}", markup=False, highlight=False, soft_wrap=True)
    outputs.write(report)
    if interrupt is not None:
        raise interrupt


def _followed(runs: Iterator[Any], errors: Console) -> tuple[Any, KeyboardInterrupt | None]:
    """The report, while a bar shows the progress; Ctrl-C ends the runs and keeps what is known, as Stop does."""
    report, interrupt = None, None
    with Progress(*Progress.get_default_columns()[:3], TextColumn("{task.fields[left]}"), console=errors) as bar:
        task = bar.add_task("Measuring", total=None, left="")
        try:
            for progress in runs:
                report = progress.report
                if isinstance(report, AdviceReport):
                    bar.update(task, description=shown(advice_progress(report, progress.run)))
                about = f"{duration(progress.seconds_left)} left" if progress.seconds_left else "done"
                bar.update(task, completed=progress.done, total=progress.total, left=about)
        except KeyboardInterrupt as error:
            if report is None:
                raise
            interrupt = error
    return report, interrupt


def run_compare(args: argparse.Namespace) -> None:
    """Print a table and the judgement; where the outputs part, the lines that show it."""
    outputs, settings = Outputs(args, CHECK_FILES), Settings(**typed_settings(args))
    prompts, _ = typed_prompts(args, [found[0] for found in by_domain().values()])
    test, check = (args.runs, args.tokens, args.error_rate), None
    if not settings.greedy and args.runs < USUALLY_ENOUGH:
        outputs.errors.print(f"{args.runs} pairs of runs are usually too few; choose at least {USUALLY_ENOUGH}.")
    with loaded_for(args, [settings], outputs.errors) as pair, outputs.errors.status("Asking…") as status:
        for check in stream_comparison(pair, prompts, settings, test):
            status.update(f"{check.fraction:.0%} compared…")
    assert check is not None, "there is a prompt"
    outputs.out.print(rows_table(*deployment_rows(check)))
    outputs.say(f"{check.outcome}: {check.text}")
    if check.outcome not in ("identical", "passes") and not args.bash:
        outputs.out.print(f"\n{check.reproduction()}", markup=False, highlight=False, soft_wrap=True)
    outputs.write(check)


def typed_prompts(args: argparse.Namespace, default: Sequence[Example]) -> tuple[list[str], list[str]]:
    """The prompts of the command line, of its file, or else the ``default``; and their kinds."""
    found = [(read_input(prompt), "") for prompt in args.prompts]
    if args.prompts_file:
        with reported(args.prompts_file, "read"):
            found += read_with_kinds(Path(args.prompts_file))
    found = found or [(example.prompt, example.domain) for example in default]
    return [prompt for prompt, _ in found], [kind for _, kind in found]
