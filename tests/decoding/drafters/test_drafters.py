"""Every way to draft: greedy output is ``generate``'s whatever is proposed, and no model is changed."""

from __future__ import annotations

import copy
import dataclasses
from collections import Counter
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toys import build, endless_pair, generate, perturbed, prompt_ids, scripted, skilled_head, skilled_mtp

import specdemo
from specdemo import ModelPair, Settings, SettingsError
from specdemo.decoding.drafters.copying import BREAK, LENGTHS, CopyingDrafter
from specdemo.decoding.drafters.early_exit import first_layers
from specdemo.decoding.drafters.registry import aux_layers_for, open_drafter
from specdemo.decoding.engines.open import open_target
from specdemo.decoding.lane import new_lane
from specdemo.decoding.speculative import speculative
from specdemo.settings import DRAFTERS

TOKENS = 48


# --- prompt lookup ----------------------------------------------------------------------------------------


def longest_recent_match(ids: Sequence[int], longest: int) -> int | None:
    """The definition, by search: the longest end first, its most recent earlier occurrence."""
    for n in range(min(longest, len(ids) - 1), 0, -1):
        for end in range(len(ids) - 1, n - 1, -1):
            if list(ids[end - n : end]) == list(ids[-n:]):
                return end
    return None


@given(
    ids=st.lists(st.integers(0, 3), min_size=1, max_size=40),
    longest=st.integers(1, 5),
    cut=st.integers(1, 40),
)
def test_the_index_finds_what_a_search_finds(ids: list[int], longest: int, cut: int) -> None:
    """Guards the incremental index, grown in two steps, against the definition."""
    drafter = CopyingDrafter(range(1, longest + 1), counts=False)
    drafter.prefill(ids[:cut])
    drafter.commit(ids)
    assert drafter.propose(ids, 1).source == longest_recent_match(ids, longest)


def test_a_copy_past_the_end_goes_on_with_itself() -> None:
    """Guards short periods: of "a b a b" a full γ is proposed, not two tokens."""
    drafter = CopyingDrafter(range(1, 4), counts=False)
    drafter.prefill([5, 1, 2, 1, 2])
    proposal = drafter.propose([5, 1, 2, 1, 2], 5)
    assert proposal.ids == (1, 2, 1, 2, 1)
    assert proposal.source == 3
    assert proposal.q is None


def test_a_text_that_repeats_is_copied_and_says_from_where() -> None:
    """Guards the whole way of ``source``, into the trace and back from JSON."""
    block = list(range(20, 32))
    model = scripted(block, start=len(block) + 1, vocabulary=40)
    lane = Settings(drafter="prompt_lookup", gamma=4, max_new_tokens=len(block))
    trace = specdemo.run(ModelPair(model), [*block, 13], lane)
    assert trace.token_ids == block
    assert trace.metrics().acceptance_rate > 0.7
    whole = [*trace.prompt_ids, *trace.token_ids]
    for round_ in trace.rounds:
        if round_.source is not None:
            copied = [t.id for t in round_.tokens if t.kind in ("accepted", "rejected")]
            assert whole[round_.source : round_.source + len(copied)] == copied
    assert any(r.source is not None for r in trace.rounds)
    assert specdemo.Trace.from_json(trace.to_json()) == trace


def test_where_nothing_matches_every_round_is_a_plain_step() -> None:
    """Guards the empty proposal: no drafted tokens, kind ``target``, and the output unchanged."""
    script = list(range(20, 36))
    model = scripted(script, start=3, vocabulary=40)
    settings = Settings(drafter="prompt_lookup", max_new_tokens=len(script))
    trace = specdemo.run(ModelPair(model, None, None), [13, 14, 15], settings)
    assert trace.token_ids == script
    assert {t.kind for t in trace.tokens} == {"target"}
    assert trace.metrics().proposed == 0


# --- suffix decoding --------------------------------------------------------------------------------------


def counted(text: Sequence[int], tail: Sequence[int], n: int, offset: int, path: Sequence[int]) -> Counter[int]:
    """The definition, by search: what follows ``path`` behind each earlier place of the last ``n`` tokens."""
    ends = [e for e in range(n, len(text)) if list(text[e - n : e]) == list(tail[-n:])]
    wrapped = [[text[e + i % (len(text) - e)] for i in range(offset + 1)] for e in ends]
    return Counter(t for *before, t in wrapped if before == list(path) and t != BREAK)


@given(ids=st.lists(st.integers(0, 2), min_size=2, max_size=30), earlier=st.lists(st.integers(0, 2), max_size=20))
def test_suffix_decoding_drafts_what_follows_most_often(ids: list[int], earlier: list[int]) -> None:
    """Guards counts, places and texts against a search: every token is the most frequent of some match's."""
    drafter = CopyingDrafter(LENGTHS, counts=True, earlier=[earlier, [2, 2]])
    drafter.prefill(ids)
    proposal = drafter.propose(ids, 6)
    joined = ids, [*earlier, BREAK, 2, 2, BREAK]
    fits = [
        all(
            (found := counted(text, ids, n, at, proposal.ids[:at])) and found[token] == max(found.values())
            for at, token in enumerate(proposal.ids)
        )
        for text in joined
        for n in LENGTHS
        if n <= len(ids)
    ]
    assert any(fits)
    assert BREAK not in proposal.ids
    assert bool(proposal) == any(counted(text, ids, 1, 0, ())[t] for text in joined for t in range(3))
    if proposal.source is not None:
        period = len(ids) - proposal.source
        assert proposal.ids == tuple(ids[proposal.source + i % period] for i in range(len(proposal)))


def test_what_was_copied_wrongly_is_trusted_less_and_drafted_shorter() -> None:
    """Guards the estimate: drafts grow with copies that were right, and shrink with those that were wrong."""
    text, lengths = [*range(8)] * 4, {}
    for name, follow in (("right", lambda i: i % 8), ("wrong", lambda i: 8 + i)):
        drafter = CopyingDrafter(LENGTHS, counts=True)
        ids = list(text)
        drafter.prefill(ids)
        first = drafter.propose(ids, 16)
        for i in range(12):
            ids += [follow(i)]
            drafter.commit(ids)
            drafter.propose([*text, *ids[32:]], 16)
        ids += text if name == "wrong" else []
        drafter.commit(ids)
        lengths[name] = drafter.propose(ids, 16).expected / first.expected
    assert lengths["right"] > 1 > lengths["wrong"]


def test_a_tree_has_the_likeliest_copies_each_after_its_parent() -> None:
    """Guards the heap: no copy left out is likelier than one that is drafted."""
    same = list(range(10, 18))
    ids = [*same, 3, 1, *same, 4, 1, *same, 3, 5, *same]
    drafter = CopyingDrafter(LENGTHS, counts=True)
    drafter.prefill(ids)
    tree = drafter.propose_tree(ids, 3, 6)
    paths = [tuple(path) for path in tree.paths()][1:]
    assert paths[:2] == [(3,), (4,)]
    assert {(3, 1), (3, 5), (4, 1)} <= set(paths[2:5])
    assert drafter.propose_tree(ids, 1, 6).ids == (3, 4)


@pytest.mark.parametrize("drafter", ["model", "early_exit", "eagle3", "mtp"])
def test_a_drafter_that_was_skipped_for_200_rounds_drafts_as_one_that_begins(drafter: str) -> None:
    """Guards the caches of a row's last one: they follow all rounds, whoever drafts."""
    target = build("llama", eos=None, context=1024)
    pair = ModelPair(target, perturbed(target), None, head=skilled_head(target), mtp=skilled_mtp(target))
    prompt, settings = prompt_ids(9), Settings(drafter=f"suffix,{drafter}", gamma=1, max_new_tokens=900)
    lane = new_lane(pair, prompt, settings)
    runner = open_target(pair.target, lane, aux_layers_for(pair, settings))
    row = open_drafter(pair, runner, lane)
    row._cost, row._first._trust.of = torch.inf, lambda length: 1.0  # so that copies always promise more
    skipped, steps = 0, speculative(lane, runner, row)
    while skipped < 200:
        skipped = skipped + 1 if next(steps).proposal.drafter != drafter else 0
    fresh = Settings(drafter=drafter, gamma=5, max_new_tokens=64)
    begun = specdemo.run(pair, lane.committed[:-1], fresh).rounds[:2]
    assert begun[0].tokens[0].id == lane.committed[-1]
    drafted = sorted((t for t in begun[1].tokens if t.kind in ("accepted", "rejected")), key=lambda t: t.position)
    assert row._last.propose(lane.committed, 5).ids == tuple(t.id for t in drafted)


def test_earlier_outputs_are_copied_from_and_can_be_switched_off() -> None:
    """Guards what a run is given of the runs before, and that nothing else of them is remembered."""
    script = [*range(20, 36)]
    pair = ModelPair(scripted(script, start=3, vocabulary=40))
    settings = Settings(drafter="suffix", gamma=8, max_new_tokens=len(script))

    def rounds(settings: Settings, *earlier: Sequence[int]) -> int:
        trace = specdemo.run(pair, [13, 14, 15], settings, earlier)
        assert trace.token_ids == script
        return len(trace.rounds)

    assert rounds(settings) == len(script)
    assert rounds(settings, [7, 8], [0, *script]) < len(script) / 2
    assert rounds(dataclasses.replace(settings, earlier_outputs=False), script) == len(script)


# --- a least probability ----------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [0, 12])
@pytest.mark.parametrize(
    ("drafter", "warm"), [("model", False), ("model", True), ("eagle3", False), ("mtp", True)]
)
def test_a_draft_ends_before_the_first_unsure_token(drafter: str, warm: bool, nodes: int) -> None:
    """Guards that q decides, never the token drawn: some draft ends early, none has a token behind an unsure q."""
    if nodes and not DRAFTERS[drafter].trees:
        nodes = 0
    least, pair = 0.12 if drafter == "model" else 0.03, endless_pair("llama")
    rule = {"temperature": 1.0, "acceptance": "sampling"} if warm else {}
    settings = Settings(drafter=drafter, gamma=4, tree_nodes=nodes, p_min=least, max_new_tokens=64, **rule)
    lane = new_lane(pair, prompt_ids(9), settings)
    target = open_target(pair.target, lane, aux_layers_for(pair, settings))
    widths = set()
    for raw in speculative(lane, target, open_drafter(pair, target, lane)):
        widths.add(len(raw.proposal))
        if raw.proposal:
            used = raw.proposal.rows or range(len(raw.proposal))
            best = raw.proposal.scores.softmax(-1).amax(-1)[list(used)]
            assert (best >= least).all()
    assert len(widths) > (1 if nodes else 2), "it stopped no draft, or all"


# --- early exit -------------------------------------------------------------------------------------------


def truncated(model: torch.nn.Module, layers: int) -> torch.nn.Module:
    """A model of its own with the first layers of another: what early exit should draft like."""
    config = copy.deepcopy(model.config)
    config.num_hidden_layers = layers
    small = type(model)(config).eval()
    kept = {k: v for k, v in model.state_dict().items() if k in small.state_dict()}
    small.load_state_dict(kept)
    return small


@pytest.mark.parametrize("layers", [1, 3])
def test_early_exit_drafts_like_a_model_of_the_first_layers(layers: int) -> None:
    """Guards the shared cache: a stale or missing position would change what is drafted, not what is output."""
    target = build("llama", layers=4, eos=None)
    settings = {"gamma": 4, "max_new_tokens": TOKENS}
    shared = Settings(drafter="early_exit", exit_layer=layers, **settings)
    own = Settings(**settings), ModelPair(target, truncated(target, layers))
    traces = [specdemo.run(pair, prompt_ids(9), lane) for lane, pair in ((shared, ModelPair(target)), own)]
    one, other = ([(t.id, t.kind) for t in trace.tokens] for trace in traces)
    assert one == other


@pytest.mark.parametrize(
    "way",
    [
        *({"drafter": drafter} for drafter in [*DRAFTERS, "suffix,early_exit"]),
        # Which read between the target's modules.
        *({"drafter": drafter, "engine": "eager"} for drafter in ("eagle3", "mtp")),
        *({"strategy": "assisted", "drafter": drafter} for drafter in ("model", "prompt_lookup")),
    ],
    ids=str,
)
def test_an_abandoned_run_leaves_the_models_bit_identical(way: dict[str, str]) -> None:
    """Guards invariant 7 at every round: weights, layers, hooks, configs, and the next run's output."""

    def hooks() -> list[tuple]:
        tables = ("_forward_hooks", "_forward_pre_hooks")
        return [tuple(module.__dict__[t]) for part in parts for module in part.modules() for t in tables]

    pair = endless_pair("llama")
    expected = generate(pair.target, prompt_ids(17), TOKENS)
    parts = (pair.target, pair.draft, *pair.heads)
    before = [{k: v.clone() for k, v in part.state_dict().items()} for part in parts]
    layers = list(pair.target.model.layers)
    configs = [(m.config.to_dict(), m.generation_config.to_dict()) for m in (pair.target, pair.draft)]
    before_hooks = hooks()
    settings = Settings(**way, gamma=4, max_new_tokens=TOKENS)
    for stop in (0, 1, 2, 5):
        rounds = specdemo.stream(pair, prompt_ids(17), settings)
        for _ in range(stop):
            next(rounds)
        rounds.close()
        assert specdemo.run(pair, prompt_ids(17), settings).token_ids == expected
    for part, weights in zip(parts, before, strict=True):
        assert all(torch.equal(v, weights[k]) for k, v in part.state_dict().items())
        assert not any(p.grad is not None for p in part.parameters())
    assert list(pair.target.model.layers) == layers
    assert hooks() == before_hooks
    assert [(m.config.to_dict(), m.generation_config.to_dict()) for m in (pair.target, pair.draft)] == configs


def test_a_shallow_model_shares_the_weights_and_spares_the_original() -> None:
    """Guards memory and the caller's model: no weight is copied, no module of the original replaced."""
    model = build("gpt2", layers=4)
    shallow = first_layers(model, 1)
    assert len(shallow.transformer.h) == 1
    assert len(model.transformer.h) == 4
    assert {p.data_ptr() for p in shallow.parameters()} <= {p.data_ptr() for p in model.parameters()}


# --- what a pair offers -----------------------------------------------------------------------------------


def test_a_pair_without_a_draft_drafts_without_one() -> None:
    """Guards a target alone: the drafters that need no model work, the other says what to choose."""
    pair = ModelPair(endless_pair("llama").target, None, None)
    for drafter in ("prompt_lookup", "early_exit"):
        trace = specdemo.run(pair, prompt_ids(17), Settings(drafter=drafter, max_new_tokens=TOKENS))
        assert trace.token_ids == generate(pair.target, prompt_ids(17), TOKENS)
    with pytest.raises(SettingsError, match=r"drafter: 'model' needs a draft model.*choose 'prompt_lookup'"):
        specdemo.run(pair, prompt_ids(17), Settings())


def test_an_exit_behind_the_last_layer_is_refused_before_anything_runs() -> None:
    """Guards the bound that only the pair knows."""
    settings = Settings(drafter="early_exit", exit_layer=2)
    with pytest.raises(SettingsError, match="exit_layer: must be below the target's 2 layers"):
        specdemo.stream(endless_pair("llama"), prompt_ids(5), settings)
    with pytest.raises(SettingsError, match="several layers"):
        specdemo.stream(ModelPair(build("llama", layers=1)), prompt_ids(5), Settings(drafter="early_exit"))
