"""The text of a lane, token by token, against each kind of tokenizer's own decoding of the whole."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from toys import byte_tokenizer
from transformers import PreTrainedTokenizerFast

from specdemo.decoding.detokenizer import Detokenizer

CHARACTERS = ("é", "你", "🎉", "�")
SPECIALS = ["<s>", "</s>", "<unk>"]
WORDS = ["▁", "▁▁", "▁the", "▁a", "b", ",", "▁你", "好"]


def fast(model: models.Model, decoder: decoders.Decoder) -> PreTrainedTokenizerFast:
    backend = Tokenizer(model)
    backend.decoder = decoder
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def byte_fallback() -> PreTrainedTokenizerFast:
    """Of Llama 2, Mistral and Gemma: what has no token is written in bytes."""
    names = [*SPECIALS, *(f"<0x{byte:02X}>" for byte in range(256)), *WORDS]
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    model = models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=[], unk_token="<unk>")
    return fast(model, decoders.Sequence(steps))


def unigram() -> PreTrainedTokenizerFast:
    model = models.Unigram([(name, 0.0) for name in [*SPECIALS, *WORDS]], unk_id=2)
    return fast(model, decoders.Metaspace())


def word_pieces() -> PreTrainedTokenizerFast:
    names = [*SPECIALS, "the", "##re", ",", "n't", "you", "'", "s"]
    return fast(
        models.WordPiece({name: i for i, name in enumerate(names)}, unk_token="<unk>"), decoders.WordPiece()
    )


class Slow:
    """A tokenizer without a fast backend."""

    def __init__(self) -> None:
        fast = byte_tokenizer()
        self.decode, self.convert_ids_to_tokens = fast.decode, fast.convert_ids_to_tokens
        self.get_vocab = fast.get_vocab


TOKENIZERS = {
    "byte-level": byte_tokenizer(),
    "byte fallback": byte_fallback(),
    "unigram": unigram(),
    "word pieces": word_pieces(),
    "slow": Slow(),
}


def ids_of(tokenizer: PreTrainedTokenizerFast | Slow, character: str) -> list[int]:
    """The tokens of its bytes, where the tokenizer has them."""
    vocabulary = tokenizer.get_vocab()
    if "<0x00>" in vocabulary:
        return [vocabulary[f"<0x{byte:02X}>"] for byte in character.encode()]
    return [] if "the" in vocabulary or "▁" in vocabulary else byte_tokenizer()(character)["input_ids"]


@st.composite
def prompts_and_outputs(draw: st.DrawFn, tokenizer: PreTrainedTokenizerFast | Slow) -> tuple[list[int], list[int]]:
    """Any ids, many of them bytes of one character; the prompt may end inside it."""
    known = [[i] for i in tokenizer.get_vocab().values()] + [ids_of(tokenizer, c) for c in CHARACTERS] * 20
    ids = [token for some in draw(st.lists(st.sampled_from(known), max_size=14)) for token in some]
    cut = draw(st.integers(0, len(ids)))
    return ids[:cut], ids[cut:]


def inside(prompt: list[int]) -> range:
    """Ends of the prompt without one, two or three tokens."""
    return range(max(len(prompt) - 3, 0), len(prompt))


@pytest.mark.parametrize("name", TOKENIZERS)
def test_the_text_is_what_the_tokenizer_decodes(name: str) -> None:
    """Guards against an error on bytes that are no characters, and against text of the prompt in the output.

    Where later tokens change how earlier ones read, nothing can be said of the whole: text that was shown stays.
    """
    tokenizer, equal = TOKENIZERS[name], 0

    @settings(max_examples=200, deadline=None)
    @given(prompts_and_outputs(tokenizer))
    def check(drawn: tuple[list[int], list[int]]) -> None:
        nonlocal equal
        prompt, output = drawn
        detokenizer = Detokenizer(tokenizer, prompt)
        pieces = []
        for token in output:
            assert isinstance(detokenizer.peek(token, output[:3]), str)
            pieces.append(detokenizer.push(token))
        reads = [
            tokenizer.decode([*prompt, *output[:count]], skip_special_tokens=True)
            for count in range(len(output) + 1)
        ]
        whole = reads[-1]
        if whole.endswith("�") or not all(whole.startswith(read.rstrip("�")) for read in reads):
            return
        equal += 1
        # The prompt's text is what whole characters of it read like; inside one it may end with up to three bytes.
        ends = (tokenizer.decode(prompt[:end], skip_special_tokens=True) for end in inside(prompt))
        begins = [text[:n] for text in [reads[0], *ends] for n in range(len(text) + 1)]
        assert "".join(pieces) == whole[max(len(begin) for begin in begins if whole.startswith(begin)) :]
        if "�" not in whole:
            assert not any("�" in piece for piece in pieces)

    check()
    assert equal > 30


@pytest.mark.parametrize("name", ["byte-level", "byte fallback", "slow"])
def test_bytes_without_end_are_shown_and_read_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer, longest = TOKENIZERS[name], 0
    (byte,) = [i for n, i in tokenizer.get_vocab().items() if n in ("<0x80>", "Ģ")]
    detokenizer = Detokenizer(tokenizer, [*ids_of(tokenizer, "你") * 300, *[byte] * 3])
    decode = detokenizer._decode

    def measured(ids: list[int], named: bool = False) -> str:
        nonlocal longest
        longest = max(longest, len(ids))
        return decode(ids, named)

    monkeypatch.setattr(detokenizer, "_decode", measured)
    text = "".join(detokenizer.push(token) for token in [*[byte] * 300, *ids_of(tokenizer, "好")] * 2)
    assert 550 < text.count("�") <= 606
    assert text.endswith("好") or name == "byte fallback"  # where bytes in a row read together, or not at all
    assert longest < 100
