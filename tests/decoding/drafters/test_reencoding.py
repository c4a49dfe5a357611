"""A draft with another tokenizer: the target's output stays its own, and text is really passed on."""

from __future__ import annotations

import functools

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from toys import BYTE_VOCABULARY, build, byte_tokenizer, generate, scripted
from transformers import PreTrainedTokenizerFast

import specdemo
from specdemo import ModelPair, PromptError, Settings, SettingsError

SENTENCE = " the cat sat on the mat, and the dog sat on the cat;"
PROMPT = "the mat:"


@functools.cache
def word_tokenizer(*, lowercase: bool = False, vocabulary: int = 300) -> PreTrainedTokenizerFast:
    """A BPE that knows some words of the sentence, with a begin token that the byte tokenizer lacks."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    if lowercase:
        backend.normalizer = normalizers.Lowercase()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=["<s>"], initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator([SENTENCE + PROMPT], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="<s>")


def saying(tokenizer: PreTrainedTokenizerFast, text: str, prompt: str = PROMPT) -> torch.nn.Module:
    """A model that continues the prompt with ``text``, in the tokens of its own tokenizer."""
    begun = tokenizer(prompt)["input_ids"]
    whole = tokenizer(prompt + text)["input_ids"]
    assert whole[: len(begun)] == begun, "the toy's seam must be clean"
    return scripted(whole[len(begun) :], start=len(begun), vocabulary=len(tokenizer))


def byte_target(text: str) -> torch.nn.Module:
    tokenizer = byte_tokenizer(None)
    ids = tokenizer(text)["input_ids"]
    return scripted(ids, start=len(tokenizer(PROMPT)["input_ids"]), vocabulary=BYTE_VOCABULARY)


def run(pair: ModelPair, tokens: int, **fields: object) -> specdemo.Trace:
    return specdemo.run(pair, PROMPT, Settings(**{"gamma": 6, "max_new_tokens": tokens, **fields}))


def test_text_that_both_would_write_is_accepted_across_tokenizers() -> None:
    """Guards the way there and back: word tokens become byte tokens, at the right place."""
    draft = saying(word_tokenizer(), SENTENCE)
    pair = ModelPair(byte_target(SENTENCE), draft, byte_tokenizer(None), draft_tokenizer=word_tokenizer())
    trace = run(pair, len(SENTENCE))
    assert trace.text == SENTENCE
    # The toy draft knows its words by position: it is right after whole words and lost inside one.
    blocks = [r.accepted == r.drafted for r in trace.rounds if r.drafted]
    assert sum(blocks) >= 5, "whole blocks must be right"
    assert trace.metrics().mean_acceptance_length > 3
    assert {t.q for t in trace.tokens} == {None}, "what probability the draft gave these tokens is unknown"


def test_the_other_way_round_bytes_become_words() -> None:
    """Guards a draft whose γ tokens make fewer tokens of the target, the last of them perhaps half a word."""
    tokenizer = word_tokenizer()
    target = saying(tokenizer, SENTENCE)
    bytes_ = byte_tokenizer(None)
    draft = byte_target(SENTENCE)
    words = tokenizer(PROMPT + SENTENCE)["input_ids"][len(tokenizer(PROMPT)["input_ids"]) :]
    trace = run(ModelPair(target, draft, tokenizer, draft_tokenizer=bytes_), len(words), gamma=12)
    assert trace.token_ids == words
    assert trace.metrics().accepted >= len(words) // 2


@pytest.mark.parametrize("gamma", [1, 16])
def test_greedy_ids_equal_generate_whatever_the_draft_writes(gamma: int) -> None:
    """Guards exactness on byte salad: broken characters, special tokens, seams inside tokens."""
    target = build("llama", vocabulary=BYTE_VOCABULARY, eos=None)
    draft = build("gpt2", vocabulary=300, seed=3, eos=None)
    pair = ModelPair(target, draft, byte_tokenizer(None), draft_tokenizer=word_tokenizer())
    for prompt in (PROMPT, "你好 🙂", "\u05e9\u05dc\u05d5\u05dd <|end|>"):
        ids = byte_tokenizer(None)(prompt)["input_ids"]
        trace = specdemo.run(pair, prompt, Settings(gamma=gamma, max_new_tokens=40))
        assert trace.token_ids == generate(target, ids, 40)


def test_a_draft_that_can_read_less_than_the_target_falls_silent_or_is_refused() -> None:
    """Guards learned positions: past them the rounds are plain steps, and a prompt past them is told at once."""
    draft = build("gpt2", vocabulary=300, context=12, eos=None)
    pair = ModelPair(byte_target(SENTENCE), draft, byte_tokenizer(None), draft_tokenizer=word_tokenizer())
    trace = run(pair, len(SENTENCE))
    assert trace.text == SENTENCE
    assert trace.rounds[-2].drafted == 0
    longest = "zebra " * 10
    with pytest.raises(PromptError, match="the draft reads at most 12, so it could never draft"):
        specdemo.stream(pair, longest, Settings(max_new_tokens=4))
    assert specdemo.run(pair, longest, Settings(drafter="prompt_lookup", max_new_tokens=4)).rounds


@pytest.mark.parametrize(
    ("pair", "settings", "message"),
    [
        ({"draft_tokenizer": word_tokenizer(lowercase=True)}, {}, "the draft's does not give back the text"),
        ({"tokenizer": None, "draft_tokenizer": word_tokenizer()}, {}, "the target's is missing"),
        ({"draft_tokenizer": word_tokenizer()}, {"strategy": "assisted"}, "'assisted' needs models of one"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(pair: dict, settings: dict, message: str) -> None:
    """Guards the message, before anything runs."""
    target = build("llama", vocabulary=BYTE_VOCABULARY)
    draft = build("llama", vocabulary=300)
    made = ModelPair(target, draft, **{"tokenizer": byte_tokenizer(None), **pair})
    with pytest.raises(SettingsError, match=message):
        specdemo.stream(made, [20, 21, 22], Settings(**settings))
