"""The bench of engines, with the builtin pair's weights in llama.cpp too."""

from __future__ import annotations

from specdemo.bench import engines


def test_every_engine_decodes_the_same_tokens() -> None:
    """Guards the comparison: one set of weights, three engines."""
    args = {
        "pair": "builtin",
        "device": "cpu",
        "dtype": "float32",
        "tokens": 12,
        "repeats": 1,
        "gamma": 3,
        "threads": 1,
    }
    found = engines.measure(engines.Args(**args, prompts=1))
    assert [row["same_outputs"] for row in found["rows"]] == [1] * 9
    rates = {row["contender"]: row["acceptance_rate"] for row in found["rows"]}
    assert rates["llama.cpp, draft-simple"] == rates["specdemo, drafted"] > 0
    assert rates["llama.cpp, draft-eagle3"] == rates["specdemo, head"] > 0
    plain = {row["contender"] for row in found["rows"] if row["speedup"] is None}
    assert plain == {"specdemo", "transformers", "llama.cpp"}
    assert "llama.cpp, ngram-simple" in engines.table(found)
