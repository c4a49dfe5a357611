"""What programs are told of a run: figures, output and verdict as plain data."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from specdemo.analysis.advice import AdviceReport
from specdemo.analysis.engine_lines import FRAMEWORKS
from specdemo.analysis.sweep_report import SweepReport
from specdemo.models.request import catalog
from specdemo.recording import Recording
from specdemo.servers.catalog import ServerEntry, offered
from specdemo.ui.state.methods import pair_name
from specdemo.view.headline import headline_text
from specdemo.view.race_value import replay_value


def lane_responses(recording: Recording) -> list[dict[str, Any]]:
    """Each lane's output and figures; the costs c and v are relative to the first plain lane, if there is one."""
    plain = next((t for t in recording.traces if t.settings.strategy == "autoregressive"), None)
    headers = replay_value(recording)["lanes"]
    return [
        {
            "title": header["title"],
            "settings": asdict(trace.settings),
            "output": trace.text,
            "token_ids": list(trace.token_ids),
            "stop": trace.rounds[-1].stop,
            "metrics": trace.metrics(plain).as_dict(),
            **({"server": asdict(trace.server)} if trace.server else {}),
        }
        for header, trace in zip(headers, recording.traces, strict=True)
    ]


def race_response(recording: Recording, *, rounds: bool = False) -> dict[str, Any]:
    """A race: its lanes, the others' speeds against the first lane's, the headline, the verdict and the reason.

    Args:
        recording: of the race.
        rounds: add the recording itself, with every round and token; the page opens it.
    """
    value, lanes = replay_value(recording), lane_responses(recording)
    speeds = [lane["metrics"]["tokens_per_second"] for lane in lanes]
    return {
        "lanes": lanes,
        "speedups": [speed / speeds[0] if speed and speeds[0] else None for speed in speeds],
        "headline": headline_text(value["headline"]),
        "verdict": value["verdict"],
        "why": value["why"],
        **_setting(recording, rounds),
    }


def run_response(recording: Recording, *, rounds: bool = False) -> dict[str, Any]:
    """A run: its one lane; ``rounds`` as above."""
    (lane,) = lane_responses(recording)
    return {**lane, **_setting(recording, rounds)}


def report_response(report: SweepReport | AdviceReport, *, rounds: bool = False) -> dict[str, Any]:
    """Rows and recommendation, and of advice the lines that set it; every run they are made of with ``rounds``."""
    response = json.loads(report.to_json())
    if isinstance(report, AdviceReport):
        code = {engine: report.code(engine) for engine in FRAMEWORKS}
        response |= {"settings": asdict(report.settings()), "code": code}
    return response if rounds else {name: value for name, value in response.items() if name != "runs"}


def pairs_response() -> list[dict[str, Any]]:
    """The catalogue, and the configured servers with what they can do; no address."""
    names = ("id", "label", "target", "draft", "head", "licence", "gated", "memory_gb", "note")
    pairs = [{name: getattr(entry, name) for name in names} for entry in catalog().values()]
    return [*pairs, *map(_server_response, offered().values())]


def _server_response(entry: ServerEntry) -> dict[str, Any]:
    return {
        "id": pair_name(entry.id),
        "label": entry.label,
        "target": entry.pair.model,
        "server": entry.id,
        "strategies": list(entry.strategies),
        "note": entry.note,
    }


def _setting(recording: Recording, rounds: bool) -> dict[str, Any]:
    """Where and with what it ran, without which a speed means little; and the recording with its ``rounds``."""
    data = recording.as_dict()
    return {
        "pair": recording.traces[0].pair,
        "dtype": recording.traces[0].dtype,
        "quantization": recording.traces[0].quantization,
        **{name: data[name] for name in ("hardware", "versions", "date")},
        **({"recording": data} if rounds else {}),
    }
