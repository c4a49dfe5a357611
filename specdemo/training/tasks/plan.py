"""Every number of a target's run on the tasks."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from specdemo.training.models import Shape
from specdemo.training.tasks.tokenizer import BOS_ID, END_ID

HEAD_SIZE = 64
FREE_TEXT, OTHERS = ("chat", "stories"), ("data", "arithmetic", "code", "edit")


@dataclass(frozen=True, slots=True)
class Phase:
    """So many tokens at one depth."""

    layers: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A run; a folder holds one, and goes on with no other.

    Attributes:
        phases: stretches at growing depth; from one to the next the layers are repeated.
        width, feed_forward, heads: the shape of a layer.
        window: tokens of one row; batch_tokens: of one step; part_tokens: of one forward pass of a step.
        shares: of the tokens, by domain.
        answers_only: learn from the assistant's turns only.
        decay_share: of the tokens over which the learning rates fall to zero, at the end.
        sample_characters: that the tokenizer is trained on; free_text_share: of them, from chat and stories, whose
            words are many, while the other domains' are few.
        check_every: tokens between two checks; check_prompts, loss_prompts: held-out prompts a domain in each, for
            right answers and for the loss.
    """

    phases: tuple[Phase, ...] = (Phase(8, 40_000_000), Phase(16, 30_000_000), Phase(32, 30_000_000))
    width: int = 192
    feed_forward: int = 384
    heads: int = 3
    seed: int = 1
    vocab_size: int = 4096
    context: int = 1024
    window: int = 256
    batch_tokens: int = 16384
    part_tokens: int = 4096
    shares: dict[str, float] = field(
        default_factory=lambda: {
            "chat": 0.20,
            "stories": 0.18,
            "data": 0.18,
            "arithmetic": 0.18,
            "code": 0.12,
            "edit": 0.14,
        }
    )
    answers_only: bool = True
    matrix_lr: float = 0.02
    vector_lr: float = 5e-3
    warmup_steps: int = 60
    decay_share: float = 0.3
    sample_characters: int = 8_000_000
    free_text_share: float = 0.7
    check_every: int = 5_000_000
    check_prompts: int = 20
    loss_prompts: int = 64

    def sample_shares(self) -> dict[str, float]:
        """Of the tokenizer's sample, by domain."""
        free, rest = self.free_text_share / len(FREE_TEXT), (1 - self.free_text_share) / len(OTHERS)
        return dict.fromkeys(FREE_TEXT, free) | dict.fromkeys(OTHERS, rest)

    @property
    def tokens(self) -> int:
        """Of all phases together."""
        return sum(phase.tokens for phase in self.phases)

    def shape(self) -> Shape:
        return Shape(self.width, self.heads, self.feed_forward, self.vocab_size, self.context, BOS_ID, END_ID)

    def as_dict(self) -> dict:
        """Of what JSON has: lists for tuples."""
        return asdict(self) | {"phases": [asdict(phase) for phase in self.phases]}

    @classmethod
    def from_dict(cls, stored: dict) -> Plan:
        """The plan of :meth:`as_dict`."""
        return cls(**stored | {"phases": tuple(Phase(**phase) for phase in stored["phases"])})


def tiny_plan() -> Plan:
    """A run of seconds; for tests of the machinery, not for use."""
    return Plan(
        phases=(Phase(1, 2048), Phase(2, 2048)),
        width=32,
        feed_forward=64,
        heads=2,
        vocab_size=400,
        context=256,
        window=256,
        batch_tokens=512,
        part_tokens=256,
        warmup_steps=2,
        sample_characters=30_000,
        check_every=2048,
        check_prompts=2,
        loss_prompts=2,
    )
