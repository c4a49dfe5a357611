"""Draft trees through engines and loop: nodes see their paths, caches keep one, the output stays the target's."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import build, check_consistent, endless_pair, perturbed, prompt_ids, toy_pair

import specdemo
from specdemo import ModelPair, Settings
from specdemo.decoding.drafters.registry import check_drafter
from specdemo.decoding.engines.eager import EagerRunner
from specdemo.decoding.proposal import Proposal, Tree
from specdemo.decoding.sampling import Sampler
from specdemo.decoding.tree_draft import BestFirst, grow
from specdemo.runs import single as lanes

DRAFTERS = ("model", "early_exit", "eagle3")
BUSHY = (0, 0, 1, 1, 2, 3, 3, 5, 6, 9)
ENGINES = [("llama", "direct"), ("qwen3", "direct")] + [
    (f, "eager") for f in ("llama", "gpt2", "gemma3", "mistral")
]


def assert_alike(logits: torch.Tensor, expected: torch.Tensor, within: float = 1e-5) -> None:
    """Alike to so much of the logits' spread, which is several units in these toys."""
    torch.testing.assert_close(logits / expected.std(), expected / expected.std(), atol=within, rtol=0)


def plain_logits(model: torch.nn.Module, ids: Sequence[int]) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor([list(ids)])).logits[0, -1]


@pytest.mark.parametrize(("family", "engine"), ENGINES)
def test_every_node_sees_its_path_and_the_cache_keeps_one(family: str, engine: str) -> None:
    """Guards masks, positions by depth, windows (8 tokens here) and compaction, on eager and sdpa attention."""
    model = build(family)
    for attention in ("sdpa",) if engine == "direct" else ("sdpa", "eager"):
        model.set_attn_implementation(attention)
        runner = EagerRunner(model, "eager" if engine == "eager" else "auto")
        assert runner.engine == engine
        ids, nodes, tree = prompt_ids(11), prompt_ids(10, seed=1), Tree(BUSHY)
        runner.forward(ids)
        logits = runner.forward([20], 11, torch.tensor(nodes), tree.mask(11)).logits
        for slot in range(11):
            path = [nodes[s - 1] for s in tree.path(slot)]
            expected = plain_logits(model, [*ids, 20, *path])
            assert_alike(logits[slot], expected)
        runner.rollback_to(11, [0, *tree.path(10)])
        kept = [nodes[s - 1] for s in tree.path(10)]
        expected = plain_logits(model, [*ids, 20, *kept, 30])
        assert_alike(runner.forward([30]).logits[0], expected)


def test_every_lane_of_trees_is_consistent() -> None:
    """Guards the record for any settings: kinds, order, parents, depths, counts, and what its JSON brings back."""
    saved = 0

    @settings(max_examples=20)
    @given(
        nodes=st.integers(2, 24),
        gamma=st.integers(1, 6),
        count=st.integers(1, 16),
        seed=st.integers(0, 2**32),
        drafter=st.sampled_from(DRAFTERS),
        temperature=st.sampled_from([0.0, 1.2]),
        acceptance=st.sampled_from(["sampling", "token_match"]),
        penalty=st.sampled_from([1.0, 1.3]),
        top_k=st.sampled_from([0, 2]),
    )
    def check(nodes: int, count: int, penalty: float, **fields: object) -> None:
        nonlocal saved
        wanted = Settings(tree_nodes=nodes, max_new_tokens=count, repetition_penalty=penalty, **fields)
        trace = specdemo.run(toy_pair("llama"), prompt_ids(5), wanted)
        check_consistent(trace)
        assert specdemo.Trace.from_json(trace.to_json()) == trace
        saved += sum(r.saved for r in trace.rounds)

    check()
    assert saved > 10


class _ChainOfTrees:
    """Drafts what another drafter does, as trees without a second guess."""

    def __init__(self, drafter: object) -> None:
        self._drafter = drafter

    def __getattr__(self, name: str) -> object:
        return getattr(self._drafter, name)

    def propose(self, committed: Sequence[int], gamma: int) -> Proposal:
        chain = self._drafter.propose(committed, gamma)
        rows = tuple(range(len(chain)))
        return Proposal(chain.tokens, chain.q, chain.scores, parents=rows, rows=rows)


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("rule", ["exact", "sampling", "token_match"])
def test_a_chain_shaped_tree_gives_the_chains_rounds(
    rule: str, drafter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards the shared meaning of chain and tree: tokens, kinds, draws, probabilities and counts."""
    pair = endless_pair("llama")
    wanted = Settings(
        drafter=drafter, acceptance=rule, temperature=0.0 if rule == "exact" else 1.0, gamma=4, max_new_tokens=40
    )
    chain = specdemo.run(pair, prompt_ids(9), wanted)
    opened = lanes.open_drafter
    monkeypatch.setattr(lanes, "open_drafter", lambda *given: _ChainOfTrees(opened(*given)))
    tree = specdemo.run(pair, prompt_ids(9), wanted)
    assert all(r.is_tree for r in tree.rounds if r.drafted)
    for one, other in zip(chain.rounds, tree.rounds, strict=True):
        assert [(t.id, t.kind, t.position, t.text) for t in one.tokens] == [
            (t.id, t.kind, t.position, t.text) for t in other.tokens
        ]
        for a, b in zip(one.tokens, other.tokens, strict=True):
            assert (a.acceptance, a.p, a.q) == pytest.approx((b.acceptance, b.p, b.q), abs=1e-5)
    ours, theirs = chain.metrics(), tree.metrics()
    for name in ("acceptance_rate", "mean_acceptance_length"):
        assert getattr(ours, name) == getattr(theirs, name)
    reached = len(theirs.accepted_histogram)
    assert ours.accepted_histogram == theirs.accepted_histogram + [0] * (5 - reached)
    assert ours.conditional_per_position[: reached - 1] == theirs.conditional_per_position
    assert (theirs.saved_rounds, theirs.first_guess_length) == (0, theirs.mean_acceptance_length)


def test_best_first_finds_the_likeliest_paths() -> None:
    """Guards the growth by levels against a search of all paths, depth 3, 12 tokens."""
    generator = torch.Generator().manual_seed(3)
    table = torch.randn(6, 6, generator=generator) * 1.5  # the next token's scores depend on the last alone
    paths = [p for d in (1, 2, 3) for p in itertools.product(range(6), repeat=d)]
    logs = table.log_softmax(-1)
    likely = {p: sum(logs[a, b].item() for a, b in itertools.pairwise((0, *p))) for p in paths}
    best = set(sorted(paths, key=likely.__getitem__, reverse=True)[:12])
    sampler = Sampler(Settings(), 6, torch.device("cpu"))
    forwards = []

    def step(nodes: Sequence[object], tokens: torch.Tensor, tree_mask: object) -> torch.Tensor:
        forwards.append(len(tokens))
        return table[tokens]

    drafted = grow(sampler, [0], 1, table[:1], step, BestFirst(3, 12))
    found = {tuple(drafted.ids[s - 1] for s in drafted.tree.path(slot)) for slot in range(1, 13)}
    assert found == best
    assert len(forwards) <= 2, "one forward a level"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"tree_nodes": 1}, "chain of one"),
        ({"tree_nodes": 65}, "0 to 64"),
        ({"tree_nodes": "many"}, "0 to 64"),
        ({"tree_nodes": np.array([8, 9])}, "0 to 64"),
        ({"tree_nodes": 4, "drafter": "prompt_lookup"}, "one guess a position"),
        ({"tree_nodes": 4, "acceptance": "block", "temperature": 1.0}, "for chains; set 0, or choose 'sampling'"),
        ({"tree_nodes": 4, "acceptance": "top_k"}, "for chains"),
        ({"tree_nodes": 4, "adaptive_gamma": True}, "adaptive"),
        ({"tree_nodes": 4, "strategy": "assisted"}, "chains only"),
    ],
)
def test_what_drafts_no_trees_says_so(fields: dict[str, object], said: str) -> None:
    with pytest.raises(specdemo.SettingsError, match=said):
        Settings(**fields)


@pytest.mark.parametrize("role", ["target", "draft"])
def test_trees_under_flash_attention_are_refused_before_a_weight_is_read(role: str) -> None:
    """Guards against attention that takes no mask: it fails in mid-run, or lets siblings see each other."""
    target = build("llama")
    pair = ModelPair(target, perturbed(target), None)
    getattr(pair, role).config._attn_implementation = "flash_attention_2"
    for model in pair.models:
        model.register_forward_pre_hook(lambda *_: pytest.fail("it ran"))
    wanted = Settings(tree_nodes=4, max_new_tokens=8)
    with pytest.raises(specdemo.SettingsError, match=f"the {role}'s attention is 'flash_attention_2', .*'sdpa'"):
        specdemo.run(pair, prompt_ids(5), wanted)
    check_drafter(pair, replace(wanted, tree_nodes=0))  # a chain needs no mask of its own


def test_batches_and_sweeps_refuse_trees_and_graphs_fall_back() -> None:
    """Guards the other roads into the loop, which know only chains."""
    pair, wanted = toy_pair("llama"), Settings(tree_nodes=4, max_new_tokens=8)
    with pytest.raises(specdemo.SettingsError, match="batch drafts chains"):
        specdemo.run_batch(pair, [prompt_ids(5)], wanted)
    with pytest.raises(specdemo.SettingsError, match="sweep measures chains"):
        specdemo.sweep(pair, prompt_ids(5), wanted)
