"""What a tab shows before its first run: a result that was measured before, marked as an example.

The files in ``assets/examples`` are reports as the page saves them; ``python -m specdemo.ui.tabs.examples``
measures them anew.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import fields, replace
from typing import Any

from specdemo.analysis.batch_sizes import SizeReport
from specdemo.analysis.contenders import Contender
from specdemo.analysis.report import Report
from specdemo.analysis.rows import Run
from specdemo.analysis.sweep_report import SweepReport
from specdemo.drafters import first_choice
from specdemo.files import write_whole
from specdemo.losslessness.certificate import Certificate
from specdemo.losslessness.certify import PROMPT, certify
from specdemo.models.request import ASSETS
from specdemo.runs.batch_sizes import batch_sizes
from specdemo.runs.load import load_pair
from specdemo.runs.prompts import by_domain
from specdemo.runs.sweep import sweep
from specdemo.settings import Settings
from specdemo.ui.jobs.job import Paces
from specdemo.ui.tabs.results import Results

FOLDER = ASSETS / "examples"
FILES: dict[type[Report], str] = {SweepReport: "sweep", SizeReport: "batch"}
REPEATS = 3
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


def main() -> None:
    """Measure all of them anew, each as a person would begin, but with shorter texts."""
    argparse.ArgumentParser("python -m specdemo.ui.tabs.examples", description=__doc__).parse_args()  # for --help
    pair, domains = load_pair("builtin"), by_domain()
    prompts = [found[0].prompt for found in domains.values()]
    short, drafter = Settings(max_new_tokens=64), first_choice(pair.parts).name
    naive = Settings(drafter=drafter, acceptance="naive", temperature=1.0)
    found: dict[str, Any] = {
        "sweep": sweep(pair, prompts[0], replace(short, drafter=drafter), range(2, 9), REPEATS),
        "batch": batch_sizes(pair, prompts, short, (1, 2, 4, 8), REPEATS),
        "losslessness": certify(pair, PROMPT, naive),
    }
    FOLDER.mkdir(exist_ok=True)
    for name, report in found.items():
        packed = json.dumps(json.loads(report.to_json()), ensure_ascii=False, separators=(",", ":"))
        write_whole(FOLDER / f"{name}.json", packed + "\n")


if __name__ == "__main__":
    main()
