"""A head that drafts badly: the sentence names the convention by which it would be right, if there is one."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
from toys import build, build_head, fit_head, generate, prompt_ids

import specdemo
from specdemo import Eagle3Head, ModelPair, Settings
from specdemo.runs import head_health
from specdemo.view.lane_headers import trace_headers
from specdemo.view.race_value import RaceView

TARGET = build("llama", layers=6, eos=None, hidden=64)
SETTINGS = Settings(drafter="eagle3", gamma=3, max_new_tokens=60)


def read_otherwise(head: Eagle3Head, **changes: object) -> Eagle3Head:
    """The same weights under another description."""
    other = copy.copy(head)
    other.config = replace(head.config, **changes)
    return other


@pytest.fixture(scope="module")
def trained() -> Eagle3Head:
    """A head that is often right: its output layer was fitted to the very text that it drafts."""
    ids = [*prompt_ids(9), *generate(TARGET, prompt_ids(9), 60)]
    return fit_head(build_head(TARGET, taps=(2, 3, 4), norm_before_residual=True), TARGET, ids)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"taps": (1, 2, 3)}, "read with taps 2, 3, 4 it says"),
        ({"taps": (3, 4, 5)}, "read with taps 2, 3, 4 it says"),
        ({"norm_before_residual": False}, "read with norm_before_residual true it says"),
        ({"taps": (0, 0, 0)}, "or it was trained too little, or for another model"),
    ],
)
def test_a_head_that_is_misread_is_told(
    trained: Eagle3Head, changes: dict[str, object], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards both offsets, the flag, and the sentence where none of them helps; drafting raises no error."""
    pair = ModelPair(TARGET, None, None, head=read_otherwise(trained, **changes))
    trace = specdemo.run(pair, prompt_ids(9), SETTINGS)
    assert trace.token_ids == generate(TARGET, prompt_ids(9), 60)
    assert named in trace.remark
    assert "trained heads keep it in 40% or more" in trace.remark
    view = RaceView(trace_headers([trace]))
    view.conclude([trace])
    assert trace.remark in view.why
    assert specdemo.Trace.from_json(trace.to_json()).remark == trace.remark
    monkeypatch.setattr(head_health, "HEALTHY", (0.0, 0.0, 0.0))
    assert specdemo.run(pair, prompt_ids(9), SETTINGS).remark is None, "a healthy head is not remarked on"
    assert specdemo.run(pair, prompt_ids(9), Settings(drafter="prompt_lookup", max_new_tokens=20)).remark is None
