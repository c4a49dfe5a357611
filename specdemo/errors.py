"""The errors a person can cause; each message says what was wrong and what to do."""

from __future__ import annotations


class SpecDemoError(Exception):
    """Base of every error that a setting, a prompt or a choice of models can cause."""


class SettingsError(SpecDemoError):
    """A knob of a run is out of its range. ``field`` names it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


class PromptError(SpecDemoError):
    """The prompt cannot be decoded by this pair."""

    def __init__(self, message: str) -> None:
        super().__init__(f"prompt: {message}")


class PairError(SpecDemoError):
    """The models cannot be loaded, or cannot work together."""


class TraceError(SpecDemoError):
    """A saved trace cannot be read."""


class LoadCancelled(PairError):
    """Loading was stopped before it was done; what was downloaded is kept."""


class MemoryShortage(SpecDemoError):
    """Memory ran out in the middle of a run."""
