"""The training of heads: the loss is that of drafting, a head learns by it, and the whole stage resumes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from corpus_files import write_corpus
from toys import build, build_head, prompt_ids
from transformers import GenerationConfig

from specdemo import Eagle3Head
from specdemo.decoding.engines.eager import EagerRunner
from specdemo.decoding.engines.head import HeadRunner
from specdemo.training.__main__ import main
from specdemo.training.export import export_model
from specdemo.training.head import new_head
from specdemo.training.head_loss import TargetView, unrolled_loss
from specdemo.training.head_recipe import tiny_head_recipe
from specdemo.training.loop import load_checkpoint
from specdemo.training.pretrain import build_model
from specdemo.training.tasks.domains import domains
from specdemo.training.tasks.plan import tiny_plan
from specdemo.training.tasks.tokenizer import train_tokenizer

STEPS, DECAY, HARD = 3, 0.8, 0.3


def view(target: torch.nn.Module, taps: tuple[int, ...], ids: tuple[int, ...], begins: int) -> TargetView:
    output = EagerRunner(target, taps=taps).forward(ids, keep=len(ids))
    learned = torch.arange(len(ids)) >= begins
    tensors = (torch.tensor(ids), learned, output.hidden, output.logits)
    return TargetView(*(t.clone()[None] for t in tensors))


@pytest.mark.parametrize("flags", [{}, {"fc_norm": True, "feeds_norm": True, "norm_before_residual": True}])
def test_the_loss_is_that_of_the_drafters_own_steps(flags: dict[str, bool]) -> None:
    """Guards mask, shifts and positions of the unrolled steps: each is redone by the drafter's runner."""
    target = build("llama", layers=4, eos=None)
    head = build_head(target, draft_vocabulary=50, **flags)
    ids, begins = prompt_ids(14), 4
    seen = view(target, head.taps, ids, begins)
    table = head.embeddings(target)
    wanted, counted = torch.zeros(STEPS), torch.zeros(STEPS)
    place = {token: i for i, token in enumerate(head.target_ids.tolist())}
    for t in range(len(ids) - 2):
        runner = HeadRunner(head, table, "auto")
        features = runner.project(seen.features[0, : t + 1])
        output = runner.forward(features, ids[1 : t + 2])
        for step in range(STEPS):
            says = t + 1 + step  # where the target says the token that this step drafts
            if says + 1 >= len(ids):
                break
            best = int(seen.logits[0, says].argmax())
            if says + 1 >= begins and best in place:
                p = seen.logits[0, says][head.target_ids].softmax(-1)
                log_q = output.logits[0].log_softmax(-1)
                wanted[step] += -(1 - HARD) * (p * log_q).sum() - HARD * log_q[place[best]]
                counted[step] += 1
            if step + 1 < STEPS:
                output = runner.forward(output.hidden, [ids[t + 2 + step]])
    expected = sum(DECAY**k * wanted[k] / counted[k] for k in range(STEPS))
    loss, agreement = unrolled_loss(head, table, seen, STEPS, DECAY, HARD)
    assert len(agreement) == STEPS
    assert loss.item() == pytest.approx(expected.item(), rel=1e-4)


def test_a_head_learns_what_its_target_says() -> None:
    """Guards the direction of the gradient in every step, with the beginning that a real run has."""
    target = build("llama", layers=4, eos=None)
    recipe = tiny_head_recipe(1.0)
    head = new_head(target, recipe)
    seen = view(target, head.taps, prompt_ids(60), 1)
    optimizer = torch.optim.AdamW(head.parameters(), lr=0.01)
    shares = []
    for _ in range(60):
        loss, agreement = unrolled_loss(head, head.embeddings(target), seen, STEPS, DECAY, HARD)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        shares.append(agreement)
    assert all(last > first + 0.3 for first, last in zip(shares[0], shares[-1], strict=True))


def test_the_stage_writes_a_head_that_loads_and_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards the whole command: the target's own text, checkpoints, SafeAI's format and the card."""
    plan = tiny_plan()
    corpus = write_corpus(tmp_path / "corpus")
    every = domains(corpus)
    tokenizer = train_tokenizer(every, plan.sample_shares(), plan.vocab_size, plan.context, plan.sample_characters)
    target = build_model(plan.shape(), 4, plan.recipe()).eval()
    target.generation_config = GenerationConfig(eos_token_id=[3], pad_token_id=0)
    export_model(target, tokenizer, tmp_path / "target", plan.recipe())

    def start(minutes: str) -> dict:
        folders = {"corpus": corpus, "work": tmp_path / "work", "out": tmp_path, "target": tmp_path / "target"}
        words = [word for name, folder in folders.items() for word in (f"--{name}", str(folder))]
        more = ["head", "--tiny", "--no-compile", "--device", "cpu", "--minutes", minutes]
        monkeypatch.setattr(sys, "argv", ["training", *more, *words])
        main()
        return load_checkpoint(tmp_path / "work" / "head.pt")

    first = start("0.02")
    texts = list((tmp_path / "work" / "texts").iterdir())
    second = start("0.04")
    assert first["step"] >= 1
    assert second["step"] > first["step"]
    assert second["seconds"] > first["seconds"]
    assert {p.name for p in texts} <= {p.name for p in (tmp_path / "work" / "texts").iterdir()}
    trained = Eagle3Head.load(tmp_path / "head", target)
    assert torch.equal(trained.fc.weight, second["model"]["fc.weight"].bfloat16())
    card = (tmp_path / "head" / "README.md").read_text(encoding="utf-8")
    for part in ("| EAGLE-3 head | chat |", "| early exit | edit |", "token 4", "0.04 minutes"):
        assert part in card
