"""``python -m specdemo.training STAGE``: target, lessons for its drafters, draft, head; checks and the model card.

Every stage goes on where an earlier start of the same command ended.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn
from transformers import LlamaForCausalLM

from specdemo.errors import SpecDemoError
from specdemo.models.eagle3_head import Eagle3Head, save_head
from specdemo.models.pair import checked_threads
from specdemo.training.answers import check_held_out, table, write_card
from specdemo.training.drafters import new_head, train_draft, train_head
from specdemo.training.lessons import Lessons, make_lessons
from specdemo.training.loop import Run
from specdemo.training.models import read_tokenizer, write_model
from specdemo.training.recipe import TINY, recipe_of
from specdemo.training.target import Trained, read_target, train_target
from specdemo.training.tasks.mixture import Domain, domains
from specdemo.training.tasks.stream import TaskStream
from specdemo.training.tasks.tokenizer import train_tokenizer

STAGES = ("target", "lessons", "draft", "head", "check", "card")


def device(text: str) -> torch.device:
    """A device that this machine has."""
    try:
        return torch.empty(0, device=text).device
    except (RuntimeError, AssertionError):  # torch without CUDA asserts
        raise argparse.ArgumentTypeError(f"{text!r} is no device of this machine; try cpu.") from None


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m specdemo.training", description=__doc__)
    add = parser.add_argument
    add("stage", choices=STAGES)
    add("--corpus", type=Path, required=True, help="folder of *.txt.gz files")
    add("--work", type=Path, default=Path("training-work"), help="checkpoints, lessons and log (training-work)")
    add("--pair", type=Path, help="folder of target/, draft/ and head/, and of the card (that of --work)")
    add("--set", nargs="+", action="extend", default=[], metavar="NAME=VALUE", help="of recipe.py, in JSON")
    add("--tiny", action="store_true", help="a run of seconds, to test the machinery")
    add("--device", type=device, default="cuda" if torch.cuda.is_available() else "cpu")
    add("--dtype", choices=("bfloat16", "float32"), default="float32", help="of the computation (float32)")
    add("--threads", type=int, default=1, help="of the processor (1)")
    add("--workers", type=int, default=0, help="further processes that make batches, for a GPU (0)")
    add("--no-compile", action="store_true", help="target: train without torch.compile (no C compiler)")
    args = parser.parse_args(words)
    if args.workers < 0:
        parser.error("--workers: give 0 or more.")
    try:
        work(args)
    except SpecDemoError as error:
        parser.error(str(error))


def work(args: argparse.Namespace) -> None:
    """Do what the command line says; SystemExit if something is missing that the stage builds on."""
    recipe = recipe_of([*(TINY.split() if args.tiny else ()), *args.set])
    checked_threads(args.threads)
    every = domains(args.corpus)
    if args.device.type == "cpu":
        torch.set_num_threads(args.threads)
    started, pair = time.monotonic(), args.pair or args.work
    if args.stage == "card":
        print(write_card(pair, every, recipe.prompts))
        return
    if args.stage == "check":
        asked = read_target(pair, args.work)
        sides = check_held_out(*asked, every, recipe.prompts)
        for name, domain in sides["unseen"].items():
            print(f"=== {name}\n{domain.shown(recipe.samples)}")
        print(f"{table(sides)}\n{recipe.prompts} held-out prompts of each kind, greedy")
        return
    trained = None if args.stage == "target" else read_target(pair)
    args.work.mkdir(parents=True, exist_ok=True)

    def log(message: str) -> None:
        line = f"[{(time.monotonic() - started) / 60:6.1f} min] {message}"
        print(line, flush=True)
        with (args.work / "log.txt").open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    run = Run(args.work, recipe, args.device, getattr(torch, args.dtype), log, args.workers)
    log(f"{args.stage}: start in {args.dtype} on {args.device}")
    if trained:
        make_drafters(args.stage, run, every, pair, trained)
    else:
        make_target(run, every, pair, not args.no_compile)
    log("written")


def make_target(run: Run, every: dict[str, Domain], pair: Path, compiled: bool) -> None:
    folder = run.folder / "tokenizer"
    if not (folder / "tokenizer.json").exists():
        train_tokenizer(every, run.recipe.target).save_pretrained(folder)
    stream = TaskStream(every, run.recipe.shares, read_tokenizer(folder), run.recipe.seed)
    target, spent = train_target(stream, run, compiled)
    note = "".join(f"{p.tokens / 1e6:g}M tokens at {p.layers} layers, " for p in run.recipe.target.phases)
    note += f"{spent.seconds / 60:.1f} minutes on {run.hardware()}; loss at the end {spent.loss:.3f}."
    write_model(target, stream.tokenizer, pair / "target", note)


def make_drafters(stage: str, run: Run, every: dict[str, Domain], pair: Path, trained: Trained) -> None:
    """Their lessons, or one of them."""
    # One copy in the type of the run writes the texts and computes the states of them.
    target, tokenizer = trained
    teacher = copy.deepcopy(target)
    nn.Module.to(teacher, run.device, run.dtype)
    tasks = TaskStream(every, run.recipe.shares, tokenizer, run.recipe.seed)
    if stage == "lessons":
        make_lessons(teacher, new_head(target, run.recipe.seed).aux_layers, tasks, run)
        return
    lessons = Lessons(run.folder, run.recipe.seed)
    drafter: LlamaForCausalLM | Eagle3Head
    if stage == "draft":
        drafter, spent = train_draft(teacher, lessons, tasks, run)
    else:
        drafter, spent = train_head(teacher, lessons, run)
    note = f"{getattr(run.recipe, stage).tokens / 1e6:g}M tokens, {spent.seconds / 60:.1f} minutes on "
    note += f"{len(lessons)} lessons, on {run.hardware()}; loss at the end {spent.loss:.3f}."
    if isinstance(drafter, Eagle3Head):
        save_head(drafter.cpu(), pair / "head", note)
    else:
        write_model(drafter, tokenizer, pair / "draft", note)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("Stopped. The same command goes on from the last checkpoint.") from None
