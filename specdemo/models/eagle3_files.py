"""The files of an EAGLE-3 head: tensors of both published formats are read, SafeAI's is written."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from specdemo.errors import PairError
from specdemo.models.checkpoint import ONE_FILE, Checkpoint
from specdemo.models.eagle3_config import (
    AUX_LAYERS_KEY,
    LAYER_KEYS,
    SHAPE,
    Eagle3Config,
    config_data,
    fitted,
    read_config,
)
from specdemo.models.failures import explained
from specdemo.models.progress import Progress
from specdemo.models.source import ModelSource

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from specdemo.models.eagle3_head import Eagle3Head

CONVERT = (
    'python -c "import torch, safetensors.torch as s; '
    "w = torch.load('pytorch_model.bin', weights_only=True); "
    "s.save_file({k: v.contiguous() for k, v in w.items()}, 'model.safetensors')\""
)
"""Turns a head's pickle into safetensors, running nothing that it may hold."""
UNUSED = re.compile(r"t2d|verifier_.*|.*rotary_emb\.inv_freq")
"""Tensors that follow from others, or belong to the target."""
TABLE = "embed_tokens.weight"


def load_head(kind: type[Eagle3Head], folder: str | Path, target: PreTrainedModel) -> Eagle3Head:
    """What :meth:`Eagle3Head.load` does; ``kind`` is that class."""
    place = Path(folder).expanduser()
    source = ModelSource(str(folder), folder=place)
    if not place.is_dir():
        raise PairError(f"head: there is no folder {str(folder)[:80]!r}; give the one of its config.json.")
    with explained(source):
        checkpoint, progress = Checkpoint(source, place), Progress()
        config = read_config(config_data(checkpoint.describe(progress)), source.name)
        names = checkpoint.weights(progress, CONVERT)
        return read_head(kind, place, names, fitted(config, target.config), target)


def read_head(
    kind: type[Eagle3Head], folder: Path, files: list[str], config: Eagle3Config, target: PreTrainedModel
) -> Eagle3Head:
    """The head in memory, in the target's type, where the target's output layer is.

    Args:
        kind: what is made.
        folder, files: where its tensors are.
        config: its description, fitted to the target.

    Raises:
        PairError: tensors are missing, unknown or misshapen.
    """
    places = {_own_name(name): (file, name) for file in files for name in _names(folder / file)}
    known = {name: place for name, place in places.items() if not UNUSED.fullmatch(name)}
    config = replace(
        config,
        # The tensors decide: keys for them were left out of some files, or written where nobody looked.
        norm_before_fc=config.norm_before_fc or "input_norm.weight" in known,
        fc_norm=config.fc_norm or "fc_norm.0.weight" in known,
    )
    with torch.device("meta"):
        head = kind(config, own_embeddings=TABLE in known)
    embeddings: Any = target.get_input_embeddings()
    if TABLE not in known and embeddings.weight.shape[1] != config.width:
        raise PairError(
            f"{config.name} has no embeddings of its own, and the target's are not {config.width:,} wide; choose "
            "the head that was made for this target."
        )
    if "norm.weight" not in known and not (config.norm_before_head or config.feeds_norm):
        head.norm = None
    shapes = {name: tuple(tensor.shape) for name, tensor in head.state_dict().items()}
    _check_names(config, shapes, known)
    tensors = _tensors(folder, known)
    where = target.get_output_embeddings().weight.device
    head.target_ids = _target_ids(config, tensors.pop("d2t", None)).to(where)
    for name, tensor in tensors.items():
        if tuple(tensor.shape) != shapes[name]:
            raise PairError(
                f"{config.name}: its weight files hold {name} in the shape {tuple(tensor.shape)} instead of "
                f"{shapes[name]}; they are incomplete or belong to another head."
            )
    head.load_state_dict({n: t.to(where, target.dtype) for n, t in tensors.items()}, assign=True)
    head.rotary_emb = type(head.rotary_emb)(config.layer).to(where)
    return head.requires_grad_(False).eval()


def save_head(head: Eagle3Head, folder: Path, note: str = "") -> None:
    """Write a head in SafeAI's format, as bfloat16, with the aux layers as SpecForge and SGLang name them.

    ``note`` stands in its configuration as ``training_note``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {n: t.detach().to(torch.bfloat16).contiguous() for n, t in head.state_dict().items()}
    config = head.config
    if head.translates():
        tensors["d2t"] = head.target_ids.cpu() - torch.arange(config.draft_vocabulary)
        tensors["t2d"] = torch.zeros(config.vocabulary, dtype=torch.bool)
        tensors["t2d"][head.target_ids.cpu()] = True
    save_file(tensors, folder / ONE_FILE)
    text = json.dumps(_safeai_config(config) | ({"training_note": note} if note else {}), indent=2)
    (folder / "config.json").write_text(text + "\n", encoding="utf-8")


def _safeai_config(config: Eagle3Config) -> dict[str, Any]:
    layer, rotary = config.layer.to_dict(), dict(config.layer.rope_parameters or {})
    keys = (*SHAPE, *LAYER_KEYS, "num_key_value_heads")
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": config.layer.model_type,
        "num_hidden_layers": 1,
        **{key: layer[key] for key in keys if layer.get(key) is not None},
        "rope_theta": rotary["rope_theta"],
        "vocab_size": config.vocabulary,
        "draft_vocab_size": config.draft_vocabulary,
        "target_hidden_size": config.target_width,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "norm_before_residual": config.norm_before_residual,
        "fc_norm": config.fc_norm,
        "norm_output": config.feeds_norm if config.fc_norm else config.norm_before_head,
        "norm_before_fc": config.norm_before_fc,
        # Nested, ids name what leaves a layer; the embeddings leave none, so there they stand at the top.
        **(
            {AUX_LAYERS_KEY: list(config.aux_layers)}
            if 0 in config.aux_layers
            else {"eagle_config": _nested(config)}
        ),
    }


def _nested(config: Eagle3Config) -> dict[str, Any]:
    return {
        AUX_LAYERS_KEY: [layer - 1 for layer in config.aux_layers],
        "use_aux_hidden_state": True,
        "norm_before_fc": config.norm_before_fc,
    }


def _own_name(name: str) -> str:
    """What this module calls a tensor: NeMo writes all below ``model.``, speculators number the layer."""
    return re.sub(r"^layers\.0\.", "midlayer.", name.removeprefix("model."))


def _names(file: Path) -> list[str]:
    with safe_open(file, "pt") as tensors:
        return list(tensors.keys())


def _tensors(folder: Path, places: Mapping[str, tuple[str, str]]) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    for file in {file for file, _ in places.values()}:
        with safe_open(folder / file, "pt") as tensors:
            found |= {own: tensors.get_tensor(name) for own, (held, name) in places.items() if held == file}
    return found


def _check_names(config: Eagle3Config, shapes: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    # Files of whole vocabularies have no table of ids.
    lacking = sorted(shapes.keys() - known.keys()) + (
        ["d2t"] if config.draft_vocabulary < config.vocabulary and "d2t" not in known else []
    )
    if lacking:
        raise PairError(
            f"{config.name}: its weight files lack {lacking[0]}, which the configuration asks for; they are "
            "incomplete or belong to another head."
        )
    foreign = sorted(known.keys() - shapes.keys() - {"d2t"})
    if foreign:
        raise PairError(
            f"{config.name}: its weight files hold {foreign[0][:60]}, which no EAGLE-3 head of this configuration "
            "has; choose a head of one Llama or Qwen3 layer."
        )


def _target_ids(config: Eagle3Config, offsets: torch.Tensor | None) -> torch.Tensor:
    """(Vd,) the target's id of each draft id; ``offsets`` (Vd,) say how far it lies behind."""
    ids = torch.arange(config.draft_vocabulary)
    if offsets is None:
        return ids
    wrong = offsets.shape != ids.shape or offsets.is_floating_point()
    ids = ids if wrong else ids + offsets
    if wrong or ids.min() < 0 or ids.max() >= config.vocabulary or len(ids.unique()) < len(ids):
        raise PairError(
            f"{config.name}: d2t does not give each of its {config.draft_vocabulary:,} tokens an id of the "
            f"target's {config.vocabulary:,}; the file is damaged or belongs to another head."
        )
    return ids
