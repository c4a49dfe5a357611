"""A draft model with another tokenizer: it reads and writes text, the target verifies tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import PreTrainedTokenizerBase

from specdemo.decoding.detokenizer import UNFINISHED
from specdemo.decoding.drafters.base import Drafter
from specdemo.decoding.engines.base import Runner
from specdemo.decoding.engines.open import open_stepwise
from specdemo.decoding.lane import Lane
from specdemo.decoding.proposal import NOTHING_DRAFTED, Proposal
from specdemo.drafters import offered_with
from specdemo.errors import PromptError, SettingsError
from specdemo.models.compatibility import gives_back
from specdemo.models.pair import ModelPair, context_of
from specdemo.settings import Settings

TAIL = 12  # committed tokens that are encoded again with the drafted text, to find where it begins


class ReencodingDrafter(Drafter):
    """Decodes what is committed, lets the draft continue the text, and encodes that for the target.

    The idea of universal assisted generation (Timor et al., arXiv 2502.05202, algorithm 1; transformers'
    ``assistant_tokenizer``). The draft writes greedily, and q is one-hot, which keeps every lossless rule lossless
    however the text was made. Where the drafted text would melt into the last committed token, nothing is proposed
    and the round is a plain step of the target. So it is where a text grows beyond the ``longest`` that the draft
    can read, None for no limit. Both tokenizers must give back the text they encode, see ``gives_back``.
    """

    def __init__(
        self,
        runner: Runner,
        target_tokenizer: PreTrainedTokenizerBase,
        draft_tokenizer: PreTrainedTokenizerBase,
        longest: int | None,
        p_min: float = 0.0,
    ) -> None:
        self._runner, self._longest, self._p_min = runner, longest, p_min
        self._target_tokenizer, self._draft_tokenizer = target_tokenizer, draft_tokenizer
        self._cached: list[int] = []
        self._ends = set(draft_tokenizer.all_special_ids)

    @property
    def engine(self) -> str:
        return self._runner.engine

    def check_prompt(self, ids: Sequence[int]) -> None:
        """A PromptError where the draft cannot read the prompt and one token more: it would never draft."""
        begun = self._draft_ids(_decode(self._target_tokenizer, ids))
        if begun and not self._fits(begun, 1):
            raise PromptError(
                f"it has {len(begun):,} tokens of the draft's own tokenizer, and the draft reads at most "
                f"{self._longest:,}, so it could never draft; shorten it, or choose the drafter {_others()}."
            )

    def prefill(self, ids: Sequence[int]) -> None:
        begun = self._draft_ids(_decode(self._target_tokenizer, ids))
        if self._fits(begun, 0):
            self._feed(begun)

    def propose(self, committed: Sequence[int], gamma: int) -> Proposal:
        text = _decode(self._target_tokenizer, committed)
        if text.endswith(UNFINISHED):
            return NOTHING_DRAFTED
        begun = self._draft_ids(text)
        if not self._fits(begun, gamma):
            return NOTHING_DRAFTED
        written = self._write(begun, gamma)
        before, after = (_decode(self._draft_tokenizer, ids) for ids in (begun, [*begun, *written]))
        new = after[len(before) :].rstrip(UNFINISHED) if after.startswith(before) else ""
        return Proposal.known(self._encode_after(committed, new)[:gamma]) if new else NOTHING_DRAFTED

    def _write(self, begun: list[int], gamma: int) -> list[int]:
        """Up to γ tokens of the draft's own after ``begun``, until it would end the text or is not sure."""
        written: list[int] = []
        logits = self._feed(begun)
        while (token := int(logits.argmax(-1))) not in self._ends:
            if self._p_min and logits.softmax(-1).max() < self._p_min:
                break
            written.append(token)
            if len(written) == gamma:
                break
            logits = self._runner.forward([token]).logits
            self._cached.append(token)
        return written

    def _draft_ids(self, text: str) -> list[int]:
        return list(self._draft_tokenizer(text)["input_ids"])

    def _fits(self, ids: list[int], gamma: int) -> bool:
        return bool(ids) and (self._longest is None or len(ids) + gamma <= self._longest)

    def _feed(self, ids: list[int]) -> torch.Tensor:
        """The logits after ``ids``; only what the cache lacks is computed, and at least the last token."""
        common = 0
        while common < min(len(ids) - 1, len(self._cached)) and ids[common] == self._cached[common]:
            common += 1
        self._runner.rollback_to(common)
        self._cached = list(ids)
        logits = self._runner.forward(ids[self._runner.length :]).logits
        self._runner.checkpoint()
        return logits

    def _encode_after(self, committed: Sequence[int], new: str) -> list[int]:
        """Target tokens of ``new`` where it follows ``committed``; none if the seam runs through a token."""
        tail = _decode(self._target_tokenizer, committed[-TAIL:])
        alone, whole = (
            list(self._target_tokenizer(t, add_special_tokens=False)["input_ids"]) for t in (tail, tail + new)
        )
        return whole[len(alone) :] if whole[: len(alone)] == alone else []


def open_reencoding(pair: ModelPair, lane: Lane) -> ReencodingDrafter:
    """For a pair of two tokenizers, after :func:`check_reencoding`."""
    assert pair.draft is not None
    assert pair.draft_tokenizer is not None
    assert pair.tokenizer is not None
    runner = open_stepwise(pair.draft, lane, "its tokenizer is another")
    longest, p_min = context_of(pair.draft), lane.settings.p_min
    drafter = ReencodingDrafter(runner, pair.tokenizer, pair.draft_tokenizer, longest, p_min)
    drafter.check_prompt(lane.prompt_ids)
    return drafter


def _others() -> str:
    return " or ".join(repr(other.name) for other in offered_with(()))


def _decode(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> str:
    """Text without special tokens, which mean nothing to the other tokenizer."""
    return str(tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))


def check_reencoding(pair: ModelPair, settings: Settings) -> None:
    """A SettingsError where text cannot be passed between this pair's two tokenizers."""
    if settings.strategy == "assisted":
        raise SettingsError("strategy", "'assisted' needs models of one tokenizer; choose 'speculative'.")
    for role, tokenizer in (("target", pair.tokenizer), ("draft", pair.draft_tokenizer)):
        if tokenizer is None or not gives_back(tokenizer):
            why = "is missing" if tokenizer is None else "does not give back the text it encodes"
            reason = f"must pass text between two tokenizers here, but the {role}'s {why}"
            advice = f"choose {_others()}, or a draft with the target's tokenizer"
            raise SettingsError("drafter", f"'model' {reason}; {advice}.")
