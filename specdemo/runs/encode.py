"""From what a person typed to token ids the pair can start from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specdemo.decoding.detokenizer import Detokenizer
from specdemo.errors import PairError, PromptError, SettingsError
from specdemo.models.pair import IN_MEMORY, ModelPair, context_of
from specdemo.models.request import catalog
from specdemo.prompt import EMPTY, check_text, messages_of, one_by_one, read_ids
from specdemo.runs.chat_template import TemplateFails, render
from specdemo.servers.pair import ServedPair
from specdemo.settings import Settings


def encode(
    pair: object, prompt: str | Sequence[int], chat: bool | None = None, lanes: Sequence[Settings] = ()
) -> list[int]:
    """Token ids of a prompt; a list of ids is taken as it is.

    ``chat``: apply the chat template to a text, None for if there is one. ``lanes`` shall read it; none stands for
    any that the pair can run.

    Raises:
        PromptError: empty, not encodable, outside the vocabulary, or longer than what a lane's models can read.
        PairError: ``pair`` is no ModelPair.
    """
    pair = models_here(pair)
    ids = _encode_text(pair, prompt, chat) if isinstance(prompt, str) else _check_ids(pair, prompt)
    if not ids:
        raise PromptError(EMPTY)
    # At least one position is needed for the first new token.
    context = pair.context_for(*lanes)
    if context is not None and len(ids) >= context:
        by_draft = context != context_of(pair.target)
        reader, way = ("this pair's draft", ", or draft without it") if by_draft else ("this pair", "")
        raise PromptError(
            f"it has {len(ids):,} tokens, but {reader} reads at most {context:,} "
            f"(prompt and output together); shorten it{way}."
        )
    return ids


def models_here(pair: object) -> ModelPair:
    """The pair, whose models are in this process; PairError if it is something else."""
    if isinstance(pair, ServedPair):
        raise PairError(
            "pair: this needs the models themselves, not their deployments; "
            "a pair on servers can be run, streamed, raced and swept."
        )
    if not isinstance(pair, ModelPair):
        raise PairError(
            f"pair: must be a ModelPair, not {type(pair).__name__}; get one with specdemo.load_pair('builtin')."
        )
    return pair


def encode_all(
    pair: object,
    prompts: str | Sequence[int] | Sequence[str | Sequence[int]],
    chat: bool | None = None,
    lanes: Sequence[Settings] = (),
) -> list[list[int]]:
    """Token ids of several prompts, or of one; ``lanes`` and errors as of :func:`encode`."""
    several = one_by_one(prompts)
    if not several:
        raise PromptError("there is none; give at least one text to continue.")
    encoded = []
    for number, prompt in enumerate(several, start=1):
        try:
            encoded.append(encode(pair, prompt, chat, lanes))
        except PromptError as error:
            if len(several) == 1:
                raise
            reason = str(error).removeprefix("prompt: ")
            raise PromptError(f"number {number} of {len(several)}: {reason}") from error
    return encoded


def _encode_text(pair: ModelPair, prompt: str, chat: bool | None) -> list[int]:
    check_text(prompt)
    tokenizer = pair.tokenizer
    if tokenizer is None:
        raise PromptError("this pair has no tokenizer; give token ids instead of text.")
    has_template = bool(getattr(tokenizer, "chat_template", None))
    if chat and not has_template:
        raise PromptError("chat is on, but this tokenizer has no chat template; switch chat off.")
    if not has_template or chat is False:
        return list(tokenizer(prompt)["input_ids"])
    try:
        text = _rendered(pair, prompt)
        text.encode()  # half a character can stand in a template too
    except Exception as error:  # a template is a program of the model's authors, which may raise anything
        reason = error if isinstance(error, TemplateFails) else f"{type(error).__name__}: {error}"
        raise PromptError(f"this model's chat template fails ({reason}); switch chat off.") from error
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _rendered(pair: ModelPair, prompt: str) -> str:
    """The prompt in the pair's chat template: in another process, unless the catalogue or the caller knows it."""
    turns = messages_of(prompt)
    # enable_thinking is the switch of hybrid reasoning models; other templates do not look at it.
    options = {"add_generation_prompt": True, "enable_thinking": False}
    tokenizer: Any = pair.tokenizer
    if pair.name in (IN_MEMORY, *catalog()):
        return f"{tokenizer.apply_chat_template(turns, tokenize=False, **options)}"
    return render(tokenizer.get_chat_template(), turns, {**tokenizer.special_tokens_map, **options})


def check_earlier(pair: object, settings: Settings, earlier: Any) -> None:
    """Raises an error of what is no list of the target's token ids, one an output, or is not read by this lane."""
    if not isinstance(earlier, Sequence) or any(not isinstance(text, list | tuple) for text in earlier):
        raise PromptError("earlier outputs are lists of token ids, such as [trace.token_ids].")
    for text in filter(None, earlier):
        if isinstance(pair, ServedPair) or not settings.reads_earlier:
            raise SettingsError("earlier", "no lane here copies from it, as suffix decoding does; leave it out.")
        _check_ids(models_here(pair), list(text))


def _check_ids(pair: ModelPair, prompt: Any) -> list[int]:
    ids = read_ids(prompt)
    embeddings: Any = pair.target.get_input_embeddings()
    width = embeddings.num_embeddings
    wrong = next((i for i in ids if not 0 <= i < width), None)
    if wrong is not None:
        raise PromptError(f"token id {wrong} is outside the target's vocabulary; use ids from 0 to {width - 1:,}.")
    return ids


def pieces(pair: ModelPair, ids: Sequence[int]) -> list[str]:
    """The text that each prompt token adds; empty inside a multi-byte character."""
    text = Detokenizer(pair.tokenizer, ())
    return [text.push(i) for i in ids]
