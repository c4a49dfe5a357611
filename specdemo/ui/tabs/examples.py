"""What a tab shows before its first run: a result that was measured before, marked as an example.

The files in ``assets/examples`` are reports that the page saved as JSON, of the builtin pair on a quiet CPU with
64 tokens a run: to measure one anew, press its tab's button and save. That of *Losslessness* is of the rule naive.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from specdemo.analysis.batch_sizes import SizeReport
from specdemo.analysis.contenders import Contender
from specdemo.analysis.report import Report
from specdemo.analysis.rows import Run
from specdemo.analysis.sweep_report import SweepReport
from specdemo.losslessness.certificate import Certificate
from specdemo.models.request import ASSETS
from specdemo.settings import Settings
from specdemo.ui.jobs.job import Paces
from specdemo.ui.tabs.results import Results

FOLDER = ASSETS / "examples"
FILES: dict[type[Report], str] = {SweepReport: "sweep", SizeReport: "batch"}
EXAMPLE = (
    '<p class="example"><strong>Example</strong> measured before with the builtin pair on a CPU; your own result '
    "takes its place.</p>"
)


def example(kind: type[Report]) -> Any:
    """The report of a sweep or of batch sizes: what its file holds of its fields; the rest is computed anew."""
    data = json.loads((FOLDER / f"{FILES[kind]}.json").read_text(encoding="utf-8"))
    data |= {"base": Settings(**data["base"]), "runs": tuple(map(Run.from_dict, data["runs"]))}
    data["contenders"] = tuple(Contender(**each) for each in data["contenders"])
    return kind(**{f.name: data[f.name] for f in fields(Report) if f.name in data})


def learn_example(paces: Paces) -> None:
    """Let the builtin pair's pace be the example's, until it has run here."""
    report = example(SweepReport)
    best = report.best or report.rows[0]
    paces.learn(report.pair, 1 / (report.plain_tokens_per_second or 1.0), drafted=False)
    paces.learn(report.pair, 1 / (best.tokens_per_second or 1.0), drafted=True)


def example_certificate() -> Certificate:
    return Certificate.from_json((FOLDER / "losslessness.json").read_text(encoding="utf-8"))


def show_example(results: Results) -> None:
    """Fill components that are being built with what an update would show, without files to save."""
    for component, value in results.shown(example(results.kind)).items():
        if component is results.headline:
            component.value = EXAMPLE + value
        elif component is results.table:
            component.value = value
        elif component in results.plots:
            component.value = component.postprocess(value).model_dump()
