"""``run`` and ``race``: tokens as they come, then the figures; the recording as JSON, CSV or an offline page."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.live import Live

from specdemo.cli.files import check_targets, read_input, write
from specdemo.cli.options import add_settings, read_lane, typed_settings
from specdemo.cli.pairs import add_pair, loaded_for
from specdemo.cli.terminal import consoles, figures_table, lane_panels, legend, rounds_text, server_lines
from specdemo.errors import SettingsError, SpecDemoError
from specdemo.models.pair import ModelPair
from specdemo.recording import Recording
from specdemo.runs.encode import encode
from specdemo.runs.prompts import examples
from specdemo.runs.race import race
from specdemo.runs.record import record
from specdemo.runs.single import Prompt
from specdemo.servers.pair import on_server
from specdemo.settings import Settings
from specdemo.trace import Round, Trace
from specdemo.view.export import replay_html, rounds_csv, tokens_csv
from specdemo.view.lane_headers import lane_headers
from specdemo.view.race_value import replay_value

UPDATE_SECONDS = 0.15


def add_run(parser: argparse.ArgumentParser) -> None:
    """Options of ``run``."""
    _add_common(parser)
    parser.set_defaults(run=run_one)


def add_race(parser: argparse.ArgumentParser) -> None:
    """Options of ``race``."""
    _add_common(parser)
    parser.add_argument(
        "--lane",
        action="append",
        metavar="NAME=VALUE,…",
        help="settings of one lane, on top of those given for all; once for each lane. "
        "Default: a plain lane and one with the settings for all",
    )
    parser.set_defaults(run=run_race)


def _add_common(parser: argparse.ArgumentParser) -> None:
    first = examples()[0].prompt
    parser.add_argument("prompt", nargs="?", default=first, help=f"text; - reads the input. Default: {first!r}")
    parser.add_argument("--title", default="", help="what the recording is called")
    parser.add_argument("--json", metavar="FILE", help="write the recording as JSON; - is the output")
    parser.add_argument("--html", metavar="FILE", help="write a page that replays it without a network")
    parser.add_argument("--tokens-csv", metavar="FILE", help="write a line for each token")
    parser.add_argument("--rounds-csv", metavar="FILE", help="write a line for each round")
    add_pair(parser)
    add_settings(parser)


def run_one(args: argparse.Namespace) -> None:
    """Decode once; tokens are printed as they are decided."""
    check_targets(_targets(args))
    out, errors = consoles(args.json)
    settings, prompt = Settings(**typed_settings(args)), read_input(args.prompt)
    with loaded_for(args, [settings], errors) as pair:
        with closing(race(pair, prompt, [settings])) as lanes:
            for _, round_ in lanes:
                out.print(rounds_text([round_]), end="", soft_wrap=True)
        out.print("\n")
        (trace,) = lanes.traces()
        if trace.server is not None:  # only now is it known what its tokens were
            out.print(rounds_text(trace.rounds), "\n", soft_wrap=True)
        recording = record(pair, prompt, [trace], args.title)
    _finish(args, recording, out)


def run_race(args: argparse.Namespace) -> None:
    """Decode in several lanes, side by side on the terminal while they run."""
    check_targets(_targets(args))
    out, errors = consoles(args.json)
    lanes, prompt = _lanes(args), read_input(args.prompt)
    with loaded_for(args, lanes, errors) as pair:
        remote = any(on_server(None, settings) for settings in lanes)
        traces = _raced(pair, prompt if remote else encode(pair, prompt, lanes[0].chat), lanes, out)
        recording = record(pair, prompt, traces, args.title)
    value = replay_value(recording)
    _finish(args, recording, out)
    for sentence in (value["verdict"] and value["verdict"]["text"], value["why"]):
        if sentence:
            out.print(f"\n{sentence}", markup=False, soft_wrap=not out.is_terminal)


def _raced(pair: ModelPair | None, prompt: Prompt, lanes: Sequence[Settings], out: Console) -> list[Trace]:
    titles = [header["title"] for header in lane_headers(lanes)]
    rounds: list[list[Round]] = [[] for _ in lanes]
    # Drawn between rounds, while every lane's clock stands still, not by a thread that would take their time.
    with (
        Live(console=out, auto_refresh=False, transient=True) as live,
        closing(race(pair, prompt, lanes)) as events,
    ):
        drawn = time.monotonic()
        for lane, round_ in events:
            rounds[lane].append(round_)
            if out.is_terminal and time.monotonic() - drawn >= UPDATE_SECONDS:
                live.update(lane_panels(titles, rounds), refresh=True)
                drawn = time.monotonic()
    traces = events.traces()
    out.print(lane_panels(titles, [trace.rounds for trace in traces]))
    return traces


def _lanes(args: argparse.Namespace) -> list[Settings]:
    """The lanes that were typed, each on top of what holds for all."""
    common = typed_settings(args)
    if args.lane:
        return [_lane(number, {**common, **read_lane(text)}) for number, text in enumerate(args.lane, start=1)]
    given = Settings(**common)
    return [replace(given, strategy="autoregressive"), given]


def _lane(number: int, settings: dict[str, Any]) -> Settings:
    try:
        return Settings(**settings)
    except SettingsError as error:
        raise SpecDemoError(f"Lane {number}: {error}") from error


def _targets(args: argparse.Namespace) -> list[str | None]:
    return [args.json, args.html, args.tokens_csv, args.rounds_csv]


def _finish(args: argparse.Namespace, recording: Recording, out: Console) -> None:
    """Figures for the reader, files for whoever asked for them."""
    out.print(legend())
    out.print()
    out.print(figures_table(recording.traces))
    for sentence in server_lines(recording.traces):
        out.print(f"\n{sentence}", markup=False, soft_wrap=not out.is_terminal)
    if args.json:
        write(args.json, as_json(recording))
    if args.html:
        write(args.html, replay_html(recording))
    if args.tokens_csv:
        write(args.tokens_csv, tokens_csv(recording.traces))
    if args.rounds_csv:
        write(args.rounds_csv, rounds_csv(recording.traces))


def as_json(recording: Recording) -> str:
    """The recording, with each lane's figures for readers that do not compute them; they are not read back."""
    value = replay_value(recording)
    plain = next((t for t in recording.traces if t.settings.strategy == "autoregressive"), None)
    extra = {
        "metrics": [trace.metrics(plain).as_dict() for trace in recording.traces],
        "outputs": [trace.text for trace in recording.traces],
        "verdict": value["verdict"],
        "why": value["why"],
    }
    return json.dumps({**recording.as_dict(), **extra}, ensure_ascii=False, allow_nan=False)
