"""A draft model that decodes ahead of the target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from specdemo.decoding.batch.drafters import BatchModelDrafter
from specdemo.decoding.batch.runner import RaggedRunner
from specdemo.decoding.drafters.base import Drafter, DrafterSpec
from specdemo.decoding.drafters.reencoding import ReencodingDrafter, check_reencoding
from specdemo.decoding.engines.base import Runner
from specdemo.decoding.engines.open import open_draft, open_stepwise
from specdemo.decoding.lane import Lane
from specdemo.decoding.proposal import Draft, Proposal
from specdemo.decoding.sampling import Sampler
from specdemo.decoding.tree import TreeMask
from specdemo.decoding.tree_draft import Node, grow, selector_for
from specdemo.errors import SettingsError
from specdemo.models.pair import ModelPair, context_of
from specdemo.settings import Settings

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class ModelDrafter:
    """A smaller model that decodes ahead, from its own KV cache.

    Args:
        runner: of the draft model.
        sampler: chooses the tokens.
        captured: drafts all tokens of a round at once, from the same cache; None feeds them one by one.
    """

    def __init__(
        self,
        runner: Runner,
        sampler: Sampler,
        captured: Callable[[Sequence[int], int], Proposal] | None = None,
    ) -> None:
        self._runner = runner
        self._sampler = sampler
        self._captured = captured

    @property
    def engine(self) -> str:
        return self._runner.engine

    def prefill(self, ids: Sequence[int]) -> None:
        self._runner.forward(ids, keep=0)

    def propose(self, committed: Sequence[int], gamma: int) -> Proposal:
        if self._captured is not None:
            return self._captured(committed, gamma)
        draft = Draft(self._sampler, committed)
        # What the cache lacks: the target's last token, and the last drafted one if all were kept.
        feed: Sequence[int] | torch.Tensor = committed[self._runner.length :]
        for _ in range(gamma):
            feed = draft.take(self._runner.forward(feed).logits)
        return draft.proposal()

    def propose_tree(self, committed: Sequence[int], depth: int, nodes: int) -> Proposal:
        runner = self._runner
        logits = runner.forward(committed[runner.length :]).logits
        begin = runner.length

        def forward(level: Sequence[Node], tokens: torch.Tensor, tree_mask: TreeMask) -> torch.Tensor:
            return runner.forward((), len(level), tokens, tree_mask).logits

        try:
            selector = selector_for(self._sampler, depth, nodes)
            return grow(self._sampler, committed, begin, logits, forward, selector)
        finally:
            # The kept path is fed again with the target's own token: the same forward, and no slots to move.
            runner.rollback_to(begin)

    def commit(self, committed: Sequence[int]) -> None:
        # Everything before the target's new token is common ground, unless it was never fed.
        self._runner.rollback_to(min(self._runner.length, len(committed) - 1))


def _draft(pair: ModelPair) -> PreTrainedModel:
    assert pair.draft is not None, "check_drafter lets no pair without a draft pass"
    return pair.draft


def _check(pair: ModelPair, settings: Settings) -> None:
    if pair.draft_tokenizer is not None:
        check_reencoding(pair, settings)
        if settings.drafts_trees:
            raise SettingsError(
                "tree_nodes",
                "a draft with another tokenizer writes text, which has no second guesses; set tree nodes to 0.",
            )
    elif settings.strategy == "assisted":
        widths = [m.config.get_text_config().vocab_size for m in pair.models]
        if widths[0] != widths[1]:
            raise SettingsError(
                "strategy",
                f"'assisted' takes models of one vocabulary width only, and these have {widths[0]:,} and "
                f"{widths[1]:,}; choose 'speculative', which reads the padding for what it is.",
            )


def _open(pair: ModelPair, target: Runner, lane: Lane) -> Drafter:
    draft = _draft(pair)
    if pair.draft_tokenizer is None:
        runner, captured = open_draft(draft, lane)
        return ModelDrafter(runner, lane.sampler, captured)
    assert pair.tokenizer is not None, "check_reencoding lets no pair without pass"
    runner = open_stepwise(draft, lane, "its tokenizer is another")
    drafter = ReencodingDrafter(runner, pair.tokenizer, pair.draft_tokenizer, context_of(draft))
    drafter.check_prompt(lane.prompt_ids)
    return drafter


def _open_batch(pair: ModelPair, rows: Sequence[Lane]) -> BatchModelDrafter:
    return BatchModelDrafter(RaggedRunner(_draft(pair), len(rows)))


def _reference(pair: ModelPair, settings: Settings) -> PreTrainedModel | None:
    return pair.draft if pair.draft_tokenizer is None else None


SPEC = DrafterSpec(_open, _check, _open_batch, reference=_reference)
