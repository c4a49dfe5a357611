"""A pair that is ready to run: loaded, and every forward run once before any lane is timed."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from specdemo.decoding.engines.eager import Engine
from specdemo.decoding.engines.head import HeadRunner
from specdemo.decoding.trials import TOKENS, check_chain
from specdemo.models.failures import explained
from specdemo.models.gguf import kv_bytes
from specdemo.models.gguf_header import GgufHeader
from specdemo.models.loading import assemble, fetch
from specdemo.models.pair import ModelPair
from specdemo.models.preflight import Preflight, examine
from specdemo.models.progress import LoadProgress
from specdemo.models.request import PairRequest, request_pair
from specdemo.servers.gguf import GgufPair


def load_pair(
    name: str = "builtin",
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    target_quantization: str | None = None,
    draft_quantization: str | None = None,
) -> Any:
    """Load a pair, downloading what is not on this machine: a ModelPair, or of GGUF files a GgufPair.

    Args:
        name: an id of the catalogue (``assets/pairs.toml``); or a target, ``"target + draft"``,
            ``"target + EAGLE-3 head"`` or all three, each a repository of the hub (``owner/name``,
            ``owner/name@revision``) or the path of a folder. One with `` + `` in its name stands in double quotes
            unless it is the only one. GGUF files, by their paths or as ``owner/name:FILE.gguf`` or
            ``owner/name:Q4_K_M``, are run by llama.cpp: a :class:`GgufPair`.
        device: where both models run; None takes a GPU if there is one; ``auto`` spreads large models.
        dtype: of the weights; None means the catalogue's choice, else on a CPU float32 (exact), but bfloat16
            for models from 50M parameters if the processor multiplies it, and the checkpoint's own 16-bit type
            elsewhere.
        target_quantization, draft_quantization: ``float8``, ``int8`` or ``int4`` weights, by optimum-quanto;
            ``none`` for none where the catalogue has a default.

    Raises:
        PairError: unknown names, models that cannot be had, cannot work together or do not fit; the message
            says what to do. Nothing stays half-loaded.
    """
    return load(request_pair(name, device, dtype, target_quantization, draft_quantization), LoadProgress())


def load(request: PairRequest, progress: LoadProgress) -> ModelPair | GgufPair:
    """Examine, fetch and load a pair; the errors are those of :func:`load_pair`, and LoadCancelled."""
    report = examine(request, progress)
    fetch(report, progress)
    return assemble_warm(report, progress)


def assemble_warm(report: Preflight, progress: LoadProgress, threads: int | None = None) -> ModelPair | GgufPair:
    """Read the weights into memory and run them once; if anything goes wrong, none stays there.

    ``threads`` of the CPU are for llama.cpp; None gives it as many as torch has.
    """
    if report.request.is_gguf:
        return _started(report, progress, threads)
    return assemble(report, progress, partial(_warm_up, report, progress))


def _started(report: Preflight, progress: LoadProgress, threads: int | None) -> GgufPair:
    """GGUF files in llama.cpp: the server of plain decoding runs, so what it cannot load is known."""
    paths = {m.role: m.checkpoint.read(m.files, progress) / m.files[0] for m in report.models}
    target = report.models[0]
    assert isinstance(target.config, GgufHeader), "of a GGUF file"
    pair = GgufPair(
        " + ".join(model.checkpoint.source.title for model in report.models),
        paths,
        {model.role: model.weights for model in report.models},
        chat=bool(target.config.text("tokenizer.chat_template")),
        context=target.context or 0,
        mtp=target.config.whole("nextn_predict_layers") > 0,
        kv=sum(kv_bytes(model.config) for model in report.models if isinstance(model.config, GgufHeader)),
        threads=threads or torch.get_num_threads(),  # as few as this program may use, which llama.cpp does not ask
    )
    progress.begin("Starting llama.cpp")
    pair.start(progress.check)
    return pair


def _warm_up(report: Preflight, progress: LoadProgress, pair: ModelPair) -> None:
    compiled = "int4" in (report.request.target_quantization, report.request.draft_quantization)
    progress.begin("Warming up; int4 is compiled at its first use" if compiled else "Warming up")
    with explained(report.request.target):
        warm_up(pair)
    progress.check()


def warm_up(pair: ModelPair, engine: str = "auto") -> None:
    """Run every kind of forward once, so that no run pays for lazy initialisation: all decoding begins with this.

    What the engine ``graphs`` captures, it warms up by itself.

    Raises:
        PairError: a model does not decode here as it should.
    """
    wish: Engine = "auto" if engine == "auto" else "eager"
    if wish in pair.prepared:
        return
    for role, model in zip(("target", "draft"), pair.models, strict=False):
        check_chain(role, model, wish)  # a prompt, a step, a verify
    for head in pair.heads:
        runner = HeadRunner(head, head.embeddings(pair.target), engine)
        for count in (TOKENS, 1):
            runner.forward(runner.project(torch.zeros(count, head.feature_width)), [0] * count)
    pair.prepared.add(wish)
