"""What the config.json of an EAGLE-3 head says: both published formats, read into one description.

SafeAI's format (SafeAILab/EAGLE, AngelSlim, SpecForge) keeps all keys at the top or in ``eagle_config``; that of
vllm-project/speculators nests the layer's shape in ``transformer_layer_config``. Nothing here reads a weight.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from transformers import LlamaConfig, PreTrainedConfig, Qwen3Config
from transformers.activations import ACT2FN

from specdemo.errors import PairError
from specdemo.models.request import gguf_says, is_file, is_folder

LAYERS = {"llama": LlamaConfig, "qwen3": Qwen3Config}
"""Decoder layers that a head may have, by ``model_type``."""
SIZE_KEYS = ("hidden_size", "intermediate_size", "num_attention_heads")
LAYER_KEYS = (
    *("hidden_act", "attention_bias", "mlp_bias", "rms_norm_eps", "max_position_embeddings"),
    *("head_dim", "rope_parameters", "rope_scaling"),
)
"""Taken over as they stand, where they stand."""
FLAGS = ("norm_before_residual", "norm_before_fc", "fc_norm")
THETA = 10_000.0
"""Base of the rotary positions where a file names none; the target's is never inherited."""
AUX_LAYERS_KEY = "eagle_aux_hidden_state_layer_ids"


@dataclass(frozen=True, slots=True)
class Eagle3Config:
    """One head's description."""

    name: str  # for messages
    layer: LlamaConfig  # of its one decoder layer, of width H; or Qwen3's, which has the same fields
    vocabulary: int  # V, the target's
    draft_vocabulary: int  # Vd, of the tokens that it can draft
    target_width: int  # Ht, of the target's residual stream
    # Layers of the target whose input it reads, 0 being the embeddings; :func:`fitted` resolves none.
    aux_layers: tuple[int, ...]
    norm_before_residual: bool = False  # the layer adds to the normed hidden state instead of the plain one
    norm_before_fc: bool = False  # one norm over all features together stands before ``fc``
    fc_norm: bool = False  # a norm for each layer's stands before ``fc``
    norm_before_head: bool = True  # a norm stands before the output layer
    # A draft step reads the normed output of the step before (EAGLE 3.1) instead of the plain one.
    feeds_norm: bool = False

    @property
    def width(self) -> int:
        """H."""
        return self.layer.hidden_size


def config_data(folder: Path) -> dict[str, Any]:
    """The config.json of a folder; empty where it holds no object, a ValueError where it is no JSON."""
    try:
        data = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"its config.json is no JSON ({error})") from error
    return data if isinstance(data, dict) else {}


def is_head(data: Mapping[str, Any]) -> bool:
    """Whether a config.json is that of a head, of EAGLE-3 or of another kind, and not that of a model."""
    return "speculators_model_type" in data or "draft_vocab_size" in data or "eagle" in _architecture(data)


def named_like_head(name: str) -> bool:
    """Whether a repository's name, a folder's config.json or a GGUF file says that it holds a head."""
    if is_file(name):
        return gguf_says(name, b"eagle3")
    if not is_folder(name):
        return re.search(r"eagle-?3", name.lower()) is not None
    try:
        return is_head(config_data(Path(name).expanduser()))
    except (OSError, ValueError):  # no config.json, or none that can be read: loading says so
        return False


def shaped_like(
    target: PreTrainedConfig,
    name: str,
    feed_forward: int,
    draft_vocabulary: int | None = None,
    aux_layers: tuple[int, ...] = (),
) -> Eagle3Config:
    """A new head's description: a Llama layer of the target's width and heads, with an MLP of ``feed_forward``.

    It drafts the target's whole vocabulary by default.
    """
    keys = ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps")
    sizes = {key: getattr(target, key) for key in (*keys, "max_position_embeddings")}
    layer = LlamaConfig(**sizes, intermediate_size=feed_forward, num_hidden_layers=1)
    layer._attn_implementation = "sdpa"
    known = target.vocab_size
    return fitted(
        Eagle3Config(name, layer, known, draft_vocabulary or known, target.hidden_size, aux_layers), target
    )


def fitted(config: Eagle3Config, target: PreTrainedConfig) -> Eagle3Config:
    """The description with its auxiliary layers resolved for a target; a PairError where it does not fit."""
    text = target.get_text_config()
    advice = "choose the head that was made for this target"
    for what, own, its in (
        ("states of width", config.target_width, text.hidden_size),
        ("a vocabulary of", config.vocabulary, text.vocab_size),
    ):
        if own != its:
            raise PairError(f"{config.name} reads {what} {own:,}, and the target has {its:,}; {advice}.")
    layers = text.num_hidden_layers
    aux_layers = config.aux_layers or (2, layers // 2, layers - 3)
    if not all(0 <= layer < layers for layer in aux_layers):
        read = ", ".join(map(str, aux_layers))
        raise PairError(
            f"{config.name} reads the target's layers {read}, and the target has {layers} layers; {advice}."
        )
    return replace(config, aux_layers=aux_layers)


def described(config: Eagle3Config, data: Mapping[str, Any]) -> str:
    """A fitted head in a line for people: what it was made for, how many tokens it drafts, and what it reads."""
    verifier = _inner(_inner(data, "speculators_config"), "verifier").get("name_or_path")
    # Some files name a folder of the machine that trained them.
    known = re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", str(verifier))
    return (
        f"{f'for {known[0][:80]}, ' if known else ''}drafts {config.draft_vocabulary:,} of {config.vocabulary:,} "
        f"tokens, reads what enters the target's layers {', '.join(map(str, config.aux_layers))}"
    )


def read_config(data: Mapping[str, Any], name: str) -> Eagle3Config:
    """The description in either format; a PairError where it is no EAGLE-3 head, or of a kind not read here."""
    kind = data.get("speculators_model_type")
    if kind not in (None, "eagle3"):
        raise PairError(f"{name} is a speculator of kind {str(kind)[:40]!r}; choose an EAGLE-3 head.")
    if kind is None and "draft_vocab_size" not in data and "eagle3" not in _architecture(data):
        lacks = "its config.json names neither draft_vocab_size nor such an architecture"
        raise PairError(f"{name} is no EAGLE-3 head: {lacks}; choose the folder or repository of one.")
    nested = _inner(data, "eagle_config")
    if nested.get("use_aux_hidden_state") is False:
        raise PairError(f"{name} reads only the target's last state; choose an EAGLE-3 head, which reads three.")
    shape = _inner(data, "transformer_layer_config") if kind else data
    layer, vocabulary = _layer(shape, name), _count(shape, "vocab_size", name)
    draft_vocabulary = _count(data, "draft_vocab_size", name, vocabulary)
    if draft_vocabulary > vocabulary:
        drafts = f"{draft_vocabulary:,} tokens of a vocabulary of {vocabulary:,}"
        raise PairError(f"{name} drafts {drafts}; its config.json is wrong.")
    flags = {flag: bool(data.get(flag, nested.get(flag))) for flag in FLAGS}
    if kind:  # files without the key were trained with it on, as vLLM reads them
        flags["norm_before_residual"] = data.get("norm_before_residual") is not False
    # Speculators, and SafeAI's files beside ``fc_norm``, give the key its meaning of EAGLE 3.1 and vLLM. Alone it
    # is SpecForge's, which leaves out the norm before the output layer where it says false.
    output, newer = data.get("norm_output"), kind is not None or flags["fc_norm"]
    return Eagle3Config(
        name,
        layer,
        vocabulary,
        draft_vocabulary,
        target_width=_count(data, "target_hidden_size", name, layer.hidden_size),
        # Nested ids name the outputs of layers (SpecForge, SGLang): what leaves layer k enters layer k + 1.
        aux_layers=_aux_layers(nested, name, 1) or _aux_layers(data, name),
        norm_before_head=newer or output is not False,
        feeds_norm=newer and bool(output),
        **flags,
    )


def safeai_config(config: Eagle3Config) -> dict[str, Any]:
    """The config.json of a head in SafeAI's format."""
    layer, rotary = config.layer.to_dict(), dict(config.layer.rope_parameters or {})
    keys = (*SIZE_KEYS, *LAYER_KEYS, "num_key_value_heads")
    # Nested, ids name what leaves a layer; the embeddings leave none, so there they stand at the top.
    nested = {
        AUX_LAYERS_KEY: [entered - 1 for entered in config.aux_layers],
        "use_aux_hidden_state": True,
        "norm_before_fc": config.norm_before_fc,
    }
    at_the_top = {AUX_LAYERS_KEY: list(config.aux_layers)}
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
        **{flag: getattr(config, flag) for flag in FLAGS},
        "norm_output": config.feeds_norm if config.fc_norm else config.norm_before_head,
        **(at_the_top if 0 in config.aux_layers else {"eagle_config": nested}),
    }


def _layer(data: Mapping[str, Any], name: str) -> LlamaConfig:
    kind = LAYERS.get(data.get("model_type", "llama"))
    if kind is None:
        known = " or ".join(LAYERS)
        raise PairError(f"{name} has a layer of {str(data['model_type'])[:40]!r}; heads of {known} are read.")
    if (layers := _count(data, "num_hidden_layers", name, 1)) != 1:
        raise PairError(f"{name} has {layers} layers; heads of one layer are read.")
    if "sliding_attention" in (data.get("layer_types") or ()) or data.get("use_sliding_window") is True:
        raise PairError(f"{name} has a sliding window; heads that see the whole context are read.")
    sizes = {key: _count(data, key, name) for key in SIZE_KEYS}
    width, _, heads = sizes.values()
    kv_heads = _count(data, "num_key_value_heads", name, heads)
    if heads % kv_heads or ("head_dim" not in data and width % heads):
        raise PairError(f"{name}: {heads} heads do not go with its other sizes; its config.json is wrong.")
    options = {"head_dim": width // heads} | {k: data[k] for k in LAYER_KEYS if data.get(k) is not None}
    theta = {"rope_theta": data.get("rope_theta") or THETA}
    if "rope_parameters" in options:
        options["rope_parameters"] = theta | options["rope_parameters"]
    else:
        options |= theta
    try:
        config = kind(**sizes, **options, num_key_value_heads=kv_heads, num_hidden_layers=1)
        ACT2FN[config.hidden_act]
    except (StrictDataclassError, KeyError) as error:
        reason = " ".join(str(error).split())
        raise PairError(f"{name}: its config.json describes no layer ({reason:.200}); correct it.") from error
    config._attn_implementation = "sdpa"
    return config


def _aux_layers(data: Mapping[str, Any], name: str, shift: int = 0) -> tuple[int, ...]:
    """The auxiliary layers that are named here; none where the key is not there."""
    ids = data.get(AUX_LAYERS_KEY)
    if ids is None:
        return ()
    if not isinstance(ids, list) or not 0 < len(ids) <= 16 or not all(type(i) is int and i >= 0 for i in ids):
        raise PairError(f"{name}: {AUX_LAYERS_KEY} must be a list of layers, not {str(ids)[:60]}.")
    return tuple(i + shift for i in ids)


def _count(data: Mapping[str, Any], key: str, name: str, default: int | None = None) -> int:
    value = data.get(key)
    if value is None and default is not None:
        return default
    if type(value) is not int or not 1 <= value <= 2**31:
        raise PairError(f"{name}: {key} in its config.json must be a whole number above 0, not {str(value)[:40]}.")
    return value


def _inner(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    inner = data.get(key)
    return inner if isinstance(inner, dict) else {}


def _architecture(data: Mapping[str, Any]) -> str:
    named = data.get("architectures")
    return str(named[0]).lower() if isinstance(named, list) and named else ""
