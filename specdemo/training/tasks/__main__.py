"""``python -m specdemo.training.tasks``: trains a target on the tasks, resumable at any point."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from specdemo.files import write_whole
from specdemo.training.loop import Run, hardware
from specdemo.training.models import read_model, write_model
from specdemo.training.muon import quicker_dtype
from specdemo.training.options import add_corpus, add_machine, folder, positive, resumable, share, shares_of, whole
from specdemo.training.tasks.domains import domains
from specdemo.training.tasks.plan import HEAD_SIZE, Phase, Plan, tiny_plan
from specdemo.training.tasks.tokenizer import train_tokenizer
from specdemo.training.tasks.train import train

CHECKPOINT_EVERY = 40  # steps: some minutes on one core


def phase(text: str) -> Phase:
    """From ``LAYERS:TOKENS``.

    Raises:
        argparse.ArgumentTypeError: it is no such pair of positive numbers.
    """
    layers, _, tokens = text.partition(":")
    try:
        found = Phase(int(layers), int(float(tokens)))
    except (ValueError, OverflowError):
        found = None
    if found is None or found.layers < 1 or found.tokens < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not LAYERS:TOKENS, such as 8:40e6.")
    return found


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m specdemo.training.tasks", description=__doc__)
    default = Plan()
    add_corpus(parser)
    parser.add_argument(
        "--out", type=folder, required=True, help="checkpoints, log and the finished target; resumed"
    )
    parser.add_argument(
        "--phases",
        nargs="+",
        type=phase,
        default=default.phases,
        metavar="LAYERS:TOKENS",
        help="depths and the tokens at each, such as 8:40e6 16:30e6 32:30e6",
    )
    parser.add_argument("--start", type=folder, help="begin with this folder's finished target, and its tokenizer")
    parser.add_argument("--width", type=whole, default=default.width)
    parser.add_argument("--heads", type=whole, help=f"default: one for each {HEAD_SIZE} of the width")
    parser.add_argument("--feed-forward", type=whole, help="default: twice the width")
    parser.add_argument("--vocabulary", type=whole, default=default.vocab_size)
    parser.add_argument("--batch", type=whole, default=default.batch_tokens, help="tokens of one step")
    parser.add_argument("--loss", choices=("answers", "all"), default="answers", help="which text is learned")
    shares = partial(shares_of, list(default.shares))
    parser.add_argument("--shares", type=shares, help='of the tokens, as JSON: {"chat": 0.2, …}')
    parser.add_argument("--rate", type=positive, default=1.0, help="of the learning rates, a factor")
    parser.add_argument(
        "--decay", type=share, default=default.decay_share, help="share of the tokens over which they fall to zero"
    )
    parser.add_argument("--seed", type=int, default=default.seed)
    add_machine(parser)
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), help="default: the quicker one, measured")
    parser.add_argument("--no-compile", action="store_true", help="train without torch.compile (no C compiler)")
    parser.add_argument("--tiny", action="store_true", help="a run of seconds; the shape is then given too")
    args = parser.parse_args()
    if args.heads is None and args.width % HEAD_SIZE and not args.tiny:
        parser.error(f"--width: {args.width} is no multiple of {HEAD_SIZE}; give --heads too, such as --heads 4.")
    if args.heads and args.width % (2 * args.heads):
        parser.error(f"--heads: {args.heads} of them do not share a width of {args.width} in even parts.")
    return args


def planned(args: argparse.Namespace) -> Plan:
    """The plan that the options ask for."""
    if args.tiny:
        return tiny_plan()
    usual = Plan()
    plan = replace(
        usual,
        phases=tuple(args.phases),
        width=args.width,
        heads=args.heads or args.width // HEAD_SIZE,
        feed_forward=args.feed_forward or 2 * args.width,
        vocab_size=args.vocabulary,
        batch_tokens=args.batch,
        answers_only=args.loss == "answers",
        seed=args.seed,
        matrix_lr=args.rate * usual.matrix_lr,
        vector_lr=args.rate * usual.vector_lr,
        decay_share=args.decay,
    )
    return replace(plan, shares=args.shares) if args.shares else plan


def keep_plan(plan: Plan, folder: Path) -> None:
    """Writes the plan into the folder, or makes sure that the one in it is the same.

    Raises:
        SystemExit: the folder holds another run.
    """
    path = folder / "plan.json"
    if path.exists():
        stored = json.loads(path.read_text(encoding="utf-8"))
        differs = sorted(key for key, value in plan.as_dict().items() if stored.get(key) != value)
        if differs:
            raise SystemExit(f"--out: {folder} holds a run with other {', '.join(differs)}; use another folder.")
    else:
        write_whole(path, json.dumps(plan.as_dict(), indent=1) + "\n")


def read_start(folder: Path, plan: Plan) -> LlamaForCausalLM:
    """The target that a run begins with.

    Raises:
        SystemExit: the folder holds none, or one whose layers are not the plan's.
    """
    if not (folder / "config.json").is_file():
        raise SystemExit(f"--start: {folder} holds no config.json; give the folder of a finished target.")
    start, shape = read_model(folder), plan.shape()
    have, want = start.config, (shape.hidden, shape.heads, shape.intermediate, shape.vocab_size)
    shown = (have.hidden_size, have.num_attention_heads, have.intermediate_size, have.vocab_size)
    if shown != want:
        raise SystemExit(
            f"--start: width, heads, feed-forward and vocabulary of {folder} are {shown}, the plan's are {want}; "
            "give the same."
        )
    return start


def main() -> None:
    args = arguments()
    plan = planned(args)
    start = read_start(args.start, plan) if args.start else None
    every = domains(args.corpus)
    args.out.mkdir(parents=True, exist_ok=True)
    keep_plan(plan, args.out)
    device = args.device
    if device.type == "cpu":
        torch.set_num_threads(args.threads)
    started = time.monotonic()

    def log(message: str) -> None:
        line = f"[{(time.monotonic() - started) / 60:6.1f} min] {message}"
        print(line, flush=True)
        with (args.out / "log.txt").open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    dtype = getattr(torch, args.dtype) if args.dtype else quicker_dtype(device)
    run = Run(args.out, device, dtype, not args.no_compile, log, 2 if args.tiny else CHECKPOINT_EVERY)
    kept = args.out / "tokenizer"
    if start and not (kept / "tokenizer.json").exists():
        PreTrainedTokenizerFast.from_pretrained(args.start).save_pretrained(kept)
    elif not (kept / "tokenizer.json").exists():
        log("tokenizer: training")
        tokenizer = train_tokenizer(
            every, plan.sample_shares(), plan.vocab_size, plan.context, plan.sample_characters
        )
        tokenizer.save_pretrained(kept)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(kept)
    log(f"start in {dtype} on {device}")
    target, seconds = train(plan, every, tokenizer, run, start)
    stretches = ", ".join(f"{p.tokens / 1e6:g}M tokens at {p.layers} layers" for p in plan.phases)
    note = f"{stretches}, {seconds / 3600:.1f} hours on {hardware(device, dtype)}."
    if start:
        note = f"{getattr(start.config, 'training_note', '')} From that target: {note}".strip()
    write_model(target, tokenizer, args.out / "target", note)
    log(f"written to {args.out / 'target'}")


if __name__ == "__main__":
    with resumable():
        main()
