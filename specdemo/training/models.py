"""The Llama models that are trained: built, grown in depth, read and written."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from specdemo.training.recipe import Shape
from specdemo.training.tasks.tokenizer import BOS_ID, END_ID

SHARD_SIZE = "9MB"  # any git host takes files of that size


def build_model(part: Shape, layers: int, vocabulary: int, context: int, seed: int) -> LlamaForCausalLM:
    """A freshly initialised Llama with tied embeddings."""
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=part.width,
            num_hidden_layers=layers,
            num_attention_heads=part.heads,
            num_key_value_heads=part.heads,
            intermediate_size=part.feed_forward,
            max_position_embeddings=context,
            rope_parameters={"rope_type": "default", "rope_theta": part.rotary_base},
            tie_word_embeddings=True,
            bos_token_id=BOS_ID,
            eos_token_id=END_ID,
            pad_token_id=BOS_ID,
        )
    )


@torch.no_grad()
def grow(model: LlamaForCausalLM, deeper: LlamaForCausalLM) -> None:
    """Gives ``deeper`` the trained weights of ``model``, and what it computes.

    A new layer begins as a copy of the one before it that writes nothing (arXiv 2401.02415).
    """
    deeper.model.embed_tokens.load_state_dict(model.model.embed_tokens.state_dict())
    deeper.model.norm.load_state_dict(model.model.norm.state_dict())
    old, new = model.model.layers, deeper.model.layers
    for index, layer in enumerate(new):
        source, rest = divmod(index * len(old), len(new))
        layer.load_state_dict(old[source].state_dict())
        if rest >= len(old):  # the layer before has the same source
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()


def read_model(folder: Path) -> LlamaForCausalLM:
    """A finished model, in float32."""
    return LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def read_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast.from_pretrained(folder)


def write_model(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path, note: str) -> None:
    """Save in bfloat16 with the tokenizer beside; ``note``, for the card, says how the model was trained."""
    for old in folder.glob("*.safetensors*"):
        old.unlink()
    model.config.training_note = note
    nn.Module.to(model, "cpu", torch.bfloat16)
    model.save_pretrained(folder, max_shard_size=SHARD_SIZE)
    tokenizer.save_pretrained(folder)
