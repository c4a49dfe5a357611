"""What the options of the training commands take: one sentence for a value that no run can use."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from specdemo.errors import SettingsError
from specdemo.models.pair import checked_threads


def whole(text: str) -> int:
    """A whole number of 1 or more."""
    number = int(text) if text.strip().isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of 1 or more.")
    return number


def positive(text: str) -> float:
    """A finite number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0.")
    return number


def share(text: str) -> float:
    """A number above 0 and at most 1."""
    if (number := positive(text)) > 1:
        raise argparse.ArgumentTypeError(f"{text!r} is more than 1, the whole.")
    return number


def shares_of(names: Collection[str], text: str) -> dict[str, float]:
    """A JSON object with a number of 0 or more for some of the names, not all of them 0."""
    form = f'use JSON such as {{"{next(iter(names))}": 0.2}}'
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is no object; {form}.")
    if unknown := set(found) - set(names):
        few, known = ", ".join(sorted(unknown)), ", ".join(names)
        raise argparse.ArgumentTypeError(f"no domain is called {few}; use {known}.")
    numbers = [n for n in found.values() if isinstance(n, int | float) and 0 <= n < math.inf]
    if len(numbers) < len(found) or not any(numbers):
        raise argparse.ArgumentTypeError(f"{text!r} holds what is no share, or none above 0; {form}.")
    return found


def folder(text: str) -> Path:
    """A folder, or a place where one can be made."""
    path = Path(text)
    if path.exists() and not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a file; give a folder.")
    return path


def threads(text: str) -> int:
    """Threads of the processor."""
    try:
        return checked_threads(whole(text))
    except SettingsError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def device(text: str) -> torch.device:
    """A device that this machine has."""
    try:
        return torch.empty(0, device=text).device
    except (RuntimeError, AssertionError):  # torch without CUDA asserts
        raise argparse.ArgumentTypeError(f"{text!r} is no device of this machine; use cpu, or cuda.") from None


def add_machine(parser: argparse.ArgumentParser) -> None:
    """The options of where a run computes."""
    usual = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", type=device, default=usual, help=f"default: {usual}")
    parser.add_argument("--threads", type=threads, default=1, help="of the processor (1)")


def add_corpus(parser: argparse.ArgumentParser) -> None:
    """The option of the texts that tasks are made of."""
    text = "folder of the *.txt.gz files of chat and stories"
    parser.add_argument("--corpus", type=folder, required=True, help=text)


@contextmanager
def resumable() -> Iterator[None]:
    """Ctrl-C ends the command with a sentence; what its checkpoints hold stays."""
    try:
        yield
    except KeyboardInterrupt:
        raise SystemExit("Stopped. The same command goes on from the last checkpoint.") from None
