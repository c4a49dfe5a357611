"""Repositories of the model hub: listed, downloaded with progress, resumed, and checked.

Files go into the hub library's own cache, so that other programs do not fetch them again. The library's download
(``hf_hub_download`` of huggingface_hub 2.4) is not used for the content: it deletes an unfinished file, compares
no hash, and a ``tqdm_class`` could stop it only every 10 MB. This one keeps the part and goes on from there.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx2
from huggingface_hub import HfApi, constants, hf_hub_download, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled
from huggingface_hub.file_download import repo_folder_name
from huggingface_hub.utils import WeakFileLock, build_hf_headers, hf_raise_for_status, http_stream_backoff

from specdemo.errors import PairError
from specdemo.models.checkpoint import Checkpoint
from specdemo.models.failures import unreachable
from specdemo.models.progress import LoadProgress
from specdemo.models.source import ModelSource

CHUNK = 256 * 2**10
ATTEMPTS = 4
"""Tries in a row that bring nothing before a download gives up."""
PAUSE_SECONDS = 1.0
OFFLINE = (httpx2.TransportError, OfflineModeIsEnabled)


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """Size in bytes, and the digest the hub knows the content by: SHA-256, or git's SHA-1 for small files."""

    size: int
    digest: str


class HubCheckpoint(Checkpoint):
    """Files of a repository at one commit, in the hub library's cache once they were read."""

    def __init__(
        self, source: ModelSource, files: dict[str, RemoteFile], commit: str, licence: str | None, gated: bool
    ) -> None:
        self._files = files
        self._cache = Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=source.name, repo_type="model")
        sizes = {name: file.size for name, file in files.items()}
        folder = self._cache / "snapshots" / commit
        super().__init__(source, folder, sizes, commit=commit, licence=licence, gated=gated)

    def missing(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if not (self.folder / name).is_file()]

    def remaining(self, names: Sequence[str]) -> int:
        parts = [self._part(name) for name in self.missing(names)]
        return super().remaining(names) - sum(part.stat().st_size for part in parts if part.exists())

    def read(self, names: Sequence[str], progress: LoadProgress) -> Path:
        for name in self.missing(names):
            self._download(name, progress)
        self._remember_revision()
        return self.folder

    def _remember_revision(self) -> None:
        """Note which commit a branch or tag is, as the library does, to find it without a network."""
        revision = self.source.revision or constants.DEFAULT_REVISION
        ref = self._cache / "refs" / revision
        commit = self.folder.name
        if revision != commit and not (ref.exists() and ref.read_text() == commit):
            ref.parent.mkdir(parents=True, exist_ok=True)
            ref.write_text(commit)

    def _blob(self, name: str) -> Path:
        return self._cache / "blobs" / self._files[name].digest

    def _part(self, name: str) -> Path:
        """Where a download is kept until it is whole."""
        return self._blob(name).with_suffix(".part")

    def _download(self, name: str, progress: LoadProgress) -> None:
        file, blob = self._files[name], self._blob(name)
        blob.parent.mkdir(parents=True, exist_ok=True)
        with WeakFileLock(blob.with_suffix(".lock")):
            if not blob.exists():
                part = self._part(name)
                self._stream(name, part, progress)
                progress.check()
                if _digest(part, file) != file.digest:
                    part.unlink()
                    raise PairError(
                        f"{self.source.name}: {name} arrived damaged (its hash is not the hub's) and was thrown "
                        "away; load the pair again."
                    )
                part.replace(blob)
        # The library finds the content under its hash and only links it into its snapshot.
        hf_hub_download(self.source.name, name, revision=self.commit, token=_token())

    def _stream(self, name: str, part: Path, progress: LoadProgress) -> None:
        """Fill ``part`` to the file's size, going on where an earlier try ended."""
        size = self._files[name].size
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

    Raises:
        PairError: no such repository or revision, or neither a network nor a cached copy.
        HfHubHTTPError: the hub's other refusals, see :mod:`specdemo.models.failures`.
    """
    if source.folder is not None:
        return Checkpoint(source, source.folder)
    try:
        info = HfApi(token=_token()).model_info(
            source.name, revision=source.revision, files_metadata=True, timeout=10
        )
    except (*OFFLINE, HfHubHTTPError) as error:
        if _refused(error):
            raise
        return _from_cache(source, error)
    files = {
        s.rfilename: RemoteFile(s.size or 0, (s.lfs.sha256 if s.lfs else s.blob_id) or "")
        for s in info.siblings or []
    }
    licence = info.card_data.get("license") if info.card_data else None
    if isinstance(licence, list):  # a card may state several
        licence = ", ".join(map(str, licence))
    assert info.sha is not None, "a repository has a commit"
    return HubCheckpoint(source, files, info.sha, licence, bool(info.gated))


def _token() -> str | bool:
    """From the environment only; False keeps the library from sending one that somebody left on this machine."""
    return os.environ.get("HF_TOKEN") or False


def _from_cache(source: ModelSource, error: Exception) -> Checkpoint:
    config = try_to_load_from_cache(source.name, "config.json", revision=source.revision)
    if not isinstance(config, str):
        raise unreachable(source) from error
    folder = Path(config).parent
    return Checkpoint(source, folder, commit=folder.name, cached=True)


def _refused(error: Exception) -> bool:
    """Whether asking again is in vain; the hub's own trouble passes, as the network's does."""
    status = error.response.status_code if isinstance(error, HfHubHTTPError) else 500
    return status < 500 and status != httpx2.codes.TOO_MANY_REQUESTS


def _digest(path: Path, file: RemoteFile) -> str:
    """The content's hash, of the kind that the hub gave."""
    sha256 = len(file.digest) == 64
    begin = hashlib.sha256 if sha256 else partial(hashlib.sha1, b"blob %d\0" % file.size, usedforsecurity=False)
    with path.open("rb") as content:
        return hashlib.file_digest(content, begin).hexdigest()
