"""A prompt as a person gives it, text or token ids, checked as far as this is possible without a model."""

from __future__ import annotations

from collections.abc import Iterable
from operator import index
from typing import Any

from specdemo.errors import PromptError

EMPTY = "it is empty; write something for the models to continue."


def one_by_one(prompts: Any) -> list[Any]:
    """The prompts one by one: a text is one, and so are whole numbers that are no list in a list."""
    if isinstance(prompts, str):
        return [prompts]
    if isinstance(prompts, bytes | dict) or not isinstance(prompts, Iterable):
        raise PromptError(f"must be a text or a list of texts or of token ids, not {type(prompts).__name__}.")
    given = list(prompts)
    return [given] if given and not any(isinstance(p, str | bytes | Iterable) for p in given) else given


def read_ids(prompt: Any) -> list[int]:
    """Token ids as a list of ints; PromptError of what is no list of whole numbers."""
    try:
        ids = list(prompt)
        if isinstance(prompt, bytes | dict) or any(isinstance(i, bool) for i in ids):
            raise TypeError(type(prompt).__name__)
        return [index(i) for i in ids]
    except TypeError as error:
        raise PromptError("must be text or a list of token ids, which are whole numbers.") from error


def check_text(prompt: str) -> None:
    """Refuse an empty prompt, and one that holds what cannot be encoded."""
    if not prompt.strip():
        raise PromptError(EMPTY)
    try:
        prompt.encode()
    except UnicodeEncodeError as error:
        raise PromptError(f"character {error.start} is not valid Unicode; remove it.") from error
