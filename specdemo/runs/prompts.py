"""Prompts: the examples of the page and of the bench in ``assets/prompts.toml``, and those in a person's file."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import chain, groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

from specdemo.errors import PromptError
from specdemo.models.request import ASSETS, read_toml
from specdemo.prompt import Conversation

LARGEST_FILE = 5_000_000
MOST_PROMPTS = 1000
LONGEST_KIND = 40
ROLES = "system", "user", "assistant"
FIELDS = {
    "prompt": "a text that is not empty, or a list of such texts",
    "turns": "a list of texts, none of them empty",
    "messages": 'a list of messages with a text as "content", such as {"role": "user", "content": "Hi"} '
    f"(roles: {', '.join(ROLES)}), at least one of them the user’s",
    "text": "a text that is not empty",
}
"""Where a line's prompts stand, and what each must be."""
BETWEEN = re.compile(r"^[ \t]*---[ \t]*$", re.MULTILINE), re.compile(r"\n[ \t]*\n")
"""What stands between prompts of several lines: a line ``---``; in a text without one, a blank line."""


@dataclass(frozen=True, slots=True)
class Example:
    """One prompt, written by us, and the domain whose text it starts."""

    domain: str
    title: str
    prompt: str


def examples() -> list[Example]:
    """All example prompts, grouped by domain in the order of the file."""
    found = read_toml(ASSETS / "prompts.toml")["prompt"]
    return [Example(e["domain"], e["title"], e["prompt"].strip()) for e in found]


def by_domain() -> dict[str, list[Example]]:
    return {domain: [*found] for domain, found in groupby(examples(), key=attrgetter("domain"))}


def prompt_lines(text: str) -> list[str]:
    """The prompts of a text, which :data:`BETWEEN` separates, or else one a line.

    PromptError of no prompt, and of too many.
    """
    return [prompt for prompt, _ in _counted(_lines(text))]


def read_with_kinds(path: Path) -> list[tuple[str, str]]:
    """The prompts of a file with their kinds, which are empty where none is named.

    In ``.txt`` they stand as :func:`prompt_lines` says; in ``.jsonl`` in one of each line's :data:`FIELDS`, and
    their kinds in the field "kind" or "category". Several turns, or messages of the user, are several prompts,
    each with what was said before it: of turns the turns alone, since their answers are not in the file.

    Raises:
        OSError: it cannot be read.
        PromptError: the file is of another kind, too large, not UTF-8, or a line has no prompt; says which.
    """
    name, kind, size = path.name, path.suffix.lower(), path.stat().st_size
    if kind not in (".txt", ".jsonl"):
        raise PromptError(f"{name} is neither .txt nor .jsonl; give one prompt a line in one of these.")
    if size > LARGEST_FILE:
        raise PromptError(f"{name} has {size / 1e6:.1f} MB; give a file of at most {LARGEST_FILE / 1e6:.0f} MB.")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise PromptError(f"{name} is not UTF-8 text (byte {error.start:,}); save it as UTF-8.") from error
    if kind == ".txt":
        return _counted(_lines(text), name)
    # Only \n ends a JSON line: a string may hold other line separators.
    lines = enumerate(text.split("\n"), start=1)
    found = [_json_prompts(name, number, line) for number, line in lines if line.strip()]
    return _counted([*chain.from_iterable(found)], name)


def _lines(text: str) -> list[tuple[str, str]]:
    text = text.replace("\r\n", "\n").strip()
    between = next((rule for rule in BETWEEN if rule.search(text)), None)
    parts = between.split(text) if between else text.splitlines()
    return [(part.strip(), "") for part in parts if part.strip()]


def _json_prompts(name: str, number: int, line: str) -> list[tuple[str, str]]:
    place = f"{name}, line {number}"
    try:
        record: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        example = '{"prompt": "Once upon a time"}'
        raise PromptError(f"{place} is not JSON; write a line such as {example}.") from error
    found = {field: record[field] for field in FIELDS if field in record} if isinstance(record, dict) else {}
    prompts = next((texts for value in found.values() if (texts := _texts(value))), None)
    if prompts is None:
        said = " has no text in a field " + ", ".join(map(json.dumps, FIELDS)) + "; add one"
        said = next((f': the field "{field}" must be {FIELDS[field]}; change it' for field in found), said)
        raise PromptError(f"{place}{said} or take the line out.")
    field = "kind" if record.get("kind") else "category"
    kind = record.get(field) or ""
    misspelt = any(name != "kind" and name.lower() in ("kind", "kinds") for name in record)
    if misspelt or not isinstance(kind, str) or len(kind.splitlines()) > 1:
        field = "kind" if misspelt else field
        raise PromptError(f'{place}: the field "{field}" must be one line of text, under this very name.')
    return [(prompt, kind.strip()[:LONGEST_KIND]) for prompt in prompts]


def _texts(value: Any) -> list[str]:
    """The prompts of a field: a text; of turns each after those before it; likewise the user's messages."""
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list) or not given:
        return []
    if all(isinstance(turn, str) and turn.strip() for turn in given):
        return ["\n\n".join(given[:end]) for end in range(1, len(given) + 1)]
    said: list[Any] = [{name: m.get(name) for name in ("role", "content")} for m in given if isinstance(m, dict)]
    if len(said) < len(given) or any(m["role"] not in ROLES or not isinstance(m["content"], str) for m in said):
        return []
    ends = [end for end, m in enumerate(said, start=1) if m["role"] == "user" and m["content"].strip()]
    return [Conversation(said[:end]) for end in ends]


def _counted(prompts: list[tuple[str, str]], name: str = "") -> list[tuple[str, str]]:
    place = name and f" in {name}"
    if not prompts:
        raise PromptError(f"there is none{place}; write one.")
    if len(prompts) > MOST_PROMPTS:
        raise PromptError(f"there are {len(prompts):,}{place}; give at most {MOST_PROMPTS:,}.")
    return prompts
