"""Which models can be a pair, and how a pair is loaded by name."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import transformers
from families import tiny
from toys import EOS, build, endless_pair, generate, prompt_ids

import specdemo
from specdemo import ModelPair, PairError, Settings

SMALL = {"vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
LLAMA = transformers.LlamaConfig(**SMALL, intermediate_size=16, num_key_value_heads=1, pad_token_id=0)
T5 = transformers.T5Config(vocab_size=64, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
REFUSED: dict[str, Callable[[], object]] = {
    "t5": lambda: transformers.T5ForConditionalGeneration(T5),
    "recurrent without a cache": lambda: tiny("rwkv", vocab_size=64),
    "masked bert": lambda: transformers.BertForMaskedLM(transformers.BertConfig(**SMALL, intermediate_size=16)),
    "llama without a head": lambda: transformers.LlamaModel(LLAMA),
    "classifier": lambda: transformers.LlamaForSequenceClassification(LLAMA),
    "layer": lambda: torch.nn.Linear(2, 2),
    "text": lambda: "gpt2",
    "number": lambda: 5,
    "nothing": lambda: None,
}


@pytest.mark.parametrize("role", ["target", "draft"])
@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_decode_or_roll_back_is_refused_by_role(kind: str, role: str) -> None:
    """Guards invariant 6: what keeps no cache, encoders and other things are refused before anything runs.

    A model that is let through either crashes later or, worse, decodes something else than it would alone.
    """
    if kind == "nothing" and role == "draft":
        return  # a target may be alone
    good, bad = endless_pair("llama").target, REFUSED[kind]()
    with pytest.raises(PairError, match=role):
        ModelPair(bad, good, None) if role == "target" else ModelPair(good, bad, None)


@pytest.mark.parametrize("family", ["cpmant", "mamba", "prophetnet"])
@pytest.mark.parametrize("role", ["target", "draft"])
def test_a_model_that_fails_with_a_cache_is_refused_in_a_sentence(family: str, role: str) -> None:
    """Guards against the raw errors of families that no attribute tells from others."""
    good, bad = endless_pair("llama").target, tiny(family, vocab_size=64)
    pair = ModelPair(bad) if role == "target" else ModelPair(good, bad)
    settings = Settings(strategy="autoregressive" if role == "target" else "speculative", max_new_tokens=4)
    with pytest.raises(PairError, match=rf"^{role}: .* cannot decode with a KV cache \(.+\); choose another"):
        specdemo.run(pair, prompt_ids(6), settings)


def test_a_pair_knows_its_end_tokens_context_and_widths() -> None:
    """Guards the facts that the loop stops by, for one end token, several and none."""
    llama, gpt2 = build("llama", context=99), build("gpt2", context=77, eos=5)
    assert ModelPair(llama, gpt2, None).eos_ids == frozenset(EOS)
    assert ModelPair(gpt2, llama, None).eos_ids == {5}
    assert ModelPair(build("llama", eos=None), None, None).eos_ids == frozenset()
    chat = build("llama", eos=5)
    chat.generation_config.eos_token_id = [5, 6]  # the end of a turn stands there alone
    assert ModelPair(chat, None, None).eos_ids == {5, 6}
    assert ModelPair(llama, gpt2, None).context_for() == 77
    assert ModelPair(llama, None, None).context_for() == 99
    assert ModelPair(llama, None, None).vocabulary == 64
    assert ModelPair(llama, None, None).dtype == "float32"


def test_the_builtin_pair_loads_and_runs() -> None:
    """Guards the default way in: float32 on a CPU whatever is stored, evaluation mode, one tokenizer."""
    pair = specdemo.load_pair("builtin", device="cpu")
    assert pair.name == "builtin"
    assert pair.dtype == "float32"
    assert not any(model.training for model in (pair.target, pair.draft))
    trace = specdemo.run(pair, "hi", Settings(gamma=2, max_new_tokens=8))
    assert trace.pair == "builtin"
    assert trace.token_ids == generate(pair.target, trace.prompt_ids, 8)
    for dtype in ("bfloat16", torch.bfloat16):
        assert specdemo.load_pair("builtin", device="cpu", dtype=dtype).dtype == "bfloat16"
