"""``python -m specdemo.bench.llama_cpp``: what lanes of GGUF files cost beside llama.cpp's server alone.

The files have random weights of a real shape and are written at the first use. One server decodes plainly, two
draft: the seconds until one answers, the memory of the first and of all three, whose weights are mapped, and the
tokens a second of a lane, by its own clock, over those of the same server by its own, interleaved.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil
import torch

from specdemo.bench.contenders import ours, quartiles
from specdemo.bench.harness import Args, Results, columns, interleaved, run_bench, verdict
from specdemo.bench.random_models import random_pair
from specdemo.runs.load import load_pair
from specdemo.servers.gguf import GgufPair
from specdemo.settings import Settings
from specdemo.training.gguf import write_model

PROMPT = list(range(100, 132))
LANES: dict[str, Any] = {"plain": {"strategy": "autoregressive"}, "γ 2": {"gamma": 2}, "γ 5": {"gamma": 5}}
WITHIN = 0.03


def measure(args: Args) -> Results:
    return {"types": [_of_type(kind, args) for kind in args.types]}


def _of_type(kind: str, args: Args) -> dict[str, Any]:
    files = [Path(args.folder) / f"{role}-{args.shape}-{kind}.gguf" for role in ("target", "draft")]
    if not all(path.exists() for path in files):
        files[0].parent.mkdir(parents=True, exist_ok=True)
        made, tokenizer = random_pair(args.shape, torch.bfloat16), load_pair("builtin", "cpu").tokenizer
        for path, model in zip(files, made.models, strict=True):
            write_model(path, model, tokenizer, kind)
    lanes = {name: Settings(max_new_tokens=args.tokens, ignore_eos=True, **lane) for name, lane in LANES.items()}
    memory = []
    with load_pair(" + ".join(map(str, files))) as pair:
        for lane in lanes.values():
            _lane(pair, lane)
            used = [server.memory_full_info() for server in psutil.Process().children()]
            memory.append([sum(getattr(each, name) for each in used) / 1e6 for name in ("pss", "rss")])
        turns = {(name, how): partial(RUNS[how], pair, lane) for name, lane in lanes.items() for how in RUNS}
        speeds = interleaved(turns, args.repeats, label=kind)
        found = {"type": kind, "start": pair.starting / len(lanes), "one": memory[0], "three": memory[-1]}
    found |= {"files": sum(path.stat().st_size for path in files) / 1e6}
    found["speeds"] = {", ".join(contender): values for contender, values in speeds.items()}
    pairs = {name: zip(*(speeds[name, how] for how in RUNS), strict=True) for name in lanes}
    return found | {"ratios": {name: quartiles([own / alone for own, alone in p]) for name, p in pairs.items()}}


def _lane(pair: GgufPair, settings: Settings) -> float:
    return ours(pair, settings)(PROMPT).decode_speed or 0.0


def _alone(pair: GgufPair, settings: Settings) -> float:
    """Tokens a second after the first, by the server's own clock, of an answer that comes whole."""
    body = {"prompt": PROMPT, "n_predict": settings.max_new_tokens, "temperature": 0, "ignore_eos": True}
    with pair.deployed(settings) as served:
        url = served.url_of(settings.strategy).removesuffix("/v1") + "/completion"
        key = {"Authorization": f"Bearer {served.api_key}"}
        answer = httpx.post(url, json={**body, "cache_prompt": False}, headers=key, timeout=None)
    timings = answer.raise_for_status().json()["timings"]
    return (timings["predicted_n"] - 1) / timings["predicted_ms"] * 1e3


RUNS = {"as a lane": _lane, "alone": _alone}
COLUMNS = {
    "weights": "{type}",
    "files, MB": "{files:.0f}",
    "start, s": "{start:.1f}",
    "one server, MB": "{one[0]:.0f}",
    "three": "{three[0]:.0f}",
    "three, what they share counted thrice": "{three[1]:.0f}",
}


def table(found: Results) -> str:
    claims = [
        verdict(each["median"] >= 1 - WITHIN, f"{row['type']}, {name}: {each['median']:.3f} of the server alone")
        for row in found["types"]
        for name, each in row["ratios"].items()
    ]
    return "\n".join([columns(COLUMNS, found["types"]), "", *claims])


if __name__ == "__main__":
    options = {"folder": "gguf-random", "shape": "0.6B", "types": ["bfloat16", "Q8_0"], "tokens": 64, "repeats": 5}
    run_bench("llama_cpp", __doc__, measure, table, **options, threads=1)
