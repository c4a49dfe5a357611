"""``python -m specdemo.training.gguf OUT``: a pair and its head as GGUF files, for llama.cpp and its users.

A head's file is as llama.cpp reads it with ``--spec-type draft-eagle3`` (``models/eagle3.cpp``): it has the
target's tokenizer and, where the head has neither, takes embeddings from the target it is loaded beside.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import gguf
from gguf import GGMLQuantizationType as Stored
from gguf import LlamaFileType, TokenType
from tokenizers import pre_tokenizers
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from specdemo.errors import PairError, SpecDemoError
from specdemo.files import written_whole
from specdemo.models.eagle3_head import Eagle3Head
from specdemo.models.pair import ModelPair
from specdemo.runs.load import load_pair
from specdemo.training.tasks.tokenizer import cut

TYPES = {
    "float32": (Stored.F32, LlamaFileType.ALL_F32),
    "bfloat16": (Stored.BF16, LlamaFileType.MOSTLY_BF16),
    "Q8_0": (Stored.Q8_0, LlamaFileType.MOSTLY_Q8_0),
}
"""The types that the matrices can have; vectors are always float32."""
ARCHITECTURES = {"llama": gguf.MODEL_ARCH.LLAMA, "qwen3": gguf.MODEL_ARCH.QWEN3}
"""The model types of transformers that are written, under the same names."""
HEAD_ONLY = {"fc.weight": "fc.weight", "model.layers.0.hidden_norm.weight": "blk.0.attn_norm_2.weight"}
"""llama.cpp's names of what a head has and a Llama model has not."""


def write_pair(pair: ModelPair, out: Path, kind: str) -> list[Path]:
    """Write ``target.gguf``, and ``draft.gguf`` and ``head.gguf`` where the pair has them.

    Raises:
        PairError: llama.cpp cannot run a part of the pair.
    """
    assert pair.tokenizer is not None
    out.mkdir(parents=True, exist_ok=True)
    parts = {"target": pair.target, "draft": pair.draft, "head": pair.head}
    written = {out / f"{name}.gguf": model for name, model in parts.items() if model is not None}
    for path, model in written.items():
        write_model(path, model, pair.tokenizer, kind)
    return list(written)


def write_model(
    path: Path, model: PreTrainedModel | Eagle3Head, tokenizer: PreTrainedTokenizerBase, kind: str = "float32"
) -> None:
    """Write one model or head, with the target's tokenizer and matrices of one of ``TYPES``.

    Raises:
        PairError: llama.cpp cannot run it, or would read other tokens from it.
    """
    if reason := unsupported_reason(model):
        raise PairError(f"llama.cpp cannot run this: {reason}.")
    head = model if isinstance(model, Eagle3Head) else None
    config: Any = head.config.layer if head else model.config
    blocks, rows = (1, head.config.vocabulary) if head else (config.num_hidden_layers, config.vocab_size)
    with written_whole(path) as partial:
        writer = gguf.GGUFWriter(partial, "eagle3" if head else config.model_type)
        writer.add_file_type(TYPES[kind][1])
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        writer.add_context_length(config.max_position_embeddings)
        writer.add_embedding_length(config.hidden_size)
        writer.add_block_count(blocks)
        writer.add_feed_forward_length(config.intermediate_size)
        writer.add_head_count(config.num_attention_heads)
        writer.add_head_count_kv(config.num_key_value_heads)
        for add in (writer.add_key_length, writer.add_value_length, writer.add_rope_dimension_count):
            add(size)
        writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        _add_tokenizer(writer, tokenizer, rows)
        _add_weights(writer, model, config, blocks, kind)
        if head:
            writer.add_array("eagle3.target_layers", list(head.aux_layers))
            writer.add_uint32("eagle3.target_hidden_size", head.config.target_width)
            writer.add_bool("eagle3.norm_before_residual", head.config.norm_before_residual)
            if head.translates():
                writer.add_tensor("d2t", head.target_ids.cpu().numpy(), raw_dtype=Stored.I64)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def unsupported_reason(model: PreTrainedModel | Eagle3Head) -> str | None:
    """Why llama.cpp cannot run this model or head; None if it can."""
    if not isinstance(model, Eagle3Head):
        kind = model.config.model_type
        return None if kind in ARCHITECTURES else f"it is of type {kind}; give {' or '.join(ARCHITECTURES)}"
    config, layer = model.config, model.config.layer
    reasons = {
        f"it reads {len(model.aux_layers)} of the target's layers, not three": len(model.aux_layers) != 3,
        f"its layer is of type {layer.model_type}, not llama": layer.model_type != "llama",
        "it has norms before fc": config.norm_before_fc or config.fc_norm,
        "its draft steps read another state": not config.norm_before_head or config.feeds_norm,
        "its layer has biases": layer.attention_bias or layer.mlp_bias,
        "its rotary positions are scaled": (layer.rope_parameters or {}).get("rope_type") != "default",
    }
    return next((reason for reason, applies in reasons.items() if applies), None)


def _add_weights(
    writer: gguf.GGUFWriter, model: PreTrainedModel | Eagle3Head, config: Any, blocks: int, kind: str
) -> None:
    """The parameters under llama.cpp's names; ``config`` is that of their layers."""
    names = gguf.get_tensor_name_map(ARCHITECTURES[config.model_type], blocks)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, weight in model.named_parameters():  # without a tied output layer, as llama.cpp has it
        if isinstance(model, Eagle3Head):
            name = f"model.{name}" if name.startswith(("norm", "embed_tokens", "midlayer")) else name
            name = name.replace("midlayer", "layers.0")
        array = weight.detach().float().cpu()
        rotated = heads.get(name.removesuffix(".weight").rpartition(".")[2])
        if rotated and config.model_type == "llama":
            # llama.cpp rotates a head by neighbouring pairs, transformers by halves.
            array = array.view(rotated, 2, -1, array.shape[1]).transpose(1, 2).reshape(array.shape)
        stored = TYPES[kind][0] if array.ndim > 1 else Stored.F32
        theirs = HEAD_ONLY.get(name) or names.get_name(name, try_suffixes=(".weight", ".bias"))
        if theirs is None:
            raise PairError(f"llama.cpp has no name for the weight {name}.")
        writer.add_tensor(theirs, gguf.quants.quantize(array.numpy(), stored), raw_dtype=stored)


def _add_tokenizer(writer: gguf.GGUFWriter, tokenizer: PreTrainedTokenizerBase, rows: int) -> None:
    """One of this project's tokenizers, for a model of so many rows of embeddings; each row must have a text."""
    backend = tokenizer.backend_tokenizer
    model = json.loads(backend.to_str())["model"]
    alike = pre_tokenizers.Sequence(cut()).__getstate__() == backend.pre_tokenizer.__getstate__()
    if not alike or model["type"] != "BPE":
        raise PairError("llama.cpp would cut text in another way than this tokenizer; give one of this project's.")
    texts = {index: text for text, index in tokenizer.get_vocab().items()}
    control = dict.fromkeys(tokenizer.added_tokens_decoder, TokenType.CONTROL)
    types = dict.fromkeys(texts, TokenType.NORMAL) | control
    writer.add_vocab_size(rows)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("viking")  # llama.cpp's name of that cut
    writer.add_token_list([texts.get(row, f"<|unused {row}|>") for row in range(rows)])
    writer.add_token_types([types.get(row, TokenType.UNUSED) for row in range(rows)])
    writer.add_token_merges([" ".join(pair) for pair in model["merges"]])
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_pad_token_id(tokenizer.pad_token_id)
    writer.add_add_bos_token(True)
    if tokenizer.chat_template:
        writer.add_chat_template(tokenizer.chat_template)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m specdemo.training.gguf", description=__doc__)
    parser.add_argument("out", type=Path, help="folder for target.gguf, draft.gguf and head.gguf")
    parser.add_argument("--pair", default="builtin", help="an id of the catalogue, or TARGET + DRAFT (+ HEAD)")
    parser.add_argument("--type", choices=TYPES, default="float32", help="of the matrices (float32)")
    args = parser.parse_args()
    try:
        written = write_pair(load_pair(args.pair, "cpu", "float32"), args.out, args.type)
    except (OSError, SpecDemoError) as error:
        parser.error(f"--pair: {error}")
    for path in written:
        print(f"{path}: {path.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
