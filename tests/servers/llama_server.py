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
from pathlib import Path
from typing import Any

START_SECONDS, STOP_SECONDS = 120, 10


@contextmanager
def running(*flags: str) -> Iterator[LlamaServer]:
    """A server with these flags until the block ends.

    Raises:
        RuntimeError: it does not start; with the end of its log.
    """
    server = LlamaServer([sys.executable, __file__, *flags])
    try:
        yield server
    finally:
        server.stop()


def llama_server(model: Path, *flags: str) -> AbstractContextManager[LlamaServer]:
    """The same with one thread on a free port, without a warm-up run; later flags overrule these."""
    return running("-m", str(model), "-t", "1", "--port", "0", "--no-warmup", *flags)


class LlamaServer:
    """A started server.

    Attributes:
        url: its address, without a path.
    """

    def __init__(self, command: list[str]) -> None:
        with tempfile.TemporaryFile("w+", errors="replace") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True
            )
            assert self._process.stdout is not None, "it is a pipe"
            answered, _, _ = select.select([self._process.stdout], [], [], START_SECONDS)
            self.url = self._process.stdout.readline().strip() if answered else ""
            if not self.url:
                self.kill()
                log.seek(0)
                reason = "did not start" if answered else f"did not start within {START_SECONDS} s"
                raise RuntimeError(f"llama.cpp's server {reason}:\n{''.join(log.readlines()[-20:])}")

    def stop(self) -> None:
        """End it, as its user would."""
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it at once, as a crash does."""
        self._process.kill()
        self._process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-m", "--model", required=True, help="GGUF file of the target")
    parser.add_argument("-a", "--alias", help="the model's name")
    parser.add_argument("-md", "--spec-draft-model", "--model-draft", help="GGUF file of a draft")
    parser.add_argument("--spec-type", default="none", help="such as draft-simple or ngram-simple")
    parser.add_argument("--spec-draft-n-max", type=int, help="tokens drafted a round at most")
    parser.add_argument("--spec-ngram-simple-size-n", type=int, help="length of the n-gram that is looked up")
    parser.add_argument("--spec-ngram-simple-size-m", type=int, help="tokens copied from behind it")
    parser.add_argument("-c", "--ctx-size", type=int, default=1024, help="positions of all slots together")
    parser.add_argument("-np", "--parallel", type=int, default=1, help="slots")
    parser.add_argument("-t", "--threads", type=int, default=1)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080, help="0 takes a free one")
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
    params.model.path = args.model
    if args.alias:
        params.model_alias = {args.alias}
    params.n_ctx, params.n_parallel = args.ctx_size, args.parallel
    params.hostnames, params.port = [args.host], args.port
    params.endpoint_metrics, params.warmup = args.metrics, not args.no_warmup
    kind = args.spec_type.upper().replace("-", "_")
    speculative = params.speculative
    speculative.types = [getattr(xllamacpp.common_speculative_type, f"COMMON_SPECULATIVE_TYPE_{kind}")]
    if args.spec_draft_model:
        speculative.draft.mparams.path = args.spec_draft_model
    if args.spec_draft_n_max:
        speculative.draft.n_max = args.spec_draft_n_max
    if args.spec_ngram_simple_size_n:
        speculative.ngram_simple.size_n = args.spec_ngram_simple_size_n
    if args.spec_ngram_simple_size_m:
        speculative.ngram_simple.size_m = args.spec_ngram_simple_size_m
    draft = speculative.draft
    for threads in (params.cpuparams, params.cpuparams_batch, draft.cpuparams, draft.cpuparams_batch):
        threads.n_threads = args.threads
    return xllamacpp.Server(params)


if __name__ == "__main__":
    main()
