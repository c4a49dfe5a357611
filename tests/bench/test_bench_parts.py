"""What the benches share: their options, forwards and transformers' contenders."""

from __future__ import annotations

import pytest
import torch
from toys import build, endless_pair

from specdemo.bench.contenders import assisted_generate, generate, lookup_generate
from specdemo.bench.forwards import read_bandwidth, step_bytes, token_bytes
from specdemo.bench.harness import run_bench


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


@pytest.mark.parametrize(("default", "words"), [(None, ["99999"]), ([1], ["1", "99999"])], ids=["one", "several"])
def test_a_bench_tells_what_is_wrong_in_a_line(
    default: object, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Guards against a stack trace, or a process that OpenMP ends, for a number typed wrong."""
    monkeypatch.setattr("sys.argv", ["bench", "--threads", *words])
    with pytest.raises(SystemExit) as ended:
        run_bench("sizes", None, lambda args: pytest.fail("nothing may be measured"), str, threads=default)
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
