"""A Llama or Qwen3 model as a GGUF file for llama.cpp."""

from __future__ import annotations

from pathlib import Path

import gguf
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from specdemo.training.gguf.parts import add_shape, add_tokenizer, add_weight, gguf_file

ARCHITECTURES = {"llama": gguf.MODEL_ARCH.LLAMA, "qwen3": gguf.MODEL_ARCH.QWEN3}
"""The model types of transformers that are written."""


def write_model(
    path: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None, kind: str = "float32"
) -> None:
    """Write one model with its tokenizer.

    Args:
        path: of the file; a file that is there is replaced once the new one is whole.
        model: a Llama or Qwen3 causal LM.
        tokenizer: one of this project's: byte-level BPE whose digits are tokens one by one. None writes numbers as
            texts and next to no end token, for models of which only the speed is measured.
        kind: the matrices' type, one of ``parts.TYPES``.

    Raises:
        ValueError: another architecture or another tokenizer; llama.cpp would read other tokens from it.
    """
    config = model.config
    if config.model_type not in ARCHITECTURES:
        raise ValueError(f"{config.model_type} models are not written; give one of {', '.join(ARCHITECTURES)}.")
    architecture = ARCHITECTURES[config.model_type]
    with gguf_file(path, gguf.MODEL_ARCH_NAMES[architecture], kind) as writer:
        add_shape(writer, config, config.num_hidden_layers, config.vocab_size)
        if tokenizer is None:
            _add_numbers(writer, config.vocab_size)
        else:
            add_tokenizer(writer, tokenizer, config.vocab_size)
        _add_tensors(writer, model, architecture, kind)


def _add_numbers(writer: gguf.GGUFWriter, size: int) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([f"<{row}>" for row in range(size)])
    writer.add_token_types([gguf.TokenType.NORMAL] * size)
    writer.add_token_merges(["< >"])  # an empty list cannot be written
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(size - 1)  # else llama.cpp ends at a number of its own
    writer.add_add_bos_token(False)


def _add_tensors(
    writer: gguf.GGUFWriter, model: PreTrainedModel, architecture: gguf.MODEL_ARCH, kind: str
) -> None:
    config = model.config
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    names = gguf.get_tensor_name_map(architecture, config.num_hidden_layers)
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue  # llama.cpp then takes the embeddings
        rotated = heads.get(name.split(".")[-2], 0) if architecture is gguf.MODEL_ARCH.LLAMA else 0
        add_weight(writer, names.get_name(name, try_suffixes=(".weight", ".bias")), weight, kind, rotated)
