"""The preflight: whether a pair will work and fit, found out before its weights are downloaded."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from huggingface_hub import constants
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedTokenizerBase,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from specdemo.errors import PairError
from specdemo.machine import bfloat16_instructions
from specdemo.models.checkpoint import Checkpoint
from specdemo.models.compatibility import PROBE, match_tokenizers
from specdemo.models.eagle3_config import Eagle3Config, config_data, described, fitted, is_head, read_config
from specdemo.models.eagle3_head import CONVERT, Eagle3Head
from specdemo.models.failures import explained
from specdemo.models.hub import open_checkpoint
from specdemo.models.memory import Footprint, estimate, free_memory, on_cpu, quantises, working_bytes
from specdemo.models.packing import extra_bytes, is_large, unpackable_reason
from specdemo.models.pair import check_can_decode, context_of
from specdemo.models.progress import LoadProgress
from specdemo.models.quantization import check_quantization
from specdemo.models.report import Examined, ModelReport, Preflight, gigabytes
from specdemo.models.request import BUDGET, DTYPES, PairRequest, request_pair
from specdemo.models.source import ModelSource

if TYPE_CHECKING:
    from transformers import PreTrainedModel

COUNTED = re.compile(r"(?:.*_)?(layer|expert|block|label)s?")
"""Fields of a config.json that count what the library builds one by one, in its configuration or its modules."""
MOST_COUNTED, MOST_EXPERTS = 1024, 2**16
"""Of layers, of experts in a layer and the like; and of experts in all layers. No model comes near."""


def preflight(
    name: str = "builtin",
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    target_quantization: str | None = None,
    draft_quantization: str | None = None,
) -> Preflight:
    """Examine a pair without downloading its weights; the arguments are those of :func:`specdemo.load_pair`.

    Raises:
        PairError: an argument is invalid. What is wrong with the models is in the report's ``problems``.
    """
    return examine(request_pair(name, device, dtype, target_quantization, draft_quantization), LoadProgress())[0]


def examine(
    request: PairRequest, progress: LoadProgress, free: Callable[[str], int] = free_memory
) -> tuple[Preflight, list[Examined]]:
    """The report on a pair, and its models as they were examined.

    Args:
        request: the pair.
        progress: of the load that this is part of.
        free: gives the bytes that a device has for this pair.

    Raises:
        LoadCancelled: the load was stopped.
    """
    found: list[Examined] = []
    problems: list[str] = []
    models = (
        ("target", request.target, request.target_quantization),
        ("draft", request.draft, request.draft_quantization),
        ("head", request.head, None),
    )
    for role, source, quantization in models:
        if source is None:
            continue
        progress.begin(f"Looking at the {role} ({source.title})")
        try:
            with explained(source):
                found.append(_examine(request, role, source, quantization, found, progress))
        except PairError as error:
            progress.check()  # a load that was stopped is no problem of the pair
            problems.append(str(error))
    match = None
    if not problems:
        known = [(e.tokenizer, e.width) for e in found if e.tokenizer is not None]
        match = match_tokenizers(*(t for t, _ in known), widths=[width for _, width in known])
    if match is not None and match.relation == "refused":
        problems.append(f"draft: {match.text}.")
    memory, memory_free = sum(e.report.weights.nbytes + e.working for e in found), free(request.device)
    download, disk_free = sum(e.report.download for e in found), _disk_free()
    report = Preflight(
        request=request,
        models=tuple(e.report for e in found),
        tokenizers=match,
        device=request.device,
        memory=memory,
        memory_free=memory_free,
        disk_free=disk_free,
        problems=(*problems, *_shortages(memory, memory_free, download, disk_free)),
        notes=(*(e.note for e in found if e.note), *_notes_on_dtype(request, found)),
    )
    return report, found


def resolve_dtype(name: str, model: PreTrainedModel, device: str) -> torch.dtype:
    """The dtype of the weights.

    ``auto`` on a CPU: bfloat16 for large models if the processor multiplies it, else float32 (exact); elsewhere
    the checkpoint's own 16-bit type.

    Args:
        model: may be on the meta device.
    """
    if name != "auto":
        return DTYPES[name]
    if on_cpu(device):
        return torch.bfloat16 if is_large(model) and bfloat16_instructions() else torch.float32
    own = model.config.get_text_config().dtype
    return own if own in (torch.float16, torch.bfloat16) else torch.bfloat16


def _notes_on_dtype(request: PairRequest, found: list[Examined]) -> list[str]:
    if not on_cpu(request.device) or all(e.report.dtype == "float32" for e in found):
        return []
    if request.dtype == "float16" or not bfloat16_instructions():
        return [f"This processor has no {request.dtype} instructions: float32 is quicker, at twice the memory."]
    if request.dtype != "auto":
        return []
    return [
        "bfloat16, which this processor multiplies: half the memory of float32, and quicker. Choose float32 if "
        "greedy outputs must be equal to the last token."
    ]


def _examine(
    request: PairRequest,
    role: str,
    source: ModelSource,
    quantization: str | None,
    found: list[Examined],
    progress: LoadProgress,
) -> Examined:
    """A model or a head, whichever its config.json says; ``found`` is what was examined before it."""
    checkpoint = open_checkpoint(source)
    folder = checkpoint.describe(progress)
    data = config_data(folder)
    _check_counts(source, data)
    if role == "target" and is_head(data):
        raise PairError(f"target: {source.name} is a draft head; name its target first: 'target + {source.name}'.")
    if role == "head" or is_head(data):
        return _examine_head(checkpoint, data, quantization, found, progress)
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    _check_not_quantised(source, config)
    skeleton = _skeleton(role, source, config)
    tokenizer = _tokenizer(source, folder)
    dtype = resolve_dtype(request.dtype, skeleton, request.device)
    note = ""
    if quantization is not None:
        check_quantization(quantization, request.device, dtype)
        if not quantises(skeleton):
            why = f"{type(skeleton).__name__} has no layers that optimum-quanto quantises."
            note, quantization = f"{quantization} changes nothing in the {role}: {why}", None
    weights = checkpoint.weights(progress)
    report = _report(
        role,
        checkpoint,
        weights,
        architecture=type(skeleton).__name__,
        parameters=sum(p.numel() for p in skeleton.parameters()),
        layers=config.get_text_config().num_hidden_layers,
        context=context_of(skeleton),
        dtype=str(dtype).removeprefix("torch."),
        quantization=quantization,
        weights=_footprint(skeleton, dtype, request.device, quantization),
    )
    width = skeleton.get_output_embeddings().weight.shape[0]
    return Examined(checkpoint, config, tokenizer, weights, report, width, working_bytes(skeleton, dtype), note)


def _examine_head(
    checkpoint: Checkpoint,
    data: dict[str, Any],
    quantization: str | None,
    found: list[Examined],
    progress: LoadProgress,
) -> Examined:
    """An EAGLE-3 head: does it fit its target, by its config.json and the sizes of its files?"""
    config = read_config(data, checkpoint.source.name)
    if any(e.report.role == "head" for e in found):
        raise PairError(f"{config.name} is a second head; name one.")
    if not found:
        raise PairError(f"{config.name} is a head, and its target could not be examined.")
    target = found[0]
    assert not isinstance(target.config, Eagle3Config), "the first is the target"
    config = fitted(config, target.config)
    weights = checkpoint.weights(progress, CONVERT)
    with torch.device("meta"):
        parameters = sum(p.numel() for p in Eagle3Head(config).parameters())
    table = config.vocabulary * config.width
    stored = DTYPES.get(str(data.get("torch_dtype", data.get("dtype"))), torch.bfloat16).itemsize
    if sum(checkpoint.sizes[name] for name in weights) > (parameters + 0.9 * table) * stored:
        parameters += table  # it has embeddings of its own, which its config.json does not say
    nbytes = parameters * DTYPES[target.report.dtype].itemsize
    report = _report(
        "head",
        checkpoint,
        weights,
        architecture=Eagle3Head.__name__,
        parameters=parameters,
        layers=1,
        context=None,
        dtype=target.report.dtype,
        quantization=None,
        weights=Footprint(nbytes, nbytes),
        detail=described(config, data),
    )
    note = f"{quantization} changes nothing in the head, which is small." if quantization else ""
    return Examined(checkpoint, config, None, weights, report, config.draft_vocabulary, 0, note)


def _report(role: str, checkpoint: Checkpoint, files: list[str], **facts: Any) -> ModelReport:
    """The facts of a model, with those of its repository."""
    return ModelReport(
        role=role,
        name=checkpoint.source.name,
        commit=checkpoint.commit,
        download=checkpoint.remaining(files),
        licence=checkpoint.licence,
        gated=checkpoint.gated,
        **facts,
    )


def _footprint(skeleton: PreTrainedModel, dtype: torch.dtype, device: str, quantization: str | None) -> Footprint:
    found = estimate(skeleton, dtype, quantization)
    if quantization is not None or unpackable_reason(skeleton, device, dtype) is not None:
        return found
    extra = extra_bytes(skeleton, dtype)
    return Footprint(found.nbytes + extra, found.unquantized + extra)


def _check_counts(source: ModelSource, data: Mapping[str, Any]) -> None:
    """Refuse a configuration that would take minutes to build, before it is built."""
    most = {"layer": 1, "expert": 1, "block": 1, "label": 1}
    for kind, count in _counts(data):
        most[kind] = max(most[kind], count)
    if max(most.values()) > MOST_COUNTED or most["layer"] * most["expert"] > MOST_EXPERTS:
        counts = ", ".join(f"{count:,} {kind}s" for kind, count in most.items() if count > 1)
        raise PairError(
            f"{source.name}: its config.json asks for {counts}, more than any model has; "
            "choose another repository."
        )


def _counts(data: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """What a configuration and those inside it count, and how many."""
    for name, value in data.items():
        counted = COUNTED.fullmatch(name)
        if isinstance(value, dict):
            yield from _counts(value)
        elif counted and isinstance(value, int):
            yield counted[1], value


def _check_not_quantised(source: ModelSource, config: PretrainedConfig) -> None:
    """Refuse weights quantised by other packages, which would fail only after the download."""
    stored = getattr(config, "quantization_config", None)
    if stored is not None:
        method = stored.get("quant_method", "unknown") if isinstance(stored, dict) else type(stored).__name__
        raise PairError(
            f"{source.name} is stored quantised (by {method}), which needs packages that are not used here; "
            "choose the repository it was made from, and quantise it here to float8, int8 or int4."
        )


def _skeleton(role: str, source: ModelSource, config: PretrainedConfig) -> PreTrainedModel:
    """The model on the meta device, without memory for its weights; refused if it cannot decode."""
    named = config.architectures[0] if config.architectures else None
    causal = set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values())  # of names: the classes would all be imported
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING or (named is not None and named not in causal):
        raise PairError(
            f"{role}: {source.name} is a {named or type(config).__name__}, which is no causal language model; "
            "choose one that continues text."
        )
    # Not by from_config: it sets torch's default dtype for the whole process, and a pair that another thread is
    # loading at that moment would take weights of that dtype.
    with torch.device("meta"):
        kind: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
        skeleton = kind(config)
    check_can_decode(role, skeleton)
    return skeleton


def _tokenizer(source: ModelSource, folder: Path) -> PreTrainedTokenizerBase:
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # the library raises whatever its many loaders raise
        raise PairError(
            f"{source.name} has no tokenizer that can be read ({str(error).strip().splitlines()[0]}); "
            "add its tokenizer.json, or choose a repository that has one."
        ) from error
    if not tokenizer(PROBE)["input_ids"]:  # the library makes an empty one up for some architectures
        raise PairError(
            f"{source.name} has no tokenizer files; add its tokenizer.json, or choose a repository that has it."
        )
    return tokenizer


def _shortages(memory: int, memory_free: int, download: int, disk_free: int) -> list[str]:
    short = []
    if memory > memory_free:
        budget = os.environ.get(BUDGET)
        or_raise = f", or raise {BUDGET}, which is {budget}" if budget else ""
        short.append(
            f"memory: the pair needs {gigabytes(memory)} and {gigabytes(memory_free)} are free; choose a smaller "
            f"pair, a 16-bit dtype or a quantisation{or_raise}."
        )
    if download > disk_free:
        short.append(
            f"disk: {gigabytes(download)} are to be downloaded and {gigabytes(disk_free)} are free; free some "
            "space, or set HF_HOME to a larger disk."
        )
    return short


def _disk_free() -> int:
    """Free bytes where the hub library keeps downloads; the folder need not exist yet."""
    folder = Path(constants.HF_HUB_CACHE)
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free
