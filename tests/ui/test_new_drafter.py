"""A drafter is one class and one row: registered, it is offered and runs everywhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import pytest
from apps import launched
from browsing import press_run_and_wait
from playwright.sync_api import Page, expect

import specdemo
from specdemo import Settings
from specdemo.decoding.drafters.base import Drafter, DrafterSpec
from specdemo.decoding.drafters.registry import SPECS, register
from specdemo.decoding.proposal import Proposal
from specdemo.drafters import DRAFTERS, DrafterInfo

pytest_plugins = ["browser_fixtures"]
PROMPT = "Book a table for two."


class FrequentDrafter(Drafter):
    """Proposes the most frequent token so far."""

    def propose(self, committed: Sequence[int], gamma: int) -> Proposal:
        ((token, _),) = Counter(committed).most_common(1)
        return Proposal.known([token] * gamma)


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    spec = DrafterSpec(lambda pair, target, lane: FrequentDrafter())
    register(DrafterInfo("frequent", "most frequent token"), spec)
    yield
    del DRAFTERS["frequent"], SPECS["frequent"]


@pytest.fixture(scope="module")
def address(registered: None) -> Iterator[str]:
    """The app, built when the new drafter is there."""
    with launched() as url:
        yield url


def test_it_runs_and_the_output_is_the_targets() -> None:
    pair = specdemo.load_pair("builtin")
    plain = specdemo.run(pair, PROMPT, Settings(strategy="autoregressive", max_new_tokens=24))
    trace = specdemo.run(pair, PROMPT, Settings(drafter="frequent", max_new_tokens=24))
    assert trace.token_ids == plain.token_ids
    assert trace.metrics().proposed > 0
    sampled = Settings(drafter="frequent", acceptance="sampling", temperature=1.0)
    assert specdemo.certify(pair, PROMPT, sampled, runs=4).verdict != "differs"


def test_a_link_opens_it_and_the_panel_runs_it(open_page: Callable[..., Page]) -> None:
    page = open_page("method=frequent&gamma=3")
    expect(page.locator("#lane2-method input")).to_have_value("Speculative: most frequent token")
    press_run_and_wait(page, tokens=16)
    expect(page.locator(".specdemo-race")).to_contain_text("Most frequent token")
    assert "method=frequent" in page.url
