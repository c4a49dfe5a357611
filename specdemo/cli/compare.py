"""``compare``: whether a deployment that speculates writes what the one without does, with lines that show it."""

from __future__ import annotations

import argparse

from specdemo.cli.files import Exports, Outputs, add_exports
from specdemo.cli.measures import add_prompts, typed_prompts
from specdemo.cli.options import add_settings, typed_settings
from specdemo.cli.pairs import add_pair, loaded_for
from specdemo.cli.terminal import rows_table
from specdemo.losslessness.certify import ERROR_RATE, RUNS
from specdemo.losslessness.deployments import TOKENS, stream_comparison
from specdemo.runs.prompts import by_domain
from specdemo.settings import Settings
from specdemo.view.losslessness_view import deployment_rows

FILES: Exports = {
    "json": ("write the result as JSON, without addresses; - is the output", lambda check: check.to_json()),
    "bash": ("write the lines that reproduce it, for bash and a bug report", lambda check: check.reproduction()),
}
TEST = {
    "runs": (RUNS, "pairs of runs at most"),
    "tokens": (TOKENS, "of a run"),
    "error-rate": (ERROR_RATE, "of false alarms"),
}


def add_compare(parser: argparse.ArgumentParser) -> None:
    add_prompts(parser, "the first example of each kind")
    for name, (first, meaning) in TEST.items():
        text = f"above temperature 0: {meaning}. Default: {first}"
        parser.add_argument(f"--{name}", type=type(first), default=first, help=text)
    add_exports(parser, FILES)
    add_pair(parser)
    add_settings(parser, ("strategy",))
    parser.set_defaults(run=run_compare)


def run_compare(args: argparse.Namespace) -> None:
    """Print a table and the judgement; where the outputs part, the lines that show it."""
    outputs, settings = Outputs(args, FILES), Settings(**typed_settings(args))
    prompts, _ = typed_prompts(args, [found[0] for found in by_domain().values()])
    test, check = (args.runs, args.tokens, args.error_rate), None
    with loaded_for(args, [settings], outputs.errors) as pair, outputs.errors.status("Asking…") as status:
        for check in stream_comparison(pair, prompts, settings, test):
            status.update(f"{check.fraction:.0%} compared…")
    assert check is not None, "there is a prompt"
    outputs.out.print(rows_table(*deployment_rows(check)))
    outputs.say(f"{check.outcome}: {check.text}")
    if check.outcome not in ("identical", "passes") and not args.bash:
        outputs.out.print(f"\n{check.reproduction()}", markup=False, highlight=False, soft_wrap=True)
    outputs.write(check)
