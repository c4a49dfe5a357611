"""The Llama models that are trained: built, grown in depth, read and written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SHARD_SIZE = "9MB"  # any git host takes files of that size


@dataclass(frozen=True, slots=True)
class Shape:
    """What a model's layers have in common, the sizes of what it reads, and the ids of both ends of a text."""

    hidden: int
    heads: int
    intermediate: int
    vocab_size: int
    context: int
    bos_id: int
    end_id: int


def build_model(shape: Shape, layers: int, seed: int) -> LlamaForCausalLM:
    """A freshly initialised Llama with tied embeddings."""
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=shape.vocab_size,
            hidden_size=shape.hidden,
            num_hidden_layers=layers,
            num_attention_heads=shape.heads,
            num_key_value_heads=shape.heads,
            intermediate_size=shape.intermediate,
            max_position_embeddings=shape.context,
            tie_word_embeddings=True,
            bos_token_id=shape.bos_id,
            eos_token_id=shape.end_id,
            pad_token_id=shape.bos_id,
        )
    )


def grown(model: LlamaForCausalLM, shape: Shape, layers: int, seed: int) -> LlamaForCausalLM:
    """A deeper model whose layers are the trained stack repeated (arXiv 2405.15319)."""
    deeper = build_model(shape, layers, seed)
    depth = model.config.num_hidden_layers
    deeper.model.embed_tokens.load_state_dict(model.model.embed_tokens.state_dict())
    deeper.model.norm.load_state_dict(model.model.norm.state_dict())
    for index, layer in enumerate(deeper.model.layers):
        layer.load_state_dict(model.model.layers[index % depth].state_dict())
    return deeper


def read_model(folder: Path) -> LlamaForCausalLM:
    """A finished model, in float32."""
    return LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def write_model(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path, note: str) -> None:
    """Save in bfloat16 with the tokenizer beside; ``note``, for the card, says how the model was trained."""
    for old in folder.glob("*.safetensors*"):
        old.unlink()
    model.config.training_note = note
    model.to("cpu", torch.bfloat16).save_pretrained(folder, max_shard_size=SHARD_SIZE)
    tokenizer.save_pretrained(folder)
