"""What all benches share: their options, contenders that take turns, results as tables and as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from io import StringIO
from pathlib import Path
from string import Formatter
from typing import Any, TypeVar

import torch
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from specdemo.errors import SpecDemoError
from specdemo.files import write_whole
from specdemo.machine import machine_of
from specdemo.models.pair import checked_threads
from specdemo.runs.prompts import by_domain
from specdemo.training.tasks.mixture import ASKED, domains, held_out_tasks

Args = argparse.Namespace
Results = dict[str, Any]
Name = TypeVar("Name")
Value = TypeVar("Value")
CPU = torch.device("cpu")
HELP = {
    "budget": "seconds of the advisor",
    "context": "tokens before those that are measured",
    "corpus": "folder of gzipped texts, see specdemo/training/README.md: prompts are held-out tasks made of it; "
    "without it they are the page's examples",
    "device": "cpu, or cuda for a GPU",
    "domains": "some of them; all unless given",
    "dtypes": "float32, bfloat16 or both",
    "engines": "of our lanes; the first is compared with the others: graphs eager on a GPU",
    "folder": "of the files, which are written where they are not",
    "gamma": "tokens drafted a round",
    "gammas": "tokens drafted a round, each tried",
    "json": "write the results to this file",
    "nodes": "tokens of draft trees, each tried; 0 for chains alone",
    "p_mins": "least probabilities of a drafted token, each tried",
    "pair": "an id of the catalogue, or TARGET + DRAFT",
    "prompts": "prompts of each domain",
    "repeats": "counted runs of each contender",
    "rows": "tokens of a forward",
    "shape": "of Qwen3, such as 0.6B",
    "sizes": "of Qwen3, such as 1.7B, or hybrid, Qwen3.5's of 0.5B",
    "tuning": "first prompts of each domain, on which settings are chosen; they do not count",
    "threads": "CPU threads",
    "tokens": "new tokens of each run",
    "types": "of the weights: float32, bfloat16, Q8_0",
}


def run_bench(
    name: str,
    about: str | None,
    measure: Callable[[Args], Results],
    table: Callable[[Results], str],
    **options: Any,
) -> None:
    """Read the command line, measure, print machine, settings and results, and write all of it as JSON.

    Args:
        name, about: the module's name inside this package, empty for the package itself, and its docstring.
        measure: all figures as plain data, from the options' values; ``device`` says where, if not on the CPU.
        table: the results for people.
        options: their defaults, beside ``--json``; a list takes one or more values. ``threads``, if it is one
            number, is set before anything is measured.
    """
    parser = argparse.ArgumentParser(f"python -m specdemo.bench.{name}".removesuffix("."), description=about)
    for option, default in {**options, "json": None}.items():
        flag, text = f"--{option.replace('_', '-')}", HELP.get(option)
        several = isinstance(default, list)
        kind = str if default is None or default == [] else type(default[0] if several else default)
        parser.add_argument(flag, type=kind, nargs="+" if several else None, default=default, help=text)
    args = parser.parse_args()
    threads = getattr(args, "threads", None)
    try:
        for number in threads if isinstance(threads, list) else [threads or torch.get_num_threads()]:
            checked_threads(number)
        if isinstance(threads, int):
            torch.set_num_threads(threads)
        found = measure(args)
    except SpecDemoError as error:
        parser.error(str(error))
    machine = machine_of(torch.device(found.pop("device", CPU)))
    settings = {option: value for option, value in vars(args).items() if option != "json"}
    for about_it in (machine, settings):
        print(", ".join(f"{name} {value}" for name, value in about_it.items()))
    print(table(found))
    if args.json:
        whole = {"date": date.today().isoformat(), "machine": machine, "settings": settings, **found}
        write_whole(Path(args.json), json.dumps(whole, indent=1, ensure_ascii=False) + "\n")


def prompts_of(corpus: str | None, count: int) -> dict[str, list[str]]:
    """The first so many prompts of each domain: examples, or held-out tasks of a corpus. None is chosen."""
    if corpus is None:
        return {name: [e.prompt for e in some[:count]] for name, some in by_domain().items()}
    made = domains(Path(corpus))
    return {
        name: [task.prompt for task in held_out_tasks(name, d, count)] for name, d in made.items() if name in ASKED
    }


def interleaved(
    contenders: Mapping[Name, Callable[[], Value]], repeats: int, warm_up: int = 1, label: str | None = None
) -> dict[Name, list[Value]]:
    """What each contender gives in each repeat; a machine that slows down slows all of them alike.

    ``warm_up`` repeats come first and do not count; ``label`` says on the error stream how far it is.
    """
    found: dict[Name, list[Value]] = {name: [] for name in contenders}
    for repeat in range(1 - warm_up, repeats + 1):
        for name, contender in contenders.items():
            value = contender()
            if repeat > 0:
                found[name].append(value)
        if label is not None:
            print(f"{label}: repeat {repeat}/{repeats}", file=sys.stderr, flush=True)
    return found


class _Cell(Formatter):
    """Formats what is not known as a dash."""

    def format_field(self, value: Any, spec: str) -> str:
        return "–" if value is None else super().format_field(value, spec)


def columns(formats: Mapping[str, str], rows: Iterable[Mapping[str, Any]]) -> str:
    """A table in Markdown; the first column begins at the left, the others end at the right.

    Args:
        formats: by the column's title, what ``str.format`` makes a cell of.
        rows: the values that the formats name; None is a dash.
    """
    table = Table(box=box.MARKDOWN)
    for place, title in enumerate(formats):
        table.add_column(Text(title), justify="right" if place else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(_Cell().vformat(form, (), row)) for form in formats.values()))
    console = Console(file=(text := StringIO()), width=1000)
    console.print(table)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines() if line.strip())


def verdict(kept: bool, claim: str) -> str:
    """A claim about the figures, and whether they keep it."""
    return f"{'ok  ' if kept else 'MISS'} {claim}"
