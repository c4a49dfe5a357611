"""The benches: what is compared decodes the same tokens, and figures follow from what was timed."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from corpus_files import write_corpus
from tape import Taped
from toys import endless_pair

from specdemo.bench import __main__ as by_domain
from specdemo.bench import copying, sizes
from specdemo.bench.contenders import Sample, assisted_generate, compared, generate
from specdemo.bench.harness import columns, interleaved, run_bench
from specdemo.bench.random_models import SHAPES, random_pair
from specdemo.decoding.engines import graph_capture, graph_pool
from specdemo.errors import SettingsError, SpecDemoError
from specdemo.models.pair import ModelPair

DRAFTERS = {"model", "prompt_lookup", "suffix", "early_exit", "suffix,model", "model, p_min"}

SMALL = {"dtypes": ["float32"], "threads": [1], "rows": [1, 6], "gamma": 5, "context": 8, "tokens": 8}
ON_CPU = {"device": "cpu", "engines": ["auto"], "repeats": 2, **SMALL}


@pytest.fixture
def on_toys(text_pair: ModelPair, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Benches of pairs run on a toy."""
    monkeypatch.setattr(by_domain, "load_pair", lambda name: text_pair)
    return monkeypatch


def args(**changed: object) -> Namespace:
    common = {
        "pair": "a toy",
        "gammas": [3],
        "nodes": [0],
        "tuning": 1,
        "tokens": 12,
        "prompts": 2,
        "p_mins": [0.1],
    }
    return Namespace(**{**common, "temperature": 0.0, "corpus": None, **changed})


def test_every_drafter_is_compared_with_plain_decoding(on_toys: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Guards the comparison: the same ids everywhere, shares that fall with the position, all domains."""
    found = by_domain.measure(args(corpus=write_corpus(tmp_path), gammas=[2, 3], nodes=[4]))
    assert {d["domain"] for d in found["domains"]} == {"chat", "stories", "data", "arithmetic", "code", "edit"}
    for domain in found["domains"]:
        assert domain["identical"]
        assert domain["over_transformers"].keys() == set(by_domain.OVER_TRANSFORMERS)
        assert domain["methods"].keys() == DRAFTERS | {"model, tree", "early_exit, tree", "suffix, tree"}
        (row,) = domain["rows"]
        assert (row["row"], row["part"] in {"model", "suffix", "model, p_min"}) == ("suffix,model", True)
        for name, row in domain["methods"].items():
            assert sorted(row["per_position"], reverse=True) == row["per_position"]
            assert row["tree_nodes"] == (4 if "tree" in name else 0)
            assert row["speedup"]["low"] <= row["speedup"]["median"] <= row["speedup"]["high"]
    assert "plain over generate" in by_domain.table(found)


def test_a_session_copies_from_its_earlier_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the target that spells its answer, and that a turn reads the answers before it."""
    monkeypatch.setitem(copying.SHAPE, "n_layer", 1)
    answer = list(range(5, 45))
    lanes = {"suffix": copying.SUFFIX, copying.EARLIER: replace(copying.SUFFIX, earlier_outputs=True)}
    found = copying.session("two turns", [([1, 2, 3], answer), ([1, 2, 4], answer)], lanes)
    assert found["suffix"]["tau"] == 1.0
    assert found[copying.EARLIER]["tau"] > 2


def test_settings_are_chosen_on_other_prompts(on_toys: pytest.MonkeyPatch, text_pair: ModelPair) -> None:
    """Guards a speed-up against a γ that was chosen on the prompts it is told of."""
    on_toys.setattr(by_domain, "prompts_of", lambda corpus, count: {"a": [f"{n} hats" for n in range(count)]})
    chosen_on: list[tuple[str, ...]] = []

    def fastest(pair: ModelPair, some: list, prompts: list[str]) -> object:
        chosen_on.append(tuple(prompts))
        return some[-1]

    on_toys.setattr(by_domain, "fastest", fastest)
    on_toys.setattr(by_domain, "encode", lambda pair, prompt: [40, 41, ord(prompt[0])])
    (domain,) = by_domain.measure(args(gammas=[2, 4], tuning=2, temperature=0.8, prompts=1))["domains"]
    assert {row["gamma"] for row in domain["methods"].values()} == {4}
    assert set(chosen_on) == {("0 hats", "1 hats")}
    assert domain["prompts"] == 1
    assert (domain["identical"], domain["over_transformers"]) == (None, {}), "texts are drawn anew"
    with pytest.raises(SettingsError, match="give 1 or more"):
        by_domain.measure(args(tuning=0))
    on_toys.setattr(by_domain, "prompts_of", lambda corpus, count: {"a": ["a hat"]})
    with pytest.raises(SettingsError, match="leave none of a"):
        by_domain.measure(args())


def test_the_fastest_settings_are_those_with_the_most_tokens_a_second(on_toys: pytest.MonkeyPatch) -> None:
    on_toys.setattr(by_domain, "encode", lambda pair, prompt: prompt)
    speeds = {("slow", "a"): 3, ("slow", "b"): 1, ("fast", "a"): 2, ("fast", "b"): 4}
    on_toys.setattr(by_domain, "ours", lambda pair, of: lambda ids: SimpleNamespace(decode_speed=speeds[of, ids]))
    assert by_domain.fastest(None, ["slow", "fast"], ["a", "b"]) == "fast"


def test_prompts_whose_plain_output_loops_do_not_count(on_toys: pytest.MonkeyPatch) -> None:
    on_toys.setattr(by_domain, "prompts_of", lambda corpus, count: {"a": ["a hat", "two hats", "three"]})
    seen: list[list[int]] = []
    on_toys.setattr(by_domain, "loops", lambda ids: seen.append(ids) or len(seen) == 1)
    (domain,) = by_domain.measure(args())["domains"]
    assert (domain["prompts"], domain["looping"], domain["tokens"]) == (1, 1, len(seen[1]))
    on_toys.setattr(by_domain, "loops", lambda ids: True)
    with pytest.raises(SettingsError, match="all 2 of a loops; give more"):
        by_domain.measure(args())


def test_contenders_take_turns_and_ratios_are_of_pairs() -> None:
    """Guards every figure: the first turn does not count, and each ratio is of one turn."""
    order: list[str] = []

    def running(name: str) -> Sample:
        order.append(name)
        return Sample([1], float(len(order)))

    found = interleaved({"a": lambda: running("a"), "b": lambda: running("b")}, 2)
    assert order == ["a", "b"] * 3
    assert compared(found["b"], found["a"], whole=True)["median"] == pytest.approx((4 / 3 + 6 / 5) / 2)
    assert columns({"name": "{name}", "c": "{c:.2f}"}, [{"name": "a", "c": None}]).endswith("| a    | – |")


def test_what_transformers_learned_from_a_run_is_undone() -> None:
    """Guards the comparison with its defaults, which change the assistant's configuration as they go."""
    pair = endless_pair("llama")
    before = pair.draft.generation_config.to_dict()
    plain = generate(pair, 12)([20, 21, 22]).ids
    assert assisted_generate(pair, 12, 3)([20, 21, 22]).ids == plain
    assert pair.draft.generation_config.to_dict() == before


@pytest.mark.parametrize(("default", "words"), [(1, ["99999"]), ([1], ["1", "99999"])], ids=["one", "several"])
def test_a_bench_tells_what_is_wrong_in_a_line(
    default: object, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Guards against a stack trace, or a process that OpenMP ends, for a number typed wrong."""
    monkeypatch.setattr("sys.argv", ["bench", "--threads", *words])
    with pytest.raises(SystemExit) as ended:
        run_bench("sizes", None, lambda args: pytest.fail("nothing may be measured"), str, threads=default)
    assert ended.value.code == 2
    assert "error: threads: must be a whole number from 1 to " in capsys.readouterr().err


def test_sizes_compares_the_same_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SHAPES, "tiny", (8, 128, 2, 1, 128, 256, 1000, True))
    monkeypatch.setattr("specdemo.models.packing.LEAST_PARAMETERS", 1)
    with pytest.raises(SpecDemoError, match=r"no 0\.1B; choose from"):
        sizes.measure(Namespace(sizes=["0.1B"]))
    found = sizes.measure(Namespace(sizes=["tiny"], **ON_CPU))
    (row,) = found["rows"]
    assert {name: of["engine"] for name, of in row["weights"].items()} == {
        "as torch has it": "direct",
        "packed": "direct, packed weights",
    }
    assert row["identical"]
    assert "plain / `generate`" in sizes.table(found)


def test_sizes_tells_what_states_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SHAPES, "hybrid", (8, 64, 2, 1, 32, 64, 140, True))
    found = sizes.measure(Namespace(sizes=["hybrid"], **ON_CPU))
    (row,) = found["rows"]
    assert row["identical"]
    assert 0 < row["states"]["put back"] < row["states"]["step"]
    head, _, costs = sizes.table(found).splitlines()[-3:]
    assert "copied" in head
    assert "ms" in costs


def test_graphs_are_compared_with_eager_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU by taped graphs, see test_graphs.py; what graphs could not run names another engine."""
    monkeypatch.setattr(graph_capture, "capture_on", lambda device: Taped())
    monkeypatch.setattr(graph_capture, "can_capture", lambda device: True)
    monkeypatch.setattr(graph_pool, "_of_models", type(graph_pool._of_models)())
    monkeypatch.setitem(SHAPES, "tiny", (6, 32, 4, 2, 8, 48, 140, False))
    found = sizes.measure(Namespace(sizes=["tiny"], device="cpu", engines=["graphs", "eager"], repeats=2, **SMALL))
    (row,) = found["rows"]
    assert (row["engine"], row["identical"], {*row["over_engines"]}) == ("graphs", True, {"eager"})
    assert "over eager" in sizes.table(found)
    if not torch.cuda.is_available():
        with pytest.raises(SpecDemoError, match="torch finds no GPU"):
            sizes.measure(Namespace(sizes=["tiny"], device="cuda", engines=["graphs"], repeats=2, **SMALL))


def test_the_draft_is_the_targets_first_layers_in_memory_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards an honest cost: weights that both models read would be in the cache for the second."""
    monkeypatch.setitem(SHAPES, "tiny", (6, 32, 4, 2, 8, 48, 140, False))
    pair = random_pair("tiny", torch.float32)
    theirs = dict(pair.target.named_parameters())
    for name, weight in pair.draft.named_parameters():
        assert torch.equal(weight, theirs[name])
        assert weight.data_ptr() != theirs[name].data_ptr()
    assert (len(pair.draft.model.layers), len(pair.target.model.layers)) == (2, 6)
