"""A prompt as a person gives it, text or token ids, checked as far as this is possible without a model."""

from __future__ import annotations

from collections.abc import Iterable
from operator import index
from typing import Any

from specdemo.errors import PromptError

EMPTY = "it is empty; write something for the models to continue."


class Conversation(str):
    """The last text of a conversation, with what was said before it; without a chat template it is all texts.

    Attributes:
        messages: for a chat template, each with ``role`` and ``content``; the last is the user's.
    """

    messages: tuple[dict[str, str], ...]

    def __new__(cls, messages: Iterable[dict[str, str]]) -> Conversation:
        given = tuple(messages)
        made = super().__new__(cls, "\n\n".join(message["content"] for message in given))
        made.messages = given
        return made


def messages_of(prompt: str) -> list[dict[str, str]]:
    """The prompt as a chat template takes it: the user's one message, or a conversation's."""
    return [*prompt.messages] if isinstance(prompt, Conversation) else [{"role": "user", "content": prompt}]


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
