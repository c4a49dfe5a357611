"""A model hub on loopback, as huggingface_hub 2.4 expects one; standard library only.

A ``status`` of 5xx or 429 costs 23 s where the library retries: for the metadata of files, not for model_info.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
from dataclasses import dataclass, field
from fnmatch import fnmatch
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    import pytest

CHUNK = 64 * 1024
SPOILT = 64  # bytes at the end of a corrupt file: numbers, not the header, so that only its hash tells
WEIGHTS = (".safetensors", ".bin")
MODEL_URL = re.compile(r"/api/models/(?P<repo>[^/]+(?:/[^/]+)??)(?:/revision/(?P<revision>[^/]+))?")
FILE_URL = re.compile(r"/(?P<repo>[^/]+(?:/[^/]+)?)/resolve/(?P<revision>[^/]+)/(?P<path>.+)")
RANGE = re.compile(r"bytes=(\d+)-")


@dataclass(frozen=True)
class _File:
    path: Path
    size: int
    blob: str  # git's SHA-1, of the pointer for a file in LFS
    lfs: dict[str, Any] | None

    @property
    def etag(self) -> str:
        return self.lfs["sha256"] if self.lfs else self.blob


@dataclass(frozen=True)
class _Repository:
    files: dict[str, _File]
    commit: str
    gated: str | bool
    licence: str | None
    token: str | None


@dataclass
class _Mischief:
    """How answers about a repository are spoilt.

    Attributes:
        cut_after: close the connection at this byte of the file, wherever a range starts.
        corrupt: change the last bytes of a body, not its length nor the hash that is announced.
        delay: seconds before each 64 KiB of a body.
        status: answer everything with this HTTP status.
        only: fnmatch of the file names concerned; None: weights, and for ``status`` the API too.
        times: how many answers to spoil; None: all. A HEAD counts for ``status`` alone.
    """

    cut_after: int | None = None
    corrupt: bool = False
    delay: float = 0.0
    status: int | None = None
    only: str | None = None
    times: int | None = None
    over: threading.Event = field(default_factory=threading.Event)

    def concerns(self, name: str | None) -> bool:
        """Whether a file (None: the API) is meant: a status spoils everything, the rest weights."""
        if self.only is not None:
            return name is not None and fnmatch(name, self.only)
        return self.status is not None or (name is not None and name.endswith(WEIGHTS))


class Hub:
    """A model hub on loopback: serves folders as repositories and misbehaves on request."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, str | None]] = []  # method, path with query, Range header
        self._repositories: dict[str, _Repository] = {}
        self._mischief: dict[str, _Mischief] = {}
        self._lock = threading.Lock()
        self._server = _Server(self)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def __enter__(self) -> Hub:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening: from now on connections are refused."""
        self._server.shutdown()
        self._server.server_close()
        for repo_id in list(self._mischief):
            self.behave(repo_id)

    def add(
        self,
        repo_id: str,
        folder: Path,
        *,
        gated: bool | str = False,
        licence: str | None = "apache-2.0",
        token: str | None = None,
    ) -> str:
        """Serve a folder as it is now, instead of what had this name before; returns its commit hash."""
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        files = {path.relative_to(folder).as_posix(): _file(path) for path in paths}
        content = json.dumps([repo_id, {name: file.etag for name, file in files.items()}])
        commit = hashlib.sha1(content.encode()).hexdigest()
        gate = "manual" if gated is True else gated
        self._repositories[repo_id] = _Repository(files, commit, gate, licence, token)
        return commit

    def add_pair(self, folders: tuple[Path, Path], **options: object) -> str:
        """Serve a target and a draft as ``org/target`` and ``org/draft``; returns the pair's name."""
        for repo_id, folder in zip(("org/target", "org/draft"), folders, strict=True):
            self.add(repo_id, folder, **options)
        return "org/target + org/draft"

    def misbehave(self, repo_id: str, **how: Any) -> None:
        """Spoil answers about a repository from now on, in place of what was asked before; see ``_Mischief``."""
        self.behave(repo_id)
        self._mischief[repo_id] = _Mischief(**how)

    def behave(self, repo_id: str) -> None:
        """End all mischief with a repository; a body on its way is delayed no further."""
        if mischief := self._mischief.pop(repo_id, None):
            mischief.over.set()

    def fetched(self, repo_id: str) -> list[str]:
        """Names of the files whose bodies were asked for, in order, once for each request."""
        urls = (FILE_URL.fullmatch(path) for method, path, _ in self.requests if method == "GET")
        return [unquote(url["path"]) for url in urls if url and url["repo"] == repo_id]

    def ranges(self, repo_id: str) -> list[str]:
        """The Range headers that its files were asked for with, in order."""
        asked = [(FILE_URL.fullmatch(urlsplit(path).path), range_) for _, path, range_ in self.requests]
        return [range_ for url, range_ in asked if range_ and url and url["repo"] == repo_id]

    def adopt(self, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
        """Point this process, which has read its environment, at this hub and at a cache of its own."""
        import transformers.utils.hub
        from huggingface_hub import constants, hf_api

        template = self.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "ENDPOINT", self.endpoint)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
        monkeypatch.setattr(hf_api.api, "endpoint", self.endpoint)
        # Made on first use, for the endpoint of that moment.
        monkeypatch.setattr(transformers.utils.hub, "_hf_api", None)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    def _spoils(self, repo_id: str, name: str | None, method: str) -> _Mischief:
        mischief = self._mischief.get(repo_id)
        if mischief is None or not mischief.concerns(name) or (mischief.status is None and method == "HEAD"):
            return _Mischief()
        with self._lock:
            if mischief.times == 0:
                return _Mischief()
            if mischief.times is not None:
                mischief.times -= 1
        return mischief


def _file(path: Path) -> _File:
    """A file as the hub knows it; weights are in LFS, behind a pointer."""
    content = path.read_bytes()
    if path.suffix not in WEIGHTS:
        return _File(path, len(content), _git_blob(content), None)
    sha256 = hashlib.sha256(content).hexdigest()
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {len(content)}\n".encode()
    lfs = {"sha256": sha256, "size": len(content), "pointerSize": len(pointer)}
    return _File(path, len(content), _git_blob(pointer), lfs)


class _Server(ThreadingHTTPServer):
    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        # Whoever cancels a download hangs up while it is being sent.
        with contextlib.suppress(ConnectionError):
            self._answer()

    do_HEAD = do_GET

    def _answer(self) -> None:
        hub = self.server.hub
        hub.requests.append((self.command, self.path, self.headers["Range"]))
        url = urlsplit(self.path)
        file_url = FILE_URL.fullmatch(url.path)
        match = file_url or MODEL_URL.fullmatch(url.path)
        if match is None:
            return self._refuse(404, None, "Not Found")
        repo_id, revision = match["repo"], unquote(match["revision"] or "")
        name = unquote(file_url["path"]) if file_url else None
        mischief = hub._spoils(repo_id, name, self.command)
        if mischief.status is not None:
            return self._refuse(mischief.status, None, "Misbehaving")
        repository = hub._repositories.get(repo_id)
        if repository is None:
            # Strangers are not told whether a private repository exists.
            known = "Authorization" in self.headers
            return self._refuse(404 if known else 401, "RepoNotFound", "Repository not found")
        if revision not in ("", "main", repository.commit):
            return self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        if name is not None:
            return self._send_file(repository, name, mischief)
        return self._send_json(_model_info(repo_id, repository))

    def _send_file(self, repository: _Repository, name: str, mischief: _Mischief) -> None:
        extra = {"X-Repo-Commit": repository.commit}
        if repository.gated and (
            repository.token is None or self.headers["Authorization"] != f"Bearer {repository.token}"
        ):
            known = "Authorization" in self.headers
            return self._refuse(403 if known else 401, "GatedRepo", "Access to this model is restricted.", extra)
        file = repository.files.get(name)
        if file is None:
            return self._refuse(404, "EntryNotFound", "Entry not found", extra)
        extra |= {"ETag": f'"{file.etag}"', "Accept-Ranges": "bytes", "Content-Type": "application/octet-stream"}
        if file.lfs:
            extra |= {"X-Linked-Etag": f'"{file.etag}"', "X-Linked-Size": str(file.size)}
        start, stop, status = 0, file.size, 200
        if wanted := RANGE.fullmatch(self.headers["Range"] or ""):
            start, status = int(wanted[1]), 206
            if start >= stop:
                return self._refuse(416, None, "Out of range", {"Content-Range": f"bytes */{file.size}"})
            extra["Content-Range"] = f"bytes {start}-{stop - 1}/{file.size}"
        self._send_head(status, stop - start, extra)
        if self.command == "GET":
            self._send_body(file, start, stop, mischief)

    def _send_body(self, file: _File, start: int, stop: int, mischief: _Mischief) -> None:
        if mischief.cut_after is not None:
            stop = min(stop, mischief.cut_after)
        with file.path.open("rb") as stream:
            stream.seek(start)
            while start < stop:
                if mischief.delay:
                    mischief.over.wait(mischief.delay)
                chunk = bytearray(stream.read(min(CHUNK, stop - start)))
                if mischief.corrupt:
                    for i in range(max(0, file.size - SPOILT - start), len(chunk)):
                        chunk[i] ^= 0x55
                self.wfile.write(chunk)
                start += len(chunk)

    def _refuse(self, status: int, code: str | None, message: str, extra: dict[str, str] | None = None) -> None:
        headers = {"X-Error-Message": message, **(extra or {})}
        if code:
            headers["X-Error-Code"] = code
        self._send_json({"error": message}, status, headers)

    def _send_json(self, content: object, status: int = 200, extra: dict[str, str] | None = None) -> None:
        body = json.dumps(content).encode()
        self._send_head(status, len(body), {"Content-Type": "application/json", **(extra or {})})
        if self.command == "GET":
            self.wfile.write(body)

    def _send_head(self, status: int, length: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        # One answer a connection: a closed hub must not go on talking over those that were kept open.
        for name, value in {"Content-Length": str(length), "Connection": "close", **headers}.items():
            self.send_header(name, value)
        self.end_headers()


def _model_info(repo_id: str, repository: _Repository) -> dict[str, Any]:
    """What the API says of a model: the facts that are read here, and those the library insists on."""
    siblings: list[dict[str, Any]] = []
    for name, file in repository.files.items():
        lfs = {"lfs": file.lfs} if file.lfs else {}
        siblings.append({"rfilename": name, "size": file.size, "blobId": file.blob, **lfs})
    return {
        "id": repo_id,
        "sha": repository.commit,
        "private": False,
        "gated": repository.gated,
        "disabled": False,
        "downloads": 0,
        "likes": 0,
        "tags": [],
        "cardData": {"license": repository.licence} if repository.licence else {},
        "siblings": siblings,
    }


def _git_blob(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
