"""Token ids to text, a token at a time, never splitting a character."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tokenizers.decoders import DecodeStream
from transformers import PreTrainedTokenizerBase

CONTEXT = 6  # ids before a token that can change how it is written (spaces, bytes of one character)


class Detokenizer:
    """One lane's output as text, and what a single token would read like at its end."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase | None, prompt_ids: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._tail = list(prompt_ids[-CONTEXT:])
        backend = getattr(tokenizer, "backend_tokenizer", None)
        self._backend = backend if backend is not None and hasattr(backend, "decode") else None
        self._stream = DecodeStream(ids=list(self._tail), skip_special_tokens=True) if self._backend else None
        self._pending: list[int] = []

    def push(self, token_id: int) -> str:
        """The text that this token completes; empty inside a multi-byte character and for end tokens."""
        if self._tokenizer is None:
            return _nameless(token_id)
        if self._stream is not None:
            text = self._stream.step(self._backend, token_id) or ""
        else:
            self._pending.append(token_id)
            text = self._suffix(self._tail, self._pending, skip_special_tokens=True)
            if text.endswith("�"):
                return ""
            self._tail += self._pending
            self._pending = []
            self._tail = self._tail[-CONTEXT:]
            return text
        self._tail = [*self._tail, token_id][-CONTEXT:]
        return text

    def peek(self, token_id: int, after: Sequence[int] = ()) -> str:
        """What a token would read like after the output so far and ``after``; special tokens by name."""
        return self.peeker(after)(token_id)

    def peeker(self, after: Sequence[int] = ()) -> Callable[[int], str]:
        """:meth:`peek` for any time later, at the place where the text is now."""
        if self._tokenizer is None:
            return _nameless
        before = [*self._tail, *self._pending, *after][-CONTEXT:]
        return lambda token_id: self._suffix(before, [token_id])

    def _suffix(self, before: list[int], ids: list[int], *, skip_special_tokens: bool = False) -> str:
        def decode(some: list[int]) -> str:
            return (self._backend or self._tokenizer).decode(some, skip_special_tokens=skip_special_tokens)

        prefix, whole = decode(before), decode(before + ids)
        return whole[len(prefix) :] if whole.startswith(prefix) else decode(ids)


def _nameless(token_id: int) -> str:
    """A token of a pair without a tokenizer."""
    return f"⟨{token_id}⟩"
