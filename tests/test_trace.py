"""The record: its JSON, its text."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from toys import BYTE_VOCABULARY, build, byte_tokenizer, endless_pair, prompt_ids, scripted, toy_pair

import specdemo
from specdemo import ModelPair, Settings, Trace, TraceError

# --- JSON -------------------------------------------------------------------------------------------------


def valid() -> dict:
    return json.loads(specdemo.run(toy_pair("llama"), prompt_ids(5), Settings(max_new_tokens=4)).to_json())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *(
            (text, "not a specdemo trace")
            for text in ("", "nonsense", "null", "[]", "{}", "[" * 100_000, "\ud800")
        ),
        ({"settings": None}, "settings"),
        ({"prompt_ids": None}, "prompt_ids"),
        ({"rounds": None}, "rounds"),
        ({"rounds": None, "schema": 3, "lanes": []}, r"schema 3.*schemas up to 2"),  # of a newer version
        ({"settings": {"gamma": 99}}, "gamma"),  # a bad setting is the file's fault
    ],
)
def test_what_is_no_trace_is_refused_with_a_message(text: str | dict, said: str) -> None:
    """Guards files of strangers, and callers that catch TraceError around a file."""
    if isinstance(text, dict):
        text = json.dumps({key: value for key, value in {**valid(), **text}.items() if value is not None})
    with pytest.raises(TraceError, match=said) as caught:
        Trace.from_json(text)
    assert len(str(caught.value)) < 400


def test_an_unfinished_trace_says_so() -> None:
    """Guards the page after Stop: the first rounds of a lane are a trace too."""
    trace = Trace.from_json(json.dumps(valid()))
    assert trace.complete
    part = replace(trace, rounds=trace.rounds[:1])
    assert not part.complete
    assert part.token_ids == trace.token_ids[:1]
    empty = replace(trace, rounds=())
    assert not empty.complete
    assert empty.text == ""
    assert empty.metrics().rounds == 0


# --- text -------------------------------------------------------------------------------------------------

SAMPLES = [
    "Hello, world",
    "你好，世界。",
    "👩‍👩‍👧‍👦 family 🎉🎉",
    "naïve café – “quoted” …",
    "مرحبا עולם नमस्ते",
    "tab\tnew\nline  two spaces ",
    "a b . , don't it's",
]


def ids_of(some: str) -> list[int]:
    return byte_tokenizer()(some, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("sample", SAMPLES)
def test_text_is_what_the_tokenizer_decodes_and_never_broken(sample: str) -> None:
    """Guards multi-byte characters: each byte is a token here, and half a character must never be shown."""
    script = ids_of(sample)
    guesses = [9 if i % 5 == 3 else token for i, token in enumerate(script)]
    pair = ModelPair(scripted(script, 3, BYTE_VOCABULARY), scripted(guesses, 3, BYTE_VOCABULARY), byte_tokenizer())
    for settings in (
        Settings(strategy="autoregressive", max_new_tokens=len(script)),
        Settings(gamma=3, max_new_tokens=len(script)),
    ):
        trace = specdemo.run(pair, [70, 71, 72], settings)
        assert trace.token_ids == script
        assert trace.text == sample == byte_tokenizer().decode(script)
        assert not any("�" in token.text for token in trace.output)
    assert any(token.kind == "rejected" for token in trace.tokens)


@pytest.mark.parametrize(
    ("script", "eos", "text_"),
    [*((ids_of("ok 🎉")[: 3 + cut], None, "ok ") for cut in (1, 2, 3)), ([*ids_of("bye"), 1], [1], "bye")],
)
def test_neither_part_of_a_character_nor_the_end_token_is_in_the_text(
    script: list[int], eos: list[int] | None, text_: str
) -> None:
    """Guards the length limit, which may fall between the bytes of an emoji, and against <|end|> on the page."""
    model = scripted(script, 2, BYTE_VOCABULARY, **({"eos": eos} if eos else {}))
    length = 128 if eos else len(script)
    pair = ModelPair(model, model, byte_tokenizer())
    trace = specdemo.run(pair, [70, 71], Settings(gamma=2, max_new_tokens=length))
    assert trace.token_ids == script
    assert trace.text == text_


def test_a_pair_without_a_tokenizer_names_ids() -> None:
    """Guards notebooks that work on ids alone."""
    trace = specdemo.run(endless_pair("llama"), prompt_ids(3), Settings(max_new_tokens=3))
    assert trace.text == "".join(f"⟨{i}⟩" for i in trace.token_ids)


# --- draft trees -------------------------------------------------------------------------------------------


LEFT = {"kind": "rejected", "parent": 0, "position": 1}


@pytest.mark.parametrize(
    "forge",
    [
        lambda kept, left, own: [*({**t, **LEFT} for t in left), kept, own],
        lambda kept, left, own: [kept, *left, own, own],
        lambda kept, left, own: [kept, *({**kept, **LEFT} for _ in range(100)), own],
        lambda kept, left, own: [
            *(kept, *({**kept, "kind": "rejected", "parent": n, "position": n + 1} for n in range(1, 40)), own)
        ],
        lambda kept, left, own: [{**own, "kind": "target", "parent": 0, "position": 1}],
    ],
    ids=["kept after rejected", "two own tokens", "too many guesses", "too deep a path", "no guess"],
)
def test_a_draft_tree_that_no_run_makes_is_refused(forge: Callable[[dict, list[dict], dict], list[dict]]) -> None:
    """Guards figures and page against records of strangers."""
    target = build("llama", eos=None)
    pair = ModelPair(target, target, None)  # so that a first guess is kept
    trace = specdemo.run(pair, prompt_ids(5), Settings(tree_nodes=4, gamma=1, max_new_tokens=4))
    data = json.loads(trace.to_json())
    kept, *left, own = data["rounds"][1]["tokens"]
    assert [t["kind"] for t in (kept, *left, own)] == ["accepted", *["rejected"] * 3, "bonus"]
    Trace.from_json(json.dumps(data))
    tokens = forge(kept, left, own)
    kinds = [t["kind"] for t in tokens]
    accepted, drafted = kinds.count("accepted"), kinds.count("accepted") + kinds.count("rejected")
    data["rounds"][1] |= {"tokens": tokens, "accepted": accepted, "drafted": drafted}
    with pytest.raises(TraceError, match=r"no draft tree|no tree with one kept path"):
        Trace.from_json(json.dumps(data))


def test_records_of_earlier_versions_and_of_chains_beside_trees_open() -> None:
    """Guards drafters in a row, which may mix trees and chains: figures are of all rounds."""
    pair = endless_pair("llama")
    shared = {"acceptance": "sampling", "temperature": 1.0, "max_new_tokens": 24}
    lanes = [specdemo.run(pair, prompt_ids(5), Settings(**shared, **f)) for f in ({"gamma": 2}, {"tree_nodes": 9})]
    data = json.loads(lanes[0].to_json())
    data["settings"] |= {"tree_nodes": 9, "top_candidates": 1}
    data["rounds"][0]["tokens"][0]["target_top"] = [{"id": 1, "text": "a", "probability": 1.0}]
    chains = [r for r in data["rounds"] if r["drafted"] == 2][:2]
    trees = [r for r in json.loads(lanes[1].to_json())["rounds"] if r["drafted"] > 1][:2]
    data["rounds"] = [data["rounds"][0], *chains, *trees]
    for index, round_ in enumerate(data["rounds"]):
        round_["index"] = index
    trace = Trace.from_json(json.dumps(data))
    kinds = [t.kind for r in trace.rounds[1:] for t in r.tokens]
    tested = kinds.count("accepted") + kinds.count("corrected")
    assert trace.metrics().alpha == kinds.count("accepted") / tested
