"""From a preflight to models in memory: fetch, load; all of it or nothing."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock, get_ident
from typing import Any

from torch import nn
from transformers import AutoModelForCausalLM, QuantoConfig
from transformers.utils import is_accelerate_available
from transformers.utils import logging as library

from specdemo.errors import PairError
from specdemo.models.eagle3_config import Eagle3Config
from specdemo.models.eagle3_head import read_head
from specdemo.models.failures import explained
from specdemo.models.memory import release_memory
from specdemo.models.mtp_head import read_mtp_head
from specdemo.models.packing import pack, unpackable_reason
from specdemo.models.pair import ModelPair
from specdemo.models.preflight import ModelReport, Preflight
from specdemo.models.progress import LoadProgress
from specdemo.models.request import DTYPES, is_zero_gpu
from specdemo.models.types import PreTrainedModel

_hook_lock = RLock()


def fetch(report: Preflight, progress: LoadProgress) -> None:
    """Download the missing weights of all models, as one step; a PairError, or LoadCancelled, if that fails."""
    if not report.ok:
        raise PairError(report.problems[0])
    files = [(model, name) for model in report.models for name in model.checkpoint.missing(model.files)]
    total = sum(model.checkpoint.sizes[name] for model, name in files)
    if not total:
        return
    progress.begin("Downloading", total, in_bytes=True)
    for number, (model, name) in enumerate(files, start=1):
        source = model.checkpoint.source
        progress.advance(0, f"Downloading the {model.role} ({source.title}), file {number} of {len(files)}")
        with explained(source):
            model.checkpoint.read([name], progress)


def assemble(
    report: Preflight, progress: LoadProgress, prepare: Callable[[ModelPair], None] | None = None
) -> ModelPair:
    """Read the weights into memory, then ``prepare`` the pair; if anything goes wrong, no model stays there."""
    try:
        return _assemble(report, progress, prepare)
    except BaseException as error:
        _forget(error)
        raise


def _assemble(report: Preflight, progress: LoadProgress, prepare: Callable[[ModelPair], None] | None) -> ModelPair:
    parts: dict[str, Any] = {}
    refused: dict[str, str] = {}
    for model in report.models:
        source = model.checkpoint.source
        progress.begin(f"Loading the {model.role} ({source.title})")
        folder = model.checkpoint.read(model.files, progress)
        try:
            with explained(source):
                if model.role == "mtp":
                    loaded: Any = read_mtp_head(folder, report.models[0].files, parts["target"], source.name)
                elif isinstance(model.config, Eagle3Config):
                    loaded = read_head(folder, model.files, model.config, parts["target"])
                else:
                    loaded = _load_model(model, folder, report.device, progress)
        except PairError as error:
            if model.role != "mtp":
                raise
            refused[model.role] = str(error)  # nobody asked for it, and the target runs without
            continue
        if unpackable_reason(loaded, report.device, loaded.dtype) is None:
            pack(loaded)
        parts[model.role] = loaded
    tokenizers = {model.role: model.tokenizer for model in report.models}
    reencoded = report.tokenizers is not None and report.tokenizers.relation == "reencoded"
    pair = ModelPair(
        **parts,
        tokenizer=tokenizers["target"],
        name=report.request.name,
        draft_tokenizer=tokenizers["draft"] if reencoded else None,
        refused=refused,
    )
    if prepare is not None:
        prepare(pair)
    if any(model.quantization for model in report.models):
        release_memory()  # of the weights as they were before
    return pair


def _load_model(model: ModelReport, folder: Path, device: str, progress: LoadProgress) -> PreTrainedModel:
    options: dict[str, Any] = {"dtype": DTYPES[model.dtype]}
    if model.quantization is not None:
        options["quantization_config"] = QuantoConfig(weights=model.quantization)
    if device == "auto":
        options["device_map"] = "auto"
    # Straight onto the device: main memory need not hold what goes to a GPU. ZeroGPU's stand-in for CUDA belongs
    # to the thread that imported it, and the library reads weights in threads of its own.
    elif is_accelerate_available() and not is_zero_gpu():
        options["device_map"] = {"": device}
    with _reporting(progress):
        found: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # to name them instead
            **options,
        )
    loaded, info = found
    if "device_map" not in options:
        loaded = loaded.to(device)
    lacking = sorted(info["missing_keys"], key=len)  # the weight before the scales quanto gives it
    misshapen = [key for key, *_ in info["mismatched_keys"]] + [
        f"{name}.weight"
        for name, layer in loaded.named_modules()
        if isinstance(layer, nn.Linear) and layer.weight.shape != (layer.out_features, layer.in_features)
    ]
    if lacking or misshapen:  # the library would fill what is lacking with random numbers
        wrong = f"lack {lacking[0]}, which" if lacking else f"hold {min(misshapen)} in another shape than"
        belong = "they are incomplete or belong to another model"
        raise PairError(f"{model.name}: its weight files {wrong} the configuration asks for; {belong}.")
    return loaded.eval()


@contextmanager
def _reporting(progress: LoadProgress) -> Iterator[None]:
    """Passes the library's progress over the weights on to ``progress``, which can stop the load there."""
    thread = get_ident()

    def watch(bar: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        return _counted(args[0], progress) if get_ident() == thread and args else bar(*args, **options)

    with _hook_lock:
        before = library.set_tqdm_hook(watch)
        try:
            yield
        finally:
            library.set_tqdm_hook(before)


def _counted(items: Any, progress: LoadProgress) -> Iterator[Any]:
    """The items, while ``progress`` says how many were taken."""
    progress.begin(progress.step.text, len(items))
    for item in items:
        yield item
        progress.advance(1)


def _forget(error: BaseException) -> None:
    """Release the models that the frames of a failed load still refer to."""
    caught: BaseException | None = error
    while caught is not None:
        traceback.clear_frames(caught.__traceback__)
        caught = caught.__cause__ or caught.__context__
    release_memory()
