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
from transformers import LlamaConfig

from specdemo.errors import SettingsError
from specdemo.models.eagle3_head import save_head
from specdemo.models.pair import checked_threads
from specdemo.training.answers import table
from specdemo.training.card import checked_sides, write_card
from specdemo.training.drafters import new_head, train_draft, train_head
from specdemo.training.lessons import Lessons, make_lessons
from specdemo.training.loop import Run
from specdemo.training.models import read_model, read_tokenizer, rotary_base, write_model
from specdemo.training.recipe import TINY, recipe_of
from specdemo.training.target import read_target, train_target
from specdemo.training.tasks.mixture import domains
from specdemo.training.tasks.stream import TaskStream
from specdemo.training.tasks.task import Domain
from specdemo.training.tasks.tokenizer import train_tokenizer

STAGES = ("target", "lessons", "draft", "head", "check", "card")


def folder(text: str) -> Path:
    if not (path := Path(text)).is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is no folder.")
    return path


def count(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0.")
    return int(text)


def device(text: str) -> torch.device:
    """A device that this machine has."""
    try:
        return torch.empty(0, device=text).device
    except (RuntimeError, AssertionError):  # torch without CUDA asserts
        raise argparse.ArgumentTypeError(f"{text!r} is no device of this machine; use cpu, or cuda.") from None


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m specdemo.training", description=__doc__)
    add = parser.add_argument
    add("stage", choices=STAGES)
    add("--corpus", type=folder, required=True, help="of *.txt.gz files")
    add("--work", type=Path, default=Path("training-work"), help="checkpoints, lessons and log (training-work)")
    add("--pair", type=Path, help="folder of target/, draft/ and head/, and of the card (that of --work)")
    add("--start", type=folder, help="target: begin with this finished one, and its tokenizer")
    add("--set", nargs="+", action="extend", default=[], metavar="NAME=VALUE", help="of recipe.py, in JSON")
    add("--tiny", action="store_true", help="a run of seconds, to test the machinery")
    add("--prompts", type=count, default=100, help="check, card: held-out prompts of each kind, a domain (100)")
    add("--samples", type=int, default=2, help="check: answers a domain that are shown (2)")
    add("--device", type=device, default="cuda" if torch.cuda.is_available() else "cpu")
    add("--dtype", choices=("bfloat16", "float32"), default="float32", help="of the computation (float32)")
    add("--threads", type=count, default=1, help="of the processor (1)")
    add("--no-compile", action="store_true", help="target: train without torch.compile (no C compiler)")
    return parser


def shape_of(start: Path) -> list[str]:
    """A finished target's shape, as changes of the recipe."""
    config = LlamaConfig.from_pretrained(_finished("--start", start))
    sizes = {"width": config.hidden_size, "heads": config.num_attention_heads, "vocabulary": config.vocab_size}
    sizes |= {"feed_forward": config.intermediate_size, "context": config.max_position_embeddings}
    return [f"target.{name}={size}" for name, size in (sizes | {"rotary_base": rotary_base(config)}).items()]


def _finished(option: str, folder: Path) -> Path:
    """
    Raises:
        SystemExit: the folder holds no finished model.
    """
    if not (folder / "config.json").is_file():
        raise SystemExit(f"{option}: {folder} holds no config.json; train a target, or give another folder.")
    return folder


def main(words: Sequence[str] | None = None) -> None:
    parser = arguments()
    args = parser.parse_args(words)
    try:
        start = shape_of(args.start) if args.start else ()
        recipe = recipe_of([*(TINY.split() if args.tiny else ()), *start, *args.set])
        checked_threads(args.threads)
    except SettingsError as error:
        parser.error(str(error))
    every = domains(args.corpus)
    if args.device.type == "cpu":
        torch.set_num_threads(args.threads)
    started, pair = time.monotonic(), args.pair or args.work
    if args.stage not in ("target", "check"):
        _finished("--pair", pair / "target")
    if args.stage == "card":
        print(write_card(pair, *read_target(pair, args.work), every, args.prompts))
        return
    if args.stage == "check":
        sides = checked_sides(*read_target(pair, args.work), every, args.prompts)
        for name, domain in sides["unseen"].items():
            print(f"=== {name}\n{domain.shown(args.samples)}")
        print(f"{table(sides)}\n{args.prompts} held-out prompts of each kind, greedy")
        return

    args.work.mkdir(parents=True, exist_ok=True)

    def log(message: str) -> None:
        line = f"[{(time.monotonic() - started) / 60:6.1f} min] {message}"
        print(line, flush=True)
        with (args.work / "log.txt").open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    run = Run(args.work, recipe, args.device, getattr(torch, args.dtype), log)
    log(f"{args.stage}: start in {args.dtype} on {args.device}")
    if args.stage == "target":
        make_target(run, every, pair, args.start, not args.no_compile)
    else:
        make_drafters(args.stage, run, every, pair)
    log("written")


def make_target(run: Run, every: dict[str, Domain], pair: Path, begin: Path | None, compiled: bool) -> None:
    folder, start, note = run.folder / "tokenizer", None, ""
    if not (folder / "tokenizer.json").exists():
        made = read_tokenizer(begin) if begin else train_tokenizer(every, run.recipe.target)
        made.save_pretrained(folder)
    if begin:
        start = read_model(begin)
        note = f"{getattr(start.config, 'training_note', '')} From that target: ".lstrip()
    tokenizer = read_tokenizer(folder)
    target, seconds = train_target(every, tokenizer, run, start, compiled)
    for depth in run.recipe.target.phases:
        note += f"{depth.tokens / 1e6:g}M tokens at {depth.layers} layers, "
    write_model(target, tokenizer, pair / "target", f"{note}{seconds / 3600:.1f} hours on {run.hardware()}.")


def make_drafters(stage: str, run: Run, every: dict[str, Domain], pair: Path) -> None:
    target, tokenizer = read_target(pair, run.folder)
    # One copy in the type of the run writes the texts and computes the states of them.
    teacher = copy.deepcopy(target)
    nn.Module.to(teacher, run.device, run.dtype)
    tasks = TaskStream(every, run.recipe.shares, tokenizer, run.recipe.seed)
    if stage == "lessons":
        make_lessons(teacher, new_head(target, run.recipe.seed).aux_layers, tasks, tokenizer, run)
        return
    lessons = Lessons(run.folder, run.recipe.seed)

    def note(tokens: int, seconds: float) -> str:
        return (
            f"{tokens / 1e6:g}M tokens, {seconds / 60:.1f} minutes on {len(lessons)} lessons, on {run.hardware()}."
        )

    if stage == "draft":
        draft, seconds = train_draft(teacher, lessons, tasks, run)
        write_model(draft, tokenizer, pair / "draft", note(run.recipe.draft.tokens, seconds))
    else:
        head, seconds = train_head(teacher, lessons, run)
        save_head(head.cpu(), pair / "head", note(run.recipe.head.tokens, seconds))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("Stopped. The same command goes on from the last checkpoint.") from None
