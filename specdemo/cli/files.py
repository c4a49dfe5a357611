"""What a command reads and writes: its input, consoles and files; ``-`` is the standard input or output."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from specdemo.cli.terminal import shown
from specdemo.errors import SpecDemoError
from specdemo.files import write_whole

Exports = Mapping[str, tuple[str, Callable[[Any], str]]]
"""The files that a command can write: the option without its dashes, its meaning, and the file's text."""


class FileProblem(SpecDemoError):
    """A file cannot be read or written."""


@contextmanager
def reported(name: str | Path, action: str) -> Iterator[None]:
    """Turns an OSError into a FileProblem: ``name`` cannot be ``action``, such as ``read``."""
    try:
        yield
    except OSError as error:
        raise FileProblem(f"{name} cannot be {action}: {error.strerror}.") from error


def add_exports(parser: argparse.ArgumentParser, exports: Exports) -> None:
    for name, (meaning, _) in exports.items():
        parser.add_argument(f"--{name}", metavar="FILE", help=meaning)


class Outputs:
    """Where a command writes what can be asked for; FileProblem before anything runs if a file cannot be written.

    Attributes:
        out, errors: the consoles of results and of progress; the same where a file takes the output.
    """

    def __init__(self, args: argparse.Namespace, exports: Exports) -> None:
        self._exports = exports
        self._files = {name: file for name in exports if (file := getattr(args, name.replace("-", "_")))}
        for name in self._files.values():
            path = Path(name)
            if name != "-" and (path.is_dir() or not path.absolute().parent.is_dir()):
                raise FileProblem(
                    f"{name} cannot be written: give a file in a folder that exists, or - for the output."
                )
        self.errors = _Console(stderr=True, highlight=False, soft_wrap=True)
        self.out = self.errors if "-" in self._files.values() else _Console(highlight=False)

    def say(self, text: str | None) -> None:
        """A paragraph for people, if there is anything to say."""
        if text:
            self.out.print(f"\n{shown(text)}", markup=False, soft_wrap=not self.out.is_terminal)

    def write(self, value: Any) -> None:
        for option, name in self._files.items():
            text = self._exports[option][1](value)
            text = text if text.endswith("\n") else text + "\n"
            if name == "-":
                sys.stdout.write(text)
                sys.stdout.flush()
            else:
                with reported(name, "written"):
                    write_whole(name, text)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Nobody reads on: rich would end the process with a code of its own."""
        raise


def read_input(name: str) -> str:
    """The prompt itself, or the standard input for ``-``."""
    if name != "-":
        return name
    try:
        return sys.stdin.buffer.read().decode("utf-8").rstrip("\n")
    except UnicodeDecodeError as error:
        raise FileProblem("The standard input is not UTF-8 text; save it as UTF-8.") from error
