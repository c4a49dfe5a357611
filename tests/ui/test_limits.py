"""What one job may ask for."""

from __future__ import annotations

from typing import Any

import pytest

from specdemo.errors import SpecDemoError
from specdemo.settings import Settings
from specdemo.ui.jobs.limits import PUBLIC, check_lanes, check_prompts, check_runs


@pytest.fixture
def public(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECDEMO_PUBLIC", "1")


PLAIN = Settings(strategy="autoregressive", max_new_tokens=PUBLIC.tokens)


@pytest.mark.parametrize(
    ("check", "most", "more", "said"),
    [
        (
            check_prompts,
            ["x" * PUBLIC.characters],
            ["x" * (PUBLIC.characters + 1)],
            "4,001 .*own machine",
        ),
        (check_prompts, ["x"] * PUBLIC.prompts, ["x"] * (PUBLIC.prompts + 1), "give at most 18"),
        (check_lanes, [PLAIN] * PUBLIC.lanes, [PLAIN] * (PUBLIC.lanes + 1), "lanes: there are 5; give 1 to 4"),
        (check_lanes, [PLAIN], [], "lanes: there are 0"),
        (check_lanes, [PLAIN], [Settings(max_new_tokens=PUBLIC.tokens + 1)], "257 is more than the 256"),
        (check_runs, PUBLIC.runs, PUBLIC.runs + 1, "These are 241 runs.*fewer prompts or repeats"),
    ],
)
@pytest.mark.usefixtures("public")
def test_the_most_is_allowed_and_one_more_is_not(check: Any, most: Any, more: Any, said: str) -> None:
    """Each bound from both sides, with what to do."""
    check(most)
    with pytest.raises(SpecDemoError, match=said):
        check(more)
