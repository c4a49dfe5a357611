"""``python tests/servers/llama_server.py``: llama.cpp's server in a process of its own.

It is the server inside the package ``xllamacpp``, which brings no executable. The flags are those of
``llama-server`` that the tests and the README of ``specdemo/servers`` need, with the same meanings.
"""

from __future__ import annotations

import argparse
import os
import select
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

START_SECONDS, STOP_SECONDS = 120, 10
OPTIONS: dict[str, tuple[tuple[str, ...], str | int]] = {
    "model.path": (("-m", "--model"), ""),
    "n_ctx": (("-c", "--ctx-size"), 1024),
    "n_parallel": (("-np", "--parallel"), 1),
    "port": (("--port",), 8080),
    "speculative.draft.mparams.path": (("-md", "--spec-draft-model", "--model-draft"), ""),
    "speculative.draft.n_max": (("--spec-draft-n-max",), 0),
    "speculative.ngram_simple.size_n": (("--spec-ngram-simple-size-n",), 0),
    "speculative.ngram_simple.size_m": (("--spec-ngram-simple-size-m",), 0),
}
"""Where xllamacpp's parameters have what a flag says, and what it is without; 0 and nothing leave theirs."""


@dataclass(frozen=True)
class LlamaServer:
    """A started server."""

    url: str  # its address, without a path
    process: subprocess.Popen[str]

    def kill(self) -> None:
        """End it at once, as a crash does."""
        self.process.kill()
        self.process.wait()


@contextmanager
def running(*flags: str) -> Iterator[LlamaServer]:
    """A server with these flags until the block ends.

    Raises:
        RuntimeError: it does not start; with the end of its log.
    """
    command, pipe = [sys.executable, __file__, *flags], subprocess.PIPE
    with (
        tempfile.TemporaryFile("w+", errors="replace") as log,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=log, text=True) as process,
    ):
        assert process.stdout is not None, "it is a pipe"
        answered, _, _ = select.select([process.stdout], [], [], START_SECONDS)
        server = LlamaServer(process.stdout.readline().strip() if answered else "", process)
        try:
            if not server.url:
                server.kill()
                log.seek(0)
                raise RuntimeError(f"llama.cpp's server did not start:\n{''.join(log.readlines()[-20:])}")
            yield server
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                server.kill()


def llama_server(model: Path, *flags: str) -> AbstractContextManager[LlamaServer]:
    """The same with one thread on a free port, without a warm-up run; later flags overrule these."""
    return running("-m", str(model), "-t", "1", "--port", "0", "--no-warmup", *flags)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for place, (names, default) in OPTIONS.items():
        parser.add_argument(*names, dest=place, default=default, type=type(default))
    parser.add_argument("-a", "--alias", default="")
    parser.add_argument("--spec-type", default="none", help="such as draft-simple or ngram-simple")
    parser.add_argument("-t", "--threads", type=int, default=1)
    parser.add_argument("--metrics", action="store_true", help="serve /metrics")
    parser.add_argument("--no-warmup", action="store_true")
    args = parser.parse_args()
    # llama.cpp logs to both streams, in pieces. Its log is sent to stderr, so that stdout holds the address alone.
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as out:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        server = _server(args)
        print(server.listening_address, file=out)
    threading.Event().wait()


def _server(args: argparse.Namespace) -> Any:
    import xllamacpp  # type: ignore[import-untyped]

    params = xllamacpp.CommonParams()
    for place in OPTIONS:
        if (value := getattr(args, place)) or place == "port":
            *path, name = place.split(".")
            setattr(reduce(getattr, path, params), name, value)
    if args.alias:
        params.model_alias = {args.alias}
    params.hostnames, params.endpoint_metrics, params.warmup = ["127.0.0.1"], args.metrics, not args.no_warmup
    kind, draft = args.spec_type.upper().replace("-", "_"), params.speculative.draft
    params.speculative.types = [getattr(xllamacpp.common_speculative_type, f"COMMON_SPECULATIVE_TYPE_{kind}")]
    for threads in (params.cpuparams, params.cpuparams_batch, draft.cpuparams, draft.cpuparams_batch):
        threads.n_threads = args.threads
    return xllamacpp.Server(params)


if __name__ == "__main__":
    main()
