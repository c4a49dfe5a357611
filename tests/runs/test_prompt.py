"""From what a person typed to the ids the pair starts from."""

from __future__ import annotations

from dataclasses import replace

import pytest
from toys import BYTE_VOCABULARY, build, byte_tokenizer, perturbed, raced

import specdemo
from specdemo import ModelPair, PromptError, Settings, SettingsError, SpecDemoError
from specdemo.prompt import Conversation
from specdemo.runs import chat_template
from specdemo.runs.encode import encode

LOOPS = "".join(f"{{% for {name} in range(99999) %}}" for name in "abcd")
END, USER, ASSISTANT, THINK = 1, 2, 3, 4


def ids_of(text: str) -> list[int]:
    return byte_tokenizer()(text, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("earlier", ["text", ["text"], [20, 21], 5, None])
def test_earlier_outputs_are_token_ids(text_pair: ModelPair, earlier: object) -> None:
    """Guards against texts that are given and copied from in no run."""
    with pytest.raises(PromptError, match="lists of token ids"):
        specdemo.run(text_pair, "a", Settings(drafter="suffix"), earlier=earlier)
    with pytest.raises(PromptError, match="outside the target's vocabulary"):
        specdemo.run(text_pair, "a", Settings(drafter="suffix"), earlier=[[BYTE_VOCABULARY]])


def test_earlier_outputs_that_nobody_reads_are_refused(text_pair: ModelPair) -> None:
    lookup, suffix = (Settings(drafter=name, max_new_tokens=8) for name in ("prompt_lookup", "suffix"))
    server = specdemo.ServerPair("http://127.0.0.1:9", "http://127.0.0.1:9", "m")
    plain = replace(suffix, strategy="autoregressive")
    for pair, settings in ((text_pair, lookup), (text_pair, plain), (server, Settings()), (server, suffix)):
        with pytest.raises(SettingsError, match=r"^earlier: no lane here copies from it.*; leave it out"):
            specdemo.run(pair, "a", settings, earlier=[[20]])
    with pytest.raises(SettingsError, match=r"^earlier: no lane here copies from it"):
        specdemo.race(text_pair, "a", [lookup, lookup], earlier=[[20]])
    assert {lane for lane, _ in specdemo.race(text_pair, "a", [lookup, suffix], earlier=[[20]])} == {0, 1}


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        *((empty, "empty") for empty in ("", " ", "\n\t \u3000", [], ())),
        ([20, -1], "-1 is outside the target's vocabulary"),
        ([20, BYTE_VOCABULARY], f"{BYTE_VOCABULARY} is outside"),
        ([20, 10**12], "1000000000000 is outside"),
        *((other, "^prompt: ") for other in (["a"], [None], [[1, 2]], None, 5)),
        ("abc\ud83d def", "character 3"),  # half an emoji comes from careless JavaScript
    ],
)
def test_what_cannot_be_decoded_is_refused_at_once(text_pair: ModelPair, prompt: object, said: str) -> None:
    """Guards against errors from deep inside a model (on a GPU a dead context), and the page's thread."""
    for refused in (specdemo.run, specdemo.stream, encode):
        with pytest.raises(PromptError, match=said):
            refused(text_pair, prompt)
    with pytest.raises(SpecDemoError):
        specdemo.race(text_pair, prompt, [Settings(), Settings()])


def test_ids_are_taken_as_they_are(text_pair: ModelPair) -> None:
    """Guards against a chat template, or a beginning-of-text token, put around ids."""
    ids = [5, 1, 0, 260]
    assert encode(text_pair, ids) == ids
    assert encode(text_pair, tuple(ids), chat=True) == ids
    trace = specdemo.run(text_pair, ids, Settings(max_new_tokens=4))
    assert trace.prompt_ids == tuple(ids) == (5, 1, 0, 260), "the caller's own list must not grow"


@pytest.mark.parametrize("limited", ["target", "draft"])
def test_a_prompt_longer_than_either_context_is_refused(limited: str) -> None:
    """Guards against running over the last position of the draft, whose context is easily forgotten."""
    long, short = build("gpt2", context=64), build("gpt2", context=16)
    pair = ModelPair(short, long, None) if limited == "target" else ModelPair(long, short, None)
    for length in (16, 17, 40):
        with pytest.raises(PromptError, match="at most 16"):
            specdemo.run(pair, [20] * length)
    settings = Settings(max_new_tokens=5)
    assert len(specdemo.run(pair, [20] * 15, settings).token_ids) == 1, "one position is left"


def test_a_short_draft_binds_the_lanes_that_it_drafts_for_only() -> None:
    """Guards long prompts: plain decoding and every drafter without the draft read as far as the target."""
    long, short = build("gpt2", context=64, eos=None), build("gpt2", context=16)
    pair, prompt = ModelPair(long, short, None), [20] * 40
    free = [{"strategy": "autoregressive"}, {"drafter": "early_exit"}, {"drafter": "prompt_lookup"}]
    lanes = [Settings(max_new_tokens=40, **fields) for fields in free]
    for trace in raced(pair, prompt, lanes):
        assert len(trace.token_ids) == 24, "to the end of the target's context"
    for bound in (Settings(), Settings(strategy="assisted")):
        with pytest.raises(PromptError, match=r"draft reads at most 16 .* or draft without it"):
            specdemo.race(pair, prompt, [*lanes, bound])


def test_a_prompt_that_the_template_makes_too_long_is_refused() -> None:
    """Guards against checking the length before the template is applied."""
    target = build("llama", vocabulary=BYTE_VOCABULARY, context=12)
    pair = ModelPair(target, perturbed(target), byte_tokenizer())
    assert len(encode(pair, "x" * 9, chat=False)) == 9
    with pytest.raises(PromptError, match="at most 12"):
        encode(pair, "x" * 9, chat=True)


def test_chat_without_a_template_and_text_without_a_tokenizer_are_refused(text_pair: ModelPair) -> None:
    """Guards against a silent fall back to plain text, or to transformers' own error."""
    pair = ModelPair(text_pair.target, text_pair.draft, byte_tokenizer(None))
    with pytest.raises(PromptError, match="template"):
        specdemo.run(pair, "hi", Settings(chat=True))
    assert encode(pair, "hi") == ids_of("hi")
    with pytest.raises(PromptError, match="tokenizer"):
        specdemo.run(ModelPair(text_pair.target), "hi")


def test_the_template_is_applied_by_default_with_thinking_off(text_pair: ModelPair) -> None:
    """Guards hybrid reasoning models: left on, the demo would show a hidden monologue."""
    expected = [USER, *ids_of("hi"), END, ASSISTANT]
    assert THINK in ids_of("<|think|>"), "the template's switch must show in the ids"
    assert encode(text_pair, "hi") == expected
    assert encode(text_pair, "hi", chat=True) == expected
    assert encode(text_pair, " hi\n", chat=False) == ids_of(" hi\n"), "completion prompts keep their spaces"
    assert specdemo.run(text_pair, "hi", Settings(max_new_tokens=2)).prompt_ids == tuple(expected)


def test_a_conversation_keeps_its_roles_in_the_template(text_pair: ModelPair) -> None:
    """Guards a model's earlier answer against being read as the user's words."""
    said = ("user", "hi"), ("assistant", "yes"), ("user", "bye")
    talk = Conversation([{"role": role, "content": content} for role, content in said])
    turns = [USER, *ids_of("hi"), END, ASSISTANT, *ids_of("yes"), END, USER, *ids_of("bye"), END, ASSISTANT]
    assert encode(text_pair, talk) == turns
    assert encode(text_pair, talk, chat=False) == ids_of("hi\n\nyes\n\nbye")
    report = specdemo.sweep(text_pair, [talk], Settings(max_new_tokens=2), [2])
    assert report.complete, "measured as any prompt"


@pytest.mark.parametrize(
    "template",
    ["{{ raise_exception('users only') }}", "{{ messages[7].content.x }}", "{% if %}", r"{{ '\ud800' }}"],
)
def test_a_template_that_fails_is_a_sentence(text_pair: ModelPair, template: str) -> None:
    """Guards models whose template was written for other conversations, or was broken on the way."""
    pair = ModelPair(text_pair.target, text_pair.draft, byte_tokenizer(template))
    with pytest.raises(PromptError, match=r"^prompt: this model's chat template fails .*; switch chat off\.$"):
        specdemo.run(pair, "hi")
    assert encode(pair, "hi", chat=False) == ids_of("hi")


@pytest.mark.parametrize("endless", ["{{ 9**(9**9) }}", "{{ 'x' * 10**11 }}", LOOPS + "{% endfor %}" * 4])
def test_a_template_that_does_not_end_is_ended(text_pair: ModelPair, endless: str, monkeypatch) -> None:
    """Guards everybody who waits for the models: no thread can be stopped inside a template."""
    monkeypatch.setattr(chat_template, "SECONDS", 0.5)
    hostile = ModelPair(text_pair.target, None, byte_tokenizer(endless), name="owner/unknown")
    with pytest.raises(PromptError, match=r"chat template fails \((it did not end|MemoryError|OverflowError)"):
        encode(hostile, "hi")
    monkeypatch.undo()
    named = replace(text_pair, name="owner/unknown")
    assert encode(named, "hé\n") == encode(text_pair, "hé\n")
