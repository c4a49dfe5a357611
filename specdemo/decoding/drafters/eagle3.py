"""EAGLE-3: one layer, trained for its target, drafts from the hidden states that the target computed anyway."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specdemo.decoding.drafters.base import DrafterSpec
from specdemo.decoding.engines.base import Runner
from specdemo.decoding.engines.head import HeadOutput, HeadRunner
from specdemo.decoding.engines.model_views import layer_list
from specdemo.decoding.lane import Lane
from specdemo.decoding.proposal import Draft, Proposal
from specdemo.decoding.sampling import Sampler
from specdemo.decoding.tree import TreeMask
from specdemo.decoding.tree_draft import Node, grow, selector_for
from specdemo.errors import SettingsError
from specdemo.models.eagle3_head import Eagle3Head
from specdemo.models.pair import ModelPair
from specdemo.settings import Settings

BEAM = 10
"""Tokens of a level that go on, as in EAGLE's own trees (``topK_genrate``, top_k)."""


class Eagle3Drafter:
    """Drafts a chain or a tree (Li et al., arXiv 2503.01840).

    Row t of the head's cache is made of the target's features of token t and of token t + 1. Between rounds it
    holds rows of true features only; those drafted behind them are made of the head's own states and are dropped.
    ``target_ids`` (Vd,) has the target's id of each draft id; None where they are the same.
    """

    def __init__(self, runner: HeadRunner, sampler: Sampler, target_ids: torch.Tensor | None) -> None:
        self._runner, self._sampler, self._target_ids = runner, sampler, target_ids
        self._prompt: Sequence[int] | None = None
        self._waiting: list[torch.Tensor] = []  # features of committed tokens that are not in the cache yet

    @property
    def engine(self) -> str:
        return self._runner.engine

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

    def propose(self, committed: Sequence[int], gamma: int) -> Proposal:
        runner, draft = self._runner, Draft(self._sampler, committed)
        output = self._take_in(committed)
        length = runner.length
        try:
            token = draft.take(self._in_target_ids(output.logits))
            for _ in range(gamma - 1):
                output = runner.forward(output.hidden, token)
                token = draft.take(self._in_target_ids(output.logits))
        finally:
            runner.rollback_to(length)
        return draft.proposal()

    def propose_tree(self, committed: Sequence[int], depth: int, nodes: int) -> Proposal:
        runner = self._runner
        output = self._take_in(committed)
        length = runner.length
        states: dict[Node | None, torch.Tensor] = {None: output.hidden}  # behind each node, (1, H)

        def forward(level: Sequence[Node], tokens: torch.Tensor, tree_mask: TreeMask) -> torch.Tensor:
            output = runner.forward(torch.cat([states[node.parent] for node in level]), tokens, tree_mask)
            states.update(zip(level, output.hidden.split(1), strict=True))
            return self._in_target_ids(output.logits)

        try:
            logits = self._in_target_ids(output.logits)
            selector = selector_for(self._sampler, depth, nodes, BEAM)
            return grow(self._sampler, committed, length, logits, forward, selector)
        finally:
            runner.rollback_to(length)

    def _take_in(self, committed: Sequence[int]) -> HeadOutput:
        """Feed the rows of the tokens kept since the last draft, with the target's true features."""
        features, self._waiting = torch.cat(self._waiting), []
        return self._feed(features, committed[self._runner.length + 1 :])

    def _feed(self, features: torch.Tensor, followed: Sequence[int]) -> HeadOutput:
        return self._runner.forward(self._runner.project(features), followed)

    def commit(self, committed: Sequence[int]) -> None:
        """Nothing to do: every proposal cleans up after itself, and only features of kept tokens come."""

    def _in_target_ids(self, logits: torch.Tensor) -> torch.Tensor:
        """Draft logits (n, Vd) at the target's ids, (n, V): tokens that are not drafted have no probability."""
        if self._target_ids is None:
            return logits
        wide = logits.new_full((len(logits), self._sampler.vocabulary), -torch.inf)
        return wide.index_copy_(1, self._target_ids, logits)


def _head(pair: ModelPair) -> Eagle3Head:
    assert pair.head is not None, "check_drafter lets no pair without a head pass"
    return pair.head


def _check(pair: ModelPair, settings: Settings) -> None:
    if layer_list(pair.target) is None:
        raise SettingsError(
            "drafter",
            f"'eagle3' reads between the target's layers, and {type(pair.target).__name__} keeps them in no list; "
            "choose 'prompt_lookup'.",
        )


def _open(pair: ModelPair, target: Runner, lane: Lane) -> Eagle3Drafter:
    head = _head(pair)
    runner = HeadRunner(head, head.embeddings(pair.target), lane.settings.engine)
    return Eagle3Drafter(runner, lane.sampler, head.target_ids if head.translates() else None)


SPEC = DrafterSpec(_open, _check, aux_layers=lambda pair: _head(pair).aux_layers)
