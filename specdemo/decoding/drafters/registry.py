"""How each drafter of ``specdemo.drafters`` drafts, and the way from a lane's settings to its drafter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from specdemo.decoding.batch.loop import BatchDrafter
from specdemo.decoding.drafters import copying, early_exit, head, model
from specdemo.decoding.drafters.base import Drafter, DrafterSpec
from specdemo.decoding.drafters.row import row_of
from specdemo.decoding.engines.base import Runner
from specdemo.decoding.lane import Lane
from specdemo.decoding.trials import check_trees, once
from specdemo.drafters import DRAFTERS, PARTS, DrafterInfo, in_a_row, offered_with
from specdemo.errors import SettingsError
from specdemo.models.pair import ModelPair
from specdemo.settings import Settings

SPECS: dict[str, DrafterSpec] = {
    "model": model.SPEC,
    "prompt_lookup": copying.LOOKUP,
    "suffix": copying.SUFFIX,
    "early_exit": early_exit.SPEC,
    "eagle3": head.EAGLE3,
    "mtp": head.MTP,
}
"""By name."""


def spec_of(name: str) -> DrafterSpec:
    """By ``Settings.drafter``, which may name two in a row."""
    names = in_a_row(name)
    return SPECS[name] if len(names) == 1 else row_of(names, *(SPECS[each] for each in names))


def register(info: DrafterInfo, spec: DrafterSpec) -> None:
    """Add a drafter; from now on every part of the house offers it."""
    DRAFTERS[info.name], SPECS[info.name] = info, spec


def check_drafter(pair: ModelPair, settings: Settings) -> None:
    """A SettingsError for what this pair cannot draft with. Two small forwards try a model's first tree."""
    info = DRAFTERS[settings.drafter]
    if info.needs is not None and info.needs not in pair.parts:
        able = [other for other in offered_with(pair.parts) if other.trees or not settings.drafts_trees]
        able = [other for other in able if _accepts(pair, replace(settings, drafter=other.name))]
        others = " or ".join(repr(other.name) for other in able)
        lacks = f"{info.name!r} needs {PARTS[info.needs]}, and this pair has none"
        reason = pair.refused.get(info.needs, "")
        raise SettingsError("drafter", f"{lacks}{reason and f' ({reason})'}; choose {others}.")
    spec_of(info.name).check(pair, settings)
    models = pair.models if info.needs == "draft" else [pair.target]
    if settings.strategy == "assisted" and (names := [type(m).__name__ for m in models if m._is_stateful]):
        reason = f"is transformers' own, which takes no tokens back from a {names[0]}"
        raise SettingsError("strategy", f"'assisted' {reason}; choose 'speculative'.")
    if settings.drafts_trees:
        readers = [*zip(("target", "draft"), models, strict=False)]
        for role, model in readers:
            attention = model.config.get_text_config()._attn_implementation or ""
            if "flash" in attention:  # which has a causal mask and takes no other
                advice = "load it with attn_implementation='sdpa', or set 0"
                reason = f"the {role}'s attention is {attention!r}, which takes no mask of a tree"
                raise SettingsError("tree_nodes", f"{reason}; {advice}.")
        for role, model in readers:
            once(pair, f"{role} in trees", partial(check_trees, role, model, settings.engine))


def _accepts(pair: ModelPair, settings: Settings) -> bool:
    try:
        spec_of(settings.drafter).check(pair, settings)
    except SettingsError:
        return False
    return True


def open_drafter(pair: ModelPair, target: Runner, lane: Lane) -> Drafter:
    """A fresh drafter for one lane, after :func:`check_drafter`."""
    return spec_of(lane.settings.drafter).open(pair, target, lane)


def open_batch_drafter(pair: ModelPair, rows: Sequence[Lane]) -> BatchDrafter:
    """The same for all rows of a batch, whose drafter has one."""
    opener = spec_of(rows[0].settings.drafter).open_batch
    assert opener is not None, "its row says that it has no batches"
    return opener(pair, rows)


def aux_layers_for(pair: ModelPair, settings: Settings) -> tuple[int, ...]:
    """The target's layers whose input this lane's drafter observes."""
    return spec_of(settings.drafter).aux_layers(pair) if settings.strategy == "speculative" else ()
