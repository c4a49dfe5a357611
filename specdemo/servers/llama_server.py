"""llama.cpp's server as a process of this program: started with flags, and ended with whoever started it.

It is the executable ``llama-server`` where ``SPECDEMO_LLAMA_SERVER`` or the PATH has one, such as a build for a
GPU, else the server inside the package ``xllamacpp``. ``python -m specdemo.servers.llama_server FLAGS`` runs it
until its standard input ends, which it also does where the process that holds the other end is killed.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial, reduce
from http.client import HTTPConnection, HTTPException
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Thread
from typing import IO, Any, NoReturn

from specdemo.errors import PairError

EXECUTABLE = "SPECDEMO_LLAMA_SERVER"
"""Environment variable: the path of ``llama-server``."""
KEY = "LLAMA_API_KEY"  # llama-server reads it from there, where other users of the machine do not see it
LOOPBACK = "127.0.0.1"
START_SECONDS, STOP_SECONDS, LOOK_SECONDS = 900.0, 5.0, 0.05
LAST_LINES = 6
STAMP = re.compile(r"^[\d.]+ [A-Z] ")
TROUBLE = re.compile(r"error|fail|invalid|unknown|unable", re.IGNORECASE)
NOTHING_TO_RUN = (
    "llama.cpp's server is not on this machine; run pip install -r requirements.txt, or where xllamacpp has no "
    f"wheel, install llama.cpp and put its llama-server on the PATH or its path into {EXECUTABLE}."
)
OPTIONS: dict[str, tuple[tuple[str, ...], str | int | float]] = {
    "model.path": (("-m", "--model"), ""),
    "n_ctx": (("-c", "--ctx-size"), 1024),
    "n_parallel": (("-np", "--parallel"), 1),
    "port": (("--port",), 8080),
    "speculative.draft.mparams.path": (("-md", "--spec-draft-model", "--model-draft"), ""),
    "speculative.draft.n_max": (("--spec-draft-n-max",), 0),
    "speculative.draft.p_min": (("--spec-draft-p-min",), 0.0),
    "speculative.ngram_simple.size_n": (("--spec-ngram-simple-size-n",), 0),
    "speculative.ngram_simple.size_m": (("--spec-ngram-simple-size-m",), 0),
}
"""Where xllamacpp's parameters have what a flag says, and what it is without; 0 and nothing leave theirs."""


class LlamaServer:
    """A started server, which answers; ended by :meth:`end`, or when this program ends in whatever way.

    Args:
        flags: those of ``llama-server``, but for host, port and key.
        check: called while it starts; what it raises ends the server.
        key: that requests must bring; None for none.
        port: a free one unless given.

    Raises:
        PairError: there is no llama.cpp here, or it does not start; with the last lines of its log.
    """

    def __init__(
        self,
        flags: Sequence[str],
        check: Callable[[], object] = bool,
        key: str | None = None,
        port: int | None = None,
    ) -> None:
        program = executable()
        if program is None and find_spec("xllamacpp") is None:
            raise PairError(NOTHING_TO_RUN)
        self.users, self.key, self._port = 0, key, port or free_port()  # users: how many lanes run on it
        self.url = f"http://{LOOPBACK}:{self._port}"  # its address, without a path
        # From the folder of this package, which need not be installed; paths in flags are absolute.
        command = [sys.executable, "-m", __name__, "--host", LOOPBACK, "--port", str(self._port), *flags]
        environment = {**os.environ, EXECUTABLE: program or "", KEY: key or ""}
        if not key:
            del environment[KEY]
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # read when the server has ended
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            env=environment,
            cwd=Path(__file__).parents[2],
            start_new_session=True,  # Ctrl-C is for this program, which then ends its servers
        )
        try:
            until = time.monotonic() + START_SECONDS
            while not _answers(self._port):
                check()
                if self.process.poll() is not None or time.monotonic() > until:
                    raise PairError(f"llama.cpp's server did not start: {self.last_words() or 'its log is empty'}")
                time.sleep(LOOK_SECONDS)
        except BaseException:
            self.end()
            raise

    @property
    def running(self) -> bool:
        """Whether its process is there; one that does not answer is given a moment, since it may be ending."""
        if not _answers(self._port):
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(1)
        return self.process.poll() is None

    def last_words(self) -> str:
        """The last lines of its log that tell of trouble, or the last ones, without the key."""
        self._log.seek(0)
        text = self._log.read().decode(errors="replace").replace(self.key or "\0", "***")
        lines = [STAMP.sub("", line).strip() for line in text.splitlines() if line.strip()]
        return " · ".join([line for line in lines if TROUBLE.search(line)][-LAST_LINES:] or lines[-LAST_LINES:])

    def end(self) -> None:
        """End it, and wait until it has ended."""
        assert self.process.stdin is not None, "it is a pipe"
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_SECONDS)
        self.kill()

    def kill(self) -> None:
        """End it at once, as a crash does."""
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> LlamaServer:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()


def executable() -> str | None:
    """The path of ``llama-server``, a PairError if it is none; None where xllamacpp is to be taken."""
    named = os.environ.get(EXECUTABLE)
    found = shutil.which(named or "llama-server")
    if named and found is None:
        raise PairError(f"{EXECUTABLE} is {named!r:.200}, which is no program; give the path of llama-server.")
    return found and str(Path(found).absolute())


def is_here() -> bool:
    """Whether this machine has it."""
    return bool(shutil.which(os.environ.get(EXECUTABLE) or "llama-server") or find_spec("xllamacpp"))


def free_port() -> int:
    """A port of the loopback interface that nobody has now."""
    with socket.create_server((LOOPBACK, 0)) as probe:
        return int(probe.getsockname()[1])


def _answers(port: int) -> bool:
    """Whether the server has loaded its model."""
    with closing(HTTPConnection(LOOPBACK, port, timeout=1)) as connection:
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, HTTPException):  # nobody is there yet
            return False


def main(flags: Sequence[str]) -> NoReturn:
    """Run the server until it ends, or the program does that holds the other end of its standard input."""
    program = executable()
    if program is None:
        waiting = _end_with_input(partial(os._exit, 0))
        server = _in_this_process(flags)
        waiting.join()
        raise SystemExit(f"{server} was not ended")
    # On Linux it is killed when this process ends, killed itself perhaps.
    orphaned = partial(ctypes.CDLL(None).prctl, 1, signal.SIGKILL) if sys.platform == "linux" else None
    process = subprocess.Popen([program, *flags], stdin=subprocess.DEVNULL, preexec_fn=orphaned)
    _end_with_input(process.kill)
    raise SystemExit(process.wait())


def _end_with_input(end: Callable[[], object]) -> Thread:
    """Call ``end`` when the standard input ends, in a thread; never where it is no pipe, as in a shell."""

    def wait() -> None:
        if not stat.S_ISFIFO(os.fstat(0).st_mode):
            Event().wait()
        while os.read(0, 1):  # no buffer, whose lock would keep the interpreter from ending
            pass
        end()

    thread = Thread(target=wait, daemon=True)
    thread.start()
    return thread


def _in_this_process(flags: Sequence[str]) -> Any:
    """The server of xllamacpp, with those flags of ``llama-server`` that this program gives it."""
    import xllamacpp  # type: ignore[import-untyped]

    parser = argparse.ArgumentParser(allow_abbrev=False)
    for place, (names, default) in OPTIONS.items():
        parser.add_argument(*names, dest=place, default=default, type=type(default))
    parser.add_argument("--host", default=LOOPBACK)
    parser.add_argument("-a", "--alias", default="")
    parser.add_argument("--spec-type", default="none", help="such as draft-simple or ngram-simple")
    parser.add_argument("-t", "--threads", type=int, default=0)
    parser.add_argument("--metrics", action="store_true", help="serve /metrics")
    parser.add_argument("--no-warmup", action="store_true")
    args = parser.parse_args(flags)
    params = xllamacpp.CommonParams()
    for place in OPTIONS:
        if value := getattr(args, place):
            *path, name = place.split(".")
            setattr(reduce(getattr, path, params), name, value)
    if args.alias:
        params.model_alias = {args.alias}
    if key := os.environ.get(KEY):
        params.api_keys = [key]
    params.hostnames, params.endpoint_metrics, params.warmup = [args.host], args.metrics, not args.no_warmup
    kinds, draft = args.spec_type.upper().replace("-", "_").split(","), params.speculative.draft
    types = xllamacpp.common_speculative_type
    params.speculative.types = [getattr(types, f"COMMON_SPECULATIVE_TYPE_{kind}") for kind in kinds]
    if args.threads:
        for threads in (params.cpuparams, params.cpuparams_batch, draft.cpuparams, draft.cpuparams_batch):
            threads.n_threads = args.threads
    return xllamacpp.Server(params)


if __name__ == "__main__":
    main(sys.argv[1:])
