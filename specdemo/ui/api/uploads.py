"""A bound on what visitors' files take on the host's disk, all together."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path

from gradio.utils import get_upload_folder
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specdemo.ui.api.addresses import peer_of
from specdemo.ui.api.bodies import is_upload

FULL = "Too many files were uploaded here lately. Try again in an hour."
COUNT_SECONDS = 1.0
"""How often the files that are there are counted; in between, those that come are added."""
SHARE, LEAST = 10, 10
"""One address may send one part of so many of all files within the time that they are kept, or this number."""
EMPTY_SECONDS = 60.0
"""After which a file's folder is removed when the file is gone."""


class UploadBound:
    """Refuses files while those that are there take too much; Gradio bounds each by itself, but not their number.

    Args:
        app: what takes them otherwise.
        most: bytes.
        files: their number.
        seconds: after which the rest of a broken upload is removed; Gradio removes whole files by itself.
    """

    def __init__(self, app: ASGIApp, most: int, files: int, seconds: float) -> None:
        self._app, self._most, self._files, self._seconds = app, most, files, seconds
        self._one_by_one = asyncio.Lock()  # each is counted before the next is let in
        self._found, self._size, self._counted = 0, 0, -COUNT_SECONDS
        self._sent: Counter[str] = Counter()  # files by address, since
        self._since = time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As any ASGI application."""
        if not is_upload(scope):
            await self._app(scope, receive, send)
            return

        async def counted() -> Message:
            message = await receive()
            self._size += len(message.get("body", b""))
            return message

        async with self._one_by_one:
            if time.monotonic() - self._counted >= COUNT_SECONDS:
                self._found, self._size = await asyncio.to_thread(self._count, Path(get_upload_folder()))
                self._counted = time.monotonic()
            if time.monotonic() - self._since > self._seconds:
                self._sent.clear()
                self._since = time.monotonic()
            peer = peer_of(scope)
            self._sent[peer] += 1
            if self._is_full(self._found, self._size) or self._sent[peer] > max(LEAST, self._files // SHARE):
                await JSONResponse({"detail": FULL}, status_code=507)(scope, receive, send)
            else:
                self._found += 2
                await self._app(scope, counted, send)

    def _is_full(self, found: int, size: int) -> bool:
        return found > 2 * self._files or size >= self._most

    def _count(self, folder: Path) -> tuple[int, int]:
        """Files and folders, of which each file has one, and bytes; looks no further once they are too many."""
        found = size = 0
        for path in folder.iterdir() if folder.is_dir() else ():
            for file in (path, *path.iterdir()) if path.is_dir() else (path,):
                taken = self._bytes(file, outside=file is path)
                if taken is not None:
                    found, size = found + 1, size + taken
                if self._is_full(found, size):
                    return found, size
        return found, size

    def _bytes(self, path: Path, *, outside: bool) -> int | None:
        """Bytes of a file, 0 of a folder; None if it was removed, here or meanwhile.

        A file that is in no folder of its own is what an upload leaves that breaks off.
        """
        folder = path.is_dir()
        try:
            found = path.stat()
            if outside and time.time() - found.st_mtime > (EMPTY_SECONDS if folder else self._seconds):
                path.rmdir() if folder else path.unlink()
                return None
        except FileNotFoundError:
            return None
        except OSError:  # the folder is not empty
            return 0
        return 0 if folder else found.st_size
