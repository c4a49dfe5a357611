"""What is imported when: notebooks, the command line and the page wait for nothing that they do not need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

STAGES = {
    "settings": "from specdemo.settings import Settings; Settings()",  # the table of drafters is whole
    "package": "import specdemo; specdemo.Settings",
    "page": "import specdemo.ui.page, specdemo.ui.jobs.zero_gpu as gpu",
    "tools": "import specdemo.cli.runs, specdemo.training, specdemo.bench\n"
    "specdemo.ServerPair('http://x', None, 'm')",
}


@pytest.fixture(scope="module")
def loaded() -> dict[str, set[str]]:
    """The modules of a fresh process after each stage."""
    lines = ["import json, sys"]
    for name, code in STAGES.items():
        lines += [code, f"print(json.dumps([{name!r}, list(sys.modules)]))"]
    lines.append("assert gpu.run_task is gpu._work, 'jobs run without a wrapper'")
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        cwd=Path(__file__).parents[1],
        env={name: value for name, value in os.environ.items() if name != "SPACES_ZERO_GPU"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return {name: set(modules) for name, modules in map(json.loads, done.stdout.splitlines())}


def test_importing_the_package_does_not_import_the_page(loaded: dict[str, set[str]]) -> None:
    """Guards notebooks and the command line: export needs the view's files, not Gradio."""
    assert not {"gradio", "plotly"} & loaded["package"]


def test_the_page_starts_without_what_only_a_model_needs(loaded: dict[str, set[str]]) -> None:
    """What only a model needs would be a third of the page's imports."""
    assert "gradio" in loaded["page"]
    assert not {"transformers.modeling_utils", "optimum"} & loaded["page"]


def test_servers_cost_nothing_until_they_are_used(loaded: dict[str, set[str]]) -> None:
    """Neither in the page nor in the tools, not even when one is named."""
    assert not {"specdemo.servers.lane", "prometheus_client"} & (loaded["page"] | loaded["tools"])


def test_elsewhere_nothing_of_zero_gpu_is_imported(loaded: dict[str, set[str]]) -> None:
    """Guards laptops, which need no ``spaces`` package."""
    assert "spaces.zero.wrappers" not in loaded["page"]


def test_imports_point_down_only() -> None:
    """The floors of the house, and no cycles: the contracts in pyproject.toml."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
