"""The table of drafters: one row each, and nothing elsewhere in the house names one.

Rows are made in ``specdemo/decoding/drafters/``, one file a drafter, and registered by its ``registry``. Settings,
panel, links, command line, batches, losslessness tests and documents read them from here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal

DEFAULT_DRAFTER = "model"
Part = Literal["draft", "head"]
PARTS: dict[Part, str] = {"draft": "a draft model", "head": "an EAGLE-3 head"}
"""What a pair may have besides its target, and what people call it."""


@dataclass(frozen=True, slots=True)
class DrafterSpec:
    """One drafter, and what the rest of the house must know of it.

    The types of its functions are those of the rooms above, which this module does not
    import: they stand in words.

    Attributes:
        name: its value in ``Settings.drafter``.
        label: what people call it, in lower case: "draft model".
        open: (pair, target's Runner, Lane) → a fresh Drafter for one lane, after ``check``.
        title: heads its lanes on the page.
        method: its name in links and in the panel's lists, where it is another than ``name``.
        needs: what a pair must have for it besides a target, a key of ``PARTS``; None for nothing.
        taps: pair → the target's layers whose input its drafter's ``observe`` is given; none if it has no such.
        open_batch: (pair, Lanes) → a fresh BatchDrafter for all rows of a batch; None if it has none.
        check: (pair, Settings) → None; raises SettingsError where this pair cannot draft so.
        reads: the fields of ``Settings`` that only it reads; the panel shows their controls with it.
        reference: (pair, Settings) → the model, over the target's tokens, whose distribution its tokens come from;
            None if there is none.
        copies: it copies tokens from prompt and output: the page shows the prompt, the record has the places.
        always_drafts: it always proposes γ tokens, so that other widths need not be captured.
        trees: it drafts trees too: its drafter has ``propose_tree``.
        tree_width: tokens of a tree's level that go on, at the most; None for no limit.
        assisted: the method in which transformers' own generation drafts so; None if it has none.
        elsewhere: how other engines are told to draft so, by engine, for ``specdemo.analysis.engine_lines``, which
            has the names that may stand in braces; an engine that cannot is left out.
        about: what drafts, for the documents.
        note: a sentence for the panel.
    """

    name: str
    label: str
    open: Callable[[Any, Any, Any], Any]
    title: str = ""
    method: str = ""
    needs: Part | None = None
    taps: Callable[[Any], tuple[int, ...]] = lambda pair: ()
    open_batch: Callable[[Any, Any], Any] | None = None
    check: Callable[[Any, Any], None] = lambda pair, settings: None
    reads: tuple[str, ...] = ()
    reference: Callable[[Any, Any], Any] = lambda pair, settings: None
    copies: bool = False
    always_drafts: bool = False
    trees: bool = False
    tree_width: int | None = None
    assisted: str | None = None
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    about: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", self.title or self.label.capitalize())
        object.__setattr__(self, "method", self.method or self.name)

    @property
    def batchable(self) -> bool:
        """Whether it drafts for several prompts together."""
        return self.open_batch is not None


DRAFTERS: dict[str, DrafterSpec] = {}
"""All drafters by name, in the order in which lists show them."""


def register(spec: DrafterSpec) -> None:
    """Add a drafter; from now on every part of the house offers it."""
    DRAFTERS[spec.name] = spec


def registered() -> dict[str, DrafterSpec]:
    """The table with all its rows, also where only a part of the package has been imported yet."""
    import_module("specdemo.decoding.drafters.registry")
    return DRAFTERS


def first_choice(parts: Collection[str]) -> DrafterSpec:
    """The drafter that the page begins with for a pair with these ``PARTS``: a head, a draft model, else any."""
    return min(offered_with(parts), key=lambda spec: ("head", "draft", None).index(spec.needs))


def offered_with(parts: Collection[str]) -> list[DrafterSpec]:
    """The drafters of a pair that has these ``PARTS`` besides its target."""
    return [spec for spec in DRAFTERS.values() if spec.needs is None or spec.needs in parts]
