"""The command line's entry; exit codes are 0 for done, 2 for bad input, 130 for interrupted."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from specdemo.errors import SpecDemoError

BAD_INPUT = 2
INTERRUPTED = 130
READER_LEFT = 141


class Parser(argparse.ArgumentParser):
    """Accepts options by their whole name only, and reports an error in one line."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"{message}; see {self.prog} --help\n")


def main(words: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; ``words`` default to those of the command line."""
    args = _parser().parse_args(words)
    try:
        args.run(args)
        sys.stdout.flush()
    except SpecDemoError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # such as `| head`: nobody reads on, and Python must not complain at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_LEFT
    return 0


def _parser() -> argparse.ArgumentParser:
    # Imported here, which takes seconds, so that an interrupt meanwhile is handled like any other.
    from specdemo.cli.pairs import add_pairs
    from specdemo.cli.runs import add_race, add_run
    from specdemo.cli.space import add_space
    from specdemo.cli.sweeps import add_sweep

    parser = Parser(prog="python -m specdemo", description="Speculative decoding, measured, in a terminal.")
    commands = parser.add_subparsers(required=True, metavar="run | race | sweep | pairs | space")
    for name, text, add in (
        ("run", "decode one prompt once", add_run),
        ("race", "decode one prompt in several lanes, side by side", add_race),
        ("sweep", "measure every γ against plain decoding", add_sweep),
        ("pairs", "list the pairs that can be named", add_pairs),
        ("space", "write a folder that can be pushed as a Hugging Face Space", add_space),
    ):
        add(commands.add_parser(name, help=text, description=f"{text[:1].upper()}{text[1:]}."))
    return parser
