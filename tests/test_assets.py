"""The builtin pair as it is shipped."""

from __future__ import annotations

from pathlib import Path

import pytest

import specdemo
from specdemo.analysis.repetition import loops
from specdemo.drafters import DRAFTERS
from specdemo.models.request import ASSETS, catalog
from specdemo.runs.prompts import by_domain

TRACKED_LIMIT = 9.3e6
ASSETS_LIMIT = 45e6


@pytest.fixture(scope="module")
def pair() -> specdemo.ModelPair:
    return specdemo.load_pair("builtin")


def test_assets_are_small_enough_for_a_space() -> None:
    """A Space refuses large files without LFS; the whole folder has a budget too."""
    files = [f for f in Path(ASSETS).rglob("*") if f.is_file()]
    assert max(f.stat().st_size for f in files) <= TRACKED_LIMIT
    assert sum(f.stat().st_size for f in files) <= ASSETS_LIMIT


def test_the_builtin_label_tells_the_true_sizes(pair: specdemo.ModelPair) -> None:
    """Guards the catalogue against a retrained pair of another size."""
    target, draft = (round(m.num_parameters() / 1e6) for m in (pair.target, pair.draft))
    assert pair.head is not None
    assert catalog()["builtin"].label == f"builtin: target {target}M, draft {draft}M"


@pytest.mark.parametrize("domain", ["chat", "stories", "data", "arithmetic", "code", "edit"])
def test_speculation_changes_no_token_on_any_example(pair: specdemo.ModelPair, domain: str) -> None:
    """Invariant 2 on the real weights, at the γ people start with; some outputs must be worth a figure."""
    examples, loop = by_domain()[domain], []
    for example in examples:
        plain = specdemo.run(pair, example.prompt, specdemo.Settings(strategy="autoregressive", max_new_tokens=32))
        fast = specdemo.run(pair, example.prompt, specdemo.Settings(gamma=5, max_new_tokens=32))
        assert fast.token_ids == plain.token_ids, example.title
        assert fast.metrics().mean_acceptance_length > 1.0
        loop.append(loops(plain.token_ids))
    assert (len(by_domain()), len(examples)) == (6, 3), "the page's chips"
    assert not all(loop), "figures count only on outputs that do not repeat themselves"


def test_the_readme_lists_every_drafter() -> None:
    """Guards the table of ways to decode, which is the table of drafters in words."""
    readme = (ASSETS.parent / "README.md").read_text(encoding="utf-8")
    for spec in DRAFTERS.values():
        assert f'| Speculative: {spec.label} | `drafter="{spec.name}"` | ' in readme


def test_the_readme_lists_every_pair() -> None:
    """Guards the table a newcomer chooses from."""
    readme = (ASSETS.parent / "specdemo" / "models" / "README.md").read_text(encoding="utf-8")
    for entry in catalog().values():
        size = f"{entry.memory_gb:g} GB{', gated' if entry.gated else ''}"
        models = [m.removeprefix("assets:") for m in (entry.target, entry.draft, entry.head) if m]
        row = (
            " + ".join(models)
            if len(models) > 1
            else f"{models[0]} {'with its MTP head' if entry.mtp else 'alone'}"
        )
        assert f"| `{entry.id}` | {row} | {size} |" in readme
