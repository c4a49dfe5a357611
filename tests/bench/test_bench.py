"""The bench by domain: what each keeps, by domain, and what is put beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus_files import write_corpus

from specdemo.bench import __main__ as by_domain
from specdemo.bench.contenders import Sample
from specdemo.errors import SettingsError
from specdemo.models.pair import ModelPair
from specdemo.runs.encode import encode

OPTIONS = {"pair": "a toy", "gammas": [3], "tuning": 2, "tokens": 12, "prompts": 2, "threads": 1}


def test_every_drafter_is_held_against_plain_decoding(
    text_pair: ModelPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards the comparison: the same ids everywhere, shares that fall with the position, all domains."""
    monkeypatch.setattr(by_domain, "load", lambda args: text_pair)
    args = by_domain.Args(**OPTIONS, temperature=0.0, corpus=write_corpus(tmp_path))
    found = by_domain.measure(args)
    assert {d["domain"] for d in found["domains"]} == {"chat", "stories", "data", "arithmetic", "code", "edit"}
    assert all(d["identical"] and d["over_assisted"] > 0 for d in found["domains"])
    for domain in found["domains"]:
        assert {row["way"] for row in domain["ways"]} == {"model", "prompt_lookup", "early_exit"}
        for row in domain["ways"]:
            assert sorted(row["per_position"], reverse=True) == row["per_position"]
            assert row["tokens_a_round"] == pytest.approx(1 + sum(row["per_position"]), abs=0.5)
    assert "prompt_lookup" in by_domain.table(found)


def test_each_drafter_takes_the_gamma_that_was_fastest_on_other_prompts(
    text_pair: ModelPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards a speed-up against a γ that was chosen on the prompts it is told of."""
    monkeypatch.setattr(by_domain, "load", lambda args: text_pair)
    some = ("a hat", "two hats", "three hats", "four")
    monkeypatch.setattr(by_domain, "prompts_of", lambda args, count: dict.fromkeys("ab", some[:count]))
    tuned, real = [], by_domain._decode_pace

    def pace(samples: list[Sample]) -> float:
        tuned.append([list(sample.trace.prompt_ids) for sample in samples])
        return real(samples) * (10 if samples[0].trace.settings.gamma == 4 else 1)

    monkeypatch.setattr(by_domain, "_decode_pace", pace)
    args = by_domain.Args(**{**OPTIONS, "gammas": [2, 4], "tuning": 1}, temperature=0.0, corpus=None)
    for domain in by_domain.measure(args)["domains"]:
        assert {row["gamma"] for row in domain["ways"]} == {4}
        assert domain["prompts"] == 2
    assert tuned[:6] == 6 * [[encode(text_pair, "a hat")]]  # three drafters, two γ
    assert all(encode(text_pair, "a hat") not in asked for asked in tuned[6:12])
    args.tuning, args.prompts = 4, 1
    with pytest.raises(SettingsError, match="leave none of"):
        by_domain.measure(args)


def test_prompts_whose_plain_output_loops_do_not_count(
    text_pair: ModelPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_domain, "load", lambda args: text_pair)
    monkeypatch.setattr(by_domain, "prompts_of", lambda args, count: {"a": ["a hat", "two hats"]})
    seen: list[list[int]] = []
    monkeypatch.setattr(by_domain, "loops", lambda ids: seen.append(ids) or len(seen) == 1)
    args = by_domain.Args(**{**OPTIONS, "tuning": 0}, temperature=0.0, corpus=None)
    found = by_domain.measure(args)
    (domain,) = found["domains"]
    assert (domain["prompts"], domain["looping"]) == (1, 1)
    assert domain["tokens"] == len(seen[1])
    assert "1 prompts (1 more loop)" in by_domain.table(found)
    monkeypatch.setattr(by_domain, "loops", lambda ids: True)
    with pytest.raises(SettingsError, match="all 2 of a loops; give more"):
        by_domain.measure(args)


def test_sampled_runs_have_nothing_of_transformers_beside_them(
    text_pair: ModelPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts are drawn anew then, so speeds are compared, not ids."""
    monkeypatch.setattr(by_domain, "load", lambda args: text_pair)
    monkeypatch.setattr(by_domain, "prompts_of", lambda args, count: {"a": ["a hat"][:count]})
    found = by_domain.measure(by_domain.Args(**{**OPTIONS, "prompts": 1}, temperature=0.8, corpus=None))
    assert all(d["identical"] is None and d["over_generate"] is None for d in found["domains"])
    assert found["median_speedups"].keys() == {"model", "prompt_lookup", "early_exit"}
    by_domain.table(found)
