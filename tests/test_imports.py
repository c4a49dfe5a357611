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


@pytest.mark.parametrize(
    ("stage", "needless"),
    [
        (
            "package",
            {"gradio", "plotly"},
        ),  # of notebooks: export needs the files of the view only
        ("page", {"transformers.modeling_utils", "optimum"}),  # what only a model needs is a third of its imports
        ("page", {"specdemo.servers.lane"}),  # servers cost nothing until they are used
        ("tools", {"specdemo.servers.lane"}),  # not even when one is named
        ("page", {"spaces.zero.wrappers"}),  # laptops need no ``spaces`` package
    ],
)
def test_what_is_not_needed_is_not_imported(loaded: dict[str, set[str]], stage: str, needless: set[str]) -> None:
    assert not needless & loaded[stage]
    assert "gradio" in loaded["page"]


def test_imports_point_down_only() -> None:
    """The floors of the house, and no cycles: the contracts in pyproject.toml."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
