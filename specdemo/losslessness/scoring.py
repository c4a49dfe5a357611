"""Teacher forcing: what target and draft say of tokens that are already there."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specdemo.decoding.detokenizer import Detokenizer
from specdemo.decoding.drafters.prompt_lookup import LookupDrafter
from specdemo.decoding.engines.base import Runner
from specdemo.decoding.engines.eager import EagerRunner
from specdemo.decoding.readings import readings
from specdemo.decoding.sampling import Sampler
from specdemo.drafters import DRAFTERS
from specdemo.losslessness.sequential_test import Clues
from specdemo.models.pair import ModelPair
from specdemo.settings import Settings

LEAST_LOG = -14.0  # of a probability: p = 0 must not make a leaning infinite


class Scorer:
    """One model that reads what may follow a prompt, and forgets it again.

    Args:
        runner: the model, with an empty cache.
        sampler: the lane's warpers.
        prompt: ids, read once.
    """

    def __init__(self, runner: Runner, sampler: Sampler, prompt: Sequence[int]) -> None:
        self._runner, self._sampler, self._prompt = runner, sampler, list(prompt)
        if self._prompt[:-1]:
            runner.forward(self._prompt[:-1])

    def scores(self, ids: Sequence[int]) -> torch.Tensor:
        """Processed scores (n, vocabulary) at the places of ``ids`` (n,), each after all tokens before it."""
        kept = len(self._prompt) - 1
        try:
            logits = self._runner.forward([self._prompt[-1], *ids[:-1]], keep=len(ids)).logits
        finally:
            self._runner.rollback_to(kept)
        return self._sampler.scores(logits.to(self._sampler.device), self._prompt, ids[:-1])

    def probabilities(self, ids: Sequence[int]) -> torch.Tensor:
        """The distributions (n, vocabulary) that each of ``ids`` (n,) was, or would be, drawn from."""
        return self._sampler.probabilities(self.scores(ids))


class Detective:
    """Collects the clues of runs, the same for every strategy: it is told the tokens, not where they come from.

    The reference is what a faulty rule would take too readily: the draft's distribution; the copied token of
    prompt lookup (p where nothing is copied); the target's likeliest token where the draft cannot be asked.
    """

    LEANINGS = 3

    def __init__(self, pair: ModelPair, prompt: Sequence[int], settings: Settings) -> None:
        sampler = Sampler(settings, pair.vocabulary, pair.device)
        self._prompt, self._settings = list(prompt), settings
        self._target = Scorer(EagerRunner(pair.target), sampler, prompt)
        drafts = _draft_runner(pair, settings)
        self._draft = None if drafts is None else Scorer(drafts, sampler, prompt)

    @property
    def drafts(self) -> bool:
        """Whether the reference is the drafter's, rather than the target's likeliest token."""
        return self._draft is not None or DRAFTERS[self._settings.drafter].copies

    def clues(self, ids: Sequence[int]) -> Clues:
        """The clues of a run's tokens (n,), the first of them left out: it is the prefill's in any strategy."""
        p = self._target.probabilities(ids)
        reference = self._reference(ids, p)[1:].double()
        p = p[1:].double()
        chosen = torch.tensor(list(ids)[1:], dtype=torch.long, device=p.device).unsqueeze(-1)
        kinds = (
            reference,
            reference / (p + reference).clamp(min=1e-30),
            p.log().clamp(min=LEAST_LOG),
        )
        leanings, variances = [], []
        for kind in kinds:
            mean = (p * kind).sum(-1)
            leanings.append(float((kind.gather(1, chosen).squeeze(-1) - mean).sum()))
            variances.append(float(((p * kind * kind).sum(-1) - mean * mean).clamp(min=0).sum()))
        p_chosen, r_chosen = (rows.gather(1, chosen).squeeze(-1) for rows in (p, reference))
        # At the edge of top-k or top-p rounding may cut off what the lane did not: no evidence.
        ratios = torch.where(p_chosen > 0, r_chosen / p_chosen, 1.0)
        tilts = torch.where(p_chosen > 0, r_chosen - (p * reference).sum(-1), 0.0)
        return Clues(
            tokens=tuple(ids[1:]),
            leanings=tuple(leanings),
            variances=tuple(variances),
            ratios=tuple(ratios.tolist()),
            tilts=tuple(tilts.tolist()),
            distance=float((p - reference).abs().sum(-1).mean() / 2) if len(p) else 0.0,
        )

    def _reference(self, ids: Sequence[int], p: torch.Tensor) -> torch.Tensor:
        if self._draft is not None:
            return self._draft.probabilities(ids)
        if not DRAFTERS[self._settings.drafter].copies:
            return torch.nn.functional.one_hot(p.argmax(-1), p.shape[-1]).to(p.dtype)
        lookup = LookupDrafter(self._settings.lookup_ngram)
        rows = p.clone()
        for place in range(len(ids)):
            before = [*self._prompt, *ids[:place]]
            lookup.commit(before)
            for copied in lookup.propose(before, 1).ids:
                rows[place] = 0.0
                rows[place, copied] = 1.0
        return rows


def greedy_choices(
    pair: ModelPair, prompt: Sequence[int], ids: Sequence[int], settings: Settings
) -> tuple[list[tuple[int, str]], list[float | None]]:
    """The target's best token (id, text) at each place of ``ids`` (n,), and the margin of the one emitted."""
    scores = Scorer(EagerRunner(pair.target), Sampler(settings, pair.vocabulary, pair.device), prompt).scores(ids)
    text = Detokenizer(pair.tokenizer, prompt)
    best = []
    for token, choice in zip(ids, scores.argmax(-1).tolist(), strict=True):
        best.append((choice, text.peek(choice)))
        text.push(token)
    return best, [reading.margin for reading in readings(scores, ids)]


def _draft_runner(pair: ModelPair, settings: Settings) -> Runner | None:
    """What drafts, on a cache of its own; None if that is no model over the target's tokens."""
    if settings.strategy == "autoregressive":
        return None
    model = DRAFTERS[settings.drafter].reference(pair, settings)
    return None if model is None else EagerRunner(model)
