"""Trains the byte-level BPE tokenizer of the builtin pair, chat template included."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from specdemo.training.corpus import read_documents, split
from specdemo.training.recipe import END_OF_TEXT, Recipe

# Dialogues of the corpus are plain text, so the template gives plain text too.
CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{% if not loop.first %}{{ '\\n' }}{% endif %}"
    "{{ 'Assistant: ' if message['role'] == 'assistant' else 'User: ' }}{{ message['content'] | trim }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '\\nAssistant:' }}{% endif %}"
)
SAMPLE_CHARACTERS = 24_000_000  # of all sources together; with more text the merges hardly change


def _sample(folder: Path, recipe: Recipe) -> Iterator[str]:
    for source in recipe.sources:
        left = int(SAMPLE_CHARACTERS * source.share)
        for name in source.files:
            for document in split(read_documents(folder / name))[0]:
                if left <= 0:
                    break
                yield document[:left]
                left -= len(document)


def train_tokenizer(folder: Path, recipe: Recipe) -> PreTrainedTokenizerFast:
    """A byte-level BPE trained on all sources by their shares; each digit is a token, which helps arithmetic."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=recipe.vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_sample(folder, recipe), trainer)
    bos = (END_OF_TEXT, tokenizer.token_to_id(END_OF_TEXT))
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{END_OF_TEXT} $A", special_tokens=[bos])
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=END_OF_TEXT,
        eos_token=END_OF_TEXT,
        pad_token=END_OF_TEXT,
        model_max_length=recipe.context,
        clean_up_tokenization_spaces=False,
    )
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped
