"""What a tab shows before its first run: a result that was measured before, marked as an example.

The files in ``assets/examples`` are reports as the page saves them;
``python -m specdemo.ui.tabs.measure_examples`` measures them anew.
"""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pydantic

from specdemo.analysis.batch_sizes import SizeReport
from specdemo.analysis.rows import Run
from specdemo.analysis.sweep_report import SweepReport
from specdemo.losslessness.certificate import Certificate
from specdemo.models.source import ASSETS
from specdemo.ui.jobs.pace import Paces
from specdemo.ui.tabs.measured import Results
from specdemo.ui.tabs.tab_parts import Updates

FOLDER = ASSETS / "examples"
EXAMPLE = (
    '<p class="example"><strong>Example</strong> measured before with the builtin pair on a CPU; your own result '
    "takes its place.</p>"
)


def example_sweep() -> SweepReport:
    """The report of a sweep."""
    data = _fields("sweep", SweepReport)
    runs = tuple(Run.from_dict(run, data["settings"]["drafter"]) for run in data.pop("runs"))
    return replace(pydantic.TypeAdapter(SweepReport).validate_python({**data, "runs": ()}), runs=runs)


def example_sizes() -> SizeReport:
    """The report of a measurement of batch sizes."""
    return pydantic.TypeAdapter(SizeReport).validate_python(_fields("batch", SizeReport))


def _fields(name: str, kind: type) -> dict[str, Any]:
    """What a report's file holds of its fields; the rest follows from them and is computed anew."""
    data = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return {f.name: data[f.name] for f in fields(kind) if f.name in data}


def learn_example(paces: Paces) -> None:
    """Let the builtin pair's pace be the example's, until it has run here."""
    report = example_sweep()
    paces.learn(report.pair, 1 / report.plain_tokens_per_second, drafted=False)
    paces.learn(report.pair, 1 / report.best.tokens_per_second, drafted=True)


def example_certificate() -> Certificate:
    """The certificate of a lossless check."""
    return Certificate.from_json((FOLDER / "losslessness.json").read_text(encoding="utf-8"))


def show_example(results: Results, updates: Updates) -> None:
    """Fill components that are being built with what an update would show, without files to save."""
    for component, value in updates.items():
        if component is results.headline:
            component.value = EXAMPLE + value
        elif component is results.table:
            component.value = value
        elif component in results.plots:
            component.value = component.postprocess(value).model_dump()
