"""The EAGLE-3 drafter against the formulas of its paper, computed anew for every token, without a cache."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch.nn import functional
from toys import build, generate, prompt_ids, skilled_head

import specdemo
from specdemo import Eagle3Head, ModelPair, Settings, SettingsError
from specdemo.decoding.engines import graph_capture
from specdemo.models import packing

TOKENS = 40


def rms(x: torch.Tensor, norm: torch.nn.Module) -> torch.Tensor:
    return x * (x.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon).rsqrt() * norm.weight


def rotated(x: torch.Tensor, theta: float) -> torch.Tensor:
    """Rows (n, heads, size) turned by their positions 0 to n − 1 (Su et al., arXiv 2104.09864)."""
    half = x.shape[-1] // 2
    angles = torch.arange(len(x))[:, None, None] / theta ** (torch.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], dim=-1)


def layer_output(
    head: Eagle3Head, hidden: torch.Tensor, tokens: Sequence[int], table: torch.Tensor
) -> torch.Tensor:
    """h (n, H) of all rows by the formulas, whole."""
    layer, shape = head.midlayer, head.config.layer
    r = rms(hidden, layer.hidden_norm)
    x = torch.cat([rms(table[torch.tensor(tokens)], layer.input_layernorm), r], dim=-1)
    q, k, v = (
        (x @ p.weight.T).view(len(x), -1, shape.head_dim)
        for p in (layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj)
    )
    q, k = (rotated(t, shape.rope_parameters["rope_theta"]) for t in (q, k))
    shared = shape.num_attention_heads // shape.num_key_value_heads
    k, v = (t.repeat_interleave(shared, dim=1) for t in (k, v))
    scores = torch.einsum("ihd,jhd->hij", q, k) / shape.head_dim**0.5
    scores = scores.masked_fill(torch.ones(len(x), len(x)).triu(1).bool(), -torch.inf).softmax(-1)
    attended = torch.einsum("hij,jhd->ihd", scores, v).reshape(len(x), -1) @ layer.self_attn.o_proj.weight.T
    h = (r if head.config.norm_before_residual else hidden) + attended
    y = rms(h, layer.post_attention_layernorm)
    mlp = layer.mlp
    return h + (functional.silu(y @ mlp.gate_proj.weight.T) * (y @ mlp.up_proj.weight.T)) @ mlp.down_proj.weight.T


def drafts(head: Eagle3Head, target: torch.nn.Module, committed: Sequence[int], gamma: int) -> list[int]:
    """The greedy draft after ``committed``: features by one plain forward of the target, then γ whole passes."""
    read = target(torch.tensor([committed]), output_hidden_states=True).hidden_states
    aux_layers = [read[layer][0, :-1] for layer in head.aux_layers]
    if head.fc_norm is not None:
        aux_layers = [rms(states, norm) for states, norm in zip(aux_layers, head.fc_norm, strict=True)]
    features = torch.cat(aux_layers, dim=-1)
    hidden = (rms(features, head.input_norm) if head.input_norm is not None else features) @ head.fc.weight.T
    tokens, drafted = list(committed[1:]), []
    table = head.embeddings(target)
    for _ in range(gamma):
        h = layer_output(head, hidden, tokens, table)[-1]
        drafted.append(int(head.target_ids[(rms(h, head.norm) @ head.lm_head.weight.T).argmax()]))
        hidden = torch.cat([hidden, (rms(h, head.norm) if head.config.feeds_norm else h)[None]])
        tokens.append(drafted[-1])
    return drafted


CASES = {
    "llama": {"aux_layers": (2, 2, 0)},
    "qwen2": {"norm_before_residual": True, "own_embeddings": True},
    "qwen3": {"fc_norm": True, "feeds_norm": True},
    "gpt2": {"norm_before_fc": True},
    "gemma3": {"aux_layers": (3, 1), "norm_before_residual": True},
}


@pytest.mark.parametrize("engine", ["auto", "eager"])
@pytest.mark.parametrize("family", CASES)
def test_every_round_drafts_what_the_formulas_say(family: str, engine: str) -> None:
    """Guards rows and their tokens, positions, layers, rollback, and true features for what was kept."""
    target = build(family, layers=4, eos=None)
    head = skilled_head(target, draft_vocabulary=50, **CASES[family])
    settings = Settings(drafter="eagle3", gamma=4, max_new_tokens=TOKENS, engine=engine)
    trace = specdemo.run(ModelPair(target, None, None, head=head), prompt_ids(9), settings)
    assert trace.token_ids == generate(target, prompt_ids(9), TOKENS)
    assert trace.metrics().accepted > 3, "a head that is never right would not show how kept rows are fed"
    committed = [*prompt_ids(9), trace.rounds[0].tokens[0].id]
    with torch.no_grad():
        for round_ in trace.rounds[1:]:
            drafted = [t.id for t in round_.tokens if t.kind in ("accepted", "rejected")]
            assert drafted == drafts(head, target, committed, round_.drafted)
            committed += [t.id for t in round_.emitted]
    assert set(trace.token_ids) - set(head.target_ids.tolist()), "some tokens must lie outside its vocabulary"


def test_a_token_that_is_not_drafted_has_no_probability() -> None:
    """Guards q: over the target's vocabulary it is the draft's softmax, and 0 where the head has no token."""
    target = build("llama", eos=None)
    head = skilled_head(target, draft_vocabulary=20)
    pair = ModelPair(target, None, None, head=head)
    warm = {"acceptance": "sampling", "temperature": 1.0, "repetition_penalty": 1.2, "top_k": 30}
    trace = specdemo.run(pair, prompt_ids(9), Settings(drafter="eagle3", max_new_tokens=TOKENS, **warm))
    known = set(head.target_ids.tolist())
    judged = [t for t in trace.tokens if t.q is not None]
    assert all((t.q == 0.0) == (t.id not in known) for t in judged)
    assert {t.id in known for t in judged} == {True, False}
    assert trace.metrics().alpha > 0


def test_graphs_give_hidden_states_and_the_lane_says_that_the_head_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the target's captured forwards with aux_layers, beside lanes of the same target without."""
    from tape import Taped

    monkeypatch.setattr(graph_capture, "capture_on", lambda device: Taped())
    monkeypatch.setattr(graph_capture, "can_capture", lambda device: True)
    target = build("qwen3", eos=None)
    pair = ModelPair(target, None, None, head=skilled_head(target, draft_vocabulary=40))
    for fields in ({"gamma": 4}, {"gamma": 4, "adaptive_gamma": True}):
        settings = Settings(drafter="eagle3", max_new_tokens=40, engine="graphs", **fields)
        trace = specdemo.run(pair, prompt_ids(9), settings)
        assert trace.token_ids == generate(target, prompt_ids(9), 40)
        assert trace.metrics().accepted > 0
        assert trace.engine == "target graphs, draft direct: the drafts of a head are not captured"
    plain = Settings(strategy="autoregressive", max_new_tokens=40, engine="graphs")
    assert specdemo.run(pair, prompt_ids(9), plain).engine == "graphs"


def test_a_pair_without_a_head_says_what_to_choose() -> None:
    """Guards the refusals: no head, no batch, and transformers, which knows no heads."""
    target = build("llama")
    pair = ModelPair(target, None, None)
    with pytest.raises(
        SettingsError, match=r"'eagle3' needs an EAGLE-3 head.*choose 'prompt_lookup' or 'suffix' or 'early_exit'"
    ):
        specdemo.run(pair, prompt_ids(5), Settings(drafter="eagle3"))
    with pytest.raises(
        SettingsError, match="'eagle3' has no batch; choose 'model' or 'prompt_lookup' or 'suffix'"
    ):
        specdemo.run_batch(pair, [prompt_ids(5)], Settings(drafter="eagle3"))
    with pytest.raises(SettingsError, match="for EAGLE-3 head choose 'speculative'"):
        Settings(strategy="assisted", drafter="eagle3")


def test_a_packed_head_drafts_what_it_drafts_unpacked() -> None:
    """Guards heads of real size, whose weights a draft step should read once and in the layout of a verify."""
    target = build("llama", eos=None)
    pair = ModelPair(target, None, None, head=skilled_head(target, draft_vocabulary=40, fc_norm=True))
    settings = Settings(drafter="eagle3", gamma=3, max_new_tokens=24)
    plain = specdemo.run(pair, prompt_ids(9), settings)
    packing.pack(pair.head)
    packed = specdemo.run(pair, prompt_ids(9), settings)
    assert (plain.engine, packed.engine) == ("direct", "target direct, draft direct, packed weights")
    assert [(t.id, t.kind) for t in plain.tokens] == [(t.id, t.kind) for t in packed.tokens]
