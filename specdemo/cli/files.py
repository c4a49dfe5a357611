"""Input and output files of a command; ``-`` is the standard input or output."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from specdemo.errors import SpecDemoError
from specdemo.files import write_whole


class FileProblem(SpecDemoError):
    """A file cannot be read or written."""


@contextmanager
def reported(name: str | Path, action: str) -> Iterator[None]:
    """Turns an OSError into a FileProblem: ``name`` cannot be ``action``, such as ``read``."""
    try:
        yield
    except OSError as error:
        raise FileProblem(f"{name} cannot be {action}: {error.strerror}.") from error


def check_targets(names: Sequence[str | None]) -> None:
    """Refuse files that cannot be written, before anything runs.

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
    text = text if text.endswith("\n") else text + "\n"
    if name == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    with reported(name, "written"):
        write_whole(name, text)


def read_input(name: str) -> str:
    """The prompt itself, or the standard input for ``-``.

    Raises:
        FileProblem: the input is not UTF-8.
    """
    if name != "-":
        return name
    try:
        return sys.stdin.buffer.read().decode("utf-8").rstrip("\n")
    except UnicodeDecodeError as error:
        raise FileProblem("The standard input is not UTF-8 text; save it as UTF-8.") from error
