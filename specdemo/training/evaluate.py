"""What the model card states: held-out loss, and how the pair does on the example prompts."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import mean

import torch
from torch.nn import functional as F
from transformers import LlamaForCausalLM

from specdemo.analysis.repetition import distinct_share
from specdemo.models.pair import ModelPair
from specdemo.runs.prompts import by_domain
from specdemo.runs.single import run
from specdemo.settings import Settings
from specdemo.training.corpus import Stream

EVALUATION_TOKENS = 20_000  # of each source's held-out text; enough for two digits of the loss
CARD_GAMMA = 4


@dataclass(frozen=True, slots=True)
class DomainReport:
    """How the pair did on one domain's example prompts, greedily; ``samples`` are (prompt, output)."""

    domain: str
    acceptance_rate: float
    mean_acceptance_length: float
    distinct_4grams: float
    samples: tuple[tuple[str, str], ...]


@torch.no_grad()
def held_out_loss(model: LlamaForCausalLM, streams: list[Stream], length: int = 512) -> dict[str, float]:
    """Cross entropy in nats a token on the held-out documents, by domain."""
    losses: dict[str, list[float]] = {}
    for stream in streams:
        ids = torch.from_numpy(stream.held_out[:EVALUATION_TOKENS].astype("int64"))
        rows = ids[: len(ids) // length * length].view(-1, length)
        for chunk in (rows if len(rows) else ids.unsqueeze(0)).to(model.device).split(8):
            logits = model(chunk, use_cache=False).logits[:, :-1].float()
            loss = F.cross_entropy(logits.flatten(0, 1), chunk[:, 1:].flatten(), reduction="none")
            losses.setdefault(stream.source.domain, []).extend(loss.tolist())
    return {domain: mean(values) for domain, values in losses.items()}


def domain_reports(pair: ModelPair, tokens: int = 128) -> list[DomainReport]:
    """Greedy runs at γ = 4 over all example prompts."""
    settings = Settings(gamma=CARD_GAMMA, max_new_tokens=tokens)
    reports = []
    for domain, examples in by_domain().items():
        traces = [run(pair, example.prompt, settings) for example in examples]
        figures = [trace.metrics() for trace in traces]
        reports.append(
            DomainReport(
                domain=domain,
                acceptance_rate=sum(m.accepted for m in figures) / max(1, sum(m.proposed for m in figures)),
                mean_acceptance_length=sum(m.emitted for m in figures) / max(1, sum(m.rounds for m in figures)),
                distinct_4grams=mean(distinct_share(t.token_ids) for t in traces),
                samples=tuple((e.prompt, t.text) for e, t in zip(examples, traces, strict=True)),
            )
        )
    return reports
