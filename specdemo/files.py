"""Writing a file so that a full disk or a killed process leaves the file that was there before."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex

SYSTEM = ("/dev/", "/proc/")
"""Names of what is open already, such as ``/dev/stdout``: where they lead to a file, nothing may replace it."""


@contextmanager
def written_whole(path: str | Path) -> Iterator[Path]:
    """A path to write to; when the block ends without an error, the new file takes the place of ``path``.

    It lies beside ``path``, whose permissions it gets, and is removed after an error. A link stays one: the file
    that it leads to is replaced. Devices and pipes cannot be replaced, so ``path`` itself is given for them.

    Raises:
        OSError: the file cannot be written.
    """
    path = Path(path)
    if (path.is_absolute() and str(path).startswith(SYSTEM)) or (path.exists() and not path.is_file()):
        yield path
        return
    path = path.resolve()
    if path.exists():
        path.open("ab").close()  # a file that may not be written must not be replaced either
    partial = path.with_stem(f"{path.stem}.{token_hex(4)}.part")
    try:
        yield partial
        if path.exists():
            shutil.copymode(path, partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_whole(path: str | Path, text: str) -> None:
    """Write a text file in UTF-8, its line ends as they are; errors as of :func:`written_whole`."""
    with written_whole(path) as partial:
        partial.write_text(text, encoding="utf-8", newline="")


def slug(text: str, most: int = 80) -> str:
    """A text as part of a file's name: letters and digits of ASCII in lower case, with hyphens between."""
    plain = text.replace("γ", "g").lower()
    words = re.findall(r"[a-z0-9.]+", plain)
    return "-".join(words)[:most].strip("-.")
