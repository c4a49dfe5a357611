"""``pairs``: lists the pairs and servers; and the options of all commands that load a pair."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from threading import Event

from rich.console import Console

from specdemo.cli.files import Exports, Outputs, add_exports
from specdemo.cli.terminal import rows_table
from specdemo.models.pair import ModelPair
from specdemo.models.request import catalog, request_pair
from specdemo.runs.load import load_pair
from specdemo.runs.race import Pair
from specdemo.runs.store import PairStore
from specdemo.servers.catalog import problems, servers
from specdemo.servers.gguf import GgufPair
from specdemo.servers.pair import on_server
from specdemo.settings import Settings
from specdemo.view.progress_text import await_load

FILES: Exports = {
    "json": (
        "write the catalogue as JSON; - is the output",
        lambda entries: json.dumps(entries, ensure_ascii=False, indent=1),
    )
}


def add_pairs(parser: argparse.ArgumentParser) -> None:
    add_exports(parser, FILES)
    parser.set_defaults(run=list_pairs)


def list_pairs(args: argparse.Namespace) -> None:
    outputs = Outputs(args, FILES)
    outputs.write([asdict(entry) for entry in catalog().values()])
    if args.json != "-":
        out = outputs.out
        rows = [
            (e.id, e.label, f"{e.memory_gb:g} GB" + (", gated" if e.gated else "")) for e in catalog().values()
        ]
        out.print(rows_table(("id", "models", "weights"), rows))
        if found := servers():
            served = [(e.id, e.label, ", ".join(e.strategies)) for e in found.values()]
            out.print(rows_table(("--server", "deployment", "strategies"), served))
        for problem in problems().values():
            out.print(str(problem), markup=False)


def add_pair(parser: argparse.ArgumentParser) -> None:
    """Options that name a pair and how it is loaded, as in ``specdemo.load_pair``."""
    group = parser.add_argument_group("models, as in specdemo.load_pair")
    named = 'an id of `pairs`, a target, "target + draft", "target + head" or all three; also GGUF files'
    group.add_argument("--pair", default="builtin", metavar="NAME", help=named)
    group.add_argument("--device", help="cpu, cuda, mps, or auto to spread a model over all GPUs")
    group.add_argument("--dtype", help="float32, bfloat16 or float16")
    group.add_argument("--target-quantization", metavar="WEIGHTS", help="float8, int8, int4 or none")
    group.add_argument("--draft-quantization", metavar="WEIGHTS", help="float8, int8, int4 or none")
    group.add_argument("--gguf", metavar="NAME", help="the same weights in GGUF files, for engine=llama.cpp")
    group.add_argument(
        "--threads", type=int, help="threads of the CPU; if left out, the quickest number is found by trying"
    )


@contextmanager
def loaded_for(args: argparse.Namespace, lanes: Sequence[Settings], errors: Console) -> Iterator[Pair]:
    """The pair that was named, or None where all lanes run on servers; an interrupt stops its loading."""
    if all(on_server(None, settings) for settings in lanes):
        yield None
        return
    weights = args.target_quantization, args.draft_quantization
    request = request_pair(args.pair, args.device, args.dtype, *weights)
    with PairStore(threads=args.threads).using(request) as load:
        with errors.status(f"Loading {args.pair}…") as status:
            for text in await_load(load, Event()):
                status.update(text)
        pair = load.future.result()
        if args.gguf and isinstance(pair, ModelPair):
            pair.gguf = load_pair(args.gguf)
        with pair if isinstance(pair, GgufPair) else nullcontext():
            yield pair
