"""ModelPair: a target, perhaps a draft model or a head, and the tokenizer they share."""

from __future__ import annotations

import inspect
import os
from dataclasses import dataclass, field
from typing import cast

import torch
from transformers import PreTrainedTokenizerBase

from specdemo.drafters import PARTS
from specdemo.errors import PairError
from specdemo.models.eagle3_config import fitted
from specdemo.models.eagle3_head import Eagle3Head
from specdemo.models.memory import Footprint, measure
from specdemo.models.mtp_head import Head, MtpHead
from specdemo.models.types import PreTrainedModel
from specdemo.settings import Settings, whole_numbers

IN_MEMORY = "in memory"
"""The name of a pair that the caller made."""
MOST_THREADS = max(os.cpu_count() or 1, torch.get_num_threads())
"""Processors, or what ``OMP_NUM_THREADS`` says if that is more."""
WITHOUT_STATES = {"full_attention", "sliding_attention", "chunked_attention", "indexed_attention"}
"""Kinds of layers that keep something of every token, and so can forget the last ones."""


@dataclass(eq=False, repr=False)
class ModelPair:
    """A causal language model and what drafts for it. None of them is ever changed.

    Args:
        target: the model whose output is wanted, p(x).
        draft: the model that proposes tokens, q(x); None leaves the drafters that need none.
        tokenizer: the target's, and the draft's too. Padding may make the widths of their logits differ.
        name: the pair's name in traces and on the page.
        draft_tokenizer: the draft's own, if it differs; drafted text is then encoded again for the target.
        head: an EAGLE-3 head that was made for the target; a pair may have a draft and a head.
        threads: CPU threads that torch uses in the thread that decodes; None leaves torch as it is. Another number
            rounds differently, so equal outputs of equal seeds need an equal one; every trace has it.
        mtp: the head for multi-token prediction that the target's own files carry.
        gguf: the same weights in llama.cpp, a :class:`specdemo.GgufPair`, for lanes with the engine ``llama.cpp``;
            the builtin pair's is made at its first use.
        refused: parts that its files hold and that cannot be used, and why.

    Attributes:
        prepared: the warm-ups and checks that were done for these models and are not repeated.

    Raises:
        PairError: a model that is no causal language model, or has no cache.
    """

    target: PreTrainedModel
    draft: PreTrainedModel | None = None
    tokenizer: PreTrainedTokenizerBase | None = None
    name: str = IN_MEMORY
    draft_tokenizer: PreTrainedTokenizerBase | None = None
    threads: int | None = None
    head: Eagle3Head | None = None
    mtp: MtpHead | None = None
    gguf: object | None = field(default=None, repr=False)
    refused: dict[str, str] = field(default_factory=dict)
    prepared: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        check_can_decode("target", self.target)
        if self.draft is not None:
            check_can_decode("draft", self.draft)
        if self.head is not None:
            if not isinstance(self.head, Eagle3Head):
                kind = type(self.head).__name__
                raise PairError(f"head: {kind} is no EAGLE-3 head; read one with specdemo.Eagle3Head.load.")
            fitted(self.head.config, self.target.config)
        if self.mtp is not None and not (isinstance(self.mtp, MtpHead) and self.mtp.belongs_to(self.target)):
            raise PairError("mtp: it is no MTP head of this target; read it with specdemo.MtpHead.load.")

    def __repr__(self) -> str:
        models = [type(part).__name__ for part in (*self.models, *self.heads)]
        return f"ModelPair({self.name!r}: {' + '.join(models)}, {self.dtype}, {self.device})"

    @property
    def models(self) -> list[PreTrainedModel]:
        """The target, then the draft if there is one."""
        return [self.target] if self.draft is None else [self.target, self.draft]

    @property
    def heads(self) -> list[Head]:
        """What drafts from the target's hidden states."""
        return [head for head in (self.head, self.mtp) if head is not None]

    @property
    def parts(self) -> frozenset[str]:
        """What it has besides the target: of ``specdemo.drafters.PARTS``."""
        return frozenset(part for part in PARTS if getattr(self, part) is not None)

    def context_for(self, *lanes: Settings) -> int | None:
        """The longest sequence that all these lanes can read, in the target's tokens; None for no limit.

        Only a lane that the draft drafts for is bound by the draft too; no lanes stand for any that it can run.
        """
        drafts = not lanes or any(lane.needs == "draft" for lane in lanes)
        # A draft with a tokenizer of its own reads another text, and stops drafting where it is full.
        readers = self.models if drafts and self.draft_tokenizer is None else [self.target]
        return min((n for n in map(context_of, readers) if n is not None), default=None)

    @property
    def eos_ids(self) -> frozenset[int]:
        """The target's end-of-sequence tokens; some models have several."""
        generation = getattr(self.target, "generation_config", None)
        ids = getattr(generation, "eos_token_id", None)
        if ids is None:
            ids = getattr(self.target.config.get_text_config(), "eos_token_id", None)
        return frozenset([ids] if isinstance(ids, int) else ids or ())

    @property
    def vocabulary(self) -> int:
        """Width of the target's logits."""
        return self.target.get_output_embeddings().weight.shape[0]

    @property
    def device(self) -> torch.device:
        """Where the target runs."""
        return device_of(self.target)

    @property
    def dtype(self) -> str:
        """Of the target's weights, such as ``float32``."""
        return str(self.target.dtype).removeprefix("torch.")

    @property
    def quantization(self) -> str | None:
        """Of the target's weights, such as ``int8``; None if they are not quantised."""
        return quantization_of(self.target)

    def footprints(self) -> dict[str, Footprint]:
        """Bytes of the weights in memory, by role: ``target`` and :attr:`parts`; counted, not estimated."""
        roles = {role: getattr(self, role) for role in ("target", *PARTS)}
        return {role: measure(model) for role, model in roles.items() if model is not None}


def checked_threads(threads: object) -> int:
    """A number of CPU threads that this machine can run, else a SettingsError: torch would end the process."""
    return whole_numbers("threads", [threads], MOST_THREADS, "2")[0]


def device_of(model: PreTrainedModel) -> torch.device:
    """Where a model takes its tokens."""
    return cast(torch.Tensor, model.get_input_embeddings().weight).device


def embeddings_of(model: PreTrainedModel) -> int:
    """How many ids a model has an embedding for."""
    return cast(torch.Tensor, model.get_input_embeddings().weight).shape[0]


def context_of(model: PreTrainedModel) -> int | None:
    """The longest sequence one model can read, in its own tokens; None if it states no limit."""
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return limit if limit is not None and limit > 0 else None  # XLNet says −1 for no limit


def quantization_of(model: PreTrainedModel) -> str | None:
    """``float8``, ``int8``, … if a loaded model's weights are quantised by quanto, else None."""
    config = getattr(model.config, "quantization_config", None)
    return getattr(config, "weights", None)


def cache_argument(model: PreTrainedModel) -> str | None:
    """What its ``forward`` calls the cache; None if it takes none."""
    takes = inspect.signature(model.forward).parameters
    return next((name for name in ("past_key_values", "cache_params") if name in takes), None)


def keeps_states(model: PreTrainedModel) -> bool:
    """Whether layers keep a state of all tokens, as recurrent and convolution layers do: it is put back whole."""
    kinds = getattr(model.config.get_text_config(), "layer_types", None) or ()
    return getattr(model, "_is_stateful", False) or not set(kinds) <= WITHOUT_STATES


def check_can_decode(role: str, model: PreTrainedModel) -> None:
    """Refuse by a PairError what is no causal language model or has no cache; loading tries the rest."""
    if reason := _why_not(model):
        raise PairError(f"{role}: {type(model).__name__} {reason}.")


def _why_not(model: PreTrainedModel) -> str | None:
    # Two seconds, so not before there is a model.
    from transformers import PreTrainedModel
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

    decodes = isinstance(model, PreTrainedModel) and model.can_generate()
    if not decodes or model.get_output_embeddings() is None:
        return "is no causal language model of transformers; load it with AutoModelForCausalLM"
    # Models of these types can fill in masked tokens, and decode only if they are told to.
    two_ways = model.config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES
    if two_ways and getattr(model.config, "is_decoder", True) is False:
        return (
            "is set up as an encoder, whose tokens see those behind them; choose a decoder, or set "
            "is_decoder=True in its configuration if it was trained as one"
        )
    if getattr(model.config, "is_encoder_decoder", False):
        return "is an encoder-decoder model; choose a decoder-only one"
    if cache_argument(model) is None:
        return "has no KV cache; choose an architecture that has one"
    if not hasattr(model.config.get_text_config(), "num_hidden_layers"):
        return "is no single stack of layers; choose another architecture"
    return None
