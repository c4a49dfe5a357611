"""Token ids to text, a token at a time, never splitting a character."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from transformers import PreTrainedTokenizerBase

CONTEXT = 8
"""Prompt tokens decoded with the first of the output, at least: more than a character has bytes."""
UNFINISHED = "\ufffd"
"""What a decoder shows for bytes that are no whole character yet."""
MOST_PENDING, MOST_AGAIN = 16, 64
"""Tokens that wait for the rest of a character, and those before them that are decoded once more. Bytes without
end that are no characters would else be read again with every token."""


class Detokenizer:
    """One lane's output as text, and what a single token would read like at its end.

    A token's text is what it adds to that of the tokens before it, of which only the last few are decoded once
    more. ``DecodeStream`` of the tokenizers library does the same, but fails on bytes that are no characters:
    with byte fallback they change how the bytes before them read. What was shown stays here, and the new bytes are
    read alone, as in vLLM (pull request 19449). The prompt may end inside a character, which the output completes.
    Without a tokenizer ids are named instead.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase | None, prompt_ids: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        # The library's own tokenizer, where there is one, without transformers' work around it.
        self._decoder: Any = getattr(tokenizer, "backend_tokenizer", None) or tokenizer
        self._before = [] if tokenizer is None else self._ending(prompt_ids)
        self._text = "" if tokenizer is None else self._decode(self._before)
        # The prompt may end inside a character, whose bytes can spoil how those before them read.
        ends = range(max(len(self._before) - 3, 0), len(self._before))
        self._begins = [self._decode(self._before[:end]) for end in ends]
        self._pending: list[int] = []

    def push(self, token_id: int) -> str:
        """The text that this token completes; empty inside a multi-byte character and for end tokens."""
        if self._tokenizer is None:
            return _nameless(token_id)
        self._pending.append(token_id)
        read = self._decode([*self._before, *self._pending])
        if read.endswith(UNFINISHED) and len(self._pending) < MOST_PENDING:
            return ""
        added = self._added(read)
        if added is None:
            added = self._decode(self._pending)
        elif not self._text or self._text.endswith(UNFINISHED):  # the prompt's last tokens belong to this text
            self._pending = [*self._before, *self._pending]
        elif not added:  # an end token, which changes nothing behind it
            self._pending.pop()
            return ""
        self._before = self._pending if len(self._pending) <= MOST_AGAIN else self._pending[-CONTEXT:]
        self._pending = []
        self._text, self._begins = self._decode(self._before), []
        return added

    def peek(self, token_id: int, after: Sequence[int] = ()) -> str:
        """What a token would read like after the output so far and ``after``; special tokens by name."""
        if self._tokenizer is None:
            return _nameless(token_id)
        before = [*self._before, *self._pending, *after]
        text, read = self._decode(before, named=True), self._decode([*before, token_id], named=True)
        return read[len(text) :] if read.startswith(text) else self._decode([token_id], named=True)

    def _added(self, read: str) -> str | None:
        """What ``read`` has behind the text, whose unfinished end it may complete; None if it begins otherwise."""
        common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(self._text, read, strict=False)))
        if self._text[common:].strip(UNFINISHED):
            return None
        return read[max(common, *(len(begin) for begin in self._begins if read.startswith(begin)), 0) :]

    def _ending(self, ids: Sequence[int]) -> list[int]:
        """The last tokens of a prompt, from where those before cannot change how they and the output read."""
        begin = max(len(ids) - CONTEXT, 0)
        # It begins with text, whose first space is left out; with byte fallback all bytes in a row read together.
        while begin and (self._is_byte(ids[begin]) or not self._decode([ids[begin]])):
            beyond = len(ids) - begin - MOST_AGAIN
            # A character has four bytes at most, and in UTF-8 those inside one begin with the bits 10.
            if beyond > 3 or (beyond > 0 and not self._is_byte(ids[begin], "89AB")):
                break
            begin -= 1
        return list(ids[begin:])

    def _is_byte(self, token_id: int, begins: str = "0123456789ABCDEF") -> bool:
        """Whether a token is one byte that a vocabulary of characters falls back to, such as ``<0xE4>``."""
        assert self._tokenizer is not None
        name = str(self._tokenizer.convert_ids_to_tokens(int(token_id))).upper()
        return name.startswith("<0X") and name[3:4] in begins

    def _decode(self, ids: Sequence[int], named: bool = False) -> str:
        return self._decoder.decode(ids, skip_special_tokens=not named)


def _nameless(token_id: int) -> str:
    """A token of a pair without a tokenizer."""
    return f"⟨{token_id}⟩"
