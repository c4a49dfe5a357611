"""What can be asked for: pairs of the catalogue, names on the hub and folders; no file of a model is read."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from specdemo.drafters import GGUF, PARTS
from specdemo.errors import PairError
from specdemo.models.memory import BITS, best_device

ASSETS = Path(__file__).resolve().parents[2] / "assets"
QUANTIZATIONS = tuple(BITS)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
BETWEEN = " + "
SEPARATOR = re.compile(r' \+ (?=[^"]*(?:"[^"]*"[^"]*)*$)')
"""It, outside double quotes."""
GGUF_BYTES = 4096
BUDGET = "SPECDEMO_MEMORY_GB"
"""Environment variable: the gigabytes that all loaded pairs together may take."""


@dataclass(frozen=True, slots=True)
class ModelSource:
    """One model's origin."""

    name: str  # a repository such as ``gpt2`` or ``Qwen/Qwen3-4B``, or a folder's path
    revision: str | None = None  # branch, tag or commit of the repository; None is its main branch
    folder: Path | None = None  # where the files lie; None for a repository
    file: str | None = None  # of a GGUF model its file or quantisation, empty for the only one; None for no GGUF

    @property
    def title(self) -> str:
        """A short name: a repository without its owner, the last part of a path."""
        behind = f":{self.file}" if self.file and self.folder is None else ""
        return (Path(self.name).name or self.name) + behind


def parse_source(text: str, revision: str | None = None) -> ModelSource:
    """Read a name (``owner/name``, ``owner/name@revision``, …) or a path; a PairError if it is neither."""
    text = text.strip()
    if text.startswith("assets:"):
        return ModelSource(text, folder=ASSETS / text.removeprefix("assets:"))
    if is_folder(text):
        folder = Path(text).expanduser().resolve()
        only_gguf = not (folder / "config.json").exists() and any(folder.glob("*.gguf"))
        return ModelSource(text, folder=folder, file="" if only_gguf else None)
    if is_file(text):
        path = Path(text).expanduser().absolute()  # the parts of a split file need not lie where a link leads
        return ModelSource(text, folder=path.parent, file=path.name)
    if text.startswith((".", "/", "~", "\\")) or (text.lower().endswith(".gguf") and ":" not in text):
        advice = "give the folder that holds the model's config.json, or a .gguf file"
        raise PairError(f"pair: there is no folder or file {shorten(text)!r}; {advice}.")
    name, colon, file = text.partition(":")
    name, _, typed = name.partition("@")
    try:
        validate_repo_id(name if "/" in name or not colon else text)
    except HFValidationError as error:
        advice = "write owner/name, owner/name@revision, owner/name:FILE.gguf or a path"
        raise PairError(f"pair: {shorten(text)!r} is neither here nor a name on the hub; {advice}.") from error
    return ModelSource(name, typed or revision, file=file if colon else None)


def shorten(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:60]}…{text[-15:]}"


def names_gguf(text: str) -> bool:
    text = text.strip()
    other = text.startswith("assets:") or is_folder(text)
    return text.lower().endswith(".gguf") or ("/" in text and ":" in text and not other)


def gguf_says(name: str, word: bytes) -> bool:
    """Whether a GGUF file's header names something where it tells of the model, before the vocabulary."""
    with Path(name).expanduser().open("rb") as beginning:
        return word in beginning.read(GGUF_BYTES)


def is_network_path(text: str) -> bool:
    r"""Whether Windows takes this for a path on another machine, to which it would send the hash of a password.

    It reads ``/`` as ``\``, and ``\??\`` as the beginning of a path of its kernel, such as ``\??\UNC\host``.
    """
    return text.strip().removeprefix("assets:").replace("/", "\\").startswith(("\\\\", "\\??\\"))


def is_folder(text: str) -> bool:
    """Whether this is a folder's path; false also for texts that no path can be (too long, with a zero byte)."""
    try:
        return Path(text).expanduser().is_dir()
    except (OSError, RuntimeError, ValueError):
        return False


def is_file(text: str) -> bool:
    try:
        return text.lower().endswith(".gguf") and Path(text).expanduser().is_file()
    except (OSError, RuntimeError, ValueError):
        return False


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One pair of the catalogue. None leaves a choice to ``load_pair``."""

    id: str  # the name given to ``load_pair``
    label: str  # its name on the page
    target: str  # a repository of the hub, or ``assets:`` and a folder below ``assets``; so are draft and head
    draft: str | None = None
    head: str | None = None
    target_revision: str | None = None  # a commit; None is the main branch
    draft_revision: str | None = None
    head_revision: str | None = None
    gguf: bool = False  # whether lanes can run in llama.cpp beside those of this process
    mtp: bool = False  # whether the target's files carry an MTP head
    dtype: str | None = None
    target_quantization: str | None = None  # by default
    draft_quantization: str | None = None
    device: str | None = None  # ``auto`` spreads models that fit no single device
    chat: bool = False  # whether its models were trained to answer in a chat
    licence: str = ""  # short names, as on the hub's cards
    gated: bool = False  # whether the hub asks for consent and a token
    memory_gb: float = 0.0  # rough size of the weights as loaded by default, in 10⁹ bytes
    download_gb: float = 0.0  # of its files; 0 of what is not offered to who leaves the builtin pair
    note: str = ""  # one line on what it is good for

    @property
    def parts(self) -> frozenset[str]:
        """What it has besides the target: of ``specdemo.drafters.PARTS``, and ``GGUF``."""
        kind = {GGUF} if names_gguf(self.target) else set()
        return frozenset(part for part in PARTS if getattr(self, part)) | kind


@cache
def catalog() -> dict[str, CatalogEntry]:
    """All entries by id, in the order of the file."""
    return {e["id"]: CatalogEntry(**e) for e in read_toml(ASSETS / "pairs.toml")["pair"]}


def read_toml(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class PairRequest:
    """Which models to load, and how; equal requests mean the same pair."""

    name: str  # an id of the catalogue, or the sources as they were typed
    target: ModelSource
    draft: ModelSource | None  # of two typed names the second, until its config.json says that it is a head
    device: str  # ``cpu``, ``cuda``, ``mps``, …; ``auto`` lets accelerate spread the layers (``device_map``)
    dtype: str = "auto"  # or a key of ``DTYPES``
    target_quantization: str | None = None  # of ``QUANTIZATIONS``
    draft_quantization: str | None = None
    head: ModelSource | None = None

    @property
    def is_gguf(self) -> bool:
        return self.target.file is not None

    def unquantized_target(self) -> PairRequest:
        """The target alone, not quantised: the baseline of a quantised pair."""
        return replace(self, draft=None, head=None, target_quantization=None, draft_quantization=None)


def request_pair(
    name: str | Sequence[str] = "builtin",
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    target_quantization: str | None = None,
    draft_quantization: str | None = None,
) -> PairRequest:
    """Read the arguments of ``load_pair``; None takes the catalogue's value, and after that ``auto``.

    Instead of one text with all names, ``name`` may be the names one by one, with any characters in them.

    Raises:
        PairError: unknown pair, device, dtype or quantisation; a pair outside the catalogue in public mode.
    """
    known = catalog().get(name.strip()) if isinstance(name, str) else None
    entry = known or _typed(name)
    request = PairRequest(
        name=entry.id,
        target=parse_source(entry.target, entry.target_revision),
        draft=parse_source(entry.draft, entry.draft_revision) if entry.draft else None,
        device=_device(device if device is not None else entry.device),
        dtype=_dtype(dtype if dtype is not None else entry.dtype),
        target_quantization=_quantization(target_quantization, entry.target_quantization),
        draft_quantization=_quantization(draft_quantization, entry.draft_quantization) if entry.draft else None,
        head=parse_source(entry.head, entry.head_revision) if entry.head else None,
    )
    kinds = {source.file is None for source in (request.target, request.draft, request.head) if source}
    if len(kinds) > 1:
        raise PairError("pair: GGUF files draft for GGUF files only, and other models for others; give one kind.")
    if request.is_gguf:
        held = (dtype, "auto"), (device, "cpu"), (target_quantization, "none"), (draft_quantization, "none")
        if any(str(given) not in ("None", "auto", usual) for given, usual in held):
            raise PairError("pair: a GGUF file holds its types; leave dtype, device and quantisations out.")
        return replace(request, device="cpu")
    return request


def is_public() -> bool:
    """Whether strangers use this app: as ``SPECDEMO_PUBLIC`` says, or by default on a Space."""
    stated = os.environ.get("SPECDEMO_PUBLIC")
    return bool(os.environ.get("SPACE_ID")) if stated is None else stated not in ("", "0")


def is_zero_gpu() -> bool:
    """Whether this is a Space on ZeroGPU, where only workers have a GPU, each for a limited time."""
    return os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")


def _typed(name: str | Sequence[str]) -> CatalogEntry:
    """A pair that is not in the catalogue: ``target``, ``target + draft``, ``target + head``, or all three.

    A folder that is there with the whole text as its path is the target; otherwise a name with `` + `` in it
    stands in double quotes.
    """
    given = [name] if isinstance(name, str) else name if isinstance(name, list | tuple) else []
    if not given or not all(isinstance(part, str) and part.strip() for part in given):
        choice = f"an id of the catalogue ({', '.join(catalog())}), a target, or 'target + draft'"
        raise PairError(f"pair: {name!r:.80} names no models; give {choice}.")
    parts = [part.strip() for part in given]
    quoted = (f'"{part}"' if BETWEEN in part else part for part in parts)
    typed = parts[0] if isinstance(name, str) else BETWEEN.join(quoted)
    if is_public():
        raise PairError(
            f"pair: {shorten(typed)!r} is not in the catalogue, and this public page loads no other models; "
            f"choose one of {', '.join(catalog())}, or run the app on your own machine."
        )
    if isinstance(name, str) and not is_folder(typed) and not is_file(typed):
        meant = get_close_matches(typed, catalog(), n=1)
        if meant and not any(mark in typed for mark in ("/", "@", ":", BETWEEN)):
            hint = f"did you mean {meant[0]!r}? A repository of the hub is written owner/name."
            raise PairError(f"pair: {name!r:.80} is not known; {hint}")
        parts = [re.sub('^"(.+)"$', r"\1", part.strip()) for part in SEPARATOR.split(name)]
    if len(parts) > 3 or not all(parts):
        raise PairError(
            f"pair: {shorten(typed)!r} should name a target, or a target and a draft as 'target + draft', or both "
            "and a head; a name with ' + ' in it stands in double quotes."
        )
    draft, head = [*parts[1:], None, None][:2]
    return CatalogEntry(typed, typed, parts[0], draft, head)


def _device(device: str | torch.device | None) -> str:
    if device is None:
        return best_device()
    if device == "auto":
        return "auto"
    try:
        where = torch.device(device)
        torch.zeros(1, device=where).item()  # the meta device has no numbers
    except (RuntimeError, AssertionError, TypeError) as error:
        raise PairError(f"device: {device!r:.80} is not available here; choose cpu or auto.") from error
    return str(where) if where.type == "cuda" else where.type  # cpu:0 is the CPU


def _dtype(dtype: str | torch.dtype | None) -> str:
    name = "auto" if dtype is None else str(dtype).removeprefix("torch.")
    if name != "auto" and name not in DTYPES:
        raise PairError(f"dtype: {dtype!r:.80} is not known; choose one of auto, {', '.join(DTYPES)}.")
    return name


def _quantization(requested: str | None, default: str | None) -> str | None:
    chosen = default if requested is None else requested
    if chosen in (None, "none"):
        return None
    if chosen not in QUANTIZATIONS:
        known = ", ".join(("none", *QUANTIZATIONS))
        raise PairError(f"quantisation: {chosen!r:.80} is not known; choose one of {known}.")
    return chosen
