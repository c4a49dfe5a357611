"""Chat templates of any repository, rendered in a process that is ended where a template does not end.

A template is a program: loops in loops, ``9**(9**9)`` and texts of many gigabytes pass transformers' sandbox,
and no thread can be stopped inside them. The process is started once, kept, and ends with the one that started it.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from threading import Lock, Timer
from typing import Any

SECONDS = 5.0
MOST_BYTES = 2**24
"""Of a rendered text, as JSON."""
MEMORY = 2**31
"""Bytes of address space; not held on Windows."""
_one_request = Lock()


class TemplateFails(Exception):
    """A template raised something, or did not end."""


def render(template: str, turns: list[dict[str, str]], variables: dict[str, Any]) -> str:
    """The text that a template makes of the turns of a chat; raises TemplateFails."""
    with _one_request:
        if _renderer().poll() is not None:
            _renderer.cache_clear()
        process = _renderer()
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


@cache
def _renderer() -> Any:
    """The process, whose pipes are there, as its type does not say."""
    command = [sys.executable, "-m", __name__]
    process: Any = Popen(command, cwd=Path(__file__).parents[2], stdin=PIPE, stdout=PIPE, stderr=DEVNULL)
    process.stdout.readline()  # it has started, which is not the template's time
    return process


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
