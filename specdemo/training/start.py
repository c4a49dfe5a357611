"""Weights that copy before anything is trained: an induction head in the first two layers of a Llama model.

Training finds copying late (here after 4.5M tokens), since two layers must learn their halves of it together
(Olsson et al., arXiv 2209.11895). The halves are known, so training may begin with them, as arXiv 2305.09828 does
with other structures:

- One entry of each embedding is the same for all tokens. Some entries begin as zero: they are for codes of the
  last few tokens. The rest says which token it is.
- Layer 0: head j attends to the token j + 1 places back, by the constant entry and the rotary angle of so many
  places, and writes that token's code.
- Layer 1: a head attends to where the same tokens stood before: its query has the codes of the last tokens, its
  keys those of the tokens one place further back. It writes the token that stands there.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import LlamaForCausalLM

SPREAD = 0.1  # of embeddings: the larger, the less an update of the layers changes what they begin with
CONSTANT = 8 * SPREAD
SHARP = 12.0  # by how much the logit of the place j + 1 back exceeds its neighbours'
MATCH = 2.0  # the scale of queries and keys that are compared
COPIED = 3.0  # of what a copying head writes, in spreads
CERTAINTY = 0.8  # the last norm's weight
FARTHEST = 256  # places over which two tokens are compared


@torch.no_grad()
def start_copying(model: LlamaForCausalLM) -> None:
    """Changes embeddings, last norm and the first two layers; leaves one head of each, and their MLPs, free."""
    config: Any = model.config
    layers = model.model.layers
    width, heads = config.hidden_size, config.num_attention_heads
    size, back = width // heads, heads - 1
    code, half = width // 7, size // 2
    told = 1 + back * code  # where the entries begin that tell which token it is
    codes = [slice(1 + j * code, 1 + (j + 1) * code) for j in range(back)]
    angles = config.rope_parameters["rope_theta"] ** (-torch.arange(half) / half)
    fast = (angles > 0.05).nonzero()[:, 0]
    slow = (angles * FARTHEST < 1).nonzero()[:, 0]
    still = torch.cat([slow, slow + half])  # entries of a head that hardly turn over such distances

    embeddings = model.model.embed_tokens.weight
    embeddings.normal_(0, SPREAD)
    embeddings[:, 0] = CONSTANT
    embeddings[:, 1:told] = 0
    scale = embeddings.square().mean(1).sqrt().mean()
    model.model.norm.weight.fill_(CERTAINTY)
    for layer in layers[:2]:  # all else begins by writing nothing
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()

    coder = _orthogonal(code, width - told)
    strength = (SHARP * size**0.5 / (1 - angles[fast].cos()).sum()).sqrt() * scale / CONSTANT
    for j in range(back):
        query, key, value, out = _head(layers[0], j, size)
        query[fast, 0] = strength
        key[fast, 0] = strength * ((j + 1) * angles[fast]).cos()
        key[fast + half, 0] = strength * ((j + 1) * angles[fast]).sin()
        value[:code, told:] = coder
        out[codes[j], :code] = scale * torch.eye(code)

    mixers = [MATCH * _orthogonal(len(still), code) for _ in range(back)]
    places = _orthogonal(width - told, width - told)[: back * size].chunk(back)
    for head, place in enumerate(places):
        query, key, value, out = _head(layers[1], head, size)
        query[still, told:] = mixers[0] @ coder
        for j, mixer in enumerate(mixers):
            key[still, codes[j]] = mixer
            if j:
                query[still, codes[j - 1]] = mixer
        value[: len(place), told:] = place
        out[told:, : len(place)] = COPIED * scale * place.T


def _orthogonal(rows: int, columns: int) -> torch.Tensor:
    """Random, with orthonormal rows or columns, whichever are fewer."""
    return torch.nn.init.orthogonal_(torch.empty(rows, columns))


def _head(layer: torch.nn.Module, index: int, size: int) -> tuple[torch.Tensor, ...]:
    """Views of one head's query, key, value and output weights, set to zero."""
    head = slice(index * size, (index + 1) * size)
    weights = [layer.get_parameter(f"self_attn.{part}_proj.weight") for part in "qkvo"]
    return tuple((w[:, head] if i == 3 else w[head]).zero_() for i, w in enumerate(weights))
