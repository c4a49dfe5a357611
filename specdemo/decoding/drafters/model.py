"""A draft model that decodes ahead of the target."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specdemo.decoding.batch.drafters import BatchModelDrafter
from specdemo.decoding.batch.runner import RaggedRunner
from specdemo.decoding.drafters.base import Drafter, DrafterSpec
from specdemo.decoding.drafters.reencoding import check_reencoding, open_reencoding
from specdemo.decoding.engines.base import Runner
from specdemo.decoding.engines.graph_runner import CapturedDraft
from specdemo.decoding.engines.open import open_draft
from specdemo.decoding.lane import Lane
from specdemo.decoding.proposal import Draft, Proposal
from specdemo.decoding.sampling import Sampler
from specdemo.decoding.tree import TreeMask
from specdemo.decoding.tree_draft import Node, grow, selector_for
from specdemo.errors import SettingsError
from specdemo.models.pair import ModelPair
from specdemo.settings import Settings


class ModelDrafter:
    """A smaller model that decodes ahead, from its own KV cache.

    ``captured`` drafts all tokens of a round at once, from the same cache; without it they are fed one by one.
    """

    def __init__(self, runner: Runner, sampler: Sampler, captured: CapturedDraft | None = None) -> None:
        self._runner, self._sampler, self._captured = runner, sampler, captured

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
    assert pair.draft is not None, "check_drafter lets no pair without a draft pass"
    if pair.draft_tokenizer is not None:
        return open_reencoding(pair, lane)
    runner, captured = open_draft(pair.draft, lane)
    return ModelDrafter(runner, lane.sampler, captured)


def _open_batch(pair: ModelPair, rows: Sequence[Lane]) -> BatchModelDrafter:
    assert pair.draft is not None, "check_drafter lets no pair without a draft pass"
    return BatchModelDrafter(RaggedRunner(pair.draft, len(rows)))


SPEC = DrafterSpec(
    _open,
    _check,
    _open_batch,
    reference=lambda pair, settings: pair.draft if pair.draft_tokenizer is None else None,
)
