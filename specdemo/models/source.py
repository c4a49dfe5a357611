"""Where one model comes from: a repository of the Hugging Face hub, or a folder on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from specdemo.errors import PairError

ASSETS = Path(__file__).resolve().parents[2] / "assets"


@dataclass(frozen=True, slots=True)
class ModelSource:
    """One model's origin."""

    name: str  # a repository such as ``gpt2`` or ``Qwen/Qwen3-4B``, or a folder's path
    revision: str | None = None  # branch, tag or commit of the repository; None is its main branch
    folder: Path | None = None  # where the files lie; None for a repository

    @property
    def title(self) -> str:
        """A short name: a repository without its owner, the last part of a folder's path."""
        return Path(self.name).name or self.name


def parse_source(text: str, revision: str | None = None) -> ModelSource:
    """Read a repository's name (``owner/name``, ``owner/name@revision``) or a folder's path.

    Raises:
        PairError: neither a well-formed name nor an existing folder.
    """
    text = text.strip()
    if text.startswith("assets:"):
        return ModelSource(text, folder=ASSETS / text.removeprefix("assets:"))
    if is_folder(text):
        return ModelSource(text, folder=Path(text).expanduser().resolve())
    if text.startswith((".", "/", "~", "\\")):
        raise PairError(
            f"pair: there is no folder {shorten(text)!r}; give the folder that holds the model's config.json."
        )
    name, _, typed = text.partition("@")
    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise PairError(
            f"pair: {shorten(text)!r} is neither a folder here nor a name on the hub; write owner/name, "
            "owner/name@revision or the path of a folder."
        ) from error
    return ModelSource(name, typed or revision)


def shorten(text: str) -> str:
    """A typed text, short enough for a message."""
    return text if len(text) <= 80 else f"{text[:60]}…{text[-15:]}"


def is_network_path(text: str) -> bool:
    r"""Whether Windows takes this for a path on another machine, to which it would send the hash of a password.

    It reads ``/`` as ``\``, and ``\??\`` as the beginning of a path of its kernel, such as ``\??\UNC\host``.
    """
    return text.strip().removeprefix("assets:").replace("/", "\\").startswith(("\\\\", "\\??\\"))


def is_folder(text: str) -> bool:
    """Whether this is a folder's path; false also for texts that no path can be (too long, with a zero byte)."""
    try:
        return Path(text).expanduser().is_dir()
    except (OSError, RuntimeError, ValueError):
        return False
