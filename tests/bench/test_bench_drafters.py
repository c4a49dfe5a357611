"""The bench of drafters: what each keeps, by domain, and what is put beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus_files import write_corpus

from specdemo.bench import drafters
from specdemo.models.pair import ModelPair

OPTIONS = {"pair": "a toy", "gamma": 3, "tokens": 12, "prompts": 2, "threads": 1}


def test_every_drafter_is_held_against_plain_decoding(
    text_pair: ModelPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards the comparison: the same ids everywhere, shares that fall with the position, all domains."""
    monkeypatch.setattr(drafters, "load", lambda args: text_pair)
    args = drafters.Args(**OPTIONS, temperature=0.0, corpus=write_corpus(tmp_path))
    found = drafters.measure(args)
    assert {d["domain"] for d in found["domains"]} == {"chat", "stories", "data", "arithmetic", "code", "edit"}
    assert all(d["identical"] and d["over_assisted"] > 0 for d in found["domains"])
    for domain in found["domains"]:
        assert {row["way"] for row in domain["ways"]} == {"model", "prompt_lookup", "early_exit"}
        for row in domain["ways"]:
            assert sorted(row["per_position"], reverse=True) == row["per_position"]
            assert row["tokens_a_round"] == pytest.approx(1 + sum(row["per_position"]), abs=0.5)
    assert "prompt_lookup" in drafters.table(found)


def test_sampled_runs_have_nothing_of_transformers_beside_them(
    text_pair: ModelPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts are drawn anew then, so speeds are compared, not ids."""
    monkeypatch.setattr(drafters, "load", lambda args: text_pair)
    found = drafters.measure(drafters.Args(**{**OPTIONS, "prompts": 1}, temperature=0.8, corpus=None))
    assert all(d["identical"] is None and d["over_generate"] is None for d in found["domains"])
    assert found["median_speedups"].keys() == {"model", "prompt_lookup", "early_exit"}
    drafters.table(found)
