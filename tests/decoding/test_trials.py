"""What is tried before a model's first run, tree or batch: nothing wrong passes, and it costs a few tokens."""

from __future__ import annotations

import pytest
import torch
from families import tiny
from toys import build, perturbed, prompt_ids

import specdemo
from specdemo import ModelPair, PairError, Settings, SettingsError
from specdemo.decoding.trials import MadeUpPast, check_chain, check_rows, check_trees


@pytest.mark.parametrize("window", [8, 300])
def test_a_window_that_only_the_model_knows_is_passed(window: int) -> None:
    """Guards against trials of a few tokens: far behind them gpt_neo's window is cut by slots, not positions."""
    model = tiny("gpt_neo", window_size=window, max_position_embeddings=1024)
    check_chain("target", model)
    with pytest.raises(SettingsError, match=r"tree_nodes: the target, a GPTNeoForCausalLM, reads no draft trees"):
        check_trees("target", model, "auto")
    with pytest.raises(PairError, match=r"draft: GPTNeoForCausalLM cannot decode a batch"):
        check_rows("draft", model)


def test_windows_are_passed_as_far_as_a_model_has_positions() -> None:
    assert MadeUpPast(tiny("mistral", sliding_window=1000, max_position_embeddings=4096)).shorter > 1000
    short = build("gpt2", context=20)
    assert MadeUpPast(short).length + 16 <= 20
    check_trees("target", short, "auto")
    check_rows("target", short)


def test_a_trial_feeds_few_tokens_once_a_pair() -> None:
    """Guards the cost at a large model's first tree."""
    target = build("gemma3")
    pair, fed = ModelPair(target, perturbed(target)), []
    settings = Settings(tree_nodes=4, gamma=2, max_new_tokens=2)
    specdemo.run(pair, prompt_ids(5), Settings(max_new_tokens=1))
    for model in pair.models:
        model.get_input_embeddings().register_forward_pre_hook(lambda _, given: fed.append(given[0].numel()))
    specdemo.run(pair, prompt_ids(5), settings)
    first, fed[:] = sum(fed), []
    specdemo.run(pair, prompt_ids(5), settings)
    assert 0 < first - sum(fed) < 100


@pytest.mark.parametrize(
    ("family", "said"), [("bert", "set up as an encoder"), ("bert-generation", "one forward")]
)
def test_an_encoder_is_no_causal_language_model(family: str, said: str) -> None:
    """Guards against tokens that see those behind them: by what the family is, else by trying."""
    with pytest.raises(PairError, match=f"target: .*{said}.*choose a"):
        specdemo.run(ModelPair(tiny(family, is_decoder=False)), prompt_ids(9), Settings(strategy="autoregressive"))


def test_a_broken_model_is_called_so() -> None:
    model = build("gemma3")
    with torch.no_grad():
        model.get_output_embeddings().weight.fill_(torch.nan)
    with pytest.raises(PairError, match="not finite"):
        check_trees("target", model, "auto")
