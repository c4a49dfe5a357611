"""The benches of single steps: what they count and what they conclude."""

from __future__ import annotations

import pytest
import torch
from toys import build, endless_pair

from specdemo.bench import contexts, steps
from specdemo.bench.contenders import assisted_generate, generate, lookup_generate
from specdemo.bench.forwards import read_bandwidth, step_bytes, token_bytes
from specdemo.bench.harness import run_bench
from specdemo.bench.random_models import random_llama
from specdemo.machine import bfloat16_instructions


def test_bytes_of_a_step_are_those_of_weights_and_cache() -> None:
    """Guards the bandwidth figure: grouped heads are cached once, and an embedding that is no head is not read."""
    model = build("llama", hidden=32, layers=3, heads=4)
    assert token_bytes(model) == 2 * 3 * 2 * 8 * 4  # keys and values, layers, groups, size, bytes
    weights = sum(p.numel() for p in model.parameters()) - model.get_input_embeddings().weight.numel()
    assert step_bytes(model, 10) == 4 * weights + 10 * token_bytes(model)


def test_a_tied_head_is_read_whole_and_once() -> None:
    model = build("llama")
    model.tie_word_embeddings = True
    model.lm_head.weight = model.model.embed_tokens.weight
    assert step_bytes(model, 0) == 4 * sum(p.numel() for p in model.parameters())


def test_read_bandwidth_is_a_rate_of_a_memory() -> None:
    """Guards units: no machine reads below 0.1 or above 100,000 GB/s."""
    assert 1e8 < read_bandwidth(torch.device("cpu"), repeats=1) < 1e14


def test_contexts_compares_the_same_computation() -> None:
    """Guards the comparison: all contenders must give the same logits, and leave their caches as they were."""
    model = random_llama(layers=2, width=64, heads=4, groups=2, context=256)
    rows = contexts.measure(model, [16, 64], steps=3, repeats=2)
    assert [row["context"] for row in rows] == [16, 64]
    for row in rows:
        assert row["largest_difference"] < 1e-4
        assert row["seconds"].keys() == set(contexts.NAMES)
    for name in contexts.NAMES:
        decode = contexts.contender(name, model, 16)
        assert torch.equal(decode(4)[1], decode(4)[1])


@pytest.mark.parametrize(("ours", "met"), [((1.0, 1.5), True), ((1.0, 2.9), False)])
def test_contexts_concludes_from_growth_and_gain(ours: tuple[float, float], met: bool) -> None:
    rows = [
        {"seconds": {contexts.OURS: o, contexts.CACHE_ALONE: o, contexts.THEIRS: t}}
        for o, t in zip(ours, (1.2, 2.4), strict=True)
    ]
    found = contexts.conclusion(rows)
    assert found["growth"][contexts.OURS] == [1.0, ours[1]]
    assert found["no_worse_anywhere"] is met


def test_steps_measures_every_way_and_puts_the_threads_back() -> None:
    before = torch.get_num_threads()
    pair = endless_pair("llama")
    rows = steps.measure({"float32": pair}, [1, 2], gammas=[1, 4], context=8, repeats=2)
    assert torch.get_num_threads() == before
    assert [(row["threads"], row["engine"]) for row in rows] == [
        (1, "direct"),
        (1, "eager"),
        (2, "direct"),
        (2, "eager"),
    ]
    assert all(row["v"].keys() == {1, 4} and row["c"] > 0 for row in rows)


@pytest.mark.parametrize(("default", "words"), [(None, ["99999"]), ([1], ["1", "99999"])], ids=["one", "several"])
def test_a_bench_tells_what_is_wrong_in_a_line(
    default: object, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Guards against a stack trace, or a process that OpenMP ends, for a number typed wrong."""
    monkeypatch.setattr("sys.argv", ["bench", "--threads", *words])
    with pytest.raises(SystemExit) as ended:
        run_bench("steps", None, lambda args: pytest.fail("nothing may be measured"), str, threads=default)
    assert ended.value.code == 2
    assert "error: threads: must be a whole number from 1 to " in capsys.readouterr().err


def test_what_transformers_learned_from_a_run_is_undone() -> None:
    """Guards the comparison with its defaults, which change the assistant's configuration as they go."""
    pair = endless_pair("llama")
    before = pair.draft.generation_config.to_dict()
    plain = generate(pair, 12)([20, 21, 22]).ids
    assert assisted_generate(pair, 12, 3)([20, 21, 22]).ids == plain
    assert lookup_generate(pair, 12, 4, 2)([20, 21, 22]).ids == plain
    assert pair.draft.generation_config.to_dict() == before


def test_instructions_for_bfloat16_are_named_or_unknown() -> None:
    assert bfloat16_instructions() in ("amx", "avx512", None)
