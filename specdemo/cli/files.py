"""Where results go: a file, or ``-`` for the standard output. What cannot be written is said before a run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from specdemo.errors import SpecDemoError


class FileProblem(SpecDemoError):
    """A file cannot be read or written."""


def check_targets(names: Sequence[str | None]) -> None:
    """Refuse files that cannot be written, before anything is run.

    Raises:
        FileProblem: names the file.
    """
    for name in filter(None, names):
        if name == "-":
            continue
        path = Path(name)
        if path.is_dir() or not path.absolute().parent.is_dir():
            raise FileProblem(
                f"{name} cannot be written: give a file in a folder that exists, or - for the output."
            )


def write(name: str, text: str) -> None:
    """Write the text to a file, or to the standard output.

    Raises:
        FileProblem: the file cannot be written.
    """
    if name == "-":
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        sys.stdout.flush()
        return
    try:
        Path(name).write_text(text if text.endswith("\n") else text + "\n", encoding="utf-8", newline="")
    except OSError as error:
        raise FileProblem(f"{name} cannot be written: {error.strerror}.") from error


def read_input(name: str) -> str:
    """A prompt as it was given, or the standard input for ``-``.

    Raises:
        FileProblem: the input is not UTF-8.
    """
    if name != "-":
        return name
    try:
        return sys.stdin.buffer.read().decode("utf-8").rstrip("\n")
    except UnicodeDecodeError as error:
        raise FileProblem("The standard input is not UTF-8 text; save it as UTF-8.") from error
