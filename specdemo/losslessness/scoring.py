"""Teacher forcing: what target and draft say of tokens that are already there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from specdemo.decoding.drafters.registry import spec_of
from specdemo.decoding.engines.eager import EagerRunner
from specdemo.decoding.lane import new_lane
from specdemo.decoding.sampling import Sampler
from specdemo.drafters import only_copies
from specdemo.losslessness.sequential_test import RunEvidence, run_evidence
from specdemo.models.pair import ModelPair
from specdemo.settings import Settings


class TeacherForcing:
    """One model that reads given tokens after a prompt; only the prompt stays in its cache.

    Args:
        runner: the model, with an empty cache.
        sampler: the lane's warpers.
        prompt: ids, read once.
    """

    def __init__(self, runner: EagerRunner, sampler: Sampler, prompt: Sequence[int]) -> None:
        self._runner, self._sampler, self._prompt = runner, sampler, list(prompt)
        if self._prompt[:-1]:
            runner.forward(self._prompt[:-1])
            runner.checkpoint()

    def logits(self, ids: Sequence[int]) -> torch.Tensor:
        """Processed logits (n, vocabulary) at the places of ``ids`` (n,), each after all tokens before it."""
        prefix = len(self._prompt) - 1
        try:
            logits = self._runner.forward([self._prompt[-1], *ids[:-1]], keep=len(ids)).logits
        finally:
            self._runner.rollback_to(prefix)
        before = (ids[:place] for place in range(len(ids)))
        return self._sampler.scores(logits.to(self._sampler.device), self._prompt, before)

    def probabilities(self, ids: Sequence[int]) -> torch.Tensor:
        """The distributions (n, vocabulary) that each of ``ids`` (n,) was, or would be, drawn from."""
        return self._sampler.probabilities(self.logits(ids))


class EvidenceCollector:
    """Makes the evidence of runs, the same for every strategy: it is given the tokens, not where they come from.

    The reference is what a faulty rule would take too readily: the draft's distribution; the copied token of a
    drafter that copies (p where nothing is copied); the target's likeliest token where the draft cannot be asked.
    """

    def __init__(self, pair: ModelPair, prompt: Sequence[int], settings: Settings) -> None:
        self._pair, self._prompt, self._settings = pair, list(prompt), settings
        self._spec, self._copies = spec_of(settings.drafter), only_copies(settings.drafter)
        sampler = Sampler(settings, pair.vocabulary, pair.device)
        self._runner = EagerRunner(pair.target)
        self._target = TeacherForcing(self._runner, sampler, prompt)
        model = None if settings.strategy == "autoregressive" else self._spec.reference(pair, settings)
        self._draft = None if model is None else TeacherForcing(EagerRunner(model), sampler, prompt)

    @property
    def drafts(self) -> bool:
        """Whether the reference is the drafter's, rather than the target's likeliest token."""
        return self._draft is not None or self._copies

    def evidence(self, ids: Sequence[int]) -> RunEvidence:
        """The evidence of a run's tokens (n,) without the first, which is the prefill's in any strategy."""
        p = self._target.probabilities(ids)
        # In float64, which Apple's GPUs lack.
        law, reference = (rows[1:].cpu().double().numpy() for rows in (p, self._reference(ids, p)))
        return run_evidence(ids[1:], law, reference, np.array(ids[1:], dtype=int))

    def _reference(self, ids: Sequence[int], p: torch.Tensor) -> torch.Tensor:
        if self._draft is not None:
            return self._draft.probabilities(ids)
        if not self._copies:
            return torch.nn.functional.one_hot(p.argmax(-1), p.shape[-1]).to(p.dtype)
        before = list(self._prompt)
        drafter = self._spec.open(self._pair, self._runner, new_lane(self._pair, before, self._settings))
        drafter.prefill(before)
        rows = p.clone()
        for row, token in zip(rows, ids, strict=True):
            for copied in drafter.propose(before, 1).ids:
                row.zero_()
                row[copied] = 1.0
            before.append(token)
            drafter.commit(before)
        return rows
