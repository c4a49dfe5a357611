"""From logits to the distribution a token is drawn from, by transformers' own processors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers.generation.logits_process import (
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from specdemo.models.failures import not_finite
from specdemo.settings import Settings


class Sampler:
    """Penalties, then temperature, top-k and top-p, in transformers' order; the same for p and q.

    Args:
        settings: of the lane.
        width: the target's vocabulary width; narrower scores stand for tokens the draft cannot propose.
        device: where the random draws are made.

    Attributes:
        sampling_key: samplers of one key give one model's logits the same scores and probabilities, but for the
            repetition penalty.
    """

    def __init__(self, settings: Settings, width: int, device: torch.device) -> None:
        self.greedy = settings.greedy
        self.width = width
        self.device = device
        self.generator = torch.Generator(device=device).manual_seed(settings.seed)
        self.sampling_key = _sampling_key(settings, width)
        self._penalty = (
            RepetitionPenaltyLogitsProcessor(settings.repetition_penalty)
            if settings.repetition_penalty != 1.0
            else None
        )
        self._warpers = LogitsProcessorList()
        if self.greedy:
            return
        if settings.temperature != 1.0:
            self._warpers.append(TemperatureLogitsWarper(settings.temperature))
        if settings.top_k:
            self._warpers.append(TopKLogitsWarper(settings.top_k))
        if settings.top_p < 1.0:
            self._warpers.append(TopPLogitsWarper(settings.top_p))

    @property
    def remembers(self) -> bool:
        """Whether scores depend on the tokens before, beyond what the model saw."""
        return self._penalty is not None

    def scores(self, logits: torch.Tensor, prefix: Sequence[int], drafted: Sequence[int] = ()) -> torch.Tensor:
        """Processed scores (rows, vocabulary) of ``logits`` (rows, vocabulary).

        Row i is the prediction after ``prefix`` and the first i of ``drafted``; a processor with a
        memory sees exactly that. Columns beyond the target's vocabulary are dropped.
        """
        scores = logits[:, : self.width]
        if self._penalty is not None:
            rows = [self._penalised(scores[i : i + 1], [*prefix, *drafted[:i]]) for i in range(len(scores))]
            scores = torch.cat(rows)
        return self._warpers(None, scores)

    def _penalised(self, row: torch.Tensor, seen: Sequence[int]) -> torch.Tensor:
        ids = torch.tensor(seen, dtype=torch.long, device=row.device)
        return self._penalty(ids[ids < row.shape[1]].unsqueeze(0), row)

    def probabilities(self, scores: torch.Tensor) -> torch.Tensor:
        """float32 distributions over the target's vocabulary; scores (..., v) give (..., width)."""
        p = torch.softmax(scores, dim=-1)
        missing = self.width - p.shape[-1]
        return torch.nn.functional.pad(p, (0, missing)) if missing else p

    def pick(self, scores: torch.Tensor) -> torch.Tensor:
        """One token for each row of scores (rows, vocabulary): the best one, or a draw. Shape (rows,)."""
        return scores.argmax(-1) if self.greedy else self.draw(self.probabilities(scores))

    def draw(self, p: torch.Tensor, role: str = "target") -> torch.Tensor:
        """One token from each distribution (rows, vocabulary) of the model in this role. Shape (rows,).

        Raises:
            PairError: they are none, as torch itself looks.
        """
        try:
            return torch.multinomial(p, 1, generator=self.generator).squeeze(-1)
        except RuntimeError as error:
            if p.isfinite().all():
                raise
            raise not_finite(role) from error

    def draw_apart(self, p: torch.Tensor, count: int, role: str = "target") -> list[int]:
        """``count`` different tokens, drawn one after the other from what those before them left of p (V,).

        Raises:
            PairError: p is no distribution.
            RuntimeError: it has fewer tokens.
        """
        if not count:
            return []
        try:
            return torch.multinomial(p, count, generator=self.generator).tolist()
        except RuntimeError as error:
            if p.isfinite().all():
                raise
            raise not_finite(role) from error

    def uniforms(self, *shape: int) -> torch.Tensor:
        """Independent draws from [0, 1)."""
        return torch.rand(*shape, generator=self.generator, device=self.generator.device)


def _sampling_key(settings: Settings, width: int) -> tuple[float, ...]:
    if settings.greedy:
        return (width,)
    return (width, settings.temperature, settings.top_k, settings.top_p)
