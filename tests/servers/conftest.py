"""The builtin pair, and its files for llama.cpp."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import specdemo
from specdemo.training import gguf
from specdemo.training.drafters import new_head
from specdemo.training.gguf import write_model


@pytest.fixture(scope="session")
def pair() -> specdemo.ModelPair:
    """With a head that is not trained: it says the last token again."""
    found = specdemo.load_pair("builtin", device="cpu", dtype="float32")
    found.head = found.head or new_head(found.target, 1).requires_grad_(False).eval()
    return found


@pytest.fixture(scope="session")
def files(pair: specdemo.ModelPair, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The pair as the command writes it, and its head."""
    folder = tmp_path_factory.mktemp("gguf")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "argv", ["gguf", str(folder)])
        gguf.main()
    write_model(folder / "head.gguf", pair.head, pair.tokenizer)
    return {role: folder / f"{role}.gguf" for role in ("target", "draft", "head")}
