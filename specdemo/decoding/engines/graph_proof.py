"""Proof that replays compute what the model does: both read the beginning of a lane's prompt, and what follows it.

Nobody has to believe in a graph: those that were captured for a lane are compared with the model's own forward
before it begins, each once for the workspace that holds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from specdemo.decoding.engines.base import Output
from specdemo.decoding.engines.eager import EagerRunner

if TYPE_CHECKING:
    from specdemo.decoding.engines.graph_runner import CapturedDraft, GraphRunner

PROOF_TOKENS = 64
"""Of a prompt that are read."""
TOLERANCE = {torch.float32: 0.01}
ROUGH_TOLERANCE = 0.2
"""Root mean square difference of a row of logits, in standard deviations of that row. Rounding in 16 bit is some
hundredths; a row that saw other tokens, or itself at another place, is off by about one."""


class Disproved(RuntimeError):
    """Replays give other numbers than the model."""


@torch.inference_mode()
def prove_forwards(runner: GraphRunner, prompt: Sequence[int], forwards: Sequence[tuple[int, int]]) -> None:
    """Compare the prefill and captured forwards, (tokens fed, slots looked at), with the model called eagerly.

    Raises:
        Disproved: logits, hidden states or best tokens differ by more than rounding.
    """
    ids = list(prompt[:PROOF_TOKENS])
    widest = max(count for count, _ in forwards)
    fed = (ids * widest)[:widest]
    eager = EagerRunner(runner.model, "eager", aux_layers=runner.aux_layers)
    _compare(runner, "a prompt", runner.forward(ids), eager.forward(ids))
    expected = eager.forward(fed, keep=widest)
    for count, kv_length in forwards:
        runner.rollback_to(len(ids))
        found = runner.replay([fed[:count]], count, count, kv_length)
        hidden = None if expected.hidden is None else expected.hidden[:count]
        _compare(runner, f"{count} tokens", found, Output(expected.logits[:count], hidden))


@torch.inference_mode()
def prove_drafts(draft: CapturedDraft, prompt: Sequence[int], kv_lengths: Sequence[int]) -> None:
    """Compare whole captured drafts, by the slots they look at, with the model that reads the same tokens eagerly.

    Raises:
        Disproved: scores or probabilities differ by more than rounding, or do not lead to the drafted tokens.
    """
    runner, sampler = draft.runner, draft.sampler
    committed = [*prompt[:PROOF_TOKENS], prompt[0]]
    for kv_length in kv_lengths:
        proposal = draft.replay(committed, draft.gamma, kv_length)
        runner.rollback_to(0)
        logits = EagerRunner(runner.model, "eager").forward([*committed, *proposal.ids[:-1]], draft.gamma).logits
        scores = sampler.scores(logits, ())
        if proposal.q is None:
            assert proposal.scores is not None, "a model's drafts have scores"
            _compare(runner, "a draft", Output(proposal.scores), Output(scores))
            chosen = proposal.scores.argmax(-1)
        else:
            far = (proposal.q - sampler.probabilities(scores)).abs().sum(-1).max() / 2
            _check(runner, "probabilities of a draft", far)
            chosen = (proposal.q / draft.buffers.noise[: draft.gamma]).argmax(-1)
        if not torch.equal(chosen, proposal.tokens):
            raise Disproved("a draft's tokens are not those of its scores")


def _compare(runner: GraphRunner, what: str, found: Output, expected: Output) -> None:
    """The same rows of both."""
    spread = expected.logits.std(-1)
    off = (found.logits - expected.logits).square().mean(-1).sqrt()
    _check(runner, f"logits of {what}", (off / spread).max())
    chosen = expected.logits.gather(-1, found.logits.argmax(-1, keepdim=True)).squeeze(-1)
    _check(runner, f"best tokens of {what}", ((expected.logits.amax(-1) - chosen) / spread).max())
    if found.hidden is not None and expected.hidden is not None:
        ours, theirs = found.hidden.float(), expected.hidden.float()
        off = (ours - theirs).square().mean(-1).sqrt() / theirs.square().mean(-1).sqrt()
        _check(runner, f"hidden states of {what}", off.max())


def _check(runner: GraphRunner, what: str, off: torch.Tensor) -> None:
    if not float(off) <= TOLERANCE.get(runner.dtype, ROUGH_TOLERANCE):  # NaN too
        raise Disproved(f"{what} are off by {float(off):.2g}")
