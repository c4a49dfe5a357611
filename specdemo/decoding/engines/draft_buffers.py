"""Where the drafts that a CUDA graph computes come out."""

from __future__ import annotations

import torch

from specdemo.decoding.sampling import Sampler
from specdemo.settings import MAX_GAMMA


class DraftBuffers:
    """The outputs of a captured draft of up to MAX_GAMMA tokens, and the noise it reads.

    Args:
        sampler: chooses the tokens; those of one ``vocabulary`` and ``greedy`` can share the buffers.
        vocabulary: of the draft model.
        device: of the draft model.

    Attributes:
        tokens: (MAX_GAMMA,) drafted ids.
        scores: (MAX_GAMMA, scored) what they were chosen by.
        q: (MAX_GAMMA, V) what they were drawn from; (MAX_GAMMA, 0) of a greedy draft.
        noise: the same shape, exponential draws made before the replay.
    """

    def __init__(self, sampler: Sampler, vocabulary: int, device: torch.device) -> None:
        drawn = 0 if sampler.greedy else sampler.vocabulary
        self.tokens = torch.zeros(MAX_GAMMA, dtype=torch.long, device=device)
        self.scores = torch.zeros(MAX_GAMMA, min(sampler.vocabulary, vocabulary), device=device)
        self.q = torch.zeros(MAX_GAMMA, drawn, device=device)
        self.noise = torch.ones(MAX_GAMMA, drawn, device=device)

    def draw(self, count: int, generator: torch.Generator) -> None:
        """Fresh noise for the first ``count`` tokens, by the draws that ``Sampler.draw`` makes for one each."""
        for row in range(count):
            self.noise[row : row + 1].exponential_(generator=generator)

    def take(self, step: int, sampler: Sampler, logits: torch.Tensor) -> torch.Tensor:
        """The token (1,) that ``logits`` (1, V) give at this step; written down with where it came from."""
        row = slice(step, step + 1)
        scores = sampler.scores(logits, ())
        self.scores[row].copy_(scores)
        if sampler.greedy:
            self.tokens[row].copy_(scores.argmax(-1))
        else:
            q = sampler.probabilities(scores)
            self.q[row].copy_(q)
            # The largest p/e, with e exponentially distributed, is a draw from p: torch.multinomial's own method,
            # but without the questions to the device that a capture does not allow.
            self.tokens[row].copy_((q / self.noise[row]).argmax(-1))
        return self.tokens[row]
