"""The files of one model: in a folder, or in a repository of the hub, from where they are fetched and checked.

Fetched files go into the hub library's own cache, so that other programs do not fetch them again. The library's
download (``hf_hub_download`` of huggingface_hub 2.4) is not used for the content: it deletes an unfinished file,
compares no hash, and a ``tqdm_class`` could stop it only every 10 MB. This one keeps the part and goes on from it.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx2
from huggingface_hub import HfApi, constants, hf_hub_download, hf_hub_url
from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled
from huggingface_hub.file_download import repo_folder_name
from huggingface_hub.utils import WeakFileLock, build_hf_headers, hf_raise_for_status, http_stream_backoff
from safetensors import safe_open

from specdemo.errors import PairError
from specdemo.models.failures import unreachable
from specdemo.models.progress import LoadProgress
from specdemo.models.request import ModelSource

ONE_FILE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
DESCRIPTIONS = (".json", ".txt", ".jinja", ".model")
SAVE = "transformers' save_pretrained"
LARGEST_DESCRIPTION = 64 * 2**20
"""Bytes; tokenizers are the largest of these files, a few MB to 20 MB."""
CHUNK = 256 * 2**10
ATTEMPTS = 4
"""Tries in a row that bring nothing before a download gives up."""
PAUSE_SECONDS = 1.0
OFFLINE = (httpx2.TransportError, OfflineModeIsEnabled)


@dataclass
class Checkpoint:
    """The files of one model in a folder of this machine; the hub's subclass fetches them into it."""

    source: ModelSource
    folder: Path  # where the files lie once :meth:`read` was called
    sizes: dict[str, int]  # bytes of every file, by name
    commit: str | None = None  # of the repository; None for a folder
    licence: str | None = None  # as its card states it; None if it does not
    gated: bool = False  # whether the hub asks for consent
    cached: bool = False  # it is what an earlier download left, where the hub cannot be reached

    def missing(self, names: Sequence[str]) -> list[str]:
        """Which of these files would have to be fetched."""
        return []

    def remaining(self, names: Sequence[str]) -> int:
        """Bytes still to be fetched for these files."""
        return sum(self.sizes[name] for name in self.missing(names))

    def read(self, names: Sequence[str], progress: LoadProgress) -> Path:
        """The folder that holds these files, after fetching what is missing."""
        return self.folder

    def beginning(self, name: str, nbytes: int) -> bytes:
        """The first bytes of a file, without fetching the rest."""
        with (self.folder / name).open("rb") as content:
            return content.read(nbytes)

    def describe(self, progress: LoadProgress) -> Path:
        """The folder with configuration and tokenizer, fetched if need be; a PairError without a config.json."""
        if "config.json" not in self.sizes:
            name, advice = self.source.name, "give the repository or folder that has one"
            if any(file.lower().endswith(".gguf") for file in self.sizes):
                advice = f"name one of its GGUF files: {name}:Q4_K_M"
            raise PairError(f"{name} holds no config.json, so it is no model of transformers; {advice}.")
        described = (n for n in self.sizes if "/" not in n and n.endswith(DESCRIPTIONS))
        return self.read([n for n in described if self.sizes[n] <= LARGEST_DESCRIPTION], progress)

    def weights(self, progress: LoadProgress, convert: str = SAVE) -> list[str]:
        """Names of the files with the weights; a PairError if none is in the safe format.

        ``convert`` turns a pickle of this kind into safetensors.
        """
        if ONE_FILE in self.sizes:
            return [ONE_FILE]
        if INDEX in self.sizes:
            shards = sorted({*self._weight_map(self.read([INDEX], progress) / INDEX).values()})
            if lost := [name for name in shards if name not in self.sizes]:
                more = f", and {len(lost) - 1} more" if len(lost) > 1 else ""
                missing = f"{lost[0]} is missing{more}"
                raise PairError(f"{self.source.name} is incomplete: {missing}; fetch it again, with a network.")
            return shards
        if self.cached:
            raise unreachable(self.source)
        if any(name.endswith(PICKLES) for name in self.sizes):
            raise PairError(
                f"{self.source.name} holds its weights as pickles only, which can run code when they are opened; "
                f"choose a repository with safetensors, or convert this one with {convert}."
            )
        raise PairError(f"{self.source.name} holds no weights ({ONE_FILE}); choose the repository that has them.")

    def tensor_names(self, files: Sequence[str]) -> set[str] | None:
        """Of the tensors in :meth:`weights`, by the index, which :meth:`describe` fetched, or by the one file;
        None where neither is on this machine.
        """
        if INDEX in self.sizes:
            return {*self._weight_map(self.folder / INDEX)}
        if self.missing(files):
            return None
        with safe_open(self.folder / ONE_FILE, "pt") as held:
            return {*held.keys()}

    def _weight_map(self, index: Path) -> dict[str, str]:
        try:
            return dict(json.loads(index.read_text(encoding="utf-8"))["weight_map"])
        except (ValueError, KeyError, TypeError) as error:
            raise PairError(f"{self.source.name}: {INDEX} cannot be read; fetch the model again.") from error


@dataclass
class HubCheckpoint(Checkpoint):
    """Files of a repository at one commit, in the hub library's cache once they were read."""

    digests: dict[str, str] = field(default_factory=dict)  # of each file: SHA-256, or git's SHA-1 for small ones

    def missing(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if not (self.folder / name).is_file()]

    def beginning(self, name: str, nbytes: int) -> bytes:
        if not self.missing([name]):
            return super().beginning(name, nbytes)
        url = hf_hub_url(self.source.name, name, revision=self.commit)
        headers = build_hf_headers(token=_token()) | {"Range": f"bytes=0-{nbytes - 1}"}
        timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
        with http_stream_backoff("GET", url, headers=headers, timeout=timeout, max_retries=ATTEMPTS) as response:
            hf_raise_for_status(response)
            return next(response.iter_bytes(nbytes), b"")  # ranges need not be served

    def remaining(self, names: Sequence[str]) -> int:
        parts = [self._part(name) for name in self.missing(names)]
        return super().remaining(names) - sum(part.stat().st_size for part in parts if part.exists())

    def read(self, names: Sequence[str], progress: LoadProgress) -> Path:
        for name in self.missing(names):
            self._download(name, progress)
        # Note which commit a branch or tag is, as the library does, to find it without a network.
        revision = self.source.revision or constants.DEFAULT_REVISION
        ref = self.folder.parents[1] / "refs" / revision
        if revision != self.folder.name and not (ref.exists() and ref.read_text() == self.folder.name):
            ref.parent.mkdir(parents=True, exist_ok=True)
            ref.write_text(self.folder.name)
        return self.folder

    def _blob(self, name: str) -> Path:
        return self.folder.parents[1] / "blobs" / self.digests[name]

    def _part(self, name: str) -> Path:
        """Where a download is kept until it is whole."""
        return self._blob(name).with_suffix(".part")

    def _download(self, name: str, progress: LoadProgress) -> None:
        blob = self._blob(name)
        blob.parent.mkdir(parents=True, exist_ok=True)
        with WeakFileLock(blob.with_suffix(".lock")):
            if not blob.exists():
                part = self._part(name)
                self._stream(name, part, progress)
                progress.check()
                if _digest(part, sha256=len(blob.name) == 64) != blob.name:
                    part.unlink()
                    why = f"{name} arrived damaged (its hash is not the hub's) and was thrown away"
                    raise PairError(f"{self.source.name}: {why}; load the pair again.")
                part.replace(blob)
        # The library finds the content under its hash and only links it into its snapshot.
        hf_hub_download(self.source.name, name, revision=self.commit, token=_token())

    def _stream(self, name: str, part: Path, progress: LoadProgress) -> None:
        """Fill ``part`` to the file's size, going on where an earlier try ended."""
        size = self.sizes[name]
        if not part.exists() or part.stat().st_size > size:
            part.write_bytes(b"")
        progress.skip(part.stat().st_size)
        failures, doing = 0, progress.step.text
        while (had := part.stat().st_size) < size:
            try:
                self._stream_from(name, part, had, progress)
                progress.advance(0, doing)
            except (httpx2.TransportError, HfHubHTTPError) as error:
                if _refused(error):
                    raise
                failures = failures + 1 if part.stat().st_size == had else 0
                if failures == ATTEMPTS:
                    raise
                progress.advance(0, f"{doing}: no answer, trying again")
                time.sleep(PAUSE_SECONDS)

    def _stream_from(self, name: str, part: Path, had: int, progress: LoadProgress) -> None:
        url = hf_hub_url(self.source.name, name, revision=self.commit)
        headers = build_hf_headers(token=_token()) | ({"Range": f"bytes={had}-"} if had else {})
        timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
        # No retries of the library's: it would ask for the same range again.
        with http_stream_backoff("GET", url, headers=headers, timeout=timeout, max_retries=0) as response:
            hf_raise_for_status(response)
            mode = "ab"
            if had and response.status_code != httpx2.codes.PARTIAL_CONTENT:  # ranges are not served here
                mode = "wb"
                progress.skip(-had)
            with part.open(mode) as out:
                for chunk in response.iter_bytes(CHUNK):
                    out.write(chunk)
                    progress.advance(len(chunk))


def open_checkpoint(source: ModelSource) -> Checkpoint:
    """Look at what a source holds: a folder, a repository, or without a network what the cache has of it.

    A PairError where there is neither, and the hub's other refusals, see :mod:`specdemo.models.failures`.
    """
    if source.folder is not None:
        return Checkpoint(source, source.folder, _sizes_in(source.folder))
    try:
        info = HfApi(token=_token()).model_info(
            source.name, revision=source.revision, files_metadata=True, timeout=10
        )
    except (*OFFLINE, HfHubHTTPError) as error:
        if _refused(error):
            raise
        return _from_cache(source, error)
    files = info.siblings or []
    licence = info.card_data.get("license") if info.card_data else None
    if isinstance(licence, list):  # a card may state several
        licence = ", ".join(map(str, licence))
    assert info.sha is not None, "a repository has a commit"
    return HubCheckpoint(
        source,
        _cache_of(source) / "snapshots" / info.sha,
        sizes={f.rfilename: f.size or 0 for f in files},
        commit=info.sha,
        licence=licence,
        gated=bool(info.gated),
        digests={f.rfilename: (f.lfs.sha256 if f.lfs else f.blob_id) or "" for f in files},
    )


def _cache_of(source: ModelSource) -> Path:
    return Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=source.name, repo_type="model")


def _token() -> str | bool:
    """From the environment only; False keeps the library from sending one that somebody left on this machine."""
    return os.environ.get("HF_TOKEN") or False


def _from_cache(source: ModelSource, error: Exception) -> Checkpoint:
    cache, revision = _cache_of(source), source.revision or constants.DEFAULT_REVISION
    if not {"", ".."}.isdisjoint(revision.split("/")):  # a path out of the cache
        raise unreachable(source) from error
    ref = cache / "refs" / revision
    folder = cache / "snapshots" / (ref.read_text() if ref.is_file() else revision)
    # A repository of GGUF files need not have a configuration.
    if not (folder.is_dir() if source.file is not None else (folder / "config.json").is_file()):
        raise unreachable(source) from error
    return Checkpoint(source, folder, _sizes_in(folder, "**/*"), commit=folder.name, cached=True)


def _sizes_in(folder: Path, pattern: str = "*") -> dict[str, int]:
    """Without subfolders: a model's files lie side by side, and this may be a home folder."""
    found = (path for path in folder.glob(pattern) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in found}


def _refused(error: Exception) -> bool:
    """Whether asking again is in vain; the hub's own trouble passes, as the network's does."""
    status = error.response.status_code if isinstance(error, HfHubHTTPError) else 500
    return status < 500 and status != httpx2.codes.TOO_MANY_REQUESTS


def _digest(path: Path, *, sha256: bool) -> str:
    """The content's hash, by SHA-256 or as a git object's."""
    git = b"blob %d\0" % path.stat().st_size
    begin = hashlib.sha256 if sha256 else partial(hashlib.sha1, git, usedforsecurity=False)
    with path.open("rb") as content:
        return hashlib.file_digest(content, begin).hexdigest()
