"""One layer, trained for its target, drafts from the hidden states that the target computed anyway.

It is an EAGLE-3 head, or the head for multi-token prediction (MTP) in the target's own files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

from specdemo.decoding.drafters.base import DrafterSpec, SteppingDrafter
from specdemo.decoding.engines.base import Runner
from specdemo.decoding.engines.head import HeadRunner
from specdemo.decoding.engines.model_views import layer_list
from specdemo.decoding.lane import Lane
from specdemo.decoding.proposal import TreeMask
from specdemo.decoding.sampling import Sampler
from specdemo.decoding.tree_draft import Node
from specdemo.errors import SettingsError
from specdemo.models.mtp_head import Head
from specdemo.models.pair import ModelPair
from specdemo.settings import Settings


class HeadDrafter(SteppingDrafter):
    """Drafts a chain or a tree (Li et al., arXiv 2503.01840).

    Row t of the head's cache is made of the target's features of token t and of token t + 1. Between rounds it
    holds rows of true features only; those drafted behind them are made of the head's own states and are dropped.
    ``target_ids`` (Vd,) has the target's id of each draft id; None where they are the same.
    """

    _runner: HeadRunner
    beam = 10  # as in EAGLE's own trees (``topK_genrate``, top_k)

    def __init__(self, runner: HeadRunner, sampler: Sampler, target_ids: torch.Tensor | None) -> None:
        super().__init__(runner, sampler)
        self._target_ids = target_ids
        self._prompt: Sequence[int] | None = None
        self._waiting: list[torch.Tensor] = []  # features of committed tokens that are not in the cache yet
        self._true_rows = 0
        self._states: dict[Node | None, torch.Tensor] = {}  # (1, H) behind the chain, or each node of a tree

    def prefill(self, ids: Sequence[int]) -> None:
        """The target has yet to read the prompt: :meth:`observe` follows."""
        self._prompt = ids

    def observe(self, hidden: torch.Tensor) -> None:
        """Take the target's features (n, layers · Ht) of tokens that are committed.

        A prompt's are taken in at once, but for the last one, whose next token is not known yet.
        """
        if self._prompt is not None:
            if followed := self._prompt[1:]:
                self._feed(hidden[:-1], followed)
            self._prompt, hidden = None, hidden[-1:]
        self._waiting.append(hidden)

    def _begin(self, committed: Sequence[int]) -> torch.Tensor:
        features, self._waiting = torch.cat(self._waiting), []
        return self._behind(*self._feed(features, committed[self._runner.length + 1 :]))

    def _step(self, token: torch.Tensor) -> torch.Tensor:
        return self._behind(*self._runner.forward(self._states[None], token))

    def _behind(self, logits: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        self._states = {None: state}
        return self._in_target_ids(logits)

    def _level(self, nodes: Sequence[Node], tokens: torch.Tensor, tree_mask: TreeMask) -> torch.Tensor:
        states = torch.cat([self._states[node.parent] for node in nodes])
        logits, hidden = self._runner.forward(states, tokens, tree_mask)
        self._states.update(zip(nodes, hidden.split(1), strict=True))
        return self._in_target_ids(logits)

    def _feed(self, features: torch.Tensor, followed: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        output = self._runner.forward(self._runner.project(features), followed)
        self._true_rows = self._runner.length
        return output

    def commit(self, committed: Sequence[int]) -> None:
        # Rows of kept tokens too: their features were the head's own.
        self._runner.rollback_to(self._true_rows)

    def _in_target_ids(self, logits: torch.Tensor) -> torch.Tensor:
        """Draft logits (n, Vd) at the target's ids, (n, V): tokens that are not drafted have no probability."""
        if self._target_ids is None:
            return logits
        wide = logits.new_full((len(logits), self._sampler.vocabulary), -torch.inf)
        return wide.index_copy_(1, self._target_ids, logits)


def _spec(part: Literal["head", "mtp"]) -> DrafterSpec:
    """How the head that is this part of a pair drafts."""

    def of(pair: ModelPair) -> Head:
        head: Head | None = getattr(pair, part)
        assert head is not None, "check_drafter lets no pair without it pass"
        return head

    def check(pair: ModelPair, settings: Settings) -> None:
        if layer_list(pair.target) is None:
            reason = f"reads between layers, and {type(pair.target).__name__} keeps them in no list"
            raise SettingsError("drafter", f"{settings.drafter!r} {reason}; choose 'prompt_lookup'.")

    def opened(pair: ModelPair, target: Runner, lane: Lane) -> HeadDrafter:
        head = of(pair)
        runner = HeadRunner(head, head.embeddings(pair.target), lane.settings.engine)
        return HeadDrafter(runner, lane.sampler, head.target_ids if head.translates() else None)

    return DrafterSpec(opened, check, aux_layers=lambda pair: of(pair).aux_layers)


EAGLE3, MTP = _spec("head"), _spec("mtp")
