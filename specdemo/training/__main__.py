"""``python -m specdemo.training``: from a corpus folder to the builtin pair, resumable at any point.

With the stage ``head`` it trains an EAGLE-3 head for a finished target instead.
"""

from __future__ import annotations

import argparse
import copy
import platform
import time
from pathlib import Path

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from specdemo.models.pair import ModelPair
from specdemo.models.source import ASSETS
from specdemo.training.corpus import Windows, load_streams
from specdemo.training.distill import distill
from specdemo.training.evaluate import domain_reports, held_out_loss
from specdemo.training.export import export_model, note_draft_training, note_target_training, write_card
from specdemo.training.head import head_stage
from specdemo.training.head_recipe import HeadRecipe, tiny_head_recipe
from specdemo.training.labels import corpus_labels, own_labels
from specdemo.training.loop import Run
from specdemo.training.muon import quicker_dtype
from specdemo.training.pretrain import pretrain
from specdemo.training.recipe import Recipe, tiny_recipe
from specdemo.training.tasks.domains import domains
from specdemo.training.tokenizer import train_tokenizer


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m specdemo.training", description=__doc__)
    parser.add_argument("stage", nargs="?", choices=("pair", "head"), default="pair")
    parser.add_argument("--draft", type=Path, help="stage head: a draft model that the head's card compares with")
    parser.add_argument("--minutes", type=float, default=60.0, help="stage head: of all starts together (60)")
    parser.add_argument("--corpus", type=Path, required=True, help="folder of the *.txt.gz files of the recipe")
    parser.add_argument("--work", type=Path, default=Path("training-work"), help="checkpoints; resumed from")
    parser.add_argument("--target", type=Path, help="a finished target: only a draft is trained, for it")
    parser.add_argument("--out", type=Path, default=ASSETS / "builtin", help="where the finished pair goes")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--no-compile", action="store_true", help="train without torch.compile (no C compiler)")
    parser.add_argument("--tiny", action="store_true", help="a run of seconds through every stage")
    args = parser.parse_args()
    if args.target and not (args.target / "config.json").is_file():
        parser.error(f"--target: {args.target} holds no model; give the folder of its config.json.")
    if args.stage == "head" and not args.target:
        parser.error("--target: a head is trained for a finished target; give its folder.")
    return args


def train_a_head(args: argparse.Namespace, run: Run) -> None:
    """The stage ``head``, written to ``out/head``."""
    recipe = tiny_head_recipe(args.minutes) if args.tiny else HeadRecipe(minutes=args.minutes)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(args.target)
    draft = _read(args.draft) if args.draft else None
    every = domains(args.corpus)
    head_stage(_read(args.target), draft, tokenizer, every, recipe, run, args.out / "head")


def hardware(device: torch.device) -> str:
    """The machine in words, for the card."""
    if device.type == "cuda":
        return f"one {torch.cuda.get_device_name(device)}"
    return f"{torch.get_num_threads()} CPU cores ({platform.machine()})"


def get_tokenizer(
    given: Path | None, folder: Path, corpus: Path, recipe: Recipe, run: Run
) -> PreTrainedTokenizerFast:
    """The given target's tokenizer, or that of an earlier start, or a new one."""
    if given:
        return PreTrainedTokenizerFast.from_pretrained(given)
    if not (folder / "tokenizer.json").exists():
        run.log("tokenizer: training")
        train_tokenizer(corpus, recipe).save_pretrained(folder)
    return PreTrainedTokenizerFast.from_pretrained(folder)


def _read(folder: Path) -> LlamaForCausalLM:
    return LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def main() -> None:
    args = arguments()
    recipe = tiny_recipe() if args.tiny else Recipe()
    device = torch.device(args.device)
    started = time.monotonic()

    def log(message: str) -> None:
        print(f"[{(time.monotonic() - started) / 60:6.1f} min] {message}", flush=True)

    run = Run(args.work, device, quicker_dtype(device), not args.no_compile, log, recipe.checkpoint_every)
    args.work.mkdir(parents=True, exist_ok=True)
    if args.stage == "head":
        train_a_head(args, run)
        return
    tokenizer = get_tokenizer(args.target, args.work / "tokenizer", args.corpus, recipe, run)
    streams = load_streams(args.corpus, tokenizer, recipe, args.work / "tokens")

    if args.target:
        target = _read(args.target)
    else:
        windows = Windows(streams, [s.source.share for s in streams], recipe.seed)
        target = pretrain("target", recipe.target, recipe.target_phases, windows, recipe, run)
        note_target_training(target, recipe, hardware(device))
    windows = Windows(streams, [s.source.draft_share for s in streams], recipe.seed)
    draft = pretrain("draft", recipe.draft, recipe.draft_phases, windows, recipe, run)
    teacher = copy.deepcopy(target).to(device, run.dtype)
    own = own_labels(teacher, windows, tokenizer.bos_token_id, recipe, run)
    draft = distill(draft, own, corpus_labels(teacher, windows, recipe, run), recipe, run)
    note_draft_training(draft, recipe, hardware(device))

    if not args.target:
        export_model(target, tokenizer, args.out / "target", recipe)
    export_model(draft, tokenizer, args.out / "draft", recipe)
    # The written files are evaluated: rounded to 16 bit, and without the compiled code of the distillation, which
    # would be compiled anew for every length.
    target, draft = _read(args.target or args.out / "target"), _read(args.out / "draft")
    losses = {"target": held_out_loss(target, streams), "draft": held_out_loss(draft, streams)}
    log(f"held-out loss: {losses}")
    pair = ModelPair(target, draft, tokenizer, name="builtin")
    reports = domain_reports(pair, tokens=min(128, recipe.context // 2))
    for report in reports:
        log(f"{report.domain}: acceptance {report.acceptance_rate:.2f}, distinct {report.distinct_4grams:.2f}")
    write_card(args.out / "README.md", target, draft, losses, reports, recipe)
    log(f"written to {args.out}")


if __name__ == "__main__":
    main()
