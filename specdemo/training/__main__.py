"""``python -m specdemo.training``: from a corpus folder to the builtin pair, resumable at any point."""

from __future__ import annotations

import argparse
import copy
import platform
import time
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerFast

from specdemo.models.catalog import ASSETS
from specdemo.models.pair import ModelPair
from specdemo.prompts import examples
from specdemo.training.corpus import Windows, load_streams
from specdemo.training.distill import distill
from specdemo.training.evaluate import domain_reports, held_out_loss
from specdemo.training.export import export_model, export_tokenizer, write_card
from specdemo.training.pretrain import Run, pretrain
from specdemo.training.recipe import Recipe, tiny_recipe
from specdemo.training.rollouts import write_rollouts
from specdemo.training.tokenizer import train_tokenizer


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m specdemo.training", description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True, help="folder of the *.txt.gz files of the recipe")
    parser.add_argument("--work", type=Path, default=Path("training-work"), help="checkpoints; resumed from")
    parser.add_argument("--out", type=Path, default=ASSETS / "builtin", help="where the finished pair goes")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--no-compile", action="store_true", help="train without torch.compile (no C compiler)")
    parser.add_argument("--tiny", action="store_true", help="a run of seconds through every stage")
    return parser.parse_args()


def hardware(device: torch.device) -> str:
    """The machine in words, for the card."""
    if device.type == "cuda":
        return f"Trained on one {torch.cuda.get_device_name(device)}"
    return f"Trained on {torch.get_num_threads()} CPU cores ({platform.machine()}) in bfloat16 autocast"


def get_tokenizer(folder: Path, corpus: Path, recipe: Recipe, run: Run) -> PreTrainedTokenizerFast:
    """The tokenizer of an earlier start, or a new one."""
    if not (folder / "tokenizer.json").exists():
        run.log("tokenizer: training")
        train_tokenizer(corpus, recipe).save_pretrained(folder)
    return PreTrainedTokenizerFast.from_pretrained(folder)


def main() -> None:
    args = arguments()
    recipe = tiny_recipe() if args.tiny else Recipe()
    device = torch.device(args.device)
    started = time.monotonic()

    def log(message: str) -> None:
        print(f"[{(time.monotonic() - started) / 60:6.1f} min] {message}", flush=True)

    run = Run(args.work, device, not args.no_compile, log)
    args.work.mkdir(parents=True, exist_ok=True)
    tokenizer = get_tokenizer(args.work / "tokenizer", args.corpus, recipe, run)
    streams = load_streams(args.corpus, tokenizer, recipe, args.work / "tokens")
    windows = Windows(streams, recipe.seed)

    target = pretrain("target", recipe.target, recipe.target_phases, windows, recipe, run)
    draft = pretrain("draft", recipe.draft, recipe.draft_phases, windows, recipe, run)
    teacher = copy.deepcopy(target).to(device, torch.bfloat16)
    rollouts = write_rollouts(teacher, streams, tokenizer.bos_token_id, recipe, run)
    draft = distill(teacher, draft, windows, rollouts, recipe, run)

    losses = {"target": held_out_loss(target, streams), "draft": held_out_loss(draft, streams)}
    log(f"held-out loss: {losses}")
    export_model(target, args.out / "target", recipe)
    export_model(draft, args.out / "draft", recipe)
    export_tokenizer(tokenizer, args.out / "target")
    pair = ModelPair(target.float(), draft.float(), tokenizer, name="builtin")
    reports = domain_reports(pair, examples(), tokens=min(128, recipe.context // 2))
    for report in reports:
        log(f"{report.domain}: acceptance {report.acceptance_rate:.2f}, distinct {report.distinct_4grams:.2f}")
    write_card(args.out / "README.md", target, draft, losses, reports, recipe, hardware(device))
    log(f"written to {args.out}")


if __name__ == "__main__":
    main()
