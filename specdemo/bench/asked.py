"""The prompts of benches that compare domains: the examples, or held-out tasks of the builtin pair's training."""

from __future__ import annotations

from specdemo.bench.harness import Args
from specdemo.runs.prompts import by_domain
from specdemo.training.tasks.domains import domains, held_out_tasks


def prompts_of(args: Args, count: int) -> dict[str, list[str]]:
    """The first so many of each domain; those of tasks if ``args.corpus`` is given. None is chosen."""
    if args.corpus is None:
        return {name: [e.prompt for e in some[:count]] for name, some in by_domain().items()}
    made = domains(args.corpus)
    return {name: [task.prompt for task in held_out_tasks(d, count)] for name, d in made.items()}
