"""An EAGLE-3 head as a GGUF file, as llama.cpp reads it with ``--spec-type draft-eagle3`` (``models/eagle3.cpp``).

The file has the target's tokenizer and, where the head has neither, takes embeddings from the target it is loaded
beside. Only heads that llama.cpp can run are written: three taps, a Llama layer, no norm of its own at each tap.
"""

from __future__ import annotations

from pathlib import Path

import gguf
from transformers import PreTrainedTokenizerBase

from specdemo.models.eagle3_head import Eagle3Head
from specdemo.training.gguf.parts import add_shape, add_tokenizer, add_weight, gguf_file

ARCHITECTURE = "eagle3"
LAYER = {
    "input_layernorm": "attn_norm",
    "hidden_norm": "attn_norm_2",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
NAMES = {
    "fc": "fc",
    "norm": "output_norm",
    "lm_head": "output",
    "embed_tokens": "token_embd",
    **{f"midlayer.{ours}": f"blk.0.{theirs}" for ours, theirs in LAYER.items()},
}
"""llama.cpp's names of our modules."""


def unsupported_reason(head: Eagle3Head) -> str | None:
    """Why llama.cpp cannot run this head; None if it can."""
    config, layer = head.config, head.config.layer
    for wrong, reason in (
        (len(head.taps) != 3, f"it has {len(head.taps)} taps, and llama.cpp takes three"),
        (layer.model_type != "llama", f"its layer is of kind {layer.model_type}, and llama.cpp takes llama"),
        (config.norm_before_fc or config.fc_norm, "it has norms before fc"),
        (not config.norm_before_head or config.feeds_norm, "its draft steps read another state"),
        (layer.attention_bias or layer.mlp_bias, "its layer has biases"),
        (layer.rope_parameters["rope_type"] != "default", "its rotary positions are scaled"),
    ):
        if wrong:
            return reason
    return None


def write_head(path: Path, head: Eagle3Head, tokenizer: PreTrainedTokenizerBase, kind: str = "float32") -> None:
    """Write one head.

    Args:
        path: of the file; a file that is there is replaced once the new one is whole.
        head: as :meth:`specdemo.Eagle3Head.load` gives it.
        tokenizer: the target's; one of this project's.
        kind: the matrices' type, one of ``parts.TYPES``.

    Raises:
        ValueError: llama.cpp cannot run it.
    """
    reason = unsupported_reason(head)
    if reason:
        raise ValueError(f"llama.cpp cannot run this head: {reason}.")
    config = head.config
    with gguf_file(path, ARCHITECTURE, kind) as writer:
        add_shape(writer, config.layer, 1, config.vocabulary)
        writer.add_array(f"{ARCHITECTURE}.target_layers", list(head.taps))
        writer.add_uint32(f"{ARCHITECTURE}.target_hidden_size", config.target_width)
        writer.add_bool(f"{ARCHITECTURE}.norm_before_residual", config.norm_before_residual)
        add_tokenizer(writer, tokenizer, config.vocabulary)
        _add_tensors(writer, head, kind)


def _add_tensors(writer: gguf.GGUFWriter, head: Eagle3Head, kind: str) -> None:
    layer = head.config.layer
    heads = {"q_proj": layer.num_attention_heads, "k_proj": layer.num_key_value_heads}
    for name, weight in head.named_parameters():
        module = name.removesuffix(".weight")
        rotated = heads.get(module.rpartition(".")[2], 0)
        add_weight(writer, f"{NAMES[module]}.weight", weight, kind, rotated)
    if head.translates():
        writer.add_tensor("d2t", head.target_ids.cpu().numpy(), raw_dtype=gguf.GGMLQuantizationType.I64)
