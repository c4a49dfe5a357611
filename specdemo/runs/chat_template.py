"""Chat templates of any repository, rendered in a process that is ended where a template does not end.

A template is a program: loops in loops, ``9**(9**9)`` and texts of many gigabytes pass transformers' sandbox,
and no thread can be stopped inside them. The process is started once, kept, and ends with the one that started it.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from threading import Lock, Timer
from typing import Any

SECONDS = 5.0
MOST_BYTES = 2**24
"""Of a rendered text, as JSON."""
MEMORY = 2**31
"""Bytes of address space; not held on Windows."""


class TemplateFails(Exception):
    """A template raised something, or did not end."""


class _Renderer:
    """The process, and one request to it at a time."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: Any = None  # a Popen, whose pipes are there

    def render(self, template: str, turns: list[dict[str, str]], variables: dict[str, Any]) -> str:
        with self._lock:
            process: Any = self._process
            if process is None or process.poll() is not None:
                folder = Path(__file__).parents[2]
                process = Popen(
                    [sys.executable, "-m", __name__], cwd=folder, stdin=PIPE, stdout=PIPE, stderr=DEVNULL
                )
                self._process = process
                process.stdout.readline()  # it has started, which is not the template's time
            timer = Timer(SECONDS, process.kill)
            timer.start()
            try:
                with suppress(BrokenPipeError):
                    process.stdin.write(json.dumps([template, turns, variables]).encode() + b"\n")
                    process.stdin.flush()
                line = process.stdout.readline(MOST_BYTES)
            finally:
                timer.cancel()
            if not line.endswith(b"\n"):
                process.kill()
                process.wait()
                raise TemplateFails(f"it did not end within {SECONDS:g} s, or its text is too long")
            text, failure = json.loads(line)
            if failure:
                raise TemplateFails(failure)
            return text


render = _Renderer().render
"""The text that a template makes of the turns of a chat; raises TemplateFails."""


def _serve() -> None:
    """Render what the lines of the standard input ask for."""
    from transformers.utils.chat_template_utils import render_jinja_template

    with suppress(ImportError, ValueError, OSError):  # Windows has no such limits, macOS not this one
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    answer = ""
    while True:
        print(answer, flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        template, turns, variables = json.loads(line)
        try:
            texts: Any = render_jinja_template([turns], chat_template=template, **variables)[0]
            answer = json.dumps([texts[0], ""])
        except Exception as error:  # a template may raise anything
            answer = json.dumps(["", f"{type(error).__name__}: {error}"[:400]])


if __name__ == "__main__":
    _serve()
