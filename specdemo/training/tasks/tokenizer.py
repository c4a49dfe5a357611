"""The tokenizer of the task models: byte-level BPE with tokens for turns and for the end of an answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from specdemo.training.recipe import Target
from specdemo.training.tasks.corpus import END_OF_TEXT
from specdemo.training.tasks.task import Domain, Draw, Task

USER, ASSISTANT, END = "<|user|>", "<|assistant|>", "<|end|>"
SPECIAL = (END_OF_TEXT, USER, ASSISTANT, END)  # their ids are 0 to 3
BOS_ID, USER_ID, ASSISTANT_ID, END_ID = range(4)

# A document is one dialogue: the separator, then turns. Only the assistant's turns end with a token of their own.
CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    f"{{% if message['role'] == 'assistant' %}}{ASSISTANT}{{{{ message['content'] | trim }}}}{END}"
    f"{{% else %}}{USER}{{{{ message['content'] | trim }}}}{{% endif %}}"
    "{% endfor %}"
    f"{{% if add_generation_prompt %}}{ASSISTANT}{{% endif %}}"
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


def _sample(domains: Mapping[str, Domain], part: Target) -> Iterator[str]:
    """Plain text of training tasks of all domains, by their shares."""
    for name, share in part.sample_shares.items():
        left, index = int(part.sample_characters * share), 0
        while left > 0:
            task = domains[name].task(Draw(f"tokenizer {name} {index}"))
            for text in (task.prompt, task.answer, *task.more):
                yield text
                left -= len(text)
            index += 1


def train_tokenizer(domains: Mapping[str, Domain], part: Target) -> PreTrainedTokenizerFast:
    """A tokenizer of the target's vocabulary, trained on a sample of the mixture; digits are tokens one by one."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=part.vocabulary,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_sample(domains, part), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{END_OF_TEXT} $A", special_tokens=[(END_OF_TEXT, BOS_ID)]
    )
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=END_OF_TEXT,
        eos_token=END,
        pad_token=END_OF_TEXT,
        additional_special_tokens=[USER, ASSISTANT],
        model_max_length=part.context,
        clean_up_tokenization_spaces=False,
    )
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped
