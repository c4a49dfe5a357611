"""The drafter that a lane's settings name, or why this pair cannot have it."""

from __future__ import annotations

from specdemo.decoding.drafters.base import Drafter
from specdemo.decoding.drafters.early_exit import layer_list
from specdemo.decoding.drafters.prompt_lookup import LookupDrafter
from specdemo.decoding.drafters.reencoding import ReencodingDrafter, gives_back
from specdemo.decoding.engines.eager import Runner
from specdemo.decoding.engines.graph_runner import StaticRunner
from specdemo.decoding.engines.open import open_alone, open_early_exit, open_model_drafter
from specdemo.decoding.lane import Lane
from specdemo.errors import SettingsError
from specdemo.models.pair import ModelPair, context_of
from specdemo.settings import Settings


def check_drafter(pair: ModelPair, settings: Settings) -> None:
    """Refuse what this pair cannot draft with.

    Raises:
        SettingsError: names the field, and what would work.
    """
    if settings.drafter == "model" and pair.draft is None:
        raise SettingsError(
            "drafter",
            "'model' needs a draft model, and this pair has none; choose 'prompt_lookup' or 'early_exit'.",
        )
    if settings.drafter == "model" and pair.draft_tokenizer is not None:
        _check_reencoding(pair, settings)
    elif settings.drafter == "model" and settings.strategy == "assisted":
        _check_one_width(pair)
    if settings.drafter == "early_exit":
        layers = target_layers(pair)
        if layers < 2 or layer_list(pair.target) is None:
            raise SettingsError(
                "drafter",
                f"'early_exit' needs a target of several layers kept in one list; {type(pair.target).__name__} "
                "has none. Choose 'prompt_lookup'.",
            )
        if settings.exit_layer is not None and settings.exit_layer >= layers:
            raise SettingsError(
                "exit_layer", f"must be below the target's {layers} layers, not {settings.exit_layer}."
            )


def _check_one_width(pair: ModelPair) -> None:
    widths = [m.config.get_text_config().vocab_size for m in (pair.target, pair.draft)]
    if widths[0] != widths[1]:
        raise SettingsError(
            "strategy",
            f"'assisted' takes models of one vocabulary width only, and these have {widths[0]:,} and "
            f"{widths[1]:,}; choose 'speculative', which reads the padding for what it is.",
        )


def _check_reencoding(pair: ModelPair, settings: Settings) -> None:
    if settings.strategy == "assisted":
        raise SettingsError(
            "strategy", "'assisted' needs models of one tokenizer, and these have two; choose 'speculative'."
        )
    for role, tokenizer in (("target", pair.tokenizer), ("draft", pair.draft_tokenizer)):
        if tokenizer is None or not gives_back(tokenizer):
            why = "is missing" if tokenizer is None else "does not give back the text it encodes"
            raise SettingsError(
                "drafter",
                f"'model' must pass text between two tokenizers here, but the {role}'s {why}; "
                "choose 'prompt_lookup' or 'early_exit', or a draft with the target's tokenizer.",
            )


def target_layers(pair: ModelPair) -> int:
    """Decoder layers of the target."""
    return pair.target.config.get_text_config().num_hidden_layers


def open_drafter(pair: ModelPair, target: Runner | StaticRunner, lane: Lane) -> Drafter:
    """A fresh drafter for one lane, after :func:`check_drafter`."""
    settings = lane.settings
    if settings.drafter == "prompt_lookup":
        return LookupDrafter(settings.lookup_ngram)
    if settings.drafter == "early_exit":
        layers = settings.exit_layer or max(1, target_layers(pair) // 3)
        return open_early_exit(target, layers, lane)
    if pair.draft_tokenizer is not None:
        runner = open_alone(pair.draft, lane)
        return ReencodingDrafter(runner, pair.tokenizer, pair.draft_tokenizer, context_of(pair.draft))
    return open_model_drafter(pair.draft, lane)
