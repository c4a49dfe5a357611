"""EAGLE-3: one layer, trained for its target, drafts from the hidden states that the target computed anyway."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specdemo.decoding.engines.base import Runner
from specdemo.decoding.engines.head import HeadOutput, HeadRunner
from specdemo.decoding.engines.model_views import layer_list
from specdemo.decoding.lane import Lane
from specdemo.decoding.proposal import Draft, Proposal
from specdemo.decoding.sampling import Sampler
from specdemo.decoding.tree import Branches
from specdemo.decoding.tree_draft import Choice, Node, grow
from specdemo.drafters import DrafterSpec
from specdemo.errors import SettingsError
from specdemo.models.eagle3_head import Eagle3Head
from specdemo.models.pair import ModelPair
from specdemo.settings import Settings

TREE_WIDTH = 10
"""Tokens of a level that go on, as in EAGLE's own trees (``topK_genrate``, top_k)."""


class Eagle3Drafter:
    """Drafts a chain or a tree (Li et al., arXiv 2503.01840).

    Row t of the head's cache is made of the target's features of token t and of token t + 1. Between rounds it
    holds rows of true features only; those drafted behind them are made of the head's own states and are dropped.

    Args:
        runner: of the head.
        sampler: chooses the tokens.
        target_ids: (Vd,) the target's id of each draft id; None where they are the same.
        vocabulary: width of the target's logits.
    """

    def __init__(
        self, runner: HeadRunner, sampler: Sampler, target_ids: torch.Tensor | None, vocabulary: int
    ) -> None:
        self._runner, self._sampler = runner, sampler
        self._target_ids, self._vocabulary = target_ids, vocabulary
        self._prompt: Sequence[int] | None = None
        self._observed: torch.Tensor | None = None
        self._waiting: list[torch.Tensor] = []  # features of committed tokens that are not in the cache yet

    @property
    def engine(self) -> str:
        return self._runner.engine

    def prefill(self, ids: Sequence[int]) -> None:
        """The target has yet to read the prompt: :meth:`observe` follows."""
        self._prompt = ids

    def observe(self, hidden: torch.Tensor) -> None:
        """Take the features (n, taps · Ht) of the tokens that the target was fed last.

        A prompt's are taken in at once, but for the last one, whose next token is not known yet.
        """
        if self._prompt is None:
            self._observed = hidden
            return
        if followed := self._prompt[1:]:
            self._runner.forward(self._runner.project(hidden[:-1]), followed)
        self._prompt, self._waiting = None, [hidden[-1:]]

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

    def propose_tree(self, committed: Sequence[int], choice: Choice) -> Proposal:
        runner = self._runner
        output = self._take_in(committed)
        length = runner.length
        states: dict[Node | None, torch.Tensor] = {None: output.hidden}  # behind each node, (1, H)

        def step(nodes: Sequence[Node], tokens: torch.Tensor, branches: Branches) -> torch.Tensor:
            output = runner.forward(torch.cat([states[node.parent] for node in nodes]), tokens, branches)
            states.update(zip(nodes, output.hidden.split(1), strict=True))
            return self._in_target_ids(output.logits)

        try:
            logits = self._in_target_ids(output.logits)
            return grow(self._sampler, committed, length, logits, step, choice)
        finally:
            runner.rollback_to(length)

    def _take_in(self, committed: Sequence[int]) -> HeadOutput:
        """Feed the rows of the tokens kept since the last draft, with the target's true features."""
        features = torch.cat(self._waiting)
        self._waiting = []
        return self._runner.forward(self._runner.project(features), committed[self._runner.length + 1 :])

    def commit(self, committed: Sequence[int]) -> None:
        if self._observed is None:
            return
        held = self._runner.length + sum(map(len, self._waiting))
        # The last token has no features yet, and a rejected one's are of no text.
        self._waiting.append(self._observed[: len(committed) - 1 - held])
        self._observed = None

    def _in_target_ids(self, logits: torch.Tensor) -> torch.Tensor:
        """Draft logits (n, Vd) at the target's ids, (n, V): tokens that are not drafted have no probability."""
        if self._target_ids is None:
            return logits
        wide = logits.new_full((len(logits), self._vocabulary), -torch.inf)
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
    return Eagle3Drafter(runner, lane.sampler, head.target_ids if head.translates() else None, pair.vocabulary)


SPEC = DrafterSpec(
    name="eagle3",
    label="EAGLE-3 head",
    open=_open,
    title="EAGLE-3 head",
    needs="head",
    check=_check,
    taps=lambda pair: _head(pair).taps,
    always_drafts=True,
    trees=True,
    tree_width=TREE_WIDTH,
    elsewhere={
        "vllm": '{{"method": "eagle3", "model": {head}, "num_speculative_tokens": {gamma}}}',
        "sglang": "--speculative-algorithm EAGLE3 --speculative-draft-model-path {head} \\\n"
        "  --speculative-num-steps {gamma} --speculative-eagle-topk 1 --speculative-num-draft-tokens {rows}",
        "llama.cpp": "-md {head_gguf} --spec-type draft-eagle3 --spec-draft-n-max {gamma}",
    },
    about="the pair's EAGLE-3 head: one layer that reads the target's hidden states and was trained for it",
)
