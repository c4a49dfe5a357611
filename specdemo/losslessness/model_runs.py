"""Runs of models in this process, and teacher forcing: what target and draft say of tokens that are there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from random import Random

import numpy as np
import torch

from specdemo.decoding.drafters.registry import spec_of
from specdemo.decoding.engines.eager import EagerRunner
from specdemo.decoding.lane import new_lane
from specdemo.decoding.sampling import Sampler
from specdemo.drafters import only_copies
from specdemo.errors import SettingsError
from specdemo.losslessness.sequential_test import RunEvidence, run_evidence
from specdemo.models.pair import ModelPair
from specdemo.models.types import PreTrainedModel
from specdemo.runs.batch import can_batch, run_batch
from specdemo.runs.encode import encode
from specdemo.runs.single import Prompt, run
from specdemo.runs.threads import decoding_threads
from specdemo.settings import Settings

AT_ONCE = 8  # pairs run together; a row of a float32 batch has the tokens of a run of its own


class TeacherForcing:
    """One model that reads given tokens after a prompt; only the prompt stays in its cache.

    Args:
        runner: the model, with an empty cache.
        sampler: the lane's warpers.
        prompt: ids, read once.
    """

    def __init__(self, runner: EagerRunner, sampler: Sampler, prompt: Sequence[int]) -> None:
        self.runner, self._sampler, self._prompt = runner, sampler, list(prompt)
        if self._prompt[:-1]:
            runner.forward(self._prompt[:-1])
            runner.checkpoint()

    def logits(self, ids: Sequence[int]) -> torch.Tensor:
        """Processed logits (n, vocabulary) at the places of ``ids`` (n,), each after all tokens before it."""
        prefix = len(self._prompt) - 1
        try:
            logits = self.runner.forward([self._prompt[-1], *ids[:-1]], keep=len(ids)).logits
        finally:
            self.runner.rollback_to(prefix)
        before = (ids[:place] for place in range(len(ids)))
        return self._sampler.scores(logits.to(self._sampler.device), self._prompt, before)

    def probabilities(self, ids: Sequence[int]) -> torch.Tensor:
        """The distributions (n, vocabulary) that each of ``ids`` (n,) was, or would be, drawn from."""
        return self._sampler.probabilities(self.logits(ids))


class RunSource(ABC):
    """Where the pairs of runs of a test come from; ``exact`` as of ``sequential_test.gains``."""

    def __init__(self, name: str, ids: Sequence[int], settings: Settings, *, exact: bool, at_once: int) -> None:
        self.name, self.ids, self.settings, self.exact, self.at_once = name, tuple(ids), settings, exact, at_once
        self.texts = dict[int, str]()  # of the tokens that came so far
        self._seeds = Random(settings.seed)

    @property
    def reference(self) -> str:
        """What the suspected fault takes unchecked, for people."""
        return "the likeliest token"

    @abstractmethod
    def pairs(self, count: int) -> list[tuple[RunEvidence, RunEvidence]]:
        """The evidence of so many more pairs of runs, plain and to be judged."""

    def seeded(self, count: int) -> list[list[Settings]]:
        """Of each pair the plain and the other run, each with a seed of its own.

        Two runs of one seed would share their first token and be no independent pair.
        """
        both = (replace(self.settings, strategy="autoregressive"), self.settings)
        return [[replace(s, seed=self._seeds.getrandbits(62)) for s in both] for _ in range(count)]


class ModelRuns(RunSource):
    """Runs of a pair from one prompt; their evidence is the same for every strategy, made of the tokens alone.

    The reference is what a faulty rule would take too readily: the draft's distribution; the copied token of a
    drafter that copies (p where nothing is copied); the target's likeliest token where the draft cannot be asked.
    """

    def __init__(self, pair: ModelPair, prompt: Prompt, settings: Settings, tokens: int) -> None:
        ids = encode(pair, prompt, settings.chat, [settings])
        context = pair.context_for(settings)
        if context is not None and len(ids) + tokens > context:
            raise SettingsError(
                "tokens",
                f"the prompt's {len(ids):,} and {tokens} more do not fit in this pair's context of "
                f"{context:,}; shorten the prompt or the runs.",
            )
        settings = replace(settings, max_new_tokens=tokens)
        exact = pair.dtype == "float32" and pair.quantization is None
        at_once = AT_ONCE if exact and can_batch(pair, settings) else 1
        super().__init__(pair.name, ids, settings, exact=exact, at_once=at_once)
        self._pair, self._copies = pair, only_copies(settings.drafter)

    @cached_property
    def _target(self) -> TeacherForcing:
        return self._reader(self._pair.target)

    @cached_property
    def _draft(self) -> TeacherForcing | None:
        plain = self.settings.strategy == "autoregressive"
        model = None if plain else spec_of(self.settings.drafter).reference(self._pair, self.settings)
        return None if model is None else self._reader(model)

    def _reader(self, model: PreTrainedModel) -> TeacherForcing:
        sampler = Sampler(self.settings, self._pair.vocabulary, self._pair.device)
        return TeacherForcing(EagerRunner(model), sampler, self.ids)

    @property
    def reference(self) -> str:
        return "the draft's token" if self._copies or self._draft is not None else super().reference

    def pairs(self, count: int) -> list[tuple[RunEvidence, RunEvidence]]:
        """As rows of a batch, where that is the same: eight take no longer than two."""
        sides = []
        with decoding_threads(self._pair):
            for lanes in zip(*self.seeded(count), strict=True):
                if count == 1:
                    traces = [run(self._pair, self.ids, lanes[0])]
                else:
                    traces = run_batch(self._pair, [self.ids] * count, list(lanes))
                self.texts |= {t.id: t.text for tr in traces for t in tr.output if t.id is not None and t.text}
                sides.append([self._evidence(trace.token_ids) for trace in traces])
        return [*zip(*sides, strict=True)]

    def _evidence(self, ids: Sequence[int]) -> RunEvidence:
        """The evidence of a run's tokens (n,) without the first, which is the prefill's in any strategy."""
        p = self._target.probabilities(ids)
        # In float64, which Apple's GPUs lack.
        law, reference = (rows[1:].cpu().double().numpy() for rows in (p, self._unchecked(ids, p)))
        return run_evidence(ids[1:], law, reference, np.array(ids[1:], dtype=int))

    def _unchecked(self, ids: Sequence[int], p: torch.Tensor) -> torch.Tensor:
        """The reference (n, vocabulary) at the places of ``ids``, where the target's distribution is ``p``."""
        if self._draft is not None:
            return self._draft.probabilities(ids)
        if not self._copies:
            return torch.nn.functional.one_hot(p.argmax(-1), p.shape[-1]).to(p.dtype)
        before = list(self.ids)
        lane = new_lane(self._pair, before, self.settings)
        drafter = spec_of(self.settings.drafter).open(self._pair, self._target.runner, lane)
        drafter.prefill(before)
        rows = p.clone()
        for row, token in zip(rows, ids, strict=True):
            for copied in drafter.propose(before, 1).ids:
                row.zero_()
                row[copied] = 1.0
            before.append(token)
            drafter.commit(before)
        return rows
