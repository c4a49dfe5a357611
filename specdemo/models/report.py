"""What the preflight says of a pair, and what loading needs of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from transformers import PretrainedConfig, PreTrainedTokenizerBase

from specdemo.models.checkpoint import Checkpoint
from specdemo.models.compatibility import TokenizerMatch
from specdemo.models.memory import Footprint
from specdemo.models.request import PairRequest

if TYPE_CHECKING:
    from specdemo.models.eagle3_config import Eagle3Config


@dataclass(frozen=True, slots=True)
class ModelReport:
    """The facts of one model that are known without its weights.

    Attributes:
        role: ``target``, ``draft`` or ``head``.
        name: the repository or folder that was requested.
        commit: of the repository; None for a folder.
        architecture: transformers' class.
        parameters: their number.
        layers: the number of decoder layers.
        context: the longest sequence, in tokens; None if it states no limit.
        dtype, quantization: of the weights once loaded.
        weights: bytes they will take in memory.
        download: bytes still to be downloaded.
        licence: as its card states it; None if it does not.
        gated: whether the hub asks for consent.
        detail: what else a person should know of it; of a head what it was made for and what it reads and drafts.
    """

    role: str
    name: str
    commit: str | None
    architecture: str
    parameters: int
    layers: int
    context: int | None
    dtype: str
    quantization: str | None
    weights: Footprint
    download: int
    licence: str | None
    gated: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Preflight:
    """The report on a pair.

    Attributes:
        request: the pair that was requested.
        models: those that could be examined.
        tokenizers: how they compare; None if a model could not be examined.
        device: where the pair would run.
        memory: bytes needed there: weights, and KV caches of two lanes.
        memory_free: bytes that are free there.
        disk_free: bytes that are free where downloads are kept.
        problems: why the pair cannot run, each with what to do; empty if it can.
        notes: remarks that do not keep it from running.
    """

    request: PairRequest
    models: tuple[ModelReport, ...]
    tokenizers: TokenizerMatch | None
    device: str
    memory: int
    memory_free: int
    disk_free: int
    problems: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether the pair can be loaded."""
        return not self.problems

    @property
    def download(self) -> int:
        """Bytes still to be downloaded, of both models."""
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


@dataclass(slots=True)
class Examined:
    """One model or head after the preflight, with all that loading needs; a head has no tokenizer."""

    checkpoint: Checkpoint
    config: PretrainedConfig | Eagle3Config
    tokenizer: PreTrainedTokenizerBase | None
    weights: list[str]
    report: ModelReport
    width: int
    working: int
    note: str


def gigabytes(count: int) -> str:
    """A number of bytes as text, in powers of ten as for disks and downloads."""
    if count < 1e6:
        return f"{count / 1e3:.0f} kB"
    return f"{count / 1e6:.0f} MB" if count < 1e9 else f"{count / 1e9:.1f} GB"
