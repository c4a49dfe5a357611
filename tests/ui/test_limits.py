"""What one job may ask for."""

from __future__ import annotations

import pytest

from specdemo.errors import PromptError, SettingsError, SpecDemoError
from specdemo.settings import Settings
from specdemo.ui.jobs.limits import PRIVATE, PUBLIC, check_lanes, check_prompts, check_runs, limits


@pytest.fixture
def public(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECDEMO_PUBLIC", "1")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [({}, PRIVATE), ({"SPACE_ID": "a/b"}, PUBLIC), ({"SPECDEMO_PUBLIC": "1"}, PUBLIC),
     ({"SPACE_ID": "a/b", "SPECDEMO_PUBLIC": "0"}, PRIVATE)],
)  # fmt: skip
def test_the_environment_decides(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: object
) -> None:
    """A Space is public unless it says otherwise."""
    for name in ("SPACE_ID", "SPECDEMO_PUBLIC"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert limits() == expected


def test_the_most_is_allowed_and_one_more_is_not(public: None) -> None:
    """Each bound from both sides, with what to do."""
    plain = Settings(strategy="autoregressive", max_new_tokens=PUBLIC.tokens)
    check_prompts(["x" * PUBLIC.characters] * PUBLIC.prompts)
    check_lanes([plain] * PUBLIC.lanes)
    check_runs(PUBLIC.runs)
    with pytest.raises(PromptError, match=r"4,001 characters.*own machine"):
        check_prompts(["x" * (PUBLIC.characters + 1)])
    with pytest.raises(PromptError, match=r"give at most 18"):
        check_prompts(["x"] * (PUBLIC.prompts + 1))
    with pytest.raises(SettingsError, match=r"lanes: there are 5; give 1 to 4"):
        check_lanes([plain] * (PUBLIC.lanes + 1))
    with pytest.raises(SettingsError, match="lanes: there are 0"):
        check_lanes([])
    with pytest.raises(SettingsError, match=r"max_new_tokens: 257 is more than the 256"):
        check_lanes([Settings(max_new_tokens=PUBLIC.tokens + 1)])
    with pytest.raises(SpecDemoError, match=r"These are 241 runs.*fewer prompts or repeats"):
        check_runs(PUBLIC.runs + 1)
