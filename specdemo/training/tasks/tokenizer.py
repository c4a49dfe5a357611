"""The tokenizer of the task models: a word has the same pieces wherever it stands.

It is byte-level BPE whose merges join letters with letters, or marks and spaces with each other. So a space, a
quote or an underscore is never part of a word's first token. A merge of small letters is there three times, also
with a capital first and all in capitals, with neighbouring ranks: a word is cut at the same places in any case.
Digits are tokens one by one. A token's text does not depend on the tokens around it; llama.cpp, which needs that,
gives the same ids and the same text.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from specdemo.training.recipe import Target
from specdemo.training.tasks.corpus import END_OF_TEXT
from specdemo.training.tasks.mixture import Domain
from specdemo.training.tasks.task import Task

USER, ASSISTANT, END = "<|user|>", "<|assistant|>", "<|end|>"
SPECIAL = (END_OF_TEXT, USER, ASSISTANT, END)  # their ids are 0 to 3
BOS_ID, USER_ID, ASSISTANT_ID, END_ID = range(4)
MARKS_SHARE = 20  # one token of so many is of marks and spaces

# A document is one dialogue: the separator, then turns. Only the assistant's turns end with a token of their own.
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    f"{{% if message['role'] == 'assistant' %}}{ASSISTANT}{{{{ message['content'] | trim }}}}{END}"
    f"{{% else %}}{USER}{{{{ message['content'] | trim }}}}{{% endif %}}"
    f"{{% endfor %}}{{% if add_generation_prompt %}}{ASSISTANT}{{% endif %}}"
)


def prompt_text(task: Task) -> str:
    """What the model reads before it answers: what the chat template gives for the prompt."""
    return f"{END_OF_TEXT}{USER}{task.prompt.strip()}{ASSISTANT}"


def document(task: Task) -> str:
    """A task as the model is trained on it."""
    text = f"{prompt_text(task)}{task.answer.strip()}{END}"
    for index, turn in enumerate(task.more):
        text += f"{ASSISTANT}{turn}{END}" if index % 2 else f"{USER}{turn}"
    return text


def cut() -> list[pre_tokenizers.PreTokenizer]:
    """How text is cut before merging: as llama.cpp does under the name ``viking``. No word is cut by it."""
    return [
        pre_tokenizers.Split(Regex(r" ?[^(\s|.,!?…。，、।۔،)]+"), "isolated"),
        pre_tokenizers.Split(Regex(r"\p{N}"), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]


def train_tokenizer(domains: Mapping[str, Domain], part: Target) -> PreTrainedTokenizerFast:
    """A tokenizer of at most the target's vocabulary, trained on the words of the corpus and a sample of tasks."""
    tasks = [domains[name].task(f"tokenizer {name} {i}") for name in domains for i in range(part.sample_tasks)]
    sample = [text for task in tasks for text in (task.prompt, task.answer, *task.more)]
    counts = Counter(re.findall("[a-z]+", "\n".join(sample).lower()))
    counts.update(next(iter(domains.values())).corpus.words[False])
    # By the root of its count: pieces shall serve words that are rare.
    words = (word for word, count in counts.items() for _ in range(round(count**0.5)))
    alphabet = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    marks = part.vocabulary // MARKS_SHARE
    letters = _merges(words, [], (part.vocabulary - len(alphabet) - marks) // 3)
    merges: list[tuple[str, str]] = []
    for left, right in letters:  # with a capital first, in small letters, and in capitals
        merges += (left.title(), right), (left, right), (left.upper(), right.upper())
    merges += _merges(sample, [pre_tokenizers.Split(Regex(r"[\p{L}\p{N}]+"), "removed"), *cut()], marks)
    vocabulary = {text: i for i, text in enumerate(dict.fromkeys([*alphabet, *map("".join, merges)]))}

    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(cut())
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{END_OF_TEXT} $A", special_tokens=[(END_OF_TEXT, BOS_ID)]
    )
    special: dict[str, Any] = {"bos_token": END_OF_TEXT, "eos_token": END, "pad_token": END_OF_TEXT}
    special |= {"additional_special_tokens": [USER, ASSISTANT], "clean_up_tokenization_spaces": False}
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=part.context, **special)
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped


def _merges(texts: Iterable[str], before: list[pre_tokenizers.PreTokenizer], count: int) -> list[tuple[str, str]]:
    """The first so many merges, by rank, of a BPE trained on texts."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Sequence(before)
    trainer = trainers.BpeTrainer(vocab_size=count + 256, show_progress=False)  # an alphabet has up to 256 bytes
    trained.train_from_iterator(texts, trainer)
    return [tuple(pair) for pair in json.loads(trained.to_str())["model"]["merges"]][:count]
