"""Is a head's acceptance that of a trained head read rightly? If not, the usual mistakes are tried on the text.

Thresholds: the nightly tests of vllm-project/speculators (Llama 3.1 8B with the head of EAGLE-3's authors). A head
that is below them was often read by a wrong convention, which changes what it drafts but raises no error.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import torch
from torch.nn import functional

from specdemo.analysis.heads import drafted_by_head
from specdemo.decoding.engines.eager import EagerRunner
from specdemo.models.eagle3_head import Eagle3Head
from specdemo.models.pair import ModelPair
from specdemo.trace import Trace

HEALTHY = (0.40, 0.20, 0.10)
"""Share of rounds that keep the first, second and third drafted token and all before it, at the least."""
LEAST_ROUNDS = 8
LONGEST = 512
"""Tokens of prompt and output that the trial reads."""
BETTER = 0.1
"""How much more of the text a variant must say rightly to be named."""


@dataclass(frozen=True, slots=True)
class Trial:
    """How often the head says the target's next token in one text, as it is and read otherwise.

    Attributes:
        own: share of the text's tokens, as the head is read.
        best: of the variant that is right most often.
        variant: that variant in words.
    """

    own: float
    best: float
    variant: str


_trials: WeakKeyDictionary[Eagle3Head, Trial] = WeakKeyDictionary()
"""The first trial of each head: it costs a forward of the target, and the next would say the same."""


def head_remark(pair: ModelPair, trace: Trace) -> str | None:
    """One sentence where a head drafted and its acceptance by position is below that of trained heads."""
    if pair.head is None or not drafted_by_head(trace) or not trace.complete:
        return None
    figures = trace.metrics()
    if (figures.rounds or 0) < LEAST_ROUNDS:
        return None
    kept = [round(share, 2) for share in figures.per_position]  # as it is said
    low = [j for j, (is_, least) in enumerate(zip(kept, HEALTHY, strict=False)) if is_ < least]
    if not low:
        return None
    trial = _trials.get(pair.head)
    if trial is None:
        trial = _trials[pair.head] = try_variants(pair, [*trace.prompt_ids, *trace.token_ids][:LONGEST])
    j = low[0]
    measured = (
        f"The head's drafted token {j + 1} was kept in {kept[j]:.0%} of the rounds, and trained "
        f"heads keep it in {HEALTHY[j]:.0%} or more"
    )
    if trial.best >= trial.own + BETTER:
        return (
            f"{measured}: read with {trial.variant} it says {trial.best:.0%} of this text's next tokens rightly "
            f"instead of {trial.own:.0%}, so its config.json probably means that."
        )
    return (
        f"{measured}: other taps or the other norm_before_residual would not help here, so this text is harder "
        "than most or unlike those it learned from, or it was trained too little, or for another model."
    )


@torch.inference_mode()
def try_variants(pair: ModelPair, ids: Sequence[int]) -> Trial:
    """Teacher forcing: the head reads the target's true states of ``ids`` (n,) and says the target's next tokens.

    The variants are taps one layer earlier and one later, and ``norm_before_residual`` the other way.
    """
    head, layers = pair.head, pair.target.config.get_text_config().num_hidden_layers
    shifted = {shift: tuple(tap + shift for tap in head.taps) for shift in (0, -1, 1)}
    possible = {s: taps for s, taps in shifted.items() if all(0 <= tap < layers for tap in taps)}
    every = sorted({tap for taps in possible.values() for tap in taps})
    output = EagerRunner(pair.target, "eager", taps=every).forward(ids, keep=len(ids))
    states = dict(zip(every, output.hidden.split(head.config.target_width, dim=1), strict=True))
    said = output.logits[1:].argmax(-1)

    def right(variant: Eagle3Head, taps: Sequence[int]) -> float:
        features = torch.cat([states[tap][:-1] for tap in taps], dim=1).to(variant.device, variant.dtype)
        table = variant.embeddings(pair.target)
        tokens = torch.tensor(ids[1:], device=table.device).clamp(max=len(table) - 1)
        embeddings = functional.embedding(tokens, table).to(variant.device, variant.dtype)
        positions = torch.arange(len(tokens), device=variant.device)
        h = variant(variant.project(features)[None], embeddings[None], positions[None])
        drafted = variant.target_ids[variant.logits(h)[0].argmax(-1)]
        return (drafted == said.to(drafted.device)).float().mean().item()

    flipped = copy.copy(head)
    flipped.config = replace(head.config, norm_before_residual=not head.config.norm_before_residual)
    found = {
        f"taps {', '.join(map(str, taps))}": right(head, taps) for shift, taps in possible.items() if shift
    } | {f"norm_before_residual {str(flipped.config.norm_before_residual).lower()}": right(flipped, head.taps)}
    best = max(found, key=found.__getitem__)
    return Trial(right(head, head.taps), found[best], best)
