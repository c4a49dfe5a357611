"""Every number of the drafters' runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a draft model or a head is trained; :func:`tiny_recipe` is one for tests.

    Attributes:
        minutes: of one stage, all starts together.
        text_share: of the lessons' minutes, in which the target writes.
        texts_at_once, answer_tokens, longest_prompt: of one part of the text, in texts and tokens.
        rows: texts of one lesson.
        hard_share: of the label that is the target's best token alone.
        matrix_lr, vector_lr: of Muon and AdamW.
        decay_share: of the time over which they fall to zero, at the end.
        draft_width, draft_heads, draft_feed_forward: of the draft's one layer.
        task_share: of the draft's training time, in which it only reads training tasks, before it learns what the
            target says.
        task_rows, window: of one step on training tasks, in rows of so many tokens.
        unrolled: a head's draft steps that are trained, the first included; step k counts ``step_decay`` to the k.
        one_step_share: of a head's training time, in which its first draft step alone is trained.
    """

    minutes: float = 60.0
    seed: int = 1
    text_share: float = 0.5
    texts_at_once: int = 256
    answer_tokens: int = 128
    longest_prompt: int = 192
    rows: int = 16
    hard_share: float = 0.3
    matrix_lr: float = 0.02
    vector_lr: float = 4e-3
    warmup_steps: int = 30
    decay_share: float = 0.5
    checkpoint_every: int = 50
    draft_width: int = 256
    draft_heads: int = 4
    draft_feed_forward: int = 704
    task_share: float = 0.35
    task_rows: int = 16
    window: int = 256
    unrolled: int = 5
    one_step_share: float = 0.6
    step_decay: float = 0.8


def tiny_recipe(minutes: float) -> Recipe:
    """A run of seconds; for tests of the machinery, not for use."""
    return Recipe(
        minutes=minutes,
        texts_at_once=8,
        answer_tokens=24,
        longest_prompt=24,
        rows=4,
        unrolled=3,
        warmup_steps=2,
        checkpoint_every=2,
        draft_width=32,
        draft_heads=2,
        draft_feed_forward=64,
        task_rows=2,
        window=64,
    )
