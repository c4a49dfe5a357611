"""A draft model that decodes ahead of the target."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specdemo.decoding.batch.loop import BatchModelDrafter
from specdemo.decoding.batch.runner import RaggedRunner
from specdemo.decoding.drafters.base import Drafter, DrafterSpec, SteppingDrafter
from specdemo.decoding.drafters.reencoding import check_reencoding, open_reencoding
from specdemo.decoding.engines.base import Runner
from specdemo.decoding.engines.open import open_draft
from specdemo.decoding.lane import Lane
from specdemo.decoding.proposal import TreeMask
from specdemo.decoding.tree_draft import Node
from specdemo.errors import SettingsError
from specdemo.models.pair import ModelPair
from specdemo.settings import Settings


class ModelDrafter(SteppingDrafter):
    """A smaller model that decodes ahead, from its own KV cache."""

    _runner: Runner

    def prefill(self, ids: Sequence[int]) -> None:
        self._runner.forward(ids, keep=0)

    def _begin(self, committed: Sequence[int]) -> torch.Tensor:
        # What the cache lacks: the target's last token, and the last drafted one if all were kept.
        logits = self._runner.forward(committed[self._runner.length :]).logits
        self._runner.checkpoint()
        return logits

    def _step(self, token: torch.Tensor) -> torch.Tensor:
        return self._runner.forward(token).logits

    def _level(self, nodes: Sequence[Node], tokens: torch.Tensor, tree_mask: TreeMask) -> torch.Tensor:
        return self._runner.forward((), len(nodes), tokens, tree_mask).logits

    def commit(self, committed: Sequence[int]) -> None:
        # Everything before the target's new token is common ground, unless it was never fed.
        self._runner.rollback_to(min(self._runner.length, len(committed) - 1))


def _check(pair: ModelPair, settings: Settings) -> None:
    if pair.draft_tokenizer is not None:
        check_reencoding(pair, settings)
        if settings.drafts_trees:
            raise SettingsError("tree_nodes", "a draft with another tokenizer has no second guesses; set 0.")
    elif settings.strategy == "assisted":
        widths = [m.config.get_text_config().vocab_size for m in pair.models]
        if widths[0] != widths[1]:
            reason = f"models of one vocabulary width only, and these have {widths[0]:,} and {widths[1]:,}"
            raise SettingsError("strategy", f"'assisted' takes {reason}; choose 'speculative'.")


def _open(pair: ModelPair, target: Runner, lane: Lane) -> Drafter:
    assert pair.draft is not None, "check_drafter lets no pair without a draft pass"
    if pair.draft_tokenizer is not None:
        return open_reencoding(pair, lane)
    return ModelDrafter(open_draft(pair.draft, lane), lane.sampler)


def _open_batch(pair: ModelPair, rows: Sequence[Lane]) -> BatchModelDrafter:
    assert pair.draft is not None, "check_drafter lets no pair without a draft pass"
    return BatchModelDrafter(RaggedRunner(pair.draft, len(rows)))


SPEC = DrafterSpec(
    _open,
    _check,
    _open_batch,
    reference=lambda pair, settings: pair.draft if pair.draft_tokenizer is None else None,
)
