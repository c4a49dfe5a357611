"""What the drafters are called and what they need: one row each, and nothing elsewhere in the house names one.

How they draft stands in ``specdemo/decoding/drafters/``, one file each, and is looked up in its ``registry``.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

DEFAULT_DRAFTER = "model"
Part = Literal["draft", "head", "mtp"]
GGUF = "gguf"
"""Stands among the parts of a pair that llama.cpp runs."""
PARTS: dict[Part, str] = {"draft": "a draft model", "head": "an EAGLE-3 head", "mtp": "a target with an MTP head"}
"""What a pair may have besides its target, and what people call it."""


@dataclass(frozen=True, slots=True)
class DrafterInfo:
    """One drafter, for rooms that need not know how it drafts."""

    name: str  # its value in ``Settings.drafter``
    label: str  # what people call it, in lower case: "draft model"
    # what a pair must have for it besides a target, a key of ``PARTS``; None for nothing
    needs: Part | None = None
    # the fields of ``Settings`` that only it reads; the panel shows their controls with it
    reads: tuple[str, ...] = ()
    # it copies tokens from prompt and output, so that it may be asked before another drafter: the page shows the
    # prompt, the record has the places
    copies: bool = False
    leads: bool = False  # the advisor asks it before each drafter that does not copy
    always_drafts: bool = False  # it always proposes γ tokens, so that other widths need not be captured
    trees: bool = False  # it drafts trees too
    batches: bool = False  # it drafts for several prompts together
    assisted: bool = False  # transformers' own generation drafts so too
    # the flags of llama-server with which it drafts so, its type first; None where it cannot
    llama_cpp: str | None = None

    def fits(self, parts: Collection[str]) -> bool:
        """Whether a pair that has these ``PARTS`` besides its target can draft so."""
        return self.needs in (None, *parts) and (GGUF not in parts or self.llama_cpp is not None)


_ROWS = (
    DrafterInfo(
        "model",
        "draft model",
        "draft",
        always_drafts=True,
        trees=True,
        batches=True,
        assisted=True,
        llama_cpp="--spec-type draft-simple -md {draft_gguf} "
        "--spec-draft-n-max {gamma} --spec-draft-p-min {p_min}",
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
    DrafterInfo(
        "suffix", "suffix decoding", reads=("earlier_outputs",), copies=True, leads=True, trees=True, batches=True
    ),
    DrafterInfo("early_exit", "early exit", reads=("exit_layer",), always_drafts=True, trees=True),
    DrafterInfo(
        "eagle3",
        "EAGLE-3 head",
        "head",
        always_drafts=True,
        trees=True,
        llama_cpp="--spec-type draft-eagle3 -md {head_gguf} --spec-draft-n-max {gamma} --spec-draft-p-min {p_min}",
    ),
    DrafterInfo(
        "mtp",
        "MTP head",
        "mtp",
        always_drafts=True,
        llama_cpp="--spec-type draft-mtp --spec-draft-n-max {gamma} --spec-draft-p-min {p_min}",
    ),
)


class DrafterTable(dict[str, DrafterInfo]):
    """Rows by name; two names with a comma between are two drafters in a row, whose row is made of both.

    The first one copies, and drafts where it is sure enough; else the other one does.
    """

    def __contains__(self, name: object) -> bool:
        if super().__contains__(name) or not isinstance(name, str):
            return super().__contains__(name)
        first, _, last = name.partition(",")
        return first != last and all(map(super().__contains__, (first, last))) and self[first].copies

    def __missing__(self, name: str) -> DrafterInfo:
        if name not in self:
            raise KeyError(name)
        first, last = map(self.__getitem__, name.split(","))
        chained = None
        if first.llama_cpp and last.llama_cpp:
            option, type_, flags = first.llama_cpp.split(" ", 2)
            _, then, others = last.llama_cpp.split(" ", 2)
            chained = f"{option} {type_},{then} {flags} {others}"
        return replace(
            last,
            name=name,
            label=f"{first.label}, else {last.label}",
            reads=first.reads + last.reads,
            copies=True,
            leads=False,
            always_drafts=False,
            trees=first.trees and last.trees,
            batches=first.batches and last.batches and last.copies,
            assisted=False,
            llama_cpp=chained,
        )


DRAFTERS = DrafterTable({row.name: row for row in _ROWS})
"""All drafters by name, in the order in which lists show them; of two in a row too, which no list has."""


def in_a_row(name: str) -> list[str]:
    """The names of the drafters that one name stands for."""
    return name.split(",")


def first_choice(parts: Collection[str]) -> DrafterInfo:
    """The drafter that the page begins with for a pair with these ``PARTS``: a draft model, a head, else any."""
    return min(offered_with(parts), key=lambda info: ("draft", "head", "mtp", None).index(info.needs))


def offered_with(parts: Collection[str]) -> list[DrafterInfo]:
    """The drafters of a pair that has these ``PARTS`` besides its target."""
    return [info for info in DRAFTERS.values() if info.fits(parts)]


def all_with(parts: Collection[str]) -> list[DrafterInfo]:
    """These, and the drafters in a row that lists show: they end with weights that were trained to draft."""
    firsts = [info for info in DRAFTERS.values() if (info.copies if GGUF in parts else info.leads)]
    rows = (DRAFTERS[f"{a.name},{b.name}"] for a in firsts for b in DRAFTERS.values() if b.needs)
    return [*offered_with(parts), *(row for row in rows if row.fits(parts))]


def only_copies(name: str) -> bool:
    """Whether no model drafts where this drafter does, or these in a row do."""
    return all(DRAFTERS[each].copies for each in in_a_row(name))
