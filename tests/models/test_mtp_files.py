"""MTP heads in the files of their targets: found without being named, read, or left out with the reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from checkpoints import checkpoint, trained_tokenizer
from hub import Hub
from safetensors.torch import load_file, save_file
from toys import build, build_mtp, generate
from transformers import PreTrainedModel

import specdemo
from specdemo import MtpHead, PairError, Settings
from specdemo.models.hub import INDEX, ONE_FILE
from specdemo.models.mtp_head import named_like_mtp
from specdemo.ui.panel.pair_card import checked

PROMPT = "The quick brown fox"


def stored(head: MtpHead) -> dict[str, torch.Tensor]:
    """A head's tensors by the names in published files."""
    own = {name: t.clone() for name, t in head.state_dict().items() if name != "target_norm.weight"}
    return {f"mtp.{name}": t for name, t in own.items()}


@pytest.fixture
def target() -> PreTrainedModel:
    return build("qwen3_5_text", vocabulary=len(trained_tokenizer("qwen3")), hidden=128)


@pytest.fixture
def head(target: PreTrainedModel) -> MtpHead:
    return build_mtp(target)


def carrying(
    folder: Path,
    target: PreTrainedModel,
    tensors: dict[str, torch.Tensor],
    *,
    apart: bool = False,
    published: bool = False,
) -> Path:
    """A target's folder with these tensors in its weight file, or in one of their own beside it, with an index;
    ``published``: laid out as the hub's, whose model reads images too.
    """
    checkpoint(folder, "qwen3_5_text", model=target)
    text = json.loads((folder / "config.json").read_text()) | {"mtp_num_hidden_layers": 1}
    (folder / "config.json").write_text(json.dumps(text))
    held = load_file(folder / ONE_FILE)
    if published:
        whole = {
            "architectures": ["Qwen3_5ForConditionalGeneration"],
            "model_type": "qwen3_5",
            "text_config": text,
        }
        (folder / "config.json").write_text(json.dumps(whole))
        held = {name.replace("model.", "model.language_model.", 1): t for name, t in held.items()}
        held["model.visual.patch_embed.proj.bias"] = torch.zeros(8)
    if not apart:
        save_file(held | tensors, folder / ONE_FILE, {"format": "pt"})
        return folder
    (folder / ONE_FILE).rename(folder / "model-1.safetensors")
    save_file(tensors, folder / "mtp.safetensors", {"format": "pt"})
    names = dict.fromkeys(held, "model-1.safetensors") | dict.fromkeys(tensors, "mtp.safetensors")
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": names}))
    return folder


@pytest.mark.parametrize("layout", [{}, {"apart": True}, {"published": True}], ids=str)
def test_a_head_comes_with_its_target_from_the_hub(
    layout: dict[str, bool], hub: Hub, target: PreTrainedModel, head: MtpHead, tmp_path: Path
) -> None:
    """Guards the whole way from the target's name to a lane: report and card before a weight is fetched, the pair,
    and the output.
    """
    hub.add("org/target", carrying(tmp_path / "target", target, stored(head), **layout))
    report = specdemo.preflight("org/target", device="cpu")
    assert [m.role for m in report.models] == ["target", "mtp"]
    assert not any(name.endswith(".safetensors") for name in hub.fetched("org/target"))
    assert "in the target&#39;s own files" in checked(report)
    pair = specdemo.load_pair("org/target", device="cpu")
    assert pair.parts == {"mtp"}
    assert pair.footprints()["mtp"].nbytes == pytest.approx(report.models[1].weights.nbytes, rel=0.02)
    trace = specdemo.run(pair, PROMPT, Settings(drafter="mtp", gamma=3, max_new_tokens=24))
    assert trace.token_ids == generate(pair.target, trace.prompt_ids, 24)[: len(trace.token_ids)]
    for name, tensor in head.state_dict().items():
        assert torch.equal(pair.mtp.state_dict()[name], tensor), name


@pytest.mark.parametrize(
    ("spoilt", "reason"),
    [
        ({"mtp.norm.weight": None}, "lack mtp.norm.weight, which the configuration asks for"),
        ({"mtp.fc.weight": torch.zeros(128, 128)}, r"hold mtp.fc.weight in the shape \(128, 128\) instead of"),
        ({"mtp.layers.1.mlp.up_proj.weight": torch.zeros(2)}, "which no MTP head of one layer has"),
    ],
)
def test_a_head_that_does_not_fit_is_left_out_and_the_target_loads(
    spoilt: dict, reason: str, target: PreTrainedModel, head: MtpHead, tmp_path: Path
) -> None:
    """Guards targets against their heads, and that the reason reaches who asks for the head."""
    tensors = {name: tensor for name, tensor in (stored(head) | spoilt).items() if tensor is not None}
    pair = specdemo.load_pair(str(carrying(tmp_path / "target", target, tensors)))
    assert pair.parts == set()
    with pytest.raises(specdemo.SettingsError, match=f"this pair has none .*{reason}.*; choose 'prompt_lookup'"):
        specdemo.run(pair, PROMPT, Settings(drafter="mtp"))
    plain = specdemo.run(pair, PROMPT, Settings(strategy="autoregressive", max_new_tokens=8))
    assert plain.token_ids == generate(pair.target, plain.prompt_ids, 8)[: len(plain.token_ids)]


def test_heads_of_experts_are_read_in_both_layouts_and_a_folder_tells_whether_it_has_one(
    target: PreTrainedModel, head: MtpHead, tmp_path: Path
) -> None:
    """Guards Qwen3.5's files, which hold each expert apart, and the list of methods before anything is loaded."""
    moe = build("qwen3_5_moe_text")
    made = build_mtp(moe)
    tensors, experts = stored(made), "mtp.layers.0.mlp.experts."
    gates, down = tensors.pop(f"{experts}gate_up_proj"), tensors.pop(f"{experts}down_proj")
    for number, (both, last) in enumerate(zip(gates, down, strict=True)):
        parts = {"gate": both.chunk(2)[0], "up": both.chunk(2)[1], "down": last}
        tensors |= {f"{experts}{number}.{part}_proj.weight": t.clone() for part, t in parts.items()}
    for number, held in enumerate((tensors, stored(made))):
        folder = tmp_path / str(number)
        folder.mkdir()
        save_file(held, folder / ONE_FILE)
        read = MtpHead.load(folder, moe).state_dict()
        assert all(torch.equal(read[name], tensor) for name, tensor in made.state_dict().items())
    with pytest.raises(PairError, match="MTP heads of llama are not read"):
        MtpHead.load(tmp_path / "0", build("llama"))
    assert named_like_mtp(str(carrying(tmp_path / "with", target, stored(head))))
    assert not named_like_mtp(str(checkpoint(tmp_path / "without", "qwen3_5_text", model=target)))
