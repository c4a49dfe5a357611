"""The preflight: whether a pair will work and fit, found out before its weights are downloaded."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import constants
from transformers import AutoConfig, PretrainedConfig, PreTrainedTokenizerBase

from specdemo.errors import PairError
from specdemo.machine import bfloat16_instructions
from specdemo.models import compatibility, gguf
from specdemo.models.eagle3_config import Eagle3Config, config_data, described, fitted, is_head, read_config
from specdemo.models.eagle3_head import CONVERT, Eagle3Head
from specdemo.models.failures import explained
from specdemo.models.gguf_header import GgufHeader
from specdemo.models.hub import Checkpoint, open_checkpoint
from specdemo.models.memory import Footprint, estimate, free_memory, on_cpu, quantised_layers, working_bytes
from specdemo.models.mtp_head import MtpHead, carries_mtp
from specdemo.models.packing import extra_bytes, is_large, unpackable_reason
from specdemo.models.pair import context_of, keeps_states
from specdemo.models.progress import LoadProgress
from specdemo.models.request import BUDGET, DTYPES, ModelSource, PairRequest, request_pair
from specdemo.models.types import PreTrainedModel


@dataclass(frozen=True, slots=True)
class ModelReport:
    """What is known of one model or head without its weights; loading needs no more."""

    role: str  # ``target``, ``draft``, ``head`` or ``mtp``
    checkpoint: Checkpoint = field(repr=False, compare=False)
    files: list[str]  # names of those with the weights; none of ``mtp``, which is in the target's
    config: PretrainedConfig | Eagle3Config | GgufHeader = field(repr=False)
    parameters: int
    dtype: str  # of the weights once loaded
    weights: Footprint  # bytes they will take in memory
    download: int  # bytes still to be downloaded
    width: int  # of the logits
    quantization: str | None = None  # of the weights once loaded
    context: int | None = None  # the longest sequence, in tokens; None if it states no limit
    detail: str = ""  # of a head what it was made for and what it reads and drafts
    tokenizer: PreTrainedTokenizerBase | None = field(default=None, repr=False, compare=False)  # None of a head
    working: int = 0  # bytes of the KV caches of two lanes
    note: str = ""  # a remark that does not keep it from running
    states: bool = False  # of recurrent or convolution layers, which loading tries

    @property
    def name(self) -> str:
        return self.checkpoint.source.name

    @property
    def licence(self) -> str | None:
        """As the repository's card states it; None if it does not."""
        return self.checkpoint.licence

    @property
    def gated(self) -> bool:
        return self.checkpoint.gated


@dataclass(frozen=True, slots=True)
class Preflight:
    """The report on a pair."""

    request: PairRequest
    models: tuple[ModelReport, ...]  # those that could be examined
    tokenizers: compatibility.TokenizerMatch | None  # how they compare; None if a model could not be examined
    memory_free: int  # bytes that are free on the device
    problems: tuple[str, ...]  # why the pair cannot run, each with what to do; empty if it can
    notes: tuple[str, ...]  # remarks that do not keep it from running

    @property
    def ok(self) -> bool:
        return not self.problems

    @property
    def device(self) -> str:
        return self.request.device

    @property
    def memory(self) -> int:
        """Bytes needed there: weights, and KV caches of two lanes."""
        return sum(m.weights.nbytes + m.working for m in self.models)

    @property
    def download(self) -> int:
        """Bytes still to be downloaded, of all models."""
        return sum(m.download for m in self.models)

    @property
    def conclusion(self) -> str:
        """The report in one sentence."""
        if not self.ok:
            return f"Cannot run: {self.problems[0]}"
        fetch = (
            f"{gigabytes(self.download)} to download, then it" if self.download else "it is on this machine and"
        )
        return f"Will run: {fetch} needs {gigabytes(self.memory)} of {gigabytes(self.memory_free)} free memory."


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
    return examine(request_pair(name, device, dtype, target_quantization, draft_quantization), LoadProgress())


def examine(request: PairRequest, progress: LoadProgress, free: Callable[[str], int] = free_memory) -> Preflight:
    """The report on a pair, as a part of a load; ``free`` gives the bytes that a device has for this pair."""
    models: list[ModelReport] = []
    problems: list[str] = []
    for role in ("target", "draft", "head"):
        source: ModelSource | None = getattr(request, role)
        if source is None:
            continue
        progress.begin(f"Looking at the {role} ({source.title})")
        try:
            with explained(source):
                models += _examine(request, role, source, models, progress)
        except PairError as error:
            progress.check()  # a load that was stopped is no problem of the pair
            problems.append(str(error))
    match = None
    if not problems and request.is_gguf:
        headers = [m.config for m in models if isinstance(m.config, GgufHeader) and m.role != "head"]
        match = gguf.match_vocabularies(headers)
    elif not problems:
        match = compatibility.match_tokenizers([(m.tokenizer, m.width) for m in models if m.tokenizer is not None])
    if match and match.relation == "refused":
        problems.append(f"draft: {match.text}.")
    notes = (*(m.note for m in models if m.note), *_notes_on_dtype(request, models))
    report = Preflight(request, tuple(models), match, free(request.device), tuple(problems), notes)
    return replace(report, problems=(*problems, *_shortages(report)))


def resolve_dtype(name: str, model: PreTrainedModel, device: str) -> torch.dtype:
    """The dtype of the weights; ``auto`` is the checkpoint's own of 16 bit, but on a CPU float32, which is exact,
    or bfloat16 for large models if the processor multiplies it.
    """
    if name != "auto":
        return DTYPES[name]
    if on_cpu(device):
        return torch.bfloat16 if is_large(model) and bfloat16_instructions() else torch.float32
    own = model.config.get_text_config().dtype
    return own if own in (torch.float16, torch.bfloat16) else torch.bfloat16


def gigabytes(count: int) -> str:
    """A number of bytes as text, in powers of ten as for disks and downloads."""
    if count < 1e6:
        return f"{count / 1e3:.0f} kB"
    return f"{count / 1e6:.0f} MB" if count < 1e9 else f"{count / 1e9:.1f} GB"


def _examine(
    request: PairRequest, role: str, source: ModelSource, before: list[ModelReport], progress: LoadProgress
) -> list[ModelReport]:
    """A model or a head, whichever its config.json says, and the head that it carries, after those ``before``."""
    checkpoint = open_checkpoint(source)
    if request.is_gguf:
        return [_examine_gguf(role, checkpoint, before, progress)]
    folder = checkpoint.describe(progress)
    data = config_data(folder)
    compatibility.check_counts(source, data)
    quantization = getattr(request, f"{role}_quantization", None)
    if role == "target" and is_head(data):
        raise PairError(f"target: {source.name} is a draft head; name its target first: 'target + {source.name}'.")
    if role == "head" or is_head(data):
        return [_examine_head(checkpoint, data, quantization, before, progress)]
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    skeleton = compatibility.skeleton_of(role, source, config)
    tokenizer = compatibility.read_tokenizer(source, folder)
    dtype = resolve_dtype(request.dtype, skeleton, request.device)
    note = ""
    if quantization is not None:
        compatibility.check_quantization(quantization, request.device, dtype)
        if not quantised_layers(skeleton):
            why = f"{type(skeleton).__name__} has no layers that optimum-quanto quantises."
            note, quantization = f"{quantization} changes nothing in the {role}: {why}", None
    packs = quantization is None and unpackable_reason(skeleton, request.device, dtype) is None
    files = checkpoint.weights(progress)
    report = ModelReport(
        role,
        checkpoint,
        files,
        config,
        parameters=sum(p.numel() for p in skeleton.parameters()),
        dtype=str(dtype).removeprefix("torch."),
        weights=estimate(skeleton, dtype, quantization, extra_bytes(skeleton, dtype) if packs else 0),
        download=checkpoint.remaining(files),
        width=skeleton.get_output_embeddings().weight.shape[0],
        quantization=quantization,
        context=context_of(skeleton),
        tokenizer=tokenizer,
        working=working_bytes(skeleton, dtype),
        states=keeps_states(skeleton),
        note=note,
    )
    if role != "target" or not carries_mtp(checkpoint, files, data):
        return [report]
    with torch.device("meta"):
        count = sum(p.numel() for p in MtpHead(skeleton).parameters())
    head = ModelReport(
        "mtp",
        checkpoint,
        files=[],
        config=skeleton.config,
        parameters=count,
        dtype=report.dtype,
        weights=Footprint(count * dtype.itemsize, count * dtype.itemsize),
        download=0,
        width=report.width,
        detail="in the target's own files; one layer, which drafts on from its own output",
    )
    return [report, head]


def _examine_head(
    checkpoint: Checkpoint,
    data: Mapping[str, Any],
    quantization: str | None,
    before: list[ModelReport],
    progress: LoadProgress,
) -> ModelReport:
    """An EAGLE-3 head: does it fit its target, by its config.json and the sizes of its files?"""
    config = read_config(data, checkpoint.source.name)
    if any(model.role == "head" for model in before):
        raise PairError(f"{config.name} is a second head; name one.")
    if not before:
        raise PairError(f"{config.name} is a head, and its target could not be examined.")
    target = before[0]
    assert isinstance(target.config, PretrainedConfig), "the first is the target"
    config = fitted(config, target.config)
    files = checkpoint.weights(progress, CONVERT)
    with torch.device("meta"):
        parameters = sum(p.numel() for p in Eagle3Head(config).parameters())
    table = config.vocabulary * config.width
    stored = DTYPES.get(str(data.get("torch_dtype", data.get("dtype"))), torch.bfloat16).itemsize
    if sum(checkpoint.sizes[name] for name in files) > (parameters + 0.9 * table) * stored:
        parameters += table  # it has embeddings of its own, which its config.json does not say
    nbytes = parameters * DTYPES[target.dtype].itemsize
    return ModelReport(
        "head",
        checkpoint,
        files,
        config,
        parameters=parameters,
        dtype=target.dtype,
        weights=Footprint(nbytes, nbytes),
        download=checkpoint.remaining(files),
        width=config.draft_vocabulary,
        detail=described(config, data),
        note=f"{quantization} changes nothing in the head, which is small." if quantization else "",
    )


def _examine_gguf(
    role: str, checkpoint: Checkpoint, before: list[ModelReport], progress: LoadProgress
) -> ModelReport:
    """A GGUF model by its files' headers; one that drafts is a draft or a head, as it says itself."""
    files = gguf.files_of(checkpoint)
    headers = gguf.headers_of(checkpoint, files, progress)
    header, name = headers[0], Path(files[0]).name
    gguf.check_model(role, header, name)
    target = next((m.config for m in before if isinstance(m.config, GgufHeader)), None)
    if header.architecture == gguf.HEAD:
        if target is None:
            raise PairError(f"target: {name} is a draft head; name its target first: 'target + {name}'.")
        role = "head"
        gguf.check_head(header, target, name)
    elif role == "head":
        role = "draft"
    if any(model.role == role for model in before):
        raise PairError(f"{name} is a second {role}; name one.")
    checkpoint.licence = checkpoint.licence or header.text("general.license") or None
    nbytes = sum(h.nbytes for h in headers)
    return ModelReport(
        role,
        checkpoint,
        files,
        header,
        parameters=sum(h.weights for h in headers),
        dtype=header.kind or headers[-1].kind,
        weights=Footprint(nbytes, nbytes),
        download=checkpoint.remaining(files),
        width=len(header.tokens),
        context=gguf.context_of(header),
        detail=gguf.described(header),
        working=gguf.working_bytes(header, len((target or header).tokens)),
    )


def _notes_on_dtype(request: PairRequest, models: list[ModelReport]) -> list[str]:
    if request.is_gguf or not on_cpu(request.device) or all(m.dtype == "float32" for m in models):
        return []
    if request.dtype == "float16" or not bfloat16_instructions():
        return [f"This processor has no {request.dtype} instructions: float32 is quicker, at twice the memory."]
    chosen = [
        "bfloat16, which this processor multiplies: half the memory of float32, and quicker. Choose float32 if "
        "greedy outputs must be equal to the last token."
    ]
    return chosen if request.dtype == "auto" else []


def _shortages(report: Preflight) -> list[str]:
    short = []
    if report.memory > report.memory_free:
        budget = os.environ.get(BUDGET)
        or_raise = f", or raise {BUDGET}, which is {budget}" if budget else ""
        short.append(
            f"memory: the pair needs {gigabytes(report.memory)} and {gigabytes(report.memory_free)} are free; "
            f"choose a smaller pair, a 16-bit dtype or a quantisation{or_raise}."
        )
    folder = Path(constants.HF_HUB_CACHE)  # where the hub library keeps downloads; it need not exist yet
    while not folder.exists():
        folder = folder.parent
    if report.download > (disk_free := shutil.disk_usage(folder).free):
        short.append(
            f"disk: {gigabytes(report.download)} are to be downloaded and {gigabytes(disk_free)} are free; free "
            "some space, or set HF_HOME to a larger disk."
        )
    return short
