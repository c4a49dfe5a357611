"""What all tests of the page have in common."""

from __future__ import annotations

import pytest

from specdemo.models.pair import ModelPair


@pytest.fixture(autouse=True)
def answers_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs last as long as their length says, whatever the builtin target has to answer to a test's prompt."""
    monkeypatch.setattr(ModelPair, "eos_ids", frozenset())
