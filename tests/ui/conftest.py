"""What all tests of the page have in common."""

from __future__ import annotations

import pytest

from specdemo.models.pair import ModelPair


@pytest.fixture(autouse=True)
def true_ends(monkeypatch: pytest.MonkeyPatch) -> object:
    """What a pair's end tokens are, for tests that want them back.

    In all others runs last as long as their length says, whatever the builtin target has to answer to a prompt.
    """
    kept = ModelPair.eos_ids
    monkeypatch.setattr(ModelPair, "eos_ids", frozenset())
    return kept
