"""EAGLE-3 heads on disk: both formats with all flags, and what is refused before a weight is read."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from heads import FLAGS, write_safeai, write_speculators
from safetensors.torch import load_file, save_file
from toys import build, build_head

import specdemo
from specdemo import Eagle3Head, PairError
from specdemo.models.eagle3_config import config_data, fitted, read_config
from specdemo.models.eagle3_head import save_head

TARGET = build("llama", layers=8)
AUX_LAYERS = "eagle_aux_hidden_state_layer_ids"
WRITERS = pytest.mark.parametrize("write", [write_safeai, write_speculators])


def outputs(head: Eagle3Head, target: torch.nn.Module = TARGET) -> list[torch.Tensor]:
    """Logits of five rows and of a step behind each: everything that a head computes."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(1, 5, len(head.aux_layers) * head.config.target_width, generator=generator)
    ids = torch.randint(0, 64, (2, 1, 5), generator=generator)
    embed = [torch.nn.functional.embedding(i, head.embeddings(target)) for i in ids]
    positions = torch.arange(5).unsqueeze(0)
    with torch.no_grad():
        first = head(head.project(features), embed[0], positions)
        second = head(head.feed_back(first), embed[1], positions)
        return [head.logits(first), head.logits(second)]


@WRITERS
@pytest.mark.parametrize("on", itertools.product([False, True], repeat=4), ids=str)
def test_both_formats_with_every_flag_load_to_equal_logits(
    on: tuple[bool, ...], write: Any, tmp_path: Path
) -> None:
    """Guards each name and flag of the formats against being dropped, and each flag against having no effect."""
    flags = dict(zip(FLAGS, on, strict=True))
    feeds = flags.pop("norm_output")
    if write is write_safeai and feeds and not flags["fc_norm"]:
        return  # that file cannot say so: there the key alone is about the norm before the output layer
    made = build_head(TARGET, draft_vocabulary=40, aux_layers=(2, 4, 5), feeds_norm=feeds, **flags)
    read = Eagle3Head.load(write(made, tmp_path), TARGET)
    for ours, theirs in zip(outputs(read), outputs(made), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    assert torch.equal(read.target_ids, made.target_ids)
    assert read.aux_layers == (2, 4, 5)
    plain = build_head(TARGET, draft_vocabulary=40, aux_layers=(2, 4, 5))
    plain.load_state_dict(made.state_dict(), strict=False)
    assert any(on) != torch.equal(outputs(plain)[1], outputs(made)[1])


@WRITERS
def test_other_shapes_load_too(write: Any, tmp_path: Path) -> None:
    """Guards Qwen3 layers, embeddings of their own, narrower heads, and whole vocabularies without d2t."""
    made = build_head(TARGET, kind="qwen3", own_embeddings=True)
    read = Eagle3Head.load(write(made, tmp_path / "qwen3"), TARGET)
    torch.testing.assert_close(outputs(read), outputs(made), rtol=0, atol=0)
    assert not read.translates()
    assert read.embed_tokens is not None
    for weights in made.parameters():
        weights.copy_(weights.bfloat16())  # as the package's own writer does
    save_head(made, tmp_path / "saved")
    saved = Eagle3Head.load(tmp_path / "saved", TARGET)
    torch.testing.assert_close(outputs(saved), outputs(made), rtol=0, atol=0)
    assert saved.config.aux_layers == made.config.aux_layers


def test_nested_names_of_another_export_are_read(tmp_path: Path) -> None:
    """Guards NeMo's prefix, tensors for which nobody wrote a flag, and those that follow from others."""
    made = build_head(TARGET, norm_before_fc=True, aux_layers=(1, 2, 3))
    folder = write_safeai(made, tmp_path)
    data = config_data(folder)
    del data["eagle_config"]["norm_before_fc"]
    (folder / "config.json").write_text(json.dumps(data))
    tensors = load_file(folder / "model.safetensors")
    renamed = {f"model.{name.replace('midlayer.', 'layers.0.')}": t for name, t in tensors.items()}
    save_file({**renamed, "model.rotary_emb.inv_freq": torch.ones(2)}, folder / "model.safetensors")
    torch.testing.assert_close(outputs(Eagle3Head.load(folder, TARGET)), outputs(made), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("write", "changes", "expected"),
    [
        (write_safeai, {"eagle_config": None}, (2, 4, 5)),
        (write_safeai, {"eagle_config": {AUX_LAYERS: [1, 3, 4]}}, (2, 4, 5)),
        (write_safeai, {"eagle_config": None, AUX_LAYERS: [1, 3, 4]}, (1, 3, 4)),
        (write_speculators, {AUX_LAYERS: None}, (2, 4, 5)),
        (write_speculators, {AUX_LAYERS: [1, 3, 4]}, (1, 3, 4)),
    ],
)
def test_aux_layers_in_their_three_conventions(write: Any, changes: dict, expected: tuple, tmp_path: Path) -> None:
    """Guards the off-by-one: nested ids name outputs of layers, others inputs; none means 2, n/2, n − 3."""
    folder = write(build_head(TARGET), tmp_path, **changes)
    assert Eagle3Head.load(folder, TARGET).aux_layers == expected


def test_the_norm_before_the_residual_is_on_where_only_speculators_leave_it_out(tmp_path: Path) -> None:
    """Guards the default that the two formats do not share, and positions: the head's own, never the target's."""
    for write, expected in ((write_safeai, False), (write_speculators, True)):
        folder = write(build_head(TARGET), tmp_path / write.__name__, norm_before_residual=None, rope_theta=None)
        config = read_config(config_data(folder), "x")
        assert config.norm_before_residual is expected
        assert config.layer.rope_parameters["rope_theta"] == 10_000.0


REFUSED = [
    ({"target_hidden_size": 48}, "reads states of width 48, and the target has 32"),
    ({"vocab_size": 65}, "reads a vocabulary of 65, and the target has 64"),
    ({"eagle_config": {AUX_LAYERS: [1, 3, 7]}}, "reads the target's layers 2, 4, 8, and the target has 8 layers"),
    ({"eagle_config": {"use_aux_hidden_state": False}}, "reads only the target's last state"),
    ({"num_hidden_layers": 2}, "has 2 layers; heads of one layer are read"),
    ({"model_type": "mamba"}, "has a layer of 'mamba'"),
    ({"layer_types": ["sliding_attention"]}, "has a sliding window"),
    ({"hidden_size": "32"}, "hidden_size in its config.json must be a whole number"),
    ({"draft_vocab_size": 99}, "drafts 99 tokens of a vocabulary of 64"),
    ({"eagle_config": {AUX_LAYERS: [1, "x"]}}, "must be a list of layers"),
    ({"speculators_model_type": "dflash"}, "is a speculator of kind 'dflash'"),
    ({"architectures": ["LlamaForCausalLM"], "draft_vocab_size": None}, "is no EAGLE-3 head"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_what_does_not_fit_is_refused_before_a_weight_is_read(changes: dict, message: str, tmp_path: Path) -> None:
    """Guards the sentences: the weight file is no such file, so reading it would say something else."""
    folder = write_safeai(build_head(TARGET), tmp_path, **changes)
    (folder / "model.safetensors").write_bytes(b"not read")
    with pytest.raises(PairError, match=message):
        Eagle3Head.load(folder, TARGET)


def test_spoilt_weights_are_refused(tmp_path: Path) -> None:
    """Guards each check of the tensors; random numbers in place of a missing one would only accept little."""
    folder = write_safeai(build_head(TARGET, draft_vocabulary=40), tmp_path)
    whole = load_file(folder / "model.safetensors")

    def refused(tensors: dict[str, torch.Tensor], message: str) -> None:
        save_file(tensors, folder / "model.safetensors")
        with pytest.raises(PairError, match=message):
            Eagle3Head.load(folder, TARGET)

    refused({n: t for n, t in whole.items() if n != "fc.weight"}, "lack fc.weight")
    refused({n: t for n, t in whole.items() if n != "d2t"}, "lack d2t")
    refused({**whole, "fc.weight": torch.zeros(3, 3)}, "hold fc.weight in the shape")
    refused({**whole, "layers.1.mlp.up_proj.weight": torch.zeros(3)}, "no EAGLE-3 head of this configuration has")
    refused({**whole, "d2t": torch.full((40,), 30)}, "d2t does not give each of its 40 tokens an id")
    refused({**whole, "d2t": whole["d2t"].float()}, "d2t does not give")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(PairError, match=r"pickles only.*convert this one with python -c .*weights_only=True"):
        Eagle3Head.load(folder, TARGET)
    with pytest.raises(PairError, match="there is no folder"):
        Eagle3Head.load(tmp_path / "nowhere", TARGET)


def test_a_pair_takes_only_a_head_of_its_target(tmp_path: Path) -> None:
    """Guards a head of another model, or of no head's kind, in memory; and tells what a pair has."""
    other = build("llama", hidden=48, layers=8)
    with pytest.raises(PairError, match="reads states of width 32, and the target has 48"):
        specdemo.ModelPair(other, None, None, head=build_head(TARGET))
    with pytest.raises(PairError, match="LlamaForCausalLM is no EAGLE-3 head"):
        specdemo.ModelPair(TARGET, None, None, head=TARGET)
    pair = specdemo.ModelPair(target=TARGET, draft=None, head=build_head(TARGET), tokenizer=None)
    assert pair.parts == {"head"}
    assert pair.footprints()["head"].nbytes > 0
    assert fitted(pair.head.config, TARGET.config).aux_layers == pair.head.aux_layers
