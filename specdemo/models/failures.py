"""Every error between a name and a model in memory, as one message that says what to do."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from huggingface_hub import errors as hub
from safetensors import SafetensorError

from specdemo.errors import PairError
from specdemo.models.source import ModelSource


@contextmanager
def explained(source: ModelSource) -> Iterator[None]:
    """Turns every exception of loading ``source`` into a PairError."""
    try:
        yield
    except PairError:
        raise
    except Exception as error:
        raise PairError(_message(source, error)) from error


def unreachable(source: ModelSource) -> PairError:
    """The error where there is neither a network nor a copy in the cache."""
    return PairError(
        f"{source.name} is not on this machine and the hub cannot be reached; check the network "
        "(or HF_HUB_OFFLINE), or choose the builtin pair, which needs none."
    )


def not_finite(role: str) -> PairError:
    """The error where the target, the draft (model) or the drafter (whatever drafts) computes no distribution."""
    return PairError(
        f"{role}: its logits are not finite (NaN or infinity), so the run ended; its weights are broken, or "
        "overflow in this dtype. Load it in float32, or choose another model."
    )


def out_of_memory(error: Exception) -> bool:
    """Whether a GPU or main memory ran out; torch raises several kinds of errors then."""
    marks = ("can't allocate memory", "out of memory", "not enough memory")
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or (
        isinstance(error, RuntimeError) and any(mark in str(error).lower() for mark in marks)
    )


def _message(source: ModelSource, error: Exception) -> str:
    name = source.name
    for kinds, message in _KINDS:
        if isinstance(error, kinds):
            return message.format(name=name, revision=source.revision or "main", error=_first_line(error))
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return (
            f"{name}: the disk is full; free some space (the download goes on where it stopped), "
            "or set HF_HOME to a larger disk."
        )
    if _network(error):
        return f"{name}: the connection to the hub broke off; load it again, it goes on where it stopped."
    text = str(error)
    if "trust_remote_code" in text or "custom code" in text:
        return f"{name} brings its own code, which is never run here; choose an architecture of transformers."
    if out_of_memory(error):
        return f"{name}: memory ran out; choose a smaller pair, a 16-bit dtype or a quantisation."
    if isinstance(error, hub.HfHubHTTPError):
        return f"{name}: the hub answered {_first_line(error)}; try again later."
    return f"{name} could not be loaded: {type(error).__name__}: {_first_line(error)}"


_KINDS: list[tuple[type[Exception] | tuple[type[Exception], ...], str]] = [
    (
        hub.GatedRepoError,
        "{name} is gated: accept its licence at huggingface.co/{name} and set HF_TOKEN to that account's token.",
    ),
    (
        hub.RevisionNotFoundError,
        "{name} has no revision {revision!r}; leave the revision out or give a branch, tag or commit it has.",
    ),
    (
        hub.RepositoryNotFoundError,
        "{name} is not on the hub, or is private; check the spelling (owner/name, or an id of the catalogue), "
        "or set HF_TOKEN if it is yours.",
    ),
    (
        SafetensorError,
        "{name}: the weights cannot be read, the file is damaged or cut short ({error}); "
        "replace it and load the pair again.",
    ),
]
"""Kinds of errors and their messages, the special kinds before the general ones."""


def _network(error: Exception) -> bool:
    """Transport errors of the hub's HTTP client, whichever it is, and of the sockets below it."""
    kinds = {k.__module__.split(".")[0] + "." + k.__name__ for k in type(error).__mro__}
    return isinstance(error, (ConnectionError, TimeoutError, hub.LocalEntryNotFoundError)) or not kinds.isdisjoint(
        {"httpx.TransportError", "httpx2.TransportError"}
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
