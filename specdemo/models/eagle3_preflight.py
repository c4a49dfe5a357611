"""The preflight of an EAGLE-3 head: does it fit its target, by its config.json and the sizes of its files?"""

from __future__ import annotations

from typing import Any

import torch

from specdemo.errors import PairError
from specdemo.models.checkpoint import Checkpoint
from specdemo.models.eagle3_config import Eagle3Config, described, fitted
from specdemo.models.eagle3_files import CONVERT
from specdemo.models.eagle3_head import Eagle3Head
from specdemo.models.memory import Footprint
from specdemo.models.progress import Progress
from specdemo.models.report import Examined, ModelReport
from specdemo.models.request import DTYPES


def examine_head(
    config: Eagle3Config,
    data: dict[str, Any],
    checkpoint: Checkpoint,
    quantization: str | None,
    found: list[Examined],
    progress: Progress,
) -> Examined:
    """A head after the preflight.

    Args:
        config, data: what its config.json says, read and as it stands.
        checkpoint: its files.
        quantization: that was asked for it, which changes nothing.
        found: what was examined before it, the target first.
        progress: of the load.

    Raises:
        PairError: the head does not fit the target, or there is one already.
    """
    if any(e.report.role == "head" for e in found):
        raise PairError(f"{config.name} is a second head; name one.")
    if not found:
        raise PairError(f"{config.name} is a head, and its target could not be examined.")
    target = found[0]
    assert not isinstance(target.config, Eagle3Config), "the first is the target"
    config = fitted(config, target.config)
    weights = checkpoint.weights(progress, CONVERT)
    dtype = DTYPES[target.report.dtype]
    with torch.device("meta"):
        head = Eagle3Head(config)
    parameters = sum(p.numel() for p in head.parameters())
    table = config.vocabulary * config.width
    stored = DTYPES.get(str(data.get("torch_dtype", data.get("dtype"))), torch.bfloat16).itemsize
    if sum(checkpoint.sizes[name] for name in weights) > (parameters + 0.9 * table) * stored:
        parameters += table  # it has embeddings of its own, which its config.json does not say
    report = ModelReport(
        role="head",
        name=checkpoint.source.name,
        commit=checkpoint.commit,
        architecture=type(head).__name__,
        parameters=parameters,
        layers=1,
        context=None,
        dtype=target.report.dtype,
        quantization=None,
        weights=Footprint(parameters * dtype.itemsize, parameters * dtype.itemsize),
        download=checkpoint.remaining(weights),
        licence=checkpoint.licence,
        gated=checkpoint.gated,
        detail=described(config, data),
    )
    note = f"{quantization} changes nothing in the head, which is small." if quantization else ""
    return Examined(checkpoint, config, None, weights, report, config.draft_vocabulary, 0, note)
