"""Measure the examples that the page's tabs show before their first run; writes their files.

python -m specdemo.ui.tabs.measure_examples
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace

from specdemo.drafters import first_choice
from specdemo.files import write_whole
from specdemo.losslessness.certify import certify
from specdemo.models.source import ASSETS
from specdemo.runs.batch_sizes import batch_sizes
from specdemo.runs.load import load_pair
from specdemo.runs.prompts import by_domain
from specdemo.runs.sweep import sweep
from specdemo.settings import Settings

FOLDER = ASSETS / "examples"
SHORT = Settings(max_new_tokens=64)
REPEATS = 3


def main() -> None:
    """Each as a person would begin, but with shorter texts."""
    argparse.ArgumentParser(
        "python -m specdemo.ui.tabs.measure_examples", description=__doc__
    ).parse_args()  # for --help
    pair = load_pair("builtin")
    prompts = [examples[0].prompt for examples in by_domain().values()]
    open_ended = by_domain()["stories"][0].prompt  # of runs that are all alike no test can say anything
    drafter = first_choice(pair.parts).name
    sampled = Settings(drafter=drafter, acceptance="sampling", temperature=1.0)
    found = {
        "sweep": sweep(pair, prompts[0], replace(SHORT, drafter=drafter), range(2, 9), REPEATS),
        "batch": batch_sizes(pair, prompts, SHORT, (1, 2, 4, 8), REPEATS),
        "losslessness": certify(pair, open_ended, sampled),
    }
    FOLDER.mkdir(exist_ok=True)
    for name, report in found.items():
        packed = json.dumps(json.loads(report.to_json()), ensure_ascii=False, separators=(",", ":"))
        write_whole(FOLDER / f"{name}.json", packed + "\n")


if __name__ == "__main__":
    main()
