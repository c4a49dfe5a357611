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
        layers, width, feed_forward, heads: the target's shape.
        tokens: of all windows together.
        shallow_share: of the tokens that are trained at half the depth, before the layers are repeated.
        window: tokens of one row; batch_tokens: of one step; part_tokens: of one forward pass of a step.
        shares: of the tokens, by domain.
        answers_only: learn from the assistant's turns only.
        decay_share: of the tokens over which the learning rates fall to zero, at the end.
        sample_characters: that the tokenizer is trained on; free_text_share: of them, from chat and stories, whose
            words are many, while the other domains' are few.
        check_every: tokens between two checks; check_prompts, loss_prompts: held-out prompts a domain in each, for
            right answers and for the loss.
    """

    layers: int = 12
    width: int = 256
    feed_forward: int = 512
    heads: int = 4
    tokens: int = 100_000_000
    shallow_share: float = 0.0
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

    def phases(self) -> tuple[Phase, ...]:
        """One stretch at full depth, or one at half the depth before it."""
        shallow = int(self.tokens * self.shallow_share)
        parts = ((self.layers // 2, shallow), (self.layers, self.tokens - shallow))
        return tuple(Phase(layers, tokens) for layers, tokens in parts if tokens)

    def shape(self) -> Shape:
        return Shape(self.width, self.heads, self.feed_forward, self.vocab_size, self.context, BOS_ID, END_ID)

    def as_dict(self) -> dict:
        return asdict(self)


def tiny_plan() -> Plan:
    """A run of seconds; for tests of the machinery, not for use."""
    return Plan(
        layers=2,
        width=32,
        feed_forward=64,
        heads=2,
        tokens=4096,
        shallow_share=0.5,
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
