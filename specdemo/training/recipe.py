"""Every number of the training run, in one place."""

from __future__ import annotations

from dataclasses import dataclass

END_OF_TEXT = "<|endoftext|>"


@dataclass(frozen=True, slots=True)
class Source:
    """One kind of text in the corpus.

    Attributes:
        files: in the corpus folder.
        domain: whose held-out loss it counts for.
        share: of the target's training windows.
        draft_share: of the draft's and of the distillation's: more of what is hard to predict.
        wrap: how documents that are no dialogues are also shown as a user turn that the assistant continues:
            cut after a ``sentence`` or between ``lines``; None for dialogues.
    """

    files: tuple[str, ...]
    domain: str
    share: float
    draft_share: float
    wrap: str | None = None


@dataclass(frozen=True, slots=True)
class Phase:
    """One stretch of pretraining at a fixed depth; ``context`` is the window length, all in tokens."""

    layers: int
    tokens: int
    context: int = 512
    batch_tokens: int = 8192


@dataclass(frozen=True, slots=True)
class Shape:
    """The Llama dimensions of one model."""

    hidden: int
    heads: int
    kv_heads: int
    intermediate: int


@dataclass(frozen=True, slots=True)
class Recipe:
    """The run that made the builtin pair; :func:`tiny_recipe` is one for tests.

    ``label_rows`` and ``label_length`` are the shape of one file of the target's labels, ``own_tokens`` and
    ``corpus_tokens`` how much text of the target and of the corpus is labelled, ``distill_tokens`` how much of it
    the draft reads, with repetitions.
    """

    seed: int = 1
    vocab_size: int = 4096
    context: int = 1024
    sources: tuple[Source, ...] = (
        Source(("chat.txt.gz",), "chat", 0.30, 0.24),
        Source(("chat_topical.txt.gz",), "chat", 0.08, 0.03),
        Source(("stories_tiny.txt.gz",), "stories", 0.16, 0.16, wrap="sentence"),
        Source(("stories_pratham.txt.gz", "stories_african.txt.gz"), "stories", 0.05, 0.05, wrap="sentence"),
        Source(("stories_fairy.txt.gz",), "stories", 0.04, 0.03, wrap="sentence"),
        Source(("books_children.txt.gz",), "books", 0.04, 0.02),
        Source(("code.txt.gz",), "code", 0.19, 0.29, wrap="lines"),
        Source(("maths.txt.gz",), "maths", 0.14, 0.18),
    )
    # Depth growth by stacking (arXiv 2405.15319): a deeper model starts from the trained layers, repeated, so most
    # tokens cost a quarter of what they would cost at full depth.
    target: Shape = Shape(hidden=192, heads=3, kv_heads=3, intermediate=512)
    target_phases: tuple[Phase, ...] = (
        Phase(8, 14_000_000),
        Phase(16, 3_600_000),
        Phase(32, 2_600_000, 1024),
    )
    # One wide layer: two layers of width 256, trained as long, had the same acceptance rate and a fifth more cost.
    draft: Shape = Shape(hidden=384, heads=6, kv_heads=6, intermediate=1024)
    draft_phases: tuple[Phase, ...] = (Phase(1, 5_000_000),)
    matrix_lr: float = 0.02
    vector_lr: float = 5e-3
    warmup_steps: int = 60
    decay_share: float = 0.2
    label_rows: int = 192
    label_length: int = 256
    own_tokens: int = 450_000
    corpus_tokens: int = 350_000
    distill_tokens: int = 6_000_000
    distill_batch_tokens: int = 4096
    distill_own_share: float = 0.65
    distill_hard_share: float = 0.5
    distill_decay_share: float = 0.6
    distill_matrix_lr: float = 0.01
    distill_vector_lr: float = 3e-3
    checkpoint_every: int = 100
    shard_size: str = "9MB"


def tiny_recipe() -> Recipe:
    """A run of seconds that goes through every stage; for tests of the machinery, not for use."""
    return Recipe(
        vocab_size=320,
        context=512,
        target=Shape(32, 2, 2, 64),
        target_phases=(Phase(2, 1024, 64, 256), Phase(4, 1024, 64, 256)),
        draft=Shape(32, 2, 2, 64),
        draft_phases=(Phase(1, 1024, 64, 256),),
        warmup_steps=2,
        label_rows=4,
        label_length=32,
        own_tokens=256,
        corpus_tokens=256,
        distill_tokens=1024,
        distill_batch_tokens=256,
        checkpoint_every=2,
    )
