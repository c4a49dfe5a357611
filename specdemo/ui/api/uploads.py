"""A bound on what visitors' files take on the host's disk, all together."""

from __future__ import annotations

from pathlib import Path

from gradio.utils import get_upload_folder
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

FULL = "Too many files were uploaded here lately. Try again in an hour."


class UploadBound:
    """Refuses files while those that are there take too much; Gradio bounds each by itself, but not their number.

    Args:
        app: what takes them otherwise.
        most: bytes.
    """

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app, self._most = app, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As any ASGI application."""
        if _is_upload(scope) and _size(Path(get_upload_folder())) >= self._most:
            await JSONResponse({"detail": FULL}, status_code=507)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def _is_upload(scope: Scope) -> bool:
    return scope["type"] == "http" and scope["method"] == "POST" and scope["path"].rstrip("/").endswith("/upload")


def _size(folder: Path) -> int:
    """Bytes of all files below; one that is removed meanwhile counts nothing."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total
