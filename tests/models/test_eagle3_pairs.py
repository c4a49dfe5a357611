"""Pairs with an EAGLE-3 head by name: found out by its config.json, examined before a weight is read, loaded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from heads import write_safeai, write_speculators
from hub import Hub
from toys import build, build_head, generate, raced
from transformers import AutoModelForCausalLM

import specdemo
from specdemo import PairError, Settings
from specdemo.models.eagle3_config import named_like_head
from specdemo.models.request import request_pair
from specdemo.ui.panel.pair_card import checked

Folders = Callable[[str], tuple[Path, Path]]
PROMPT = "The quick brown fox"


@pytest.fixture(scope="module")
def head(folders: Folders, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A head for the Qwen3 target, in the speculators format with embeddings of its own."""
    target = AutoModelForCausalLM.from_pretrained(folders("qwen3")[0])
    made = build_head(target, draft_vocabulary=200, own_embeddings=True)
    return write_speculators(made, tmp_path_factory.mktemp("head"))


def test_the_second_name_may_be_a_head(folders: Folders, head: Path) -> None:
    """Guards the whole way from two names to a lane, and what is said on the way."""
    name = f"{folders('qwen3')[0]} + {head}"
    report = specdemo.preflight(name)
    assert report.ok, report.problems
    ours = report.models[1]
    assert (ours.role, ours.quantization) == ("head", None)
    vocabulary = build_head(AutoModelForCausalLM.from_pretrained(folders("qwen3")[0])).config.vocabulary
    assert ours.detail == (
        f"for Qwen/Qwen3-8B, drafts 200 of {vocabulary:,} tokens, reads what enters the target's layers 1, 0, 1"
    )
    assert "drafts 200 of" in checked(report)
    pair = specdemo.load_pair(name)
    assert pair.parts == {"head"}
    assert pair.footprints()["head"].nbytes == pytest.approx(ours.weights.nbytes, rel=0.02)
    trace = specdemo.run(pair, PROMPT, Settings(drafter="eagle3", max_new_tokens=24))
    assert trace.token_ids == generate(pair.target, trace.prompt_ids, 24)[: len(trace.token_ids)]
    with pytest.raises(specdemo.SettingsError, match="'model' needs a draft model"):
        specdemo.run(pair, PROMPT, Settings())


def test_a_head_that_was_fetched_loads_without_a_network(hub: Hub, folders: Folders, head: Path) -> None:
    """Guards trains and talks: the cache holds heads as it holds models."""
    hub.add("org/target", folders("qwen3")[0])
    hub.add("org/head", head)
    assert specdemo.load_pair("org/target + org/head", device="cpu").parts == {"head"}
    hub.close()
    assert specdemo.preflight("org/target + org/head", device="cpu").download == 0
    assert specdemo.load_pair("org/target + org/head", device="cpu").parts == {"head"}


def test_a_pair_with_a_draft_and_a_head_races_both(folders: Folders, head: Path) -> None:
    """Guards three names, and a quantisation that is asked of what has none."""
    target, draft = folders("qwen3")
    pair = specdemo.load_pair(f"{target} + {draft} + {head}", draft_quantization="int8")
    assert pair.parts == {"draft", "head"}
    lanes = [Settings(max_new_tokens=16), Settings(drafter="eagle3", max_new_tokens=16)]
    traces = raced(pair, PROMPT, lanes)
    assert traces[0].token_ids == traces[1].token_ids
    report = specdemo.preflight(f"{target} + {head}", draft_quantization="int8")
    assert "int8 changes nothing in the head, which is small." in report.notes


def test_heads_that_do_not_fit_are_problems_before_a_weight_is_read(
    folders: Folders, head: Path, tmp_path: Path
) -> None:
    """Guards the preflight: a head of another target, one without a target, and a pickle."""
    target = folders("qwen3")[0]
    other = write_safeai(build_head(build("llama", layers=8)), tmp_path / "other")
    (other / "model.safetensors").write_bytes(b"not read")
    report = specdemo.preflight(f"{target} + {other}")
    assert "reads states of width 32, and the target has 128" in report.conclusion
    with pytest.raises(PairError, match="is a draft head; name its target first: 'target \\+ "):
        specdemo.load_pair(str(head))
    with pytest.raises(PairError, match="is a second head"):
        specdemo.load_pair(f"{target} + {head} + {head}")
    with pytest.raises(PairError, match="is no EAGLE-3 head"):
        specdemo.load_pair(f"{target} + {folders('qwen3')[1]} + {target}")
    fitting = write_speculators(build_head(AutoModelForCausalLM.from_pretrained(target)), tmp_path / "pickled")
    (fitting / "model.safetensors").rename(fitting / "pytorch_model.bin")
    assert "pickles only" in specdemo.preflight(f"{target} + {fitting}").conclusion


def test_names_of_heads_and_catalogue_entries_with_heads(folders: Folders, head: Path) -> None:
    """Guards what the panel offers before anything was looked at, and the roles of the catalogue."""
    assert named_like_head(str(head))
    assert not named_like_head(str(folders("qwen3")[0]))
    for name in ("yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "RedHatAI/Qwen3-8B-speculator.eagle3"):
        assert named_like_head(name)
    assert not named_like_head("Qwen/Qwen3-0.6B")
    request = request_pair("qwen3-1.7b-eagle3", device="cpu")
    assert (request.draft, request.head.name) == (None, "AngelSlim/Qwen3-1.7B_eagle3")
    assert request.unquantized_target().head is None
