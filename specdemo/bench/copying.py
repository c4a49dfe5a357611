"""Copying: a long document edited, an agent's session over one file, and what the index of copies costs.

The targets are GPT-2s whose weights spell a given answer by position, whatever they read: how much is copied
depends on the texts alone, and a step takes the time of a random model of that shape. The texts are sources of
this project, in tokens of the builtin pair; edits replace single tokens by others of the text, drawn with a seed.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter
from typing import Any

import torch
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel

import specdemo
from specdemo.bench.contenders import Sample, ours
from specdemo.bench.harness import Args, Results, columns, interleaved, run_bench, verdict
from specdemo.decoding.drafters.copying import LENGTHS, CopyingDrafter
from specdemo.models.pair import ModelPair
from specdemo.models.request import ASSETS
from specdemo.settings import Settings

SHAPE: dict[str, Any] = {"n_embd": 192, "n_layer": 32, "n_head": 4, "vocab_size": 4096}  # as the builtin target
NO_ENDS: dict[str, Any] = {"bos_token_id": None, "eos_token_id": None, "tie_word_embeddings": False}
TURNS, FILE, DOCUMENT, CHANGED = 10, 200, 2000, 0.01
LOOKS = 50
MOST, LEAST_GAIN = 0.01, 1.3
"""Of a target step a look without a match may take; of prompt lookup's speed-up earlier outputs must give."""
PLAIN = Settings(strategy="autoregressive")
LOOKUP, SUFFIX = (Settings(drafter=name, earlier_outputs=False) for name in ("prompt_lookup", "suffix"))
EARLIER = "suffix, earlier outputs"


def spelling(answer: Sequence[int], begin: int, length: int) -> ModelPair:
    """A target that says ``answer`` behind a prompt of ``begin`` tokens, and reads ``length`` at most."""
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(**SHAPE, **NO_ENDS, n_positions=length))
    with torch.no_grad():
        words = torch.nn.functional.normalize(torch.randn_like(model.lm_head.weight), dim=1)
        model.lm_head.weight.copy_(words)
        model.transformer.wte.weight.zero_()
        model.transformer.wpe.weight[begin - 1 : begin - 1 + len(answer)] = words[torch.tensor(answer)]
        for name, weight in model.transformer.h.named_parameters():
            if name.endswith("c_proj.weight"):
                weight.zero_()
    return ModelPair(model.eval())


def tokens_of(source: str, count: int) -> list[int]:
    """The first so many tokens of a file of this project."""
    tokenizer = AutoTokenizer.from_pretrained(ASSETS / "builtin" / "target")
    text = (Path(specdemo.__file__).parent / source).read_text()
    return list(tokenizer(text, add_special_tokens=False, truncation=True, max_length=count)["input_ids"])


def edited(text: Sequence[int], random: Random) -> list[int]:
    """The text with a share of ``CHANGED`` of its tokens replaced."""
    new = list(text)
    for place in random.sample(range(len(text)), round(CHANGED * len(text))):
        new[place] = random.choice(text)
    return new


def session(name: str, turns: Sequence[tuple[list[int], list[int]]], lanes: Mapping[str, Settings]) -> Results:
    """The lanes' speed-ups and tokens a round over all turns of prompts and answers; a plain step's time."""
    found: dict[str, list[Sample]] = {lane: [] for lane in ("plain", *lanes)}
    for turn, (prompt, answer) in enumerate(turns):  # every lane warms its models up before its clock
        pair = spelling(answer, len(prompt), len(prompt) + len(answer) + 20)
        wanted = {n: replace(s, max_new_tokens=len(answer)) for n, s in {"plain": PLAIN, **lanes}.items()}
        earlier = [before for _, before in turns[:turn]]
        given = {lane: earlier if settings.reads_earlier else () for lane, settings in wanted.items()}
        runs = {n: partial(ours(pair, settings, given[n]), prompt) for n, settings in wanted.items()}
        for lane, samples in interleaved(runs, 1, warm_up=0).items():
            assert samples[0].ids == answer, "the target did not spell its answer"
            found[lane] += samples
    seconds = {lane: sum(1 / (s.decode_speed or 1.0) for s in some) for lane, some in found.items()}
    taus = {n: median(s.own.metrics().mean_acceptance_length or 1.0 for s in some) for n, some in found.items()}
    about = {"text": name, "step": seconds["plain"] / len(turns)}
    return {n: {**about, "lane": n, "speedup": seconds["plain"] / seconds[n], "tau": taus[n]} for n in lanes}


def index(length: int) -> dict[str, float]:
    """Memory of an index in MB; µs to take in a token, of a look that finds nothing, and of one that copies."""
    random = Random(2)
    text = [random.randrange(SHAPE["vocab_size"] - 1) for _ in range(length // 2)]
    text += edited(text, random)
    tracemalloc.start()
    CopyingDrafter(LENGTHS, counts=True).prefill(text)
    memory = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    drafter, times = CopyingDrafter(LENGTHS, counts=True), [perf_counter()]
    drafter.prefill(text)
    times.append(perf_counter())
    for tail in ([*text, SHAPE["vocab_size"] - 1], [*text, *text[:20]]):
        for _ in range(LOOKS):
            drafter.propose(tail, 8)
        times.append(perf_counter())
    taken, nothing, copies = (1e6 * (b - a) for a, b in pairwise(times))
    looks = {"nothing": nothing / LOOKS, "copies": copies / LOOKS}
    return {"length": length, "memory": memory / 1e6, "token": taken / length, **looks}


def measure(args: Args) -> Results:
    document, random = tokens_of("decoding/acceptance.py", DOCUMENT), Random(0)
    both = {"prompt lookup": LOOKUP, "suffix": SUFFIX}
    lanes = {f"{name}, γ {g}": replace(lane, gamma=g) for g in args.gammas for name, lane in both.items()}
    found = [session(f"{DOCUMENT:,} tokens", [(document, edited(document, random))], lanes)]
    lanes = {**both, EARLIER: replace(SUFFIX, earlier_outputs=True)}
    lanes = {name: replace(lane, gamma=max(args.gammas)) for name, lane in lanes.items()}
    files = [tokens_of("theory.py", FILE)]
    for _ in range(TURNS):
        files.append(edited(files[-1], random))
    requests = [tokens_of("settings.py", 40 * (turn + 1))[-40:] for turn in range(TURNS)]
    alone = [*zip(requests, files[1:], strict=True)]
    beside = [(request + file, after) for (request, after), file in zip(alone, files, strict=False)]
    found.append(session("session, file in the prompt", beside, lanes))
    found.append(session("session, file not there", alone, lanes))
    return {
        "texts": [row for rows in found for row in rows.values()],
        "gain": found[-1][EARLIER]["speedup"] / found[-1]["prompt lookup"]["speedup"],
        "index": [index(length) for length in (2048, 8192, 32_768, 131_072)],
        "step": 1e6 * found[-1]["suffix"]["step"],
    }


def table(found: Results) -> str:
    texts = {"1 % edited": "{text}", "lane": "{lane}", "speed-up": "{speedup:.2f}×", "τ": "{tau:.2f}"}
    looks = {"tokens": "{length:,}", "MB": "{memory:.1f}", "µs a token": "{token:.1f}"}
    looks |= {"µs, no match": "{nothing:.1f}", "µs, a copy": "{copies:.0f}"}
    share, step = found["index"][1]["nothing"] / found["step"], found["step"] / 1000
    gain = f"earlier outputs give {found['gain']:.2f} of prompt lookup's speed-up"
    look = f"at 8,192 tokens a look without a match takes {share:.3%} of a plain step of {step:.1f} ms"
    claims = [verdict(found["gain"] >= LEAST_GAIN, gain), verdict(share < MOST, look)]
    return "\n\n".join((columns(texts, found["texts"]), columns(looks, found["index"]), "\n".join(claims)))


if __name__ == "__main__":
    run_bench("copying", __doc__, measure, table, gammas=[5, 8, 16], threads=1)
