"""From a preflight to models in memory: fetch, load; all of it or nothing."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock, get_ident
from typing import TYPE_CHECKING, Any

from torch import nn
from transformers import AutoModelForCausalLM, QuantoConfig
from transformers.utils import is_accelerate_available
from transformers.utils import logging as library

from specdemo.errors import PairError
from specdemo.models.eagle3_config import Eagle3Config
from specdemo.models.eagle3_head import Eagle3Head, read_head
from specdemo.models.failures import explained
from specdemo.models.memory import release_memory
from specdemo.models.packing import pack, unpackable_reason
from specdemo.models.pair import ModelPair
from specdemo.models.preflight import Examined, Preflight
from specdemo.models.progress import LoadProgress
from specdemo.models.request import DTYPES, PairRequest, is_zero_gpu
from specdemo.models.source import ModelSource

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_hook_lock = RLock()


def check(report: Preflight) -> None:
    """
    Raises:
        PairError: the report's first problem.
    """
    if not report.ok:
        raise PairError(report.problems[0])


def fetch(found: list[Examined], progress: LoadProgress) -> None:
    """Download the missing weights of all models, as one step."""
    files = [(e, name) for e in found for name in e.checkpoint.missing(e.weights)]
    total = sum(e.checkpoint.sizes[name] for e, name in files)
    if not total:
        return
    progress.begin("Downloading", total, in_bytes=True)
    for number, (examined, name) in enumerate(files, start=1):
        source = examined.checkpoint.source
        progress.advance(
            0, f"Downloading the {examined.report.role} ({source.title}), file {number} of {len(files)}"
        )
        with explained(source):
            examined.checkpoint.read([name], progress)


def assemble(
    report: Preflight,
    found: list[Examined],
    progress: LoadProgress,
    prepare: Callable[[ModelPair], None] | None = None,
) -> ModelPair:
    """Read the weights into memory, then ``prepare`` the pair; if anything goes wrong, no model stays there."""
    try:
        return _assemble(report, found, progress, prepare)
    except BaseException as error:
        _forget(error)
        raise


def _assemble(
    report: Preflight, found: list[Examined], progress: LoadProgress, prepare: Callable[[ModelPair], None] | None
) -> ModelPair:
    by_role = {examined.report.role: examined for examined in found}
    draft, head = by_role.get("draft"), by_role.get("head")
    reencoded = report.tokenizers is not None and report.tokenizers.relation == "reencoded"
    target = _load_model(by_role["target"], report.request, progress)
    pair = ModelPair(
        target,
        _load_model(draft, report.request, progress) if draft else None,
        by_role["target"].tokenizer,
        report.request.name,
        draft_tokenizer=draft.tokenizer if draft and reencoded else None,
        head=_load_head(head, target, progress) if head else None,
    )
    if prepare is not None:
        prepare(pair)
    if any(examined.report.quantization for examined in found):
        release_memory()  # of the weights as they were before
    return pair


def _load_head(examined: Examined, target: PreTrainedModel, progress: LoadProgress) -> Eagle3Head:
    source = examined.checkpoint.source
    progress.begin(f"Loading the head ({source.title})")
    folder = examined.checkpoint.read(examined.weights, progress)
    assert isinstance(examined.config, Eagle3Config), "a head has one"
    with explained(source):
        head = read_head(folder, examined.weights, examined.config, target)
    if unpackable_reason(head, head.device.type, head.dtype) is None:
        pack(head)
    return head


def _load_model(examined: Examined, request: PairRequest, progress: LoadProgress) -> PreTrainedModel:
    report, source = examined.report, examined.checkpoint.source
    progress.begin(f"Loading the {report.role} ({source.title})")
    folder = examined.checkpoint.read(examined.weights, progress)
    options: dict[str, Any] = {"dtype": DTYPES[report.dtype]}
    if report.quantization is not None:
        options["quantization_config"] = QuantoConfig(weights=report.quantization)
    if request.device == "auto":
        options["device_map"] = "auto"
    # Straight onto the device: main memory need not hold what goes to a GPU. ZeroGPU's stand-in for CUDA belongs
    # to the thread that imported it, and the library reads weights in threads of its own.
    elif is_accelerate_available() and not is_zero_gpu():
        options["device_map"] = {"": request.device}
    with explained(source), _reporting(progress):
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # to name them instead
            **options,
        )
        model, info = loaded
        if "device_map" not in options:
            model = model.to(request.device)
    _check_whole(source, model, info)
    if unpackable_reason(model, request.device, model.dtype) is None:
        pack(model)
    return model.eval()


def _check_whole(source: ModelSource, model: PreTrainedModel, info: dict[str, Any]) -> None:
    """Refuse weights that lack tensors, which the library would fill with random numbers, or that do not fit."""
    lacking = sorted(info["missing_keys"], key=len)  # the weight before the scales quanto gives it
    misshapen = [key for key, *_ in info["mismatched_keys"]] + [
        f"{name}.weight"
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear) and layer.weight.shape != (layer.out_features, layer.in_features)
    ]
    if lacking or misshapen:
        wrong = f"lack {lacking[0]}, which" if lacking else f"hold {min(misshapen)} in another shape than"
        raise PairError(
            f"{source.name}: its weight files {wrong} the configuration asks for; "
            "they are incomplete or belong to another model."
        )


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
