"""``python -m specdemo.training.check FOLDER``: how many held-out tasks a target answers right, greedily."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from specdemo.training.loop import load_checkpoint
from specdemo.training.models import build_model, read_model
from specdemo.training.options import add_corpus, threads, whole
from specdemo.training.tasks.answers import Checked, check, table
from specdemo.training.tasks.domains import domains, held_out_tasks
from specdemo.training.tasks.plan import Plan
from specdemo.training.tasks.train import plain


def read_target(folder: Path) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """A finished target, or the last checkpoint of a run that goes on.

    Raises:
        SystemExit: the folder holds neither.
    """
    if (folder / "config.json").is_file():
        return read_model(folder), PreTrainedTokenizerFast.from_pretrained(folder)
    state = load_checkpoint(folder / "target.pt")
    if state is None:
        raise SystemExit(
            f"{folder} holds neither config.json nor target.pt; give the folder of a target or of a run."
        )
    plan = Plan.from_dict(json.loads((folder / "plan.json").read_text(encoding="utf-8")))
    model = build_model(plan.shape(), plan.phases[state["phase"]].layers, plan.seed)
    model.load_state_dict(state["model"])
    return plain(model), PreTrainedTokenizerFast.from_pretrained(folder / "tokenizer")


def shown(name: str, checked: Checked, count: int) -> str:
    """The first answers of a domain, with what was asked; those that are wrong also with the right one."""
    parts = []
    for task, answer, grade in list(zip(checked.tasks, checked.answers, checked.grades, strict=True))[:count]:
        right = all(a == b for a, b in grade.values())
        parts.append(f"--- {name}, {task.kind}: {'right' if right else 'WRONG'}\n{task.prompt}\n⟶\n{answer.text}")
        if not right:
            parts.append(f"… instead of:\n{task.answer}")
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m specdemo.training.check", description=__doc__)
    parser.add_argument("folder", type=Path, help="of a finished target, or of a run with its checkpoint")
    add_corpus(parser)
    parser.add_argument("--prompts", type=whole, default=100, help="held-out prompts a domain (100)")
    parser.add_argument("--samples", type=int, default=2, help="answers a domain that are shown (2)")
    parser.add_argument("--domains", nargs="+", metavar="DOMAIN", help="only these")
    parser.add_argument("--threads", type=threads, default=1, help="of the processor (1)")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    every = domains(args.corpus)
    if unknown := set(args.domains or ()) - set(every):
        parser.error(f"--domains: none is called {', '.join(sorted(unknown))}; use {', '.join(every)}.")
    model, tokenizer = read_target(args.folder)
    started = time.monotonic()
    asked = {n: held_out_tasks(d, args.prompts) for n, d in every.items() if n in (args.domains or every)}
    checked = check(model, tokenizer, every, asked)
    for name, domain in checked.items():
        print(shown(name, domain, args.samples))
    print(table(checked))
    print(f"{args.prompts} held-out prompts a domain, greedy, {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
