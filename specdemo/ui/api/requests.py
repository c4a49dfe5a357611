"""What a program asks for, parsed from plain data that may hold anything; and what it is told, as plain data."""

from __future__ import annotations

import json
from dataclasses import asdict, fields, replace
from typing import Any, Literal, TypedDict, get_type_hints

from specdemo.analysis.advice import AdviceReport
from specdemo.analysis.engine_lines import FRAMEWORKS
from specdemo.analysis.speedup import speedup_of
from specdemo.analysis.sweep_report import SweepReport
from specdemo.drafters import GGUF, PARTS, all_with
from specdemo.errors import PromptError, SettingsError, SpecDemoError
from specdemo.models.request import catalog, request_pair
from specdemo.recording import Recording
from specdemo.servers.catalog import offered
from specdemo.settings import ACCEPTANCE_RULES, MAX_GAMMA, STRATEGIES, Settings, at_least_one, whole_numbers
from specdemo.ui.jobs.job import LaneRequest
from specdemo.ui.jobs.limits import check_lanes
from specdemo.ui.jobs.measuring import MeasureJob
from specdemo.ui.jobs.race import RaceJob, race_job
from specdemo.ui.state.methods import pair_name, server_of
from specdemo.ui.state.request import whole
from specdemo.view.headline import headline_text
from specdemo.view.race_value import replay_value

SWEEP_TOKENS = 64


def settings_type() -> type:
    """The type of one lane's settings for the endpoints' schema: any fields of :class:`specdemo.Settings`."""
    drafters = tuple(dict.fromkeys(i.name for parts in (PARTS, {*PARTS, GGUF}) for i in all_with(parts)))
    names = {"strategy": STRATEGIES, "drafter": drafters, "acceptance": tuple(ACCEPTANCE_RULES)}
    choices = {name: Literal[choices] for name, choices in names.items()}  # type: ignore[valid-type]
    make: Any = TypedDict
    return make("LaneSettings", {**get_type_hints(Settings), **choices}, total=False)


def parse_race(prompt: Any, lanes: Any, pair: Any) -> RaceJob:
    """A race within the limits; raises SpecDemoError where it asks for what there is not, or for too much."""
    return race_job(_parse_prompt(prompt), _on_pair(pair, _parse_lanes(lanes)))


def parse_run(prompt: Any, settings: Any, pair: Any) -> RaceJob:
    return race_job(_parse_prompt(prompt), _on_pair(pair, [_parse_settings(settings)]))


def parse_sweep(prompts: Any, gammas: Any, repeats: Any, settings: Any, pair: Any) -> MeasureJob:
    """A sweep within the limits; on a server ``gammas`` says nothing, since γ is its own."""
    texts, lane = _parse_measured(prompts, settings, pair)
    numbers = [whole("gammas", g) for g in gammas] if isinstance(gammas, list) else gammas
    here = lane.settings.server is None
    tried = whole_numbers("gammas", numbers, MAX_GAMMA, "[2, 3, 4]") if here else ()
    return MeasureJob(texts, lane, at_least_one("repeats", whole("repeats", repeats)), tried).checked()


def parse_advice(prompts: Any, budget: Any, methods: Any, kinds: Any, settings: Any, pair: Any) -> MeasureJob:
    texts, lane = _parse_measured(prompts, settings, pair)
    if isinstance(budget, bool) or not isinstance(budget, int | float):
        raise SettingsError("budget_seconds", f"must be a number of seconds, not {_kind(budget)}.")
    names, labels = (_parse_texts(*given) for given in (("methods", methods), ("kinds", kinds)))
    return MeasureJob(texts, lane, budget=budget, kinds=labels or (), methods=names).checked()


def _parse_measured(prompts: Any, settings: Any, pair: Any) -> tuple[list[str], LaneRequest]:
    texts = [_parse_prompt(p) for p in (prompts if isinstance(prompts, list) else [prompts])]
    wanted = {"max_new_tokens": SWEEP_TOKENS, **settings} if isinstance(settings, dict) else settings
    (lane,) = _on_pair(pair, [_parse_settings(wanted)])
    check_lanes([lane.settings])
    return texts, lane


def _parse_texts(field: str, given: Any) -> tuple[str, ...] | None:
    if not given:
        return None
    if not isinstance(given, list) or not all(isinstance(text, str) for text in given):
        raise SettingsError(field, f"must be a list of texts, not {_kind(given)}.")
    return tuple(given)


def _parse_prompt(prompt: Any) -> str:
    if not isinstance(prompt, str):
        raise PromptError(f"must be a text, not {_kind(prompt)}.")
    return prompt


def _parse_settings(given: Any) -> Settings:
    """The settings of one lane; numbers that are whole may come as 5.0, as JSON knows one kind."""
    if not isinstance(given, dict):
        raise SettingsError("settings", f'must be an object such as {{"gamma": 5}}, not {_kind(given)}.')
    known = [f.name for f in fields(Settings)]
    unknown = next((name for name in given if name not in known), None)
    if unknown is not None:
        raise SettingsError("settings", f"{unknown!r:.60} is not known; choose from {', '.join(known)}.")
    if given.get("server") is not None:
        given = {"engine": "server", **given}  # a server's name says where a lane runs
    read: dict[str, Any] = {n: whole(n, value) if value is not None else None for n, value in given.items()}
    return Settings(**read)


def _parse_lanes(given: Any) -> list[Settings]:
    if not isinstance(given, list):
        raise SettingsError("lanes", f"must be a list of settings, one for each lane, not {_kind(given)}.")
    lanes = []
    for number, lane in enumerate(given, start=1):
        try:
            lanes.append(_parse_settings(lane))
        except SettingsError as error:
            raise SpecDemoError(f"Lane {number}, {error}") from error
    return lanes


def _on_pair(pair: Any, lanes: list[Settings]) -> list[LaneRequest]:
    """The lanes as they run on what ``pair`` names: on a server, unless they name one themselves."""
    server = server_of(pair) if isinstance(pair, str) else None
    if server is not None:
        lanes = [replace(s, engine="server", server=s.server or server) for s in lanes]
    if any(s.engine == "server" and s.server is None for s in lanes):
        raise SettingsError("server", "give the name of a configured server; the endpoint 'pairs' lists them.")
    request = request_pair(pair) if any(s.server is None for s in lanes) else None
    return [LaneRequest(s, request if s.server is None else None) for s in lanes]


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


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
    """A race: its lanes, their speed-ups, headline, verdict and reason; ``rounds`` adds the recording."""
    value, lanes = replay_value(recording), lane_responses(recording)
    first, *others = recording.traces
    found = [speedup_of(first, lane) for lane in others]
    return {
        "lanes": lanes,
        "speedups": [1.0, *(None if each is None or each.doubt else each.ratio for each in found)],
        "noisy": any(each is not None and each.doubt for each in found),
        "headline": headline_text(value["headline"]),
        "verdict": value["verdict"],
        "why": value["why"],
        **_setting(recording, rounds),
    }


def run_response(recording: Recording, *, rounds: bool = False) -> dict[str, Any]:
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
    servers = [
        {
            "id": pair_name(entry.id),
            "label": entry.label,
            "target": entry.pair.model,
            "server": entry.id,
            "strategies": list(entry.strategies),
            "note": entry.note,
        }
        for entry in offered().values()
    ]
    return [*pairs, *servers]


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
