"""The same weights in llama.cpp: lanes with the engine ``llama.cpp`` beside lanes of a pair in this process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from threading import Lock
from typing import Any

from huggingface_hub import constants

from specdemo.errors import PairError, SettingsError
from specdemo.models.pair import ModelPair
from specdemo.models.progress import LoadProgress
from specdemo.models.request import ASSETS, ModelSource, PairRequest
from specdemo.runs.load import load
from specdemo.servers.gguf import GgufPair
from specdemo.settings import LLAMA_CPP, Settings

BUILTIN = ASSETS / "builtin"
ROLES = ("target", "draft", "head")
WRITER = "specdemo.training.gguf"
_writing = Lock()


def can_write() -> bool:
    """Whether the builtin pair's files can be written here: a Space has not what trains it."""
    return (ASSETS.parent / "specdemo" / "training").is_dir()


def in_engine(pair: Any, settings: Settings) -> Any:
    """What decodes a lane: the pair, or for the engine ``llama.cpp`` its GGUF files, started at the first use.

    Raises:
        SettingsError: the pair has none.
        PairError: they cannot be written or loaded.
    """
    if settings.engine != LLAMA_CPP or isinstance(pair, GgufPair):
        return pair
    if not isinstance(pair, ModelPair):
        raise SettingsError("engine", "'llama.cpp' runs GGUF files beside a pair of models; load such a pair.")
    with _writing:
        if pair.gguf is None and Path(getattr(pair.target, "name_or_path", "")) == BUILTIN / "target":
            pair.gguf = _loaded(pair)
    if pair.gguf is None:
        advice = "give them by --gguf, or in Python by pair.gguf = load_pair(…)"
        raise SettingsError("engine", f"'llama.cpp' needs this pair's weights as GGUF files; {advice}.")
    return pair.gguf


def _loaded(pair: ModelPair) -> GgufPair:
    """The builtin pair's files, which are written once into the cache of the hub's library."""
    if not can_write():
        raise PairError("the builtin pair's GGUF files cannot be written here; give them by --gguf.")
    stamp = max(int(path.stat().st_mtime) for path in BUILTIN.rglob("*.safetensors"))
    folder = Path(constants.HF_HOME) / "specdemo" / f"builtin-{stamp}"
    if not (folder / "head.gguf").exists():  # the last one that is written
        command = [sys.executable, "-m", WRITER, str(folder)]
        done = subprocess.run(command, cwd=ASSETS.parent, capture_output=True, text=True)
        if done.returncode:
            said = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise PairError(f"the builtin pair's GGUF files could not be written: {said}")
    target, draft, head = (ModelSource(role, folder=folder, file=f"{role}.gguf") for role in ROLES)
    found = load(PairRequest(pair.name, target, draft, device="cpu", head=head), LoadProgress())
    assert isinstance(found, GgufPair), "of GGUF files"
    found.name, found.threads = f"{pair.name} in {LLAMA_CPP}", pair.threads or found.threads
    return found
