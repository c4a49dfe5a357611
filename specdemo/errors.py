"""The errors a person can cause; each message says what was wrong and what to do."""

from __future__ import annotations


class SpecDemoError(Exception):
    """Base of every error that a setting, a prompt or a choice of models can cause."""


LONGEST_MESSAGE = 400


def _bounded(message: str) -> str:
    """Messages quote what was given, which may be anything; their end says what to do."""
    return message if len(message) <= LONGEST_MESSAGE else f"{message[:250]}…{message[-100:]}"


def quoted(value: object) -> str:
    """What was given, as Python writes it, or how that begins: it may be as long as a request."""
    try:
        return f"{value!r:.80}"
    except ValueError:  # Python refuses to write integers of more than 4,300 digits
        return "a number of thousands of digits"


class SettingsError(SpecDemoError):
    """A knob of a run is out of its range. ``field`` names it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(_bounded(f"{field}: {message}"))
        self.field = field


class PromptError(SpecDemoError):
    """The prompt cannot be decoded by this pair."""

    def __init__(self, message: str) -> None:
        super().__init__(_bounded(f"prompt: {message}"))


class PairError(SpecDemoError):
    """The models cannot be loaded, cannot work together, or compute no finite numbers."""


class ServerError(SpecDemoError):
    """A deployment cannot be asked, or did not answer as it should. Never holds its key."""

    def __init__(self, message: str) -> None:
        super().__init__(_bounded(f"server: {message}"))


class TraceError(SpecDemoError):
    """A saved trace cannot be read."""


class LoadCancelled(PairError):
    """Loading was stopped before it was done; what was downloaded is kept."""


class MemoryShortage(SpecDemoError):
    """Memory ran out in the middle of a run."""
