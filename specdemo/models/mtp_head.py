"""The head for multi-token prediction (MTP) that checkpoints of Qwen3.5's kind carry in the target's own files.

Row t of a text pairs the target's hidden state of token t with token t + 1, and predicts token t + 2::

    x = fc(cat(pre_fc_norm_embedding(embed(token)), pre_fc_norm_hidden(hidden)))
    h = layers.0(x)                                     a full-attention layer of the target's family
    logits = the target's output layer (norm(h))

A further draft step reads norm(h) in place of the target's state. transformers leaves the tensors, ``mtp.*``, out.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn

from specdemo.errors import PairError
from specdemo.models.eagle3_config import config_data
from specdemo.models.eagle3_head import Eagle3Head, TargetHead, check_tensors, head_source, read_tensors
from specdemo.models.failures import explained
from specdemo.models.hub import Checkpoint, open_checkpoint
from specdemo.models.progress import LoadProgress
from specdemo.models.request import gguf_says, is_file, is_folder, names_gguf, parse_source
from specdemo.models.types import Cache, PreTrainedModel

AFTER_NORM = {"qwen3_5_text": True, "qwen3_5_moe_text": True, "qwen3_next": True}
"""The families whose heads are read, and whether a head reads hidden states after the final norm (its own or the
target's) or before it, where a wrong choice would lower the acceptance and break nothing."""
PREFIX = "mtp."
EXPERT = re.compile(r"(?P<experts>.*\.experts\.)(?P<number>\d+)\.(?P<part>gate|up|down)_proj\.weight")


class MtpHead(TargetHead):
    """A head of one target, whose embeddings and output layer it reads.

    Args:
        target: loaded, or on the meta device.
    """

    target_ids: torch.Tensor | None = None  # None, since draft ids are the target's own

    def __init__(self, target: PreTrainedModel) -> None:
        super().__init__()
        decoder: Any = target.get_decoder()
        text = target.config.get_text_config()
        config: Any = copy.deepcopy(text)
        config.num_hidden_layers, config.layer_types = 1, ["full_attention"]
        config._attn_implementation = "sdpa"
        width, kind = text.hidden_size, type(decoder.norm)
        # config: of the head's layer
        # aux_layers: of the target whose input the head reads: what would enter a layer behind the last
        # feature_width: of what it reads, in numbers a token
        self.config, self.feature_width, self.aux_layers = config, width, (text.num_hidden_layers,)
        self._after_norm, self.embed_tokens = AFTER_NORM.get(text.model_type, True), None
        self._output = (target.get_output_embeddings(),)  # in a tuple: it is no part of the head
        self.fc = nn.Linear(2 * width, width, bias=False)
        self.pre_fc_norm_embedding, self.pre_fc_norm_hidden, self.norm, self.target_norm = (
            kind(width, eps=config.rms_norm_eps) for _ in range(4)
        )
        self.layers = nn.ModuleList([type(decoder.layers[0])(config, 0)])
        self.rotary_emb = type(decoder.rotary_emb)(config)

    @staticmethod
    def load(folder: str | Path, target: PreTrainedModel) -> MtpHead:
        """Read the head of a target that was loaded without it, from the target's folder; else a PairError."""
        source = head_source(folder, target)
        with explained(source):
            files = open_checkpoint(source).weights(LoadProgress())
            return read_mtp_head(Path(folder).expanduser(), files, target, source.name)

    def belongs_to(self, target: PreTrainedModel) -> bool:
        """Whether it was read for this very model."""
        return self._output[0] is target.get_output_embeddings()

    def translates(self) -> bool:
        """Whether draft ids are not the target's own: never."""
        return False

    def get_output_embeddings(self) -> nn.Module:
        return self._output[0]

    def project(self, features: torch.Tensor) -> torch.Tensor:
        """What the head reads of the target's last hidden states (…, H), which have not passed the final norm."""
        return self.target_norm(features) if self._after_norm else features

    def forward(
        self,
        hidden: torch.Tensor,
        embeddings: torch.Tensor,
        positions: torch.Tensor,
        mask: torch.Tensor | None = None,
        cache: Cache | None = None,
    ) -> torch.Tensor:
        """The layer's output h (B, n, H); the arguments are those of an EAGLE-3 head's."""
        x = self.fc(torch.cat([self.pre_fc_norm_embedding(embeddings), self.pre_fc_norm_hidden(hidden)], dim=-1))
        turned = self.rotary_emb(x, positions)
        return self.layers[0](x, position_embeddings=turned, attention_mask=mask, past_key_values=cache)

    def logits(self, h: torch.Tensor) -> torch.Tensor:
        """Of the target's vocabulary: (…, H) gives (…, V)."""
        return self._output[0](self.norm(h))

    def feed_back(self, h: torch.Tensor) -> torch.Tensor:
        """What the next draft step reads in place of the target's state."""
        return self.norm(h) if self._after_norm else h


Head = Eagle3Head | MtpHead
"""What drafts from a target's hidden states."""


def carries_mtp(checkpoint: Checkpoint, files: list[str], data: Mapping[str, Any]) -> bool:
    """Whether a target's files hold a head that is read here; as its config.json says, if they are yet to come."""
    text = data.get("text_config", data)
    if text.get("model_type") not in AFTER_NORM:
        return False
    names = checkpoint.tensor_names(files)
    return bool(text.get("mtp_num_hidden_layers")) if names is None else any(n.startswith(PREFIX) for n in names)


def named_like_mtp(name: str) -> bool:
    """Whether a repository's name, or the files of a folder, say that a target carries a head."""
    if is_file(name):
        return gguf_says(name, b".nextn_predict_layers")
    if names_gguf(name):  # of the hub's, those with a head are called so
        return "mtp" in name.lower()
    if not is_folder(name):
        return re.search(r"qwen-?3(\.[5-9]|-next)", name.lower()) is not None
    try:
        checkpoint = open_checkpoint(parse_source(name))
        files = checkpoint.weights(LoadProgress())
        return carries_mtp(checkpoint, files, config_data(checkpoint.folder))
    except (OSError, ValueError, PairError, SafetensorError):  # nothing that can be read: loading says so
        return False


def read_mtp_head(folder: Path, files: list[str], target: PreTrainedModel, name: str) -> MtpHead:
    """The head in memory, beside its target, whose ``files`` hold it; a PairError if its tensors do not fit."""
    family = target.config.get_text_config().model_type
    if family not in AFTER_NORM:
        raise PairError(f"{name}: MTP heads of {family} are not read; choose a target of Qwen3.5's kind.")
    tensors = read_tensors(folder, files, lambda stored: stored if stored.startswith(PREFIX) else None)
    tensors = _stacked({stored.removeprefix(PREFIX): tensor for stored, tensor in tensors.items()})
    with torch.device("meta"):
        head = MtpHead(target)
    decoder: Any = target.get_decoder()
    tensors["target_norm.weight"] = decoder.norm.weight.detach().clone()
    check_tensors(name, head.state_dict(), tensors, "MTP head of one layer", "decode without it", PREFIX)
    return head.filled(tensors, head.config, target)


def _stacked(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Experts that are stored one by one, as in Qwen3.5, side by side, as in Qwen3.6 and in transformers."""
    kept = {name: tensor for name, tensor in tensors.items() if not EXPERT.fullmatch(name)}
    apart = sorted(filter(None, map(EXPERT.fullmatch, tensors)), key=lambda found: int(found["number"]))
    for experts in {found["experts"] for found in apart}:
        own = [(found["part"], tensors[found[0]]) for found in apart if found["experts"] == experts]
        gate, up, down = ([t for part, t in own if part == wanted] for wanted in ("gate", "up", "down"))
        if gate and len(gate) == len(up) == len(down):
            kept[f"{experts}gate_up_proj"] = torch.stack([torch.cat(both) for both in zip(gate, up, strict=True)])
            kept[f"{experts}down_proj"] = torch.stack(down)
    return kept
