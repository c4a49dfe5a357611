"""Every number of a head's run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HeadRecipe:
    """How a head is trained; :func:`tiny_head_recipe` is one for tests.

    Attributes:
        minutes: of all starts together, text and training.
        text_share: of them, in which the target writes.
        texts_at_once, answer_tokens, longest_prompt: of one part of the text, in texts and tokens.
        rows: texts of one step.
        unrolled: draft steps that are trained, the first included; step k counts ``step_decay`` to the k.
        hard_share: of the label that is the target's best token alone.
        matrix_lr, vector_lr: of Muon and AdamW.
        decay_share: of the time over which they fall to zero, at the end.
    """

    minutes: float = 60.0
    seed: int = 1
    text_share: float = 0.3
    texts_at_once: int = 64
    answer_tokens: int = 128
    longest_prompt: int = 192
    rows: int = 16
    unrolled: int = 5
    step_decay: float = 0.8
    hard_share: float = 0.3
    matrix_lr: float = 0.01
    vector_lr: float = 1e-3
    warmup_steps: int = 30
    decay_share: float = 0.5
    checkpoint_every: int = 50
    card_prompts: int = 8
    card_tokens: int = 96


def tiny_head_recipe(minutes: float) -> HeadRecipe:
    """A run of seconds; for tests of the machinery, not for use."""
    return HeadRecipe(
        minutes=minutes,
        texts_at_once=8,
        answer_tokens=24,
        longest_prompt=24,
        rows=4,
        unrolled=3,
        warmup_steps=2,
        checkpoint_every=2,
        card_prompts=1,
        card_tokens=12,
    )
