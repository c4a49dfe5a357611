"""Whether a model can decode here, quantised too, and two can work together, before any weight is read."""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoTokenizer, PretrainedConfig, PreTrainedTokenizerBase
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
)

from specdemo.errors import PairError
from specdemo.models.memory import best_device, on_cpu
from specdemo.models.pair import check_can_decode
from specdemo.models.request import ModelSource
from specdemo.models.types import PreTrainedModel

PROBE = "Hello, world! 12 345\n\tdéjà vu — 你好, مرحبا 🙂 x = f(y);  # two  spaces"
NO_TOKENIZER = "add its tokenizer.json, or choose a repository that has it."
ROUND_TRIP = "Hello, World:\n  1 plus 2 is 3."
COUNTED, MOST_COUNTED = re.compile(r"(.*_)?(layer|expert|block|label)s?"), 1024
"""Fields of a config.json that count what the library builds one by one; no model comes near so many."""


@dataclass(frozen=True, slots=True)
class TokenizerMatch:
    """How the draft's tokenizer compares with the target's.

    ``alone``: there is no draft; ``specials``: only special tokens differ, which does no harm; ``reencoded``: its
    text must be encoded again for the target; ``refused``: it cannot be.
    """

    relation: Literal["alone", "same", "specials", "reencoded", "refused"]
    text: str  # for people, in one line


def match_tokenizers(models: Sequence[tuple[PreTrainedTokenizerBase, int]]) -> TokenizerMatch:
    """Compare two tokenizers by what they do: ids of shared tokens, and one probe text in several scripts.

    Each of ``models`` is a tokenizer and the width of the logits, which padding may make wider than it.
    """
    if len(models) == 1:
        return TokenizerMatch("alone", "no draft model")
    (target, width), (draft, other_width) = models
    ours, theirs = target.get_vocab(), draft.get_vocab()
    differing = {token for token in ours.keys() | theirs.keys() if ours.get(token) != theirs.get(token)}
    added = target.get_added_vocab().keys() | draft.get_added_vocab().keys()
    probes = [tokenizer(PROBE, add_special_tokens=False)["input_ids"] for tokenizer in (target, draft)]
    if differing <= added and probes[0] == probes[1]:
        padding = "" if width == other_width else f"; logits padded to {width:,} and {other_width:,}"
        if not differing:
            return TokenizerMatch("same", f"same tokenizer{padding}")
        count = f"{len(differing)} special token" + ("s" if len(differing) > 1 else "")
        return TokenizerMatch("specials", f"same tokenizer but for {count}{padding}")
    # The drafter checks this as well; here the answer comes before gigabytes are downloaded.
    for role, tokenizer in (("target", target), ("draft", draft)):
        if not gives_back(tokenizer):
            return TokenizerMatch(
                "refused",
                f"the tokenizers differ, and the {role}'s does not give back the text it encodes, so drafted text "
                "cannot be encoded anew; choose a draft of the target's own family",
            )
    return TokenizerMatch("reencoded", "different tokenizers: drafted text is encoded anew for the target")


def gives_back(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether a text survives encoding and decoding, as far as re-encoding needs: a leading space may go."""
    ids = tokenizer(ROUND_TRIP, add_special_tokens=False)["input_ids"]
    text = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return str(text).strip() == ROUND_TRIP.strip()


def check_counts(source: ModelSource, data: Mapping[str, Any]) -> None:
    """Refuse a configuration that would take minutes to build, before it is built."""
    for name, value in data.items():
        if isinstance(value, dict):
            check_counts(source, value)
        elif isinstance(value, int) and value > MOST_COUNTED and COUNTED.fullmatch(name):
            wrong = f"{name} in its config.json is {value:,}, more than any model has"
            raise PairError(f"{source.name}: {wrong}; choose another repository.")


def skeleton_of(role: str, source: ModelSource, config: PretrainedConfig) -> PreTrainedModel:
    """The model on the meta device, without memory for its weights; refused if it cannot decode."""
    stored = getattr(config, "quantization_config", None)
    if stored is not None:  # by other packages: it would fail only after the download
        method = stored.get("quant_method", "unknown") if isinstance(stored, dict) else type(stored).__name__
        raise PairError(
            f"{source.name} is stored quantised (by {method}), which needs packages that are not used here; "
            "choose the repository it was made from, and quantise it here to float8, int8 or int4."
        )
    named = config.architectures[0] if config.architectures else None
    causal = set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values())  # of names: the classes would all be imported
    # Of a model that reads images too its language model alone is taken.
    causal.add(MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.get(config.model_type, ""))
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING or (named is not None and named not in causal):
        what = f"a {named or type(config).__name__}, which is no causal language model"
        raise PairError(f"{role}: {source.name} is {what}; choose one that continues text.")
    # Not by from_config: it sets torch's default dtype for the whole process, and a pair that another thread is
    # loading at that moment would take weights of that dtype.
    with torch.device("meta"):
        kind: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
        apart = config.sub_configs.get("text_config") is kind.config_class  # as the library tells them apart
        skeleton = kind(config.get_text_config() if apart else config)
    check_can_decode(role, skeleton)
    return skeleton


def read_tokenizer(source: ModelSource, folder: Path) -> PreTrainedTokenizerBase:
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # the library raises whatever its many loaders raise
        reason = f"that can be read ({str(error).strip().splitlines()[0]})"
        raise PairError(f"{source.name} has no tokenizer {reason}; {NO_TOKENIZER}") from error
    if not tokenizer(PROBE)["input_ids"]:  # the library makes an empty one up for some architectures
        raise PairError(f"{source.name} has no tokenizer files; {NO_TOKENIZER}")
    return tokenizer


def check_quantization(quantization: str, device: str, dtype: torch.dtype) -> None:
    """Refuse a quantisation that would fail in the middle of a run; the PairError says what works instead."""
    if importlib.util.find_spec("optimum.quanto") is None:
        needs = f"{quantization} needs optimum-quanto"
        raise PairError(f"quantisation: {needs}; pip install -r requirements.txt, or choose no quantisation.")
    if quantization == "float8" and (best_device() if device == "auto" else device) == "mps":
        raise PairError("quantisation: an Apple GPU has no float8; choose int8 or int4, or the CPU.")
    # quanto builds its C++ extension at its first use.
    compiles = all(shutil.which(tool) for tool in ("c++", "ninja"))
    if quantization == "int4" and on_cpu(device) and dtype is not torch.bfloat16 and not compiles:
        needs = "int4 on a CPU is compiled unless in bfloat16, and there is no C++ compiler with ninja here"
        raise PairError(f"quantisation: {needs}; choose bfloat16, or int8.")
