"""A model hub on loopback, as huggingface_hub 2.4 expects one.

A ``status`` of 5xx or 429 costs 23 s where the library retries: for the metadata of files, not for model_info.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from scripted import Exchange, ScriptedServer

CHUNK = 64 * 1024
SPOILT = 64  # bytes at the end of a corrupt file: numbers, not the header, so that only its hash tells
WEIGHTS = (".safetensors", ".bin")
MODEL_URL = re.compile(r"/api/models/(?P<repo>[^/]+(?:/[^/]+)??)(?:/revision/(?P<revision>[^/]+))?")
FILE_URL = re.compile(r"/(?P<repo>[^/]+(?:/[^/]+)?)/resolve/(?P<revision>[^/]+)/(?P<path>.+)")


@dataclass(frozen=True)
class _Repository:
    """A folder as it is served; ``files`` by name, as the API lists them."""

    folder: Path
    files: dict[str, dict[str, Any]]
    commit: str
    gated: str | bool
    licence: str | None = "apache-2.0"
    token: str | None = None


@dataclass
class _Mischief:
    """How answers about a repository are spoilt."""

    cut_after: int | None = None  # close the connection at this byte of the file, wherever a range starts
    corrupt: bool = False  # change the last bytes of a body, not its length nor the hash that is announced
    delay: float = 0.0  # seconds before each 64 KiB of a body
    status: int | None = None  # answer everything with this HTTP status
    only: str | None = None  # the one file concerned; None: weights, and for ``status`` the API too
    times: int | None = None  # how many answers to spoil; None: all. A HEAD counts for ``status`` alone
    over: threading.Event = field(default_factory=threading.Event)

    def concerns(self, name: str | None) -> bool:
        """Whether a file (None: the API) is meant: a status spoils everything, the rest weights."""
        if self.only is not None:
            return name == self.only
        return self.status is not None or (name is not None and name.endswith(WEIGHTS))


class Hub(ScriptedServer):
    """Serves folders as repositories and misbehaves on request."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[tuple[str, str, str | None]] = []  # method, path with query, Range header
        self._repositories: dict[str, _Repository] = {}
        self._mischief: dict[str, _Mischief] = {}
        self._lock = threading.Lock()
        self._answering = 0
        self._changed = threading.Condition()

    def close(self) -> None:
        """Stop listening: from now on connections are refused."""
        self.__exit__()
        for repo_id in list(self._mischief):
            self.behave(repo_id)

    def add(self, repo_id: str, folder: Path, *, gated: bool | str = False, **known: str | None) -> str:
        """Serve a folder as it is now, instead of what had this name before; returns its commit hash."""
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        files = {name: _listed(path, name) for path in paths for name in [path.relative_to(folder).as_posix()]}
        commit = hashlib.sha1(json.dumps([repo_id, files]).encode()).hexdigest()
        gate = "manual" if gated is True else gated
        self._repositories[repo_id] = _Repository(folder, files, commit, gate, **known)
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

        template = self.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "ENDPOINT", self.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
        monkeypatch.setattr(hf_api.api, "endpoint", self.url)
        # Made on first use, for the endpoint of that moment.
        monkeypatch.setattr(transformers.utils.hub, "_hf_api", None)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    def await_silence(self) -> None:
        """Wait until no answer is on its way."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._answering == 0, 60)

    def answer(self, exchange: Exchange) -> None:
        """The script: what the hub says of a model, and its files."""
        with self._changed:
            self._answering += 1
        try:
            self._answer(exchange)
        finally:
            with self._changed:
                self._answering -= 1
                self._changed.notify_all()

    def _answer(self, exchange: Exchange) -> None:
        self.requests.append((exchange.command, exchange.path, exchange.headers["Range"]))
        path = urlsplit(exchange.path).path
        file_url = FILE_URL.fullmatch(path)
        url = file_url or MODEL_URL.fullmatch(path)
        if url is None:
            return _refuse(exchange, 404, None)
        name = unquote(file_url["path"]) if file_url else None
        mischief = self._spoils(url["repo"], name, exchange.command)
        if mischief.status is not None:
            return _refuse(exchange, mischief.status, None)
        repository, known = self._repositories.get(url["repo"]), "Authorization" in exchange.headers
        if repository is None:  # strangers are not told whether a private repository exists
            return _refuse(exchange, 404 if known else 401, "RepoNotFound")
        if unquote(url["revision"] or "") not in ("", "main", repository.commit):
            return _refuse(exchange, 404, "RevisionNotFound")
        if name is None:
            return exchange.reply(_model_info(url["repo"], repository), headers={"Connection": "close"})
        right = repository.token is not None and exchange.headers["Authorization"] == f"Bearer {repository.token}"
        if repository.gated and not right:
            return _refuse(exchange, 403 if known else 401, "GatedRepo")
        if name not in repository.files:
            return _refuse(exchange, 404, "EntryNotFound")
        return _send(exchange, repository, name, mischief)

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


def _listed(path: Path, name: str) -> dict[str, Any]:
    """A file as the hub knows it: by git's SHA-1; weights are in LFS, behind a pointer with their SHA-256."""
    content = path.read_bytes()
    known = {"rfilename": name, "size": len(content)}
    if path.suffix in WEIGHTS:
        sha256 = hashlib.sha256(content).hexdigest()
        content = (
            f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {len(content)}\n".encode()
        )
        known["lfs"] = {"sha256": sha256, "size": known["size"], "pointerSize": len(content)}
    return known | {"blobId": hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()}


def _model_info(repo_id: str, repository: _Repository) -> dict[str, Any]:
    """What the API says of a model: the facts that are read here, and those the library insists on."""
    known = {"id": repo_id, "sha": repository.commit, "gated": repository.gated, "tags": []}
    card = {"license": repository.licence} if repository.licence else {}
    needed = {"private": False, "disabled": False, "downloads": 0, "likes": 0}
    return {**known, **needed, "cardData": card, "siblings": list(repository.files.values())}


def _refuse(exchange: Exchange, status: int, code: str | None) -> None:
    # One answer a connection: a closed hub must not go on talking over those that were kept open.
    headers = {"Connection": "close", "X-Error-Message": "Refused"} | ({"X-Error-Code": code} if code else {})
    exchange.reply({"error": "Refused"}, status, headers)


def _send(exchange: Exchange, repository: _Repository, name: str, mischief: _Mischief) -> None:
    """A file, or the rest of it from where a range begins."""
    listed = repository.files[name]
    size, etag = listed["size"], listed["lfs"]["sha256"] if "lfs" in listed else listed["blobId"]
    wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", exchange.headers["Range"] or "")
    start = int(wanted[1]) if wanted else 0
    end = min(size, int(wanted[2]) + 1) if wanted and wanted[2] else size
    headers = {"Connection": "close", "X-Repo-Commit": repository.commit, "ETag": f'"{etag}"'}
    headers |= {"X-Linked-Etag": f'"{etag}"', "X-Linked-Size": str(size)} if "lfs" in listed else {}
    headers |= {"Content-Range": f"bytes {start}-{end - 1}/{size}"} if wanted else {}
    exchange.head(206 if wanted else 200, {**headers, "Content-Length": str(end - start)})
    if exchange.command == "HEAD":
        return
    stop = end if mischief.cut_after is None else min(end, mischief.cut_after)
    with (repository.folder / name).open("rb") as stream:
        stream.seek(start)
        while start < stop:
            if mischief.delay:
                mischief.over.wait(mischief.delay)
            chunk = bytearray(stream.read(min(CHUNK, stop - start)))
            if mischief.corrupt:
                for i in range(max(0, size - SPOILT - start), len(chunk)):
                    chunk[i] ^= 0x55
            exchange.wfile.write(chunk)
            start += len(chunk)
