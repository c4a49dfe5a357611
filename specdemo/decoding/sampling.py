"""From logits to the distribution a token is drawn from, by transformers' own processors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

import torch
from transformers.generation.logits_process import (
    LogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from specdemo.models.failures import not_finite
from specdemo.settings import Settings

_NO_IDS: Any = None  # these warpers look at scores alone


class Sampler:
    """Penalties, then temperature, top-k and top-p, in transformers' order; the same for p and q.

    Args:
        settings: of the lane.
        vocabulary: how many columns the target's logits have; fewer stand for tokens the draft cannot propose.
        device: where the random draws are made.
    """

    def __init__(self, settings: Settings, vocabulary: int, device: torch.device) -> None:
        self.greedy, self.p_min = settings.greedy, settings.p_min
        # the acceptance rule asks for the q of siblings in a tree, which are drawn for it then; the other rules do
        # not, and the likeliest tokens pass more often than drawn ones
        self.draws_siblings = settings.acceptance == "sampling" and not settings.greedy
        self.vocabulary = vocabulary
        self.device = device
        self.generator = torch.Generator(device=device).manual_seed(settings.seed)
        self._penalty: RepetitionPenaltyLogitsProcessor | None = None
        if settings.repetition_penalty != 1.0:
            self._penalty = RepetitionPenaltyLogitsProcessor(settings.repetition_penalty)
        self._warpers: list[LogitsProcessor] = []
        if self.greedy:
            return
        if settings.temperature != 1.0:
            self._warpers.append(TemperatureLogitsWarper(settings.temperature))
        if settings.top_k:
            self._warpers.append(TopKLogitsWarper(settings.top_k))
        if settings.top_p < 1.0:
            self._warpers.append(TopPLogitsWarper(settings.top_p))

    @property
    def history_dependent(self) -> bool:
        """Whether scores depend on the tokens before, beyond what the model saw."""
        return self._penalty is not None

    def scores(
        self, logits: torch.Tensor, prefix: Sequence[int], drafted: Iterable[Sequence[int]] = repeat(())
    ) -> torch.Tensor:
        """Processed scores (rows, ≤V) of ``logits`` (rows, V); columns beyond the target's vocabulary are dropped.

        Args:
            logits: of a model.
            prefix: ids that stand before all rows.
            drafted: ids that stand behind them before each row; what is not :attr:`history_dependent` asks for
                neither.
        """
        scores = logits[:, : self.vocabulary]
        if self._penalty is not None:
            penalised = []
            for row, path in zip(scores.split(1), drafted, strict=False):
                seen = torch.tensor([*prefix, *path], dtype=torch.long, device=row.device)
                penalised.append(self._penalty(seen[seen < row.shape[1]].unsqueeze(0), row))
            scores = torch.cat(penalised)
        for warper in self._warpers:
            scores = warper(_NO_IDS, scores)
        return scores

    def probabilities(self, scores: torch.Tensor) -> torch.Tensor:
        """float32 distributions over the target's vocabulary; scores (..., ≤V) give (..., V)."""
        p = torch.softmax(scores, dim=-1)
        missing = self.vocabulary - p.shape[-1]
        return torch.nn.functional.pad(p, (0, missing)) if missing else p

    def pick(self, scores: torch.Tensor) -> torch.Tensor:
        """One token for each row of scores (rows, vocabulary): the best one, or a draw. Shape (rows,)."""
        return scores.argmax(-1) if self.greedy else self.draw(self.probabilities(scores))

    def draw(self, p: torch.Tensor, role: str = "target") -> torch.Tensor:
        """One token from each distribution (rows, vocabulary) of the model in this role. Shape (rows,)."""
        return self.draw_apart(p, 1, role).squeeze(-1)

    def draw_apart(self, p: torch.Tensor, count: int, role: str = "target") -> torch.Tensor:
        """``count`` tokens from each distribution, each drawn from what those before it left. Shape (…, count).

        A PairError where they are no distributions, as torch itself looks.
        """
        try:
            return torch.multinomial(p, count, generator=self.generator)
        except RuntimeError as error:
            if p.isfinite().all():
                raise
            raise not_finite(role) from error

    def uniforms(self, *shape: int) -> torch.Tensor:
        """Independent draws from [0, 1)."""
        return torch.rand(*shape, generator=self.generator, device=self.generator.device)
