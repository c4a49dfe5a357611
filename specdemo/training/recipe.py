"""Every number of how a pair is made, checked: the defaults, those of a tiny run, and what ``--set`` changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError, model_validator

from specdemo.errors import SettingsError

Share = Annotated[float, Field(ge=0, le=1)]
Name = Literal["chat", "stories", "data", "arithmetic", "code", "edit", "outside", "copy"]
Shares = Annotated[dict[Name, Annotated[float, Field(ge=0)]], Field(min_length=1)]


class Depth(NamedTuple):
    """So many tokens at one depth, of tasks that are at most so long, and of all domains but some."""

    layers: PositiveInt
    tokens: PositiveInt
    longest: PositiveInt = 1024
    without: tuple[Name, ...] = ()


LATER: tuple[Name, ...] = ("chat", "stories")  # whose tokens cannot be foretold, and drown what else is learned


class Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Rates(Part):
    """The learning rates of one model.

    Attributes:
        matrix_lr, vector_lr: of Muon and AdamW; they rise in the first ``warmup_steps`` of every phase, and fall
            to zero over the last ``decay_share`` of all tokens.
    """

    matrix_lr: PositiveFloat = 0.02
    vector_lr: PositiveFloat = 4e-3
    warmup_steps: PositiveInt = 30
    decay_share: Annotated[Share, Field(gt=0)] = 0.5


class Shape(Rates):
    """A model of Llama's kind: the sizes of a layer, and the base of its rotary angles."""

    width: PositiveInt
    heads: PositiveInt
    feed_forward: PositiveInt
    rotary_base: PositiveFloat = 1e6

    @model_validator(mode="after")
    def _even_heads(self) -> Shape:
        if self.width % (2 * self.heads):
            raise ValueError(f"{self.heads} heads do not share a width of {self.width} in even parts")
        return self


class Target(Shape):
    """The target.

    Attributes:
        phases: (layers, tokens, longest task, domains left out) at growing depth; a layer that is added begins by
            writing nothing.
        vocabulary, context: of the tokenizer, in tokens.
        sample_tasks: of each domain, that the tokenizer is trained on beside the corpus's words.
        window: tokens of one row; batch_tokens: of one step; part_tokens: of one forward pass of a step.
    """

    matrix_lr: PositiveFloat = 0.01
    vector_lr: PositiveFloat = 2.5e-3
    warmup_steps: PositiveInt = 60
    decay_share: Annotated[Share, Field(gt=0)] = 0.2
    width: PositiveInt = 224
    heads: PositiveInt = 4
    feed_forward: PositiveInt = 448
    phases: Annotated[tuple[Depth, ...], Field(min_length=1)] = (
        Depth(4, 11_200_000, 128, LATER),
        Depth(8, 22_400_000, without=LATER),
        Depth(16, 28_000_000, without=LATER),
        Depth(32, 39_100_000, without=LATER),
        Depth(32, 39_200_000),
    )
    vocabulary: PositiveInt = 3072
    context: PositiveInt = 1024
    sample_tasks: PositiveInt = 2000
    window: PositiveInt = 448
    batch_tokens: PositiveInt = 32_768
    part_tokens: PositiveInt = 4096


class Lessons(Part):
    """What the drafters learn from.

    Attributes:
        parts: of the lessons. Each has ``texts`` answers of the target, of at most ``answer_tokens`` to prompts of
            at most ``longest_prompt`` tokens, in lessons of ``rows`` texts; and ``task_batches`` lessons of
            training tasks, in ``task_rows`` rows of ``window`` tokens.
    """

    parts: PositiveInt = 18
    texts: PositiveInt = 1024
    answer_tokens: PositiveInt = 208
    longest_prompt: PositiveInt = 240
    rows: PositiveInt = 32
    task_batches: PositiveInt = 2
    task_rows: PositiveInt = 64
    window: PositiveInt = 384


class Draft(Shape):
    """The draft model.

    Its ``layers``, two or more, begin as an induction head. In ``task_share`` of its tokens it learns tasks, then
    what the target says; ``hard_share`` of that label is the target's best token alone.
    """

    layers: PositiveInt = 2
    width: PositiveInt = 256
    heads: PositiveInt = 4
    feed_forward: PositiveInt = 704
    tokens: PositiveInt = 119_500_000
    task_share: Share = 0.46
    hard_share: Share = 0.3


class Head(Rates):
    """The EAGLE-3 head.

    In ``one_step_share`` of its tokens the first draft step is trained alone, then so many as are ``unrolled``;
    step k counts ``step_decay`` to the power of k. ``hard_share``: as the draft's.
    """

    tokens: PositiveInt = 11_000_000
    one_step_share: Share = 0.45
    unrolled: PositiveInt = 5
    step_decay: PositiveFloat = 0.8
    hard_share: Share = 0.3


class Recipe(Part):
    """How a pair is made.

    Attributes:
        shares: of the tokens in training, by domain; one that is not named has none.
        prompts: held-out ones of each kind, a domain, in check and card; samples: answers that check shows.
    """

    seed: int = 1
    shares: Shares = {
        "chat": 0.08,
        "stories": 0.07,
        "data": 0.22,
        "arithmetic": 0.22,
        "code": 0.11,
        "edit": 0.26,
        "outside": 0.02,
        "copy": 0.02,
    }
    target: Target = Target()
    lessons: Lessons = Lessons()
    draft: Draft = Draft()
    head: Head = Head()
    prompts: PositiveInt = 100
    samples: PositiveInt = 2

    @model_validator(mode="after")
    def _something_to_learn(self) -> Recipe:
        if any(not any(s for n, s in self.shares.items() if n not in p.without) for p in self.target.phases):
            raise ValueError("shares: in some phase no domain has one")
        if (depths := [phase.layers for phase in self.target.phases]) != sorted(depths):
            raise ValueError("target.phases: one has fewer layers than the one before")
        return self

    def of(self, part: str) -> dict[str, Any]:
        """What a part's checkpoint must have been made with: all but the tokens of drafters, which may grow."""
        read = {"lessons"} if part in ("draft", "head") else set[str]()
        own = self.model_dump(mode="json", include={"seed", "shares", part, *read})
        own[part].pop("tokens", None)
        return own


TINY = """
target.phases=[[1,2048],[2,2048,100]] target.width=32 target.heads=2 target.feed_forward=64 target.vocabulary=400
target.context=512 target.batch_tokens=640 target.part_tokens=320 target.warmup_steps=2 target.sample_tasks=20
lessons.parts=1 lessons.texts=8 lessons.task_batches=2 lessons.task_rows=2 lessons.rows=4 lessons.window=160
lessons.answer_tokens=24 lessons.longest_prompt=24 draft.tokens=1920 draft.width=32 draft.heads=2
draft.feed_forward=64 draft.warmup_steps=2 head.tokens=1920 head.unrolled=3 head.warmup_steps=2
"""
"""Changes for a run of seconds, to test the machinery."""


def recipe_of(changes: Sequence[str]) -> Recipe:
    """The defaults with changes such as ``shares.chat=0``, each a name and a value in JSON.

    Raises:
        SettingsError: no number of a recipe, or a value that no run can use.
    """
    made = Recipe().model_dump()
    for change in changes:
        name, _, text = change.partition("=")
        *path, last = name.split(".")
        place: Any = made
        try:
            for key in path:
                place = place.setdefault(key, {})
            place[last] = json.loads(text)
        except (ValueError, TypeError, AttributeError):
            raise SettingsError("--set", f"{change!r} is no NAME=VALUE in JSON, such as shares.chat=0.") from None
    try:
        return Recipe.model_validate(made)
    except ValidationError as error:
        wrong = error.errors()[0]
        raise SettingsError("--set", f"{'.'.join(map(str, wrong['loc']))}: {wrong['msg']}.".lstrip(": ")) from None
