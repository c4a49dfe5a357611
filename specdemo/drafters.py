"""What the drafters are called and what they need: one row each, and nothing elsewhere in the house names one.

How they draft stands in ``specdemo/decoding/drafters/``, one file each, and is looked up in its ``registry``.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

DEFAULT_DRAFTER = "model"
Part = Literal["draft", "head", "mtp"]
GGUF = "gguf"
"""Stands among the parts of a pair that llama.cpp runs."""
PARTS: dict[Part, str] = {"draft": "a draft model", "head": "an EAGLE-3 head", "mtp": "a target with an MTP head"}
"""What a pair may have besides its target, and what people call it."""


@dataclass(frozen=True, slots=True)
class DrafterInfo:
    """One drafter, for rooms that need not know how it drafts.

    Attributes:
        name: its value in ``Settings.drafter``.
        label: what people call it, in lower case: "draft model".
        needs: what a pair must have for it besides a target, a key of ``PARTS``; None for nothing.
        reads: the fields of ``Settings`` that only it reads; the panel shows their controls with it.
        copies: it copies tokens from prompt and output: the page shows the prompt, the record has the places.
        always_drafts: it always proposes γ tokens, so that other widths need not be captured.
        trees: it drafts trees too.
        batches: it drafts for several prompts together.
        assisted: transformers' own generation drafts so too.
        llama_cpp: the flags of llama-server with which it drafts so; None where it cannot.
    """

    name: str
    label: str
    needs: Part | None = None
    reads: tuple[str, ...] = ()
    copies: bool = False
    always_drafts: bool = False
    trees: bool = False
    batches: bool = False
    assisted: bool = False
    llama_cpp: str | None = None


_ROWS = (
    DrafterInfo(
        "model",
        "draft model",
        "draft",
        always_drafts=True,
        trees=True,
        batches=True,
        assisted=True,
        llama_cpp="-md {draft_gguf} --spec-type draft-simple --spec-draft-n-max {gamma}",
    ),
    DrafterInfo(
        "prompt_lookup",
        "prompt lookup",
        reads=("lookup_ngram",),
        copies=True,
        batches=True,
        assisted=True,
        llama_cpp="--spec-type ngram-simple --spec-ngram-simple-size-n {lookup_ngram} "
        "--spec-ngram-simple-size-m {gamma}",
    ),
    DrafterInfo("early_exit", "early exit", reads=("exit_layer",), always_drafts=True, trees=True),
    DrafterInfo(
        "eagle3",
        "EAGLE-3 head",
        "head",
        always_drafts=True,
        trees=True,
        llama_cpp="-md {head_gguf} --spec-type draft-eagle3 --spec-draft-n-max {gamma}",
    ),
    DrafterInfo(
        "mtp",
        "MTP head",
        "mtp",
        always_drafts=True,
        llama_cpp="--spec-type draft-mtp --spec-draft-n-max {gamma}",
    ),
)
DRAFTERS: dict[str, DrafterInfo] = {row.name: row for row in _ROWS}
"""All drafters by name, in the order in which lists show them."""


def first_choice(parts: Collection[str]) -> DrafterInfo:
    """The drafter that the page begins with for a pair with these ``PARTS``: a head, a draft model, else any."""
    return min(offered_with(parts), key=lambda info: ("head", "mtp", "draft", None).index(info.needs))


def offered_with(parts: Collection[str]) -> list[DrafterInfo]:
    """The drafters of a pair that has these ``PARTS`` besides its target."""
    found = [info for info in DRAFTERS.values() if info.needs is None or info.needs in parts]
    return [info for info in found if GGUF not in parts or info.llama_cpp is not None]
