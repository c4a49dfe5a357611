"""The MTP drafter against transformers' own model of one layer, computed anew for every token, without a cache."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

import pytest
import torch
from toys import build, build_mtp, generate, prompt_ids, skilled_mtp
from transformers import PreTrainedModel

import specdemo
from specdemo import ModelPair, MtpHead, PairError, Settings, SettingsError
from specdemo.decoding.drafters import head as drafting
from specdemo.decoding.engines.eager import EagerRunner
from specdemo.decoding.engines.head import HeadRunner

TOKENS = 40
HYBRID = {
    "layer_types": ["linear_attention", "full_attention"],
    **{"linear_num_key_heads": 2, "linear_num_value_heads": 4},
    **{"linear_key_head_dim": 8, "linear_value_head_dim": 8},
}
TARGETS = {
    "untied": {},
    "tied": {"tie_word_embeddings": True},
    "experts": {"family": "qwen3_5_moe_text"},
    "hybrid": HYBRID,
}


def target_of(name: str) -> PreTrainedModel:
    return build(**{"family": "qwen3_5_text", "eos": None, **TARGETS[name]})


def drafts(head: MtpHead, target: PreTrainedModel, committed: Sequence[int], gamma: int) -> list[int]:
    """The greedy draft after ``committed``, by the layer, norms and hidden states of transformers' own modules."""
    config = deepcopy(target.config)
    config.num_hidden_layers, config.layer_types = 1, ["full_attention"]
    whole = type(target.model)(config).eval()
    layer = {name: t for name, t in head.state_dict().items() if name.startswith(("layers.", "norm."))}
    assert whole.load_state_dict(layer, strict=False).missing_keys == ["embed_tokens.weight"]
    kind = type(target.model.norm)
    before = {name: kind(config.hidden_size, config.rms_norm_eps) for name in ("embedding", "hidden")}
    for name, norm in before.items():
        norm.weight.copy_(head.state_dict()[f"pre_fc_norm_{name}.weight"])
    hidden = target.model(torch.tensor([committed])).last_hidden_state[:, :-1]  # after the final norm
    tokens, drafted = list(committed[1:]), []
    for _ in range(gamma):
        embedded = target.model.embed_tokens(torch.tensor([tokens]))
        read = torch.cat([before["embedding"](embedded), before["hidden"](hidden)], dim=-1) @ head.fc.weight.T
        h = whole(inputs_embeds=read, use_cache=False).last_hidden_state[:, -1:]
        drafted.append(int(target.lm_head(h).argmax()))
        hidden = torch.cat([hidden, h], dim=1)
        tokens.append(drafted[-1])
    return drafted


@pytest.mark.parametrize("name", TARGETS)
def test_every_round_drafts_what_transformers_layer_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards rows and their tokens, positions, norms, recursion, and true states for what was kept: at the end the
    head's own cache is that of a head which read all rows at once.
    """
    runners: list[HeadRunner] = []

    class Watched(HeadRunner):
        def __init__(self, *args: object) -> None:
            super().__init__(*args)
            runners.append(self)

    monkeypatch.setattr(drafting, "HeadRunner", Watched)
    target = target_of(name)
    head = skilled_mtp(target)
    settings = Settings(drafter="mtp", gamma=4, max_new_tokens=TOKENS)
    trace = specdemo.run(ModelPair(target, mtp=head), prompt_ids(9), settings)
    assert trace.token_ids == generate(target, prompt_ids(9), TOKENS)
    figures = trace.metrics()
    assert 3 < figures.accepted < figures.proposed, "some must be kept and some dropped"
    committed = [*prompt_ids(9), trace.rounds[0].tokens[0].id]
    with torch.no_grad():
        for round_ in trace.rounds[1:]:
            drafted = [t.id for t in round_.tokens if t.kind in ("accepted", "rejected")]
            assert drafted == drafts(head, target, committed, round_.drafted)
            committed += [t.id for t in round_.emitted]
    (used,) = runners
    features = EagerRunner(target, aux_layers=head.aux_layers).forward(committed[: used.length], keep=0).hidden
    fresh = HeadRunner(head, head.embeddings(target), "auto")
    fresh.forward(fresh.project(features), committed[1 : used.length + 1])
    for mine, whole in zip(used._cache.layers, fresh._cache.layers, strict=True):
        for one, other in ((mine.keys, whole.keys), (mine.values, whole.values)):
            torch.testing.assert_close(one[:, :, : used.length], other[:, :, : used.length], atol=1e-4, rtol=1e-4)


def test_what_an_mtp_head_is_not_for_is_refused() -> None:
    """Guards the refusals: a tree, a target without a head, and the head of another target."""
    target = build("qwen3_5_text")
    with pytest.raises(SettingsError, match="MTP head has one guess a position"):
        Settings(drafter="mtp", tree_nodes=8)
    with pytest.raises(SettingsError, match="'mtp' needs a target with an MTP head, and this pair has none;"):
        specdemo.run(ModelPair(target), prompt_ids(5), Settings(drafter="mtp"))
    with pytest.raises(PairError, match="no MTP head of this target"):
        ModelPair(target, mtp=build_mtp(build("qwen3_5_text")))
