"""An EAGLE-3 head (Li et al., arXiv 2503.01840): one decoder layer that drafts from its target's hidden states.

Row t of a text pairs the target's features of token t with token t + 1, and predicts token t + 2::

    g = fc(cat(hidden))                                 features of the target, or in a draft step the head's own h
    e, r = input_layernorm(embed(x)), hidden_norm(g)
    h = residual + attention(cat(e, r))                 residual: r or g
    h = h + mlp(post_attention_layernorm(h))
    logits = lm_head(norm(h))                           of draft ids, which ``target_ids`` translates

Its files are read in both published formats, and written in SafeAI's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from specdemo.errors import PairError
from specdemo.models.eagle3_config import Eagle3Config, config_data, fitted, read_config, safeai_config
from specdemo.models.failures import explained
from specdemo.models.hub import ONE_FILE, open_checkpoint
from specdemo.models.progress import LoadProgress
from specdemo.models.request import ModelSource, is_folder
from specdemo.models.types import Cache, LlamaConfig, PreTrainedModel

CONVERT = (
    'python -c "import torch, safetensors.torch as s; '
    "w = torch.load('pytorch_model.bin', weights_only=True); "
    "s.save_file({k: v.contiguous() for k, v in w.items()}, 'model.safetensors')\""
)
"""Turns a head's pickle into safetensors, running nothing that it may hold."""
UNUSED = re.compile(r"t2d|verifier_.*|.*rotary_emb\.inv_freq")
"""Tensors that follow from others, or belong to the target."""
TABLE = "embed_tokens.weight"
ADVICE = "choose a head of one Llama or Qwen3 layer"


class Eagle3Layer(nn.Module):
    """The decoder layer, whose queries, keys and values are made of 2H numbers a token."""

    def __init__(self, config: LlamaConfig) -> None:
        # Two seconds, so not before there is a head.
        from transformers.models.llama.modeling_llama import LlamaAttention, LlamaMLP, LlamaRMSNorm
        from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention, Qwen3MLP

        super().__init__()
        llama = config.model_type == "llama"
        attention: Any = LlamaAttention if llama else Qwen3Attention
        self.self_attn = attention(config, 0)
        for name in ("q_proj", "k_proj", "v_proj"):
            narrow = getattr(self.self_attn, name)
            wide = nn.Linear(2 * config.hidden_size, narrow.out_features, bias=narrow.bias is not None)
            setattr(self.self_attn, name, wide)
        self.mlp = (LlamaMLP if llama else Qwen3MLP)(config)
        self.hidden_norm, self.input_layernorm, self.post_attention_layernorm = (
            LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps) for _ in range(3)
        )


class TargetHead(nn.Module):
    """What the heads that read a target's hidden states have in common."""

    fc: nn.Linear
    rotary_emb: nn.Module
    embed_tokens: nn.Embedding | None

    @property
    def dtype(self) -> torch.dtype:
        return self.fc.weight.dtype

    @property
    def device(self) -> torch.device:
        return self.fc.weight.device

    def embeddings(self, target: PreTrainedModel) -> torch.Tensor:
        """The table (V, H) that tokens are looked up in: its own, or the target's."""
        table: Any = target.get_input_embeddings() if self.embed_tokens is None else self.embed_tokens
        return table.weight.detach()

    def filled(self, tensors: Mapping[str, torch.Tensor], config: Any, target: PreTrainedModel) -> Self:
        """With these weights, in the target's type, where its output layer is; ``config`` is the layer's."""
        where = target.get_output_embeddings().weight.device
        self.load_state_dict({n: t.to(where, target.dtype) for n, t in tensors.items()}, assign=True)
        self.rotary_emb = type(self.rotary_emb)(config).to(where)
        return self.requires_grad_(False).eval()


class Eagle3Head(TargetHead):
    """A head for one target. It holds nothing of the target, whose embeddings it may read.

    Args:
        config: its description, with auxiliary layers; see :func:`specdemo.models.eagle3_config.fitted`.
        own_embeddings: whether it has a table of embeddings itself.
    """

    def __init__(self, config: Eagle3Config, *, own_embeddings: bool = False) -> None:
        from transformers.models.llama.modeling_llama import LlamaRMSNorm, LlamaRotaryEmbedding

        super().__init__()
        width, eps, layers = config.width, config.layer.rms_norm_eps, len(config.aux_layers)
        # aux_layers: the target's layers whose input the head reads
        # feature_width: of what it reads, in numbers a token
        self.config, self.aux_layers, self.feature_width = config, config.aux_layers, layers * config.target_width
        self.fc = nn.Linear(self.feature_width, width, bias=False)
        self.input_norm = LlamaRMSNorm(self.feature_width, eps=eps) if config.norm_before_fc else None
        norms = (LlamaRMSNorm(config.target_width, eps=eps) for _ in config.aux_layers)
        self.fc_norm = nn.ModuleList(norms) if config.fc_norm else None
        self.midlayer = Eagle3Layer(config.layer)
        self.norm: Any = LlamaRMSNorm(width, eps=eps)  # None where nothing reads it
        self.lm_head = nn.Linear(width, config.draft_vocabulary, bias=False)
        self.embed_tokens = nn.Embedding(config.vocabulary, width) if own_embeddings else None
        self.rotary_emb = LlamaRotaryEmbedding(config.layer)
        self.target_ids: torch.Tensor  # (Vd,) the target's id of each draft id
        self.register_buffer("target_ids", torch.arange(config.draft_vocabulary), persistent=False)

    @staticmethod
    def load(folder: str | Path, target: PreTrainedModel) -> Eagle3Head:
        """Read a head from a folder in SafeAI's or the speculators' format, in the target's type, beside it.

        A PairError where it cannot be read, or does not fit the target: that is found out before weights are read.
        """
        source = head_source(folder, target)
        with explained(source):
            checkpoint, progress = open_checkpoint(source), LoadProgress()
            place = checkpoint.describe(progress)
            config = fitted(read_config(config_data(place), source.name), target.config)
            return read_head(place, checkpoint.weights(progress, CONVERT), config, target)

    def translates(self) -> bool:
        """Whether draft ids are not the target's own: some of its tokens are left out, or the order is another."""
        ids = self.target_ids
        return len(ids) < self.config.vocabulary or not torch.equal(ids, torch.arange(len(ids), device=ids.device))

    def get_output_embeddings(self) -> nn.Linear:
        return self.lm_head

    def project(self, features: torch.Tensor) -> torch.Tensor:
        """What the head makes of the target's features: (…, layers · Ht) gives (…, H)."""
        if self.input_norm is not None:
            features = self.input_norm(features)
        if self.fc_norm is not None:
            parts = features.split(self.config.target_width, dim=-1)
            features = torch.cat([norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)], dim=-1)
        return self.fc(features)

    def forward(
        self,
        hidden: torch.Tensor,
        embeddings: torch.Tensor,
        positions: torch.Tensor,
        mask: torch.Tensor | None = None,
        cache: Cache | None = None,
    ) -> torch.Tensor:
        """The layer's output h (B, n, H).

        Args:
            hidden: (B, n, H) projected features, or what :meth:`feed_back` gave.
            embeddings: (B, n, H) of the tokens that follow.
            positions: (B, n) of the rows.
            mask: (B, 1, n, kv) added to the scores; None is causal among the n rows.
            cache: takes the layer's keys and values.
        """
        layer = self.midlayer
        normed = layer.hidden_norm(hidden)
        residual = normed if self.config.norm_before_residual else hidden
        attended, _ = layer.self_attn(
            torch.cat([layer.input_layernorm(embeddings), normed], dim=-1),
            position_embeddings=self.rotary_emb(hidden, positions),
            attention_mask=mask,
            past_key_values=cache,
        )
        h = residual + attended
        return h + layer.mlp(layer.post_attention_layernorm(h))

    def logits(self, h: torch.Tensor) -> torch.Tensor:
        """Of the draft vocabulary: (…, H) gives (…, Vd)."""
        return self.lm_head(self.norm(h) if self.config.norm_before_head else h)

    def feed_back(self, h: torch.Tensor) -> torch.Tensor:
        """What the next draft step reads in place of the target's features."""
        return self.norm(h) if self.config.feeds_norm else h


def head_source(folder: str | Path, target: PreTrainedModel) -> ModelSource:
    """The folder of a head; a PairError where it is none, or where the target is no model."""
    if not hasattr(target, "config"):
        raise PairError(f"target: {target!r:.80} is no model; give the loaded one, such as a pair's target.")
    source = ModelSource(str(folder), folder=Path(folder).expanduser())
    if not is_folder(str(folder)):
        raise PairError(f"head: there is no folder {str(folder)[:80]!r}; give the one of its config.json.")
    return source


def read_head(folder: Path, files: list[str], config: Eagle3Config, target: PreTrainedModel) -> Eagle3Head:
    """The head in memory, beside its target, to which ``config`` is fitted; a PairError if tensors do not fit."""
    tensors = read_tensors(folder, files, _own_name)
    config = replace(
        config,
        # The tensors decide: keys for them were left out of some files, or written where nobody looked.
        norm_before_fc=config.norm_before_fc or "input_norm.weight" in tensors,
        fc_norm=config.fc_norm or "fc_norm.0.weight" in tensors,
    )
    with torch.device("meta"):
        head = Eagle3Head(config, own_embeddings=TABLE in tensors)
    embeddings: Any = target.get_input_embeddings()
    if TABLE not in tensors and embeddings.weight.shape[1] != config.width:
        lacks = f"no embeddings of its own, and the target's are not {config.width:,} wide"
        raise PairError(f"{config.name} has {lacks}; choose the head that was made for this target.")
    if "norm.weight" not in tensors and not (config.norm_before_head or config.feeds_norm):
        head.norm = None
    # Files of whole vocabularies may lack the table of ids.
    needs_ids = config.draft_vocabulary < config.vocabulary or "d2t" in tensors
    wanted = head.state_dict() | ({"d2t": head.target_ids} if needs_ids else {})
    check_tensors(config.name, wanted, tensors, "EAGLE-3 head of this configuration", ADVICE)
    ids = _target_ids(config, tensors.pop("d2t", None))
    head = head.filled(tensors, config.layer, target)
    head.target_ids = ids.to(head.device)
    return head


def save_head(head: Eagle3Head, folder: Path, note: str = "") -> None:
    """Write a head in SafeAI's format, as bfloat16; ``note`` stands in its configuration as ``training_note``."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {n: t.detach().to(torch.bfloat16).contiguous() for n, t in head.state_dict().items()}
    config = head.config
    if head.translates():
        tensors["d2t"] = head.target_ids.cpu() - torch.arange(config.draft_vocabulary)
        tensors["t2d"] = torch.zeros(config.vocabulary, dtype=torch.bool)
        tensors["t2d"][head.target_ids.cpu()] = True
    save_file(tensors, folder / ONE_FILE)
    text = json.dumps(safeai_config(config) | ({"training_note": note} if note else {}), indent=2)
    (folder / "config.json").write_text(text + "\n", encoding="utf-8")


def _own_name(stored: str) -> str | None:
    """By this module's names: NeMo writes all below ``model.``, speculators number the layer."""
    own = re.sub(r"^layers\.0\.", "midlayer.", stored.removeprefix("model."))
    return None if UNUSED.fullmatch(own) else own


def read_tensors(folder: Path, files: list[str], name_of: Callable[[str], str | None]) -> dict[str, torch.Tensor]:
    """All tensors that are used, by the names that ``name_of`` makes of the stored ones; None leaves one out."""
    found = {}
    for file in files:
        with safe_open(folder / file, "pt") as held:
            for stored in held.keys():  # noqa: SIM118  # it is no mapping
                if own := name_of(stored):
                    found[own] = held.get_tensor(stored)
    return found


def check_tensors(
    name: str,
    wanted: Mapping[str, torch.Tensor],
    found: Mapping[str, torch.Tensor],
    kind: str,
    advice: str,
    prefix: str = "",
) -> None:
    """Refuse files of a head ``name`` that lack a tensor, or hold one unlike its kind's."""
    files, belong = f"{name}: its weight files", "they are incomplete or belong to another head."
    if lacking := sorted(wanted.keys() - found.keys()):
        raise PairError(f"{files} lack {prefix}{lacking[0]}, which the configuration asks for; {belong}")
    if foreign := sorted(found.keys() - wanted.keys()):
        raise PairError(f"{files} hold {prefix}{foreign[0][:60]}, which no {kind} has; {advice}.")
    for own, tensor in found.items():
        if tensor.shape != wanted[own].shape:
            shapes = f"{tuple(tensor.shape)} instead of {tuple(wanted[own].shape)}"
            raise PairError(f"{files} hold {prefix}{own} in the shape {shapes}; {belong}")


def _target_ids(config: Eagle3Config, offsets: torch.Tensor | None) -> torch.Tensor:
    """(Vd,) the target's id of each draft id; ``offsets`` (Vd,) say how far it lies behind."""
    ids = torch.arange(config.draft_vocabulary)
    if offsets is None:
        return ids
    ids = ids + offsets
    if ids.is_floating_point() or ids.min() < 0 or ids.max() >= config.vocabulary or len(ids.unique()) < len(ids):
        raise PairError(
            f"{config.name}: d2t does not give each of its {config.draft_vocabulary:,} tokens an id of the "
            f"target's {config.vocabulary:,}; the file is damaged or belongs to another head."
        )
    return ids
