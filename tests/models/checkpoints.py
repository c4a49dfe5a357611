"""Tiny random checkpoints of real architectures, as files with a tokenizer that was really trained."""

from __future__ import annotations

import copy
import functools
import json
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from toys import build, perturbed, widened
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerFast, Qwen2Tokenizer

TEXT = (
    "The quick brown fox jumps over the lazy dog, and the dog does not mind at all.",
    "A small model proposes a few words; a large model checks them all at once.",
    "If the large model would have said the same, the words are kept, otherwise they are not.",
    "What is the capital of France? The capital of France is Paris, and that of Italy is Rome.",
    "def add(a, b):\n    return a + b\n\nfor i in range(10):\n    print(add(i, 2 * i))\n",
    "Ein kleiner Satz über Bäume, 东京 and naïve cafés, with 1234567890 and a few more: 3.14, 2,718.",
)
MERGES = 128
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Hybrid reasoning is switched off by an answer that has already thought, of nothing.
HYBRID = CHATML + (
    "{% if add_generation_prompt and enable_thinking is defined and not enable_thinking %}"
    "<think>\n\n</think>\n\n{% endif %}"
)
# Says the first token itself, like Llama 3's: encoding its text with special tokens would say it twice.
HEADERS = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n"
    "{{ m['content'] }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)


@dataclass(frozen=True)
class Family:
    """The special tokens of an architecture's models: those that end an answer, the first, and the others."""

    ends: tuple[str, ...]
    bos: str | None = None
    others: tuple[str, ...] = ()
    template: str | None = None
    pad: str | None = None
    says_bos: bool = False  # encoding puts the first token before a text


CHECKPOINTS = {
    "gpt2": Family(("<|endoftext|>",), bos="<|endoftext|>"),
    "gpt_neox": Family(("<|endoftext|>",), bos="<|endoftext|>", pad="<|padding|>"),
    "llama": Family(
        ("<|eot_id|>", "<|end_of_text|>"),
        bos="<|begin_of_text|>",
        others=("<|start_header_id|>", "<|end_header_id|>"),
        template=HEADERS,
        says_bos=True,
    ),
    "qwen2": Family(
        ("<|im_end|>", "<|endoftext|>"), others=("<|im_start|>",), template=CHATML, pad="<|endoftext|>"
    ),
    "qwen3": Family(
        ("<|im_end|>", "<|endoftext|>"),
        others=("<|im_start|>", "<think>", "</think>"),
        template=HYBRID,
        pad="<|endoftext|>",
    ),
}
CHECKPOINTS["qwen3_5_text"] = CHECKPOINTS["qwen3"]


@functools.cache
def trained_tokenizer(family: str) -> PreTrainedTokenizerFast:
    """A byte-level BPE with the family's special tokens and chat template; never to be changed by a test."""
    kind = CHECKPOINTS[family]
    specials = list(dict.fromkeys(token for token in (kind.pad, kind.bos, *kind.ends, *kind.others) if token))
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    qwen = family.startswith("qwen")
    if qwen:  # loads as a class with rules of its own for splitting words, whatever the file says
        rules = Qwen2Tokenizer().backend_tokenizer
        backend.normalizer, backend.pre_tokenizer = rules.normalizer, rules.pre_tokenizer
    backend.train_from_iterator(
        TEXT,
        trainers.BpeTrainer(
            vocab_size=len(specials) + 256 + MERGES,
            special_tokens=specials,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    if kind.says_bos and kind.bos:
        backend.post_processor = processors.TemplateProcessing(
            single=f"{kind.bos} $A", special_tokens=[(kind.bos, backend.token_to_id(kind.bos))]
        )
    named = {"bos_token": kind.bos, "eos_token": kind.ends[0], "pad_token": kind.pad}
    named |= {"additional_special_tokens": list(kind.others), "clean_up_tokenization_spaces": False}
    if qwen:
        trained = json.loads(backend.to_str())["model"]
        merges = [tuple(pair) for pair in trained["merges"]]
        tokenizer = Qwen2Tokenizer(vocab=trained["vocab"], merges=merges, **named)
    else:
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **named)
    tokenizer.chat_template = kind.template
    return tokenizer


def checkpoint(
    folder: Path,
    family: str,
    *,
    hidden: int = 128,
    layers: int = 2,
    seed: int = 0,
    shards: bool = False,
    model: PreTrainedModel | None = None,
) -> Path:
    """Write safetensors, configurations and tokenizer of a random model; returns ``folder``.

    Args:
        hidden: width. From 128 on, the second half of each MLP is wide enough for int4 by groups.
        shards: spread the weights over files, with an index.
        model: saved instead of a new one, for a draft that resembles its target; its configuration changes.
    """
    kind, tokenizer = CHECKPOINTS[family], trained_tokenizer(family)
    model = model or build(family, seed=seed, vocabulary=len(tokenizer), hidden=hidden, layers=layers)
    ends = [tokenizer.convert_tokens_to_ids(end) for end in kind.ends]
    special = {"bos_token_id": tokenizer.bos_token_id, "pad_token_id": tokenizer.pad_token_id}
    special["eos_token_id"] = ends if len(ends) > 1 else ends[0]
    model.config.update(special)
    model.generation_config = GenerationConfig(**special)
    size = sum(weights.nbytes for weights in model.parameters())
    model.save_pretrained(folder, max_shard_size=size // 3 if shards else 10 * size)
    tokenizer.save_pretrained(folder)
    return folder


PADDING = {"qwen2": (40, 16)}
"""Rows beyond the tokenizer that target and draft have, as Qwen 2.5's models have different numbers of them."""


def checkpoint_pair(folder: Path, family: str, **shape: int) -> tuple[Path, Path]:
    """Folders of a target and of a draft that resembles it; ``shape`` is the target's, see :func:`build`."""
    known = len(trained_tokenizer(family))
    wider, padded = PADDING.get(family, (0, 0))
    target = build(family, vocabulary=known + wider, **{"hidden": 128, **shape})
    draft = perturbed(target)
    if padded != wider:
        draft = widened(draft, known + padded)
    return (
        checkpoint(folder / "target", family, model=target),
        checkpoint(folder / "draft", family, model=draft),
    )


def with_special_tokens(folder: Path, family: str, *names: str) -> Path:
    """Give a checkpoint special tokens that its family does not have; they take rows that were padding."""
    tokenizer = copy.deepcopy(trained_tokenizer(family))
    tokenizer.add_tokens(list(names), special_tokens=True)
    tokenizer.save_pretrained(folder)
    return folder
