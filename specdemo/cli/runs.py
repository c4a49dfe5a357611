"""``run`` and ``race``: print tokens and figures, and write the recording as JSON, CSV or an offline page."""

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

from specdemo.cli.files import Exports, Outputs, add_exports, read_input
from specdemo.cli.options import add_settings, read_lane, typed_settings
from specdemo.cli.pairs import add_pair, loaded_for
from specdemo.cli.terminal import figures_table, lane_panels, legend, rounds_text, server_lines
from specdemo.errors import SettingsError, SpecDemoError
from specdemo.recording import Recording
from specdemo.rounds import Round
from specdemo.runs.prompts import examples
from specdemo.runs.race import Pair, race, repeat_race
from specdemo.runs.record import record
from specdemo.settings import Settings
from specdemo.trace import Trace
from specdemo.view.export import replay_html, rounds_csv, tokens_csv
from specdemo.view.headline import headline_text
from specdemo.view.lane_headers import lane_headers
from specdemo.view.race_value import replay_value

UPDATE_SECONDS = 0.15


def add_run(parser: argparse.ArgumentParser) -> None:
    _add_common(parser)
    parser.set_defaults(run=run_one)


def add_race(parser: argparse.ArgumentParser) -> None:
    _add_common(parser)
    parser.add_argument(
        "--lane",
        action="append",
        metavar="NAME=VALUE,…",
        help="settings of one lane, on top of those given for all; once for each lane. "
        "Default: a plain lane and one with the settings for all",
    )
    parser.add_argument(
        "--repeats",
        type=int,
        default=0,
        metavar="N",
        help="run the race N times more without showing it, for the speed-up's median and range. Default: 0",
    )
    parser.set_defaults(run=run_race)


def _add_common(parser: argparse.ArgumentParser) -> None:
    first = examples()[0].prompt
    parser.add_argument("prompt", nargs="?", default=first, help="text; - reads the input. Default: an example")
    parser.add_argument("--title", default="", help="what the recording is called")
    add_exports(parser, EXPORTS)
    add_pair(parser)
    add_settings(parser)


def run_one(args: argparse.Namespace) -> None:
    """Decode once; tokens are printed as they are committed."""
    outputs = Outputs(args, EXPORTS)
    out, settings, prompt = outputs.out, Settings(**typed_settings(args)), read_input(args.prompt)
    with loaded_for(args, [settings], outputs.errors) as pair:
        with closing(race(pair, prompt, [settings])) as lanes:
            for _, round_ in lanes:
                out.print(rounds_text([round_], not out.is_terminal), end="", soft_wrap=True)
        out.print("\n")
        (trace,) = lanes.traces()
        if trace.server is not None:  # only now is it known what its tokens were
            out.print(rounds_text(trace.rounds, not out.is_terminal), "\n", soft_wrap=True)
        recording = record(pair, prompt, [trace], args.title)
    _finish(outputs, recording)


def run_race(args: argparse.Namespace) -> None:
    """Decode in several lanes, shown side by side while they run."""
    outputs = Outputs(args, EXPORTS)
    lanes, prompt = _lanes(args), read_input(args.prompt)
    with loaded_for(args, lanes, outputs.errors) as pair:
        traces = _raced(pair, prompt, lanes, outputs.out)
        repeats = []
        for speeds in repeat_race(pair, prompt, lanes, args.repeats) if args.repeats else ():
            repeats.append(speeds)
            outputs.errors.print(f"Repeated {len(repeats)} of {args.repeats} times", markup=False)
        recording = replace(record(pair, prompt, traces, args.title), repeats=tuple(repeats))
    _finish(outputs, recording)
    value = replay_value(recording)
    for sentence in (headline_text(value["headline"]), (value["verdict"] or {}).get("text"), value["why"]):
        outputs.say(sentence)


def _raced(pair: Pair, prompt: str, lanes: Sequence[Settings], out: Console) -> list[Trace]:
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
    out.print(lane_panels(titles, [trace.rounds for trace in traces], not out.is_terminal))
    return traces


def _lanes(args: argparse.Namespace) -> list[Settings]:
    """The settings of each ``--lane``, added to those given for all."""
    common = typed_settings(args)
    if args.lane:
        return [_lane(number, {**common, **read_lane(text)}) for number, text in enumerate(args.lane, start=1)]
    given = Settings(**common)
    return [replace(given, strategy="autoregressive"), given]


def _lane(number: int, settings: dict[str, Any]) -> Settings:
    try:
        return Settings(**settings)
    except SettingsError as error:
        raise SpecDemoError(f"Lane {number}, {error}") from error


def _finish(outputs: Outputs, recording: Recording) -> None:
    outputs.out.print(legend(not outputs.out.is_terminal), "\n")
    outputs.out.print(figures_table(recording.traces))
    for sentence in server_lines(recording.traces):
        outputs.say(sentence)
    outputs.write(recording)


def as_json(recording: Recording) -> str:
    """The recording as JSON, with each lane's figures, which ``Recording.from_json`` ignores."""
    value = replay_value(recording)
    plain = next((t for t in recording.traces if t.settings.strategy == "autoregressive"), None)
    extra = {
        "metrics": [trace.metrics(plain).as_dict() for trace in recording.traces],
        "outputs": [trace.text for trace in recording.traces],
        "headline": value["headline"],
        "verdict": value["verdict"],
        "why": value["why"],
    }
    return json.dumps({**recording.as_dict(), **extra}, ensure_ascii=False, allow_nan=False)


EXPORTS: Exports = {
    "json": ("write the recording as JSON; - is the output", as_json),
    "html": ("write a page that replays it without a network", replay_html),
    "tokens-csv": ("write a line for each token", lambda recording: tokens_csv(recording.traces)),
    "rounds-csv": ("write a line for each round", lambda recording: rounds_csv(recording.traces)),
}
