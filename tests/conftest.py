"""Toy models, a toy tokenizer and the yardsticks of the tests; everything seeded, nothing downloaded."""

from __future__ import annotations

import functools
import gc
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest
import torch
import transformers
from hub import Hub
from toys import BYTE_VOCABULARY, build, byte_tokenizer, perturbed
from transformers import PreTrainedTokenizerFast

import specdemo

# Each process of tests has ports of its own: where two apps begin on one port at once, the one that loses finds no
# other, since Gradio then tries the next ones with a server for agents (MCP) that can be started only once.
os.environ["GRADIO_SERVER_PORT"] = str(8000 + 100 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]))

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
hypothesis.settings.register_profile("tests", derandomize=True, deadline=None, database=None, max_examples=30)
hypothesis.settings.load_profile("tests")


# --- models and a tokenizer that knows every byte ---------------------------------------------------------


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return byte_tokenizer()


@pytest.fixture(scope="session")
def text_pair() -> specdemo.ModelPair:
    """A pair that reads and writes text, byte by byte."""
    target = build("llama", vocabulary=BYTE_VOCABULARY, eos=[1])
    return specdemo.ModelPair(target, perturbed(target), byte_tokenizer())


# --- checkpoints as files, and a hub that serves them ------------------------------------------------------


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub on loopback that this process asks, with an empty cache and no token."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "SPACE_ID", "SPECDEMO_PUBLIC", "SPECDEMO_MEMORY_GB"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("specdemo.models.hub.PAUSE_SECONDS", 0.0)
    with Hub() as served:
        served.adopt(monkeypatch, tmp_path / "cache")
        yield served


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Path]]:
    """Folders of a family's target and draft; written at the first call, never to be changed by a test."""
    from checkpoints import checkpoint_pair  # it needs this module

    @functools.cache
    def write(family: str) -> tuple[Path, Path]:
        return checkpoint_pair(tmp_path_factory.mktemp(family), family)

    return write


@pytest.fixture
def doctored(folders: Callable[[str], tuple[Path, Path]], tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a family's target folder, to be spoilt."""
    return lambda family="llama": Path(shutil.copytree(folders(family)[0], tmp_path / f"doctored-{family}"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The rooms whose files take the longest come first, so that no worker ends with one."""
    rooms = ("tests/ui/", "tests/servers/", "tests/training/", "tests/decoding/", "tests/runs/")
    items.sort(key=lambda item: [room not in item.nodeid for room in rooms])


def pytest_collection_finish() -> None:
    """What was imported stays: collections, of which loads and unloads ask for hundreds, need not go over it."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def runners(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list]:
    """The runners of the lanes opened since: target, then draft. Holds them weakly."""
    import weakref

    from specdemo.decoding.engines import open as opening
    from specdemo.decoding.engines.eager import EagerRunner

    made: list[weakref.ref] = []

    class Watched(EagerRunner):
        def __init__(self, *args: object, **options: object) -> None:
            super().__init__(*args, **options)
            made.append(weakref.ref(self))

    monkeypatch.setattr(opening, "EagerRunner", Watched)
    return lambda: [made_() for made_ in made]
