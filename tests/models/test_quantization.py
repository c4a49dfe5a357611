"""Quantised pairs on the CPU: what they save, measured, and that speculation changes nothing of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from checkpoints import checkpoint_pair
from toys import raced

import specdemo
from specdemo import Settings, SettingsError
from specdemo.losslessness.compare import compare
from specdemo.models.memory import measure
from specdemo.models.request import QUANTIZATIONS

PROMPT = "A small model proposes a few words"
LANES = [Settings(strategy="autoregressive", max_new_tokens=40), Settings(gamma=4, max_new_tokens=40)]


@pytest.fixture(autouse=True)
def compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """quanto compiles its int4 kernels at their first use; ninja may lie beside this Python only."""
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """A pair of a family, by name, wide enough that int4 works by groups."""

    @cache
    def name(family: str) -> str:
        return " + ".join(map(str, checkpoint_pair(tmp_path_factory.mktemp(family), family, hidden=256)))

    return name


def quantised(name: str, quantization: str, dtype: str = "float32") -> specdemo.ModelPair:
    return specdemo.load_pair(name, "cpu", dtype, quantization, quantization)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("quantization", QUANTIZATIONS)
def test_speculation_changes_nothing_of_a_quantised_pair(
    quantization: str, dtype: str, wide: Callable[[str], str]
) -> None:
    """Guards the verdict: a quantised target may differ from the unquantised one, never from itself."""
    pair = quantised(wide("llama"), quantization, dtype)
    plain, fast = raced(pair, PROMPT, LANES)
    assert compare(plain, fast).outcome in ("identical", "tie")
    assert fast.metrics().accepted > 0
    assert plain.quantization == fast.quantization == pair.quantization == quantization
    assert plain.dtype == dtype


# Each quantisation of one family in both types, and each other family with some of them.
FORETOLD = [
    *(
        (quantization, "llama", dtype)
        for quantization in (None, *QUANTIZATIONS)
        for dtype in ("float32", "bfloat16")
    ),
    *(("int8", "qwen3", "float32"), ("float8", "qwen3", "bfloat16")),
    *(("int4", "gpt_neox", "float32"), (None, "gpt_neox", "bfloat16")),
    *(("int8", "gpt2", "bfloat16"), (None, "gpt2", "float32")),
]


@pytest.mark.parametrize(("quantization", "family", "dtype"), FORETOLD)
def test_the_preflight_foretells_the_bytes_that_are_measured(
    quantization: str | None, family: str, dtype: str, wide: Callable[[str], str]
) -> None:
    """Guards both counts against each other: they are made from a skeleton and from the tensors."""
    report = specdemo.preflight(wide(family), "cpu", dtype, quantization, quantization)
    pair = specdemo.load_pair(wide(family), "cpu", dtype, quantization, quantization)
    assert pair.quantization == (None if family == "gpt2" else quantization)  # quanto knows no layer of GPT-2
    for model, footprint in zip(report.models, pair.footprints().values(), strict=True):
        assert model.weights.nbytes == pytest.approx(footprint.nbytes, rel=0.01)
        assert model.weights.unquantized == pytest.approx(footprint.unquantized, rel=0.01)
        assert (footprint.nbytes < footprint.unquantized) == (quantization is not None and family != "gpt2")
        assert footprint.saved == pytest.approx(1 - footprint.nbytes / footprint.unquantized)


@pytest.mark.parametrize(("quantization", "least"), [("int8", 0.7), ("int4", 0.75)])
def test_the_builtin_pair_runs_quantised_and_states_its_saving(quantization: str, least: float) -> None:
    """Guards the figure on the page for the shipped weights: it is measured, and the pair stays lossless."""
    pair = quantised("builtin", quantization)
    footprint = pair.footprints()["target"]
    # quanto's unused scales of activations, eight bytes a layer, are in both of its numbers.
    assert footprint.unquantized == pytest.approx(
        measure(specdemo.load_pair("builtin", "cpu").target).nbytes, rel=1e-3
    )
    assert footprint.saved > least
    plain, fast = raced(pair, "Tell me a story about a dog.", [replace(s, max_new_tokens=16) for s in LANES])
    assert compare(plain, fast).outcome in ("identical", "tie")
    assert fast.metrics().accepted > 0


@pytest.mark.parametrize("chosen", [("int8", None), (None, "float8")])
def test_target_and_draft_are_quantised_separately(chosen: tuple, wide: Callable[[str], str]) -> None:
    """Guards against one setting used for both."""
    pair = specdemo.load_pair(wide("llama"), "cpu", None, *chosen)
    assert [f.saved > 0 for f in pair.footprints().values()] == [
        quantization is not None for quantization in chosen
    ]
    assert pair.quantization == chosen[0]


def test_a_quantised_lane_races_beside_the_unquantised_target(wide: Callable[[str], str]) -> None:
    """Guards the honest baseline: one pair a lane, each trace says which weights it ran."""
    pair = quantised(wide("llama"), "int8")
    original = specdemo.load_pair(wide("llama"), "cpu")
    for pairs in ([pair], [pair] * 3):
        said = f"there are 2, but pairs: {len(pairs)}; give one pair for all, or one a lane"
        with pytest.raises(SettingsError, match=f"lanes: {said}"):
            specdemo.race(pairs, PROMPT, LANES)
    traces = raced([original, pair, pair], PROMPT, [LANES[0], *LANES])
    assert [t.quantization for t in traces] == [None, "int8", "int8"]
    assert traces[0].token_ids == specdemo.run(original, PROMPT, LANES[0]).token_ids
    assert traces[1].token_ids == specdemo.run(pair, PROMPT, LANES[0]).token_ids
    assert compare(traces[1], traces[2]).outcome in ("identical", "tie")
