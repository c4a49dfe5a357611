"""What all benches share: their options, contenders that take turns, and results as JSON and as text."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from io import StringIO
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text

from specdemo.errors import SpecDemoError
from specdemo.files import write_whole
from specdemo.machine import machine_of
from specdemo.models.pair import ModelPair, checked_threads
from specdemo.runs.load import load_pair
from specdemo.runs.prompts import by_domain
from specdemo.training.tasks.mixture import domains, held_out_tasks

Args = argparse.Namespace
Results = dict[str, Any]
Name = TypeVar("Name")
Value = TypeVar("Value")
MACHINE = "{device} ({processor}), {threads} threads, torch {torch}, transformers {transformers}"
TYPES = {"threads": int, "json": Path, "corpus": Path}
"""Of options that may have no default; those of the others are their defaults'."""
HELP = {
    "browser": "Chromium's executable",
    "budget": "seconds of the advisor",
    "checked": "drafted tokens whose verify is measured",
    "context": "tokens before those that are measured",
    "corpus": "folder of the texts of held-out tasks, which are then the prompts",
    "drafter": "that drafts chains and trees",
    "dtypes": "default: float32, and bfloat16 where the CPU has instructions for it",
    "gamma": "tokens drafted a round",
    "gammas": "tokens drafted a round, each measured",
    "json": "write the results to this file",
    "later": "the factor on the target's later layers",
    "nodes": "tokens of a tree, each measured",
    "pair": "an id of the catalogue, or TARGET + DRAFT",
    "prompts": "prompts of each domain",
    "repeats": "counted runs of each contender",
    "seconds": "that are measured",
    "sizes": "of Qwen3, such as 1.7B",
    "small": "without the 4B model: does it run at all?",
    "tuning": "first prompts of each domain, on which each drafter's γ is chosen; they do not count",
    "trials": "times that a race is repeated five times",
    "threads": "CPU threads; default: torch's",
    "tokens": "new tokens of each run",
    "warm_up": "seconds before those that count",
}


def run_bench(
    name: str,
    about: str | None,
    measure: Callable[[Args], Results],
    table: Callable[[Results], str],
    **options: Any,
) -> None:
    """Read the command line, measure, print the machine and the results, and write all of it as JSON.

    Args:
        name: the module's inside this package; empty for the package itself.
        about: the module's docstring.
        measure: its results, from the options' values.
        table: the results for people.
        options: their defaults, beside ``--json``. A list takes one or more values, a tuple two. ``threads``, if
            it is one number, is set before anything is measured.
    """
    parser = argparse.ArgumentParser(f"python -m specdemo.bench.{name}".removesuffix("."), description=about)
    for option, default in {**options, "json": None}.items():
        flag, text = f"--{option.replace('_', '-')}", HELP.get(option)
        if default is False:
            parser.add_argument(flag, action="store_true", help=text)
            continue
        several = isinstance(default, list | tuple)
        kind = TYPES.get(option) or (str if default is None else type(default[0] if several else default))
        count = {list: "+", tuple: 2}.get(type(default))
        parser.add_argument(flag, type=kind, nargs=count, default=default, help=text)
    args = parser.parse_args()
    try:
        threads = getattr(args, "threads", None)
        for number in threads if isinstance(threads, list) else filter(None.__ne__, [threads]):
            checked_threads(number)
        if isinstance(threads, int):
            torch.set_num_threads(threads)
        results = measure(args)
    except SpecDemoError as error:
        parser.error(str(error))
    print(MACHINE.format(**results["machine"]), table(results), sep="\n")
    write(args.json, results)


def load(args: Args) -> ModelPair:
    """The pair that the options name."""
    return load_pair(args.pair, *(getattr(args, name, None) for name in ("device", "dtype")))


def prompts_of(args: Args, count: int) -> dict[str, list[str]]:
    """The first so many prompts of each domain: examples, or held-out tasks of ``--corpus``. None is chosen."""
    if args.corpus is None:
        return {name: [e.prompt for e in some[:count]] for name, some in by_domain().items()}
    made = domains(args.corpus)
    return {name: [task.prompt for task in held_out_tasks(name, d, count)] for name, d in made.items()}


def interleaved(
    contenders: Mapping[Name, Callable[[], Value]], repeats: int, warm_up: int = 1, label: str | None = None
) -> dict[Name, list[Value]]:
    """What each contender gives in each repeat; a machine that slows down slows all of them alike.

    Args:
        contenders: all of them run once in every repeat, in this order.
        repeats: that count.
        warm_up: repeats before those.
        label: says on the error stream how far it is.
    """
    found: dict[Name, list[Value]] = {name: [] for name in contenders}
    for repeat in range(1 - warm_up, repeats + 1):
        for name, contender in contenders.items():
            value = contender()
            if repeat > 0:
                found[name].append(value)
        if label is not None and repeat > 0:
            print(f"{label}: repeat {repeat}/{repeats}", file=sys.stderr, flush=True)
    return found


def spin() -> None:
    """Keep a core busy without end."""
    while True:
        pass


@contextmanager
def busy_cores(work: Callable[[], None] = spin) -> Iterator[None]:
    """A process for each core that works beside what is measured."""
    fresh = multiprocessing.get_context("spawn")
    processes = [fresh.Process(target=work, daemon=True) for _ in range(os.cpu_count() or 1)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def median_of(values: Iterable[float | None]) -> float | None:
    """The median of the values that are known."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def extremes(values: Sequence[float]) -> list[float] | None:
    """The least and the most."""
    return [min(values), max(values)] if values else None


def head(args: Args, device: torch.device, *names: str, **more: Any) -> Results:
    """What stands before the figures: the date, the machine, the pair and the settings.

    Args:
        args: the options' values.
        device: where the models ran.
        names: of the options that are settings.
        more: settings that are no options.
    """
    pair = {"pair": args.pair} if "pair" in args else {}
    settings = {name: getattr(args, name) for name in names} | more
    return {"date": date.today().isoformat(), "machine": machine_of(device), **pair, "settings": settings}


def write(path: Path | None, results: Results) -> None:
    """Write the results as JSON; None writes nothing."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(results, indent=1, ensure_ascii=False) + "\n")


def spread(middle: str, ends: str) -> str:
    """The format of a median with the least and the most, by their names, such as ``1.76× (1.70 to 1.81)``."""
    return f"{{{middle}:.2f}}× ({{{ends}[0]:.2f}} to {{{ends}[1]:.2f}})"


def columns(formats: dict[str, str], rows: Iterable[dict[str, Any]]) -> str:
    """A table: the first column begins at the left, the others end at the right.

    Args:
        formats: by the column's title, what ``str.format`` makes a cell of.
        rows: the values that the formats name.
    """
    table = Table(box=None, pad_edge=False)
    for place, title in enumerate(formats):
        table.add_column(Text(title), justify="right" if place else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(form.format(**row)) for form in formats.values()))
    console = Console(file=StringIO(), width=1000)
    console.print(table)
    return console.file.getvalue().rstrip()


def verdict(kept: bool, claim: str) -> str:
    """A claim about the figures, and whether they keep it."""
    return f"{'ok  ' if kept else 'MISS'} {claim}"
