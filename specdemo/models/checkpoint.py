"""The files of one model, wherever they lie."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from specdemo.errors import PairError
from specdemo.models.failures import unreachable
from specdemo.models.progress import LoadProgress
from specdemo.models.source import ModelSource

ONE_FILE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
DESCRIPTIONS = (".json", ".txt", ".jinja", ".model")
SAVE = "transformers' save_pretrained"
LARGEST_DESCRIPTION = 64 * 2**20
"""Bytes; tokenizers are the largest of these files, a few MB to 20 MB."""


class Checkpoint:
    """The files of one model in a folder of this machine; the hub's subclass fetches them into it.

    Attributes:
        source: where it comes from.
        folder: where the files lie once :meth:`read` was called.
        sizes: bytes of every file, by name; None takes those that lie in the folder now.
        commit: of the repository; None for a folder.
        licence: as its card states it; None if it does not.
        gated: whether the hub asks for consent.
        cached: it is what an earlier download left, where the hub cannot be reached.
    """

    def __init__(
        self,
        source: ModelSource,
        folder: Path,
        sizes: dict[str, int] | None = None,
        *,
        commit: str | None = None,
        licence: str | None = None,
        gated: bool = False,
        cached: bool = False,
    ) -> None:
        self.source, self.folder = source, folder
        if sizes is None:  # without subfolders: a model's files lie side by side, and this may be a home folder
            sizes = {p.name: p.stat().st_size for p in folder.iterdir() if p.is_file()}
        self.sizes = sizes
        self.commit, self.licence, self.gated, self.cached = commit, licence, gated, cached

    def missing(self, names: Sequence[str]) -> list[str]:
        """Which of these files would have to be fetched."""
        return []

    def remaining(self, names: Sequence[str]) -> int:
        """Bytes still to be fetched for these files."""
        return sum(self.sizes[name] for name in self.missing(names))

    def read(self, names: Sequence[str], progress: LoadProgress) -> Path:
        """The folder that holds these files, after fetching what is missing."""
        return self.folder

    def describe(self, progress: LoadProgress) -> Path:
        """The folder with configuration and tokenizer, fetched if need be.

        Raises:
            PairError: no config.json.
        """
        if "config.json" not in self.sizes:
            raise PairError(
                f"{self.source.name} holds no config.json, so it is no model of transformers; "
                "give the repository or folder that has one."
            )
        return self.read([n for n, size in self.sizes.items() if _describes(n, size)], progress)

    def weights(self, progress: LoadProgress, convert: str = SAVE) -> list[str]:
        """Names of the files with the weights.

        Args:
            progress: of the load.
            convert: what turns a pickle of this kind into safetensors, for the message.

        Raises:
            PairError: none in the safe format, or an index that cannot be read.
        """
        if ONE_FILE in self.sizes:
            return [ONE_FILE]
        if INDEX in self.sizes:
            return self._shards(self.read([INDEX], progress) / INDEX)
        if self.cached:
            raise unreachable(self.source)
        if any(name.endswith(PICKLES) for name in self.sizes):
            raise PairError(
                f"{self.source.name} holds its weights as pickles only, which can run code when they are opened; "
                f"choose a repository with safetensors, or convert this one with {convert}."
            )
        raise PairError(
            f"{self.source.name} holds no weights (no {ONE_FILE}); choose the repository that has them."
        )

    def _shards(self, index: Path) -> list[str]:
        try:
            shards = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise PairError(f"{self.source.name}: {INDEX} cannot be read; fetch the model again.") from error
        lost = [name for name in shards if name not in self.sizes]
        if lost:
            raise PairError(
                f"{self.source.name} is incomplete: {lost[0]} is missing"
                + (f", and {len(lost) - 1} more" if len(lost) > 1 else "")
                + "; fetch it again where there is a network."
            )
        return shards


def _describes(name: str, size: int) -> bool:
    return "/" not in name and name.endswith(DESCRIPTIONS) and size <= LARGEST_DESCRIPTION
