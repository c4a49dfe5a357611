"""Every error between a name and a model in memory, as one message that says what to do."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import torch
from huggingface_hub import errors as hub
from safetensors import SafetensorError

from specdemo.errors import PairError
from specdemo.models.request import ModelSource


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
    name, text = source.name, str(error)
    reason = (text.strip() or type(error).__name__).splitlines()[0]
    match error:
        case hub.GatedRepoError():
            return (
                f"{name} is gated: accept its licence at huggingface.co/{name} and set HF_TOKEN to that account's "
                "token."
            )
        case hub.RevisionNotFoundError():
            return (
                f"{name} has no revision {source.revision or 'main'!r}; leave the revision out or give a branch, "
                "tag or commit it has."
            )
        case hub.RepositoryNotFoundError():
            return (
                f"{name} is not on the hub, or is private; check the spelling (owner/name, or an id of the "
                "catalogue), or set HF_TOKEN if it is yours."
            )
        case SafetensorError():
            return (
                f"{name}: the weights cannot be read, the file is damaged or cut short ({reason}); replace it and "
                "load the pair again."
            )
        case OSError(errno=errno.ENOSPC):
            return (
                f"{name}: the disk is full; free some space (the download goes on where it stopped), or set "
                "HF_HOME to a larger disk."
            )
        case ConnectionError() | TimeoutError() | hub.LocalEntryNotFoundError() | httpx2.TransportError():
            return f"{name}: the connection to the hub broke off; load it again, it goes on where it stopped."
    if "trust_remote_code" in text or "custom code" in text:
        return f"{name} brings its own code, which is never run here; choose an architecture of transformers."
    if out_of_memory(error):
        return f"{name}: memory ran out; choose a smaller pair, a 16-bit dtype or a quantisation."
    if isinstance(error, hub.HfHubHTTPError):
        return f"{name}: the hub answered {reason}; try again later."
    return f"{name} could not be loaded: {type(error).__name__}: {reason}"
