"""Input and output files of a command; ``-`` is the standard input or output."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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


Exports = Mapping[str, tuple[str, Callable[[Any], str]]]
"""The files that a command can write: the option without its dashes, its meaning, and the file's text."""


def add_exports(parser: argparse.ArgumentParser, exports: Exports) -> None:
    """An option for each file."""
    for name, (meaning, _) in exports.items():
        parser.add_argument(f"--{name}", metavar="FILE", help=meaning)


def checked_targets(args: argparse.Namespace, exports: Exports) -> dict[str, str]:
    """The files that were asked for, by option; refused before anything runs if they cannot be written.

    Raises:
        FileProblem: names the file.
    """
    found = {name: file for name in exports if (file := getattr(args, name.replace("-", "_")))}
    for name in found.values():
        path = Path(name)
        if name != "-" and (path.is_dir() or not path.absolute().parent.is_dir()):
            raise FileProblem(
                f"{name} cannot be written: give a file in a folder that exists, or - for the output."
            )
    return found


def write_exports(targets: Mapping[str, str], exports: Exports, value: Any) -> None:
    """Write every file that was asked for; ``-`` is the standard output.

    Raises:
        FileProblem: a file cannot be written.
    """
    for option, name in targets.items():
        text = exports[option][1](value)
        text = text if text.endswith("\n") else text + "\n"
        if name == "-":
            sys.stdout.write(text)
            sys.stdout.flush()
        else:
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
