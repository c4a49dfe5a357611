"""Which models can be a pair, and how a pair is loaded by name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers
from toys import (
    BYTE_VOCABULARY,
    EOS,
    build,
    byte_tokenizer,
    endless_pair,
    generate,
    perturbed,
    prompt_ids,
)

import specdemo
from specdemo import ModelPair, PairError, Settings, SettingsError, SpecDemoError

SMALL = {
    "vocab_size": 64,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
GROUPED = {**SMALL, "num_key_value_heads": 1}
HYBRID = {**GROUPED, "num_hidden_layers": 2}


def t5() -> object:
    config = transformers.T5Config(vocab_size=64, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    return transformers.T5ForConditionalGeneration(config)


def mamba() -> object:
    config = transformers.MambaConfig(vocab_size=64, hidden_size=16, num_hidden_layers=1, state_size=4)
    return transformers.MambaForCausalLM(config)


def recurrent_gemma() -> object:
    return transformers.RecurrentGemmaForCausalLM(transformers.RecurrentGemmaConfig(**GROUPED, lru_width=16))


def qwen3_next() -> object:
    return transformers.Qwen3NextForCausalLM(transformers.Qwen3NextConfig(**GROUPED))


def lfm2() -> object:
    return transformers.Lfm2ForCausalLM(transformers.Lfm2Config(**HYBRID, layer_types=["conv", "full_attention"]))


def minimax() -> object:
    layers = ["linear_attention", "full_attention"]
    return transformers.MiniMaxForCausalLM(
        transformers.MiniMaxConfig(**HYBRID, num_local_experts=2, layer_types=layers)
    )


def bert_masked() -> object:
    return transformers.BertForMaskedLM(transformers.BertConfig(**SMALL))


def llama_without_head() -> object:
    return transformers.LlamaModel(transformers.LlamaConfig(**GROUPED))


def classifier() -> object:
    return transformers.LlamaForSequenceClassification(transformers.LlamaConfig(**GROUPED, pad_token_id=0))


REFUSED = [
    t5,
    mamba,
    recurrent_gemma,
    qwen3_next,
    lfm2,
    minimax,
    bert_masked,
    llama_without_head,
    classifier,
    lambda: torch.nn.Linear(2, 2),
    lambda: "gpt2",
    lambda: 5,
]


@pytest.mark.parametrize("role", ["target", "draft"])
@pytest.mark.parametrize("make", REFUSED, ids=lambda make: make.__name__)
def test_what_cannot_decode_or_roll_back_is_refused_by_role(make: object, role: str) -> None:
    """Guards invariant 6: recurrent states, hybrids, encoders and other things are refused before anything runs.

    A model that is let through either crashes later or, worse, decodes something else than it would alone.
    """
    good, bad = endless_pair("llama").target, make()
    with pytest.raises(PairError, match=role) as caught:
        ModelPair(bad, good, None) if role == "target" else ModelPair(good, bad, None)
    assert isinstance(caught.value, SpecDemoError)


def test_a_pair_without_a_target_is_refused() -> None:
    """Guards against an AttributeError at the first run: only the draft may be left out."""
    with pytest.raises(PairError, match="target"):
        ModelPair(None, endless_pair("llama").draft, None)


def test_a_model_without_a_cache_is_refused_or_equals_generate() -> None:
    """Guards GPT-1, a causal model without a KV cache: fed a token at a time it forgets its prompt, silently."""
    torch.manual_seed(0)
    config = transformers.OpenAIGPTConfig(vocab_size=64, n_embd=16, n_layer=2, n_head=2, n_positions=64)
    model = transformers.OpenAIGPTLMHeadModel(config).eval()
    with torch.no_grad():
        for weights in model.parameters():
            if weights.ndim > 1:
                weights.normal_(0.0, 0.3)
    try:
        pair = ModelPair(model, model, None)
    except PairError:
        return
    trace = specdemo.run(pair, prompt_ids(6), Settings(gamma=3, max_new_tokens=16))
    assert trace.token_ids == generate(model, prompt_ids(6), 16)


def test_a_pair_without_a_draft_decodes_autoregressively() -> None:
    """Guards the baseline alone."""
    target = endless_pair("llama").target
    settings = Settings(strategy="autoregressive", max_new_tokens=12)
    trace = specdemo.run(ModelPair(target, None, None), prompt_ids(6), settings)
    assert trace.token_ids == generate(target, prompt_ids(6), 12)


@pytest.mark.parametrize("start", [specdemo.run, specdemo.stream])
def test_a_pair_without_a_draft_refuses_to_speculate(start: object) -> None:
    """Guards against an AttributeError on None; the message names the setting to change."""
    with pytest.raises(SettingsError) as caught:
        start(ModelPair(endless_pair("llama").target, None, None), prompt_ids(6), Settings())
    assert caught.value.field == "drafter"
    assert "draft model" in str(caught.value)


def test_a_pair_knows_its_end_tokens_context_and_widths() -> None:
    """Guards the facts that the loop stops by, for one end token, several and none."""
    llama, gpt2 = build("llama", context=99), build("gpt2", context=77, eos=5)
    assert ModelPair(llama, gpt2, None).eos_ids == frozenset(EOS)
    assert ModelPair(gpt2, llama, None).eos_ids == {5}
    assert ModelPair(build("llama", eos=None), None, None).eos_ids == frozenset()
    assert ModelPair(llama, gpt2, None).context == 77
    assert ModelPair(llama, None, None).context == 99
    assert ModelPair(llama, None, None).vocabulary == 64
    assert ModelPair(llama, None, None).dtype == "float32"


def test_the_generation_config_decides_the_end_tokens() -> None:
    """Guards chat models, whose end of turn stands in generation_config alone."""
    model = build("llama", eos=5)
    model.generation_config.eos_token_id = [5, 6]
    assert ModelPair(model, None, None).eos_ids == {5, 6}


# --- by name ----------------------------------------------------------------------------------------------


@pytest.fixture
def assets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folders of the builtin pair, with tiny models in them."""
    target = build("llama", vocabulary=BYTE_VOCABULARY, eos=[1])
    target.to(torch.bfloat16).save_pretrained(tmp_path / "builtin/target")
    byte_tokenizer().save_pretrained(tmp_path / "builtin/target")
    perturbed(target).save_pretrained(tmp_path / "builtin/draft")
    byte_tokenizer().save_pretrained(tmp_path / "builtin/draft")
    monkeypatch.setattr("specdemo.models.source.ASSETS", tmp_path)
    return tmp_path


def test_the_builtin_pair_loads_and_runs(assets: Path) -> None:
    """Guards the default way in: float32 on a CPU whatever is stored, evaluation mode, one tokenizer."""
    pair = specdemo.load_pair("builtin", device="cpu")
    assert pair.name == "builtin"
    assert pair.dtype == "float32"
    assert not pair.target.training
    assert not pair.draft.training
    trace = specdemo.run(pair, "hi", Settings(gamma=2, max_new_tokens=8))
    assert trace.pair == "builtin"
    assert trace.token_ids == generate(pair.target, trace.prompt_ids, 8)


@pytest.mark.parametrize("dtype", ["bfloat16", torch.bfloat16])
def test_a_dtype_may_be_a_name_or_torchs_own(assets: Path, dtype: object) -> None:
    """Guards both spellings of the documented argument."""
    assert specdemo.load_pair("builtin", device="cpu", dtype=dtype).dtype == "bfloat16"


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"name": "/nope"}, "pair"),
        ({"name": ""}, "pair"),
        ({"device": "toaster"}, "device"),
        ({"device": "cuda:99"}, "device"),
        ({"dtype": "float99"}, "dtype"),
        ({"dtype": torch.int8}, "dtype"),
        ({"dtype": ""}, "dtype"),
        ({"target_quantization": "int3"}, "quantisation"),
        ({"draft_quantization": "int3"}, "quantisation"),
        ({"draft_quantization": ""}, "quantisation"),
    ],
    ids=str,
)
def test_an_unknown_choice_is_refused_by_name(assets: Path, arguments: dict[str, object], field: str) -> None:
    """Guards the messages of load_pair: which choice was wrong, and what there is."""
    with pytest.raises(PairError, match=field):
        specdemo.load_pair(**{"device": "cpu", **arguments})


def test_an_unknown_name_lists_the_known_ones() -> None:
    """Guards the message: it must say what to do."""
    with pytest.raises(PairError, match="builtin"):
        specdemo.load_pair("bulitin")
