"""What GGUF files of models and heads share: types, tokenizer, order of rotated rows, and the file itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gguf
import torch
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from specdemo.files import written_whole

TYPES = {
    "float32": (gguf.GGMLQuantizationType.F32, gguf.LlamaFileType.ALL_F32),
    "bfloat16": (gguf.GGMLQuantizationType.BF16, gguf.LlamaFileType.MOSTLY_BF16),
    "Q8_0": (gguf.GGMLQuantizationType.Q8_0, gguf.LlamaFileType.MOSTLY_Q8_0),
}
"""The types that the matrices can have; vectors are always float32."""

DIGITS_THEN_BYTES = {
    "type": "Sequence",
    "pretokenizers": [
        {"type": "Digits", "individual_digits": True},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    ],
}
"""How this project's tokenizers cut text before merging; llama.cpp has the same under the name ``starcoder``."""


@contextmanager
def gguf_file(path: Path, architecture: str, kind: str) -> Iterator[gguf.GGUFWriter]:
    """A writer whose file stands at ``path`` once the block has ended well.

    Args:
        path: a file that is there is replaced.
        architecture: llama.cpp's name of it.
        kind: the matrices' type, one of ``TYPES``.
    """
    with written_whole(path) as partial:
        writer = gguf.GGUFWriter(partial, architecture)
        writer.add_file_type(TYPES[kind][1])
        yield writer
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def add_shape(writer: gguf.GGUFWriter, config: PreTrainedConfig, blocks: int, vocabulary: int) -> None:
    """Add the shape of ``blocks`` decoder layers of Llama's kind, with a vocabulary of so many tokens."""
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(blocks)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_rope_dimension_count(head)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(vocabulary)


def add_weight(writer: gguf.GGUFWriter, name: str, weight: torch.Tensor, kind: str, heads: int = 0) -> None:
    """Add a matrix in the type ``kind``, or a vector.

    ``heads``: of a projection whose heads llama.cpp rotates by neighbouring pairs; transformers rotates by halves.
    """
    array = weight.detach().float().cpu()
    if heads:
        array = _interleaved(array, heads)
    stored = TYPES[kind][0] if array.ndim > 1 else gguf.GGMLQuantizationType.F32
    writer.add_tensor(name, gguf.quants.quantize(array.numpy(), stored), raw_dtype=stored)


def add_tokenizer(writer: gguf.GGUFWriter, tokenizer: PreTrainedTokenizerBase, size: int) -> None:
    """Add one of this project's tokenizers, for a model of ``size`` rows of embeddings.

    Raises:
        ValueError: another kind of tokenizer.
    """
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    if state["pre_tokenizer"] != DIGITS_THEN_BYTES or state["model"]["type"] != "BPE":
        raise ValueError(
            "this tokenizer cuts text in another way than llama.cpp would; give one of this project's."
        )
    special = set(tokenizer.added_tokens_decoder)
    # llama.cpp wants a text for every row of the embeddings.
    texts = {index: text for text, index in tokenizer.get_vocab().items()}
    rows = range(size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("starcoder")
    writer.add_token_list([texts.get(row, f"<|unused {row}|>") for row in rows])
    normal, control, unused = gguf.TokenType.NORMAL, gguf.TokenType.CONTROL, gguf.TokenType.UNUSED
    writer.add_token_types([control if r in special else normal if r in texts else unused for r in rows])
    writer.add_token_merges([" ".join(pair) for pair in state["model"]["merges"]])
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_pad_token_id(tokenizer.pad_token_id)
    writer.add_add_bos_token(True)
    if tokenizer.chat_template:
        writer.add_chat_template(tokenizer.chat_template)


def _interleaved(weight: torch.Tensor, heads: int) -> torch.Tensor:
    rows, columns = weight.shape
    return weight.view(heads, 2, rows // heads // 2, columns).transpose(1, 2).reshape(rows, columns)
