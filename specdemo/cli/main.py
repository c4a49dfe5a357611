"""The command line's entry and its exit codes.

0 is done, 2 bad input or output that cannot be written, 130 interrupted, 141 that nobody reads the output on.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

from specdemo.errors import SpecDemoError
from specdemo.interrupts import INTERRUPTED, interruptible

BAD_INPUT = 2
READER_LEFT = 141
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What a full or broken disk says to the outputs; files are reported by their names before."""


class Parser(argparse.ArgumentParser):
    """Accepts options by their whole name only, and reports an error in one line that names its own help."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse's, but what a command does not know is not handed to the parser above it."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def print_help(self, file: Any = None) -> None:
        """As argparse's, which would not tell when nobody could read it."""
        print(self.format_help(), end="", file=file, flush=True)

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"{message}; see {self.prog} --help\n")


def main(words: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; ``words`` default to those of the command line."""
    try:
        with interruptible():
            for name in ("stdout", "stderr"):
                if getattr(sys, name) is None:  # closed by whoever started this
                    setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123
            parser = _parser()
        args = parser.parse_args(words)
        args.run(args)
        sys.stdout.flush()
    except SpecDemoError as error:
        return _ended(BAD_INPUT, " ".join(str(error).split()))
    except KeyboardInterrupt:
        return _ended(INTERRUPTED, "Interrupted.")
    except BrokenPipeError:  # such as `| head`
        return _ended(READER_LEFT)
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        return _ended(BAD_INPUT, f"The output cannot be written: {error.strerror}.")
    return 0


def _ended(code: int, said: str = "") -> int:
    """Say why a command ended, if anybody can be told; outputs that are broken must not be reported at the end."""
    if said:
        with suppress(OSError):
            print(said, file=sys.stderr, flush=True)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return code


def _parser() -> argparse.ArgumentParser:
    # Imported here, which takes seconds, so that an interrupt meanwhile can be handled.
    from specdemo.cli.measures import add_advise, add_compare, add_load, add_sweep
    from specdemo.cli.pairs import add_pairs
    from specdemo.cli.runs import add_race, add_run
    from specdemo.cli.space import add_space

    commands = (
        ("run", "decode one prompt once", add_run),
        ("race", "decode one prompt in several lanes, side by side", add_race),
        ("sweep", "measure every γ against plain decoding", add_sweep),
        ("advise", "measure every method that a pair allows, and recommend one", add_advise),
        ("load", "measure what several users of a server get, with and without speculation", add_load),
        ("compare", "judge whether two deployments of one model write the same", add_compare),
        ("pairs", "list the pairs that can be named", add_pairs),
        ("space", "write a folder that can be pushed as a Hugging Face Space", add_space),
    )
    parser = Parser(prog="python -m specdemo", description="Speculative decoding, measured, in a terminal.")
    parsers = parser.add_subparsers(required=True, metavar=" | ".join(name for name, *_ in commands))
    for name, text, add in commands:
        add(parsers.add_parser(name, help=text, description=f"{text[:1].upper()}{text[1:]}."))
    return parser
