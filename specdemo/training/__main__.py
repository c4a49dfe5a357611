"""``python -m specdemo.training``: lessons for drafters of a finished target, drafters, and the model card."""

from __future__ import annotations

import argparse
import copy
import time
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerFast

from specdemo.models.eagle3_files import save_head
from specdemo.training.card import write_card
from specdemo.training.draft import train_draft
from specdemo.training.head import new_head, train_head
from specdemo.training.lessons import Lessons, make_lessons
from specdemo.training.loop import Run, hardware
from specdemo.training.models import read_model, write_model
from specdemo.training.muon import quicker_dtype
from specdemo.training.options import add_corpus, add_machine, folder, positive, resumable, whole
from specdemo.training.recipe import Recipe, tiny_recipe
from specdemo.training.tasks.domains import domains
from specdemo.training.tasks.plan import Plan
from specdemo.training.tasks.stream import TaskStream
from specdemo.training.texts import written


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m specdemo.training", description=__doc__)
    parser.add_argument("stage", choices=("lessons", "draft", "head", "card"))
    parser.add_argument(
        "--pair", type=folder, required=True, help="folder with target/; draft/, head/ and card go there"
    )
    add_corpus(parser)
    parser.add_argument(
        "--work", type=folder, default=Path("training-work"), help="lessons and checkpoints; resumed"
    )
    few = (0.1, 2)
    minutes, prompts = "of this stage, all starts together", "card: held-out prompts a domain"
    parser.add_argument("--minutes", type=positive, help=f"{minutes} (60; tiny: {few[0]})")
    parser.add_argument("--prompts", type=whole, help=f"{prompts} (100; tiny: {few[1]})")
    add_machine(parser)
    parser.add_argument("--tiny", action="store_true", help="a run of seconds")
    args = parser.parse_args()
    usual = few if args.tiny else (60.0, 100)
    args.minutes, args.prompts = args.minutes or usual[0], args.prompts or usual[1]
    if not (args.pair / "target" / "config.json").is_file():
        parser.error(
            f"--pair: {args.pair} has no target/config.json; train a target first, or give another folder."
        )
    return args


def main() -> None:
    args = arguments()
    recipe = tiny_recipe(args.minutes) if args.tiny else Recipe(minutes=args.minutes)
    device = args.device
    if device.type == "cpu":
        torch.set_num_threads(args.threads)
    started = time.monotonic()

    def log(message: str) -> None:
        print(f"[{(time.monotonic() - started) / 60:6.1f} min] {message}", flush=True)

    every = domains(args.corpus)
    target = read_model(args.pair / "target")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(args.pair / "target")
    if args.stage == "card":
        log(write_card(args.pair, target, tokenizer, every, args.prompts))
        return
    dtype = quicker_dtype(device)
    run = Run(args.work, device, dtype, False, log, recipe.checkpoint_every)
    # One copy in the type of the run writes the texts and is asked what it says of them.
    teacher = copy.deepcopy(target).to(device, dtype)
    tasks = TaskStream(every, Plan().shares, tokenizer, recipe.seed, answers_only=True)
    if args.stage == "lessons":
        texts = written(teacher, tokenizer, every, recipe, run, recipe.text_share * 60 * recipe.minutes)
        make_lessons(teacher, new_head(target, recipe).taps, texts, tasks, recipe, run)
        log(f"written to {args.work}")
        return
    lessons = Lessons(args.work, recipe)
    note = f"{recipe.minutes:g} minutes on {len(lessons)} lessons, on {hardware(device, dtype)}."
    if args.stage == "draft":
        write_model(train_draft(teacher, lessons, tasks, recipe, run), tokenizer, args.pair / "draft", note)
    else:
        save_head(train_head(teacher, lessons, recipe, run).cpu(), args.pair / "head", note)
    log(f"written to {args.pair / args.stage}")


if __name__ == "__main__":
    with resumable():
        main()
