"""The training of heads: the loss is that of drafting, a head learns by it."""

from __future__ import annotations

import pytest
import torch
from toys import build, build_head, prompt_ids

from specdemo.decoding.engines.eager import EagerRunner
from specdemo.decoding.engines.head import HeadRunner
from specdemo.training.drafters import new_head, unrolled_loss
from specdemo.training.lessons import Lesson

STEPS, DECAY, HARD = 3, 0.8, 0.3


def taught(
    target: torch.nn.Module, aux_layers: tuple[int, ...], ids: tuple[int, ...], begins: int
) -> tuple[Lesson, torch.Tensor]:
    """A lesson of one text, and the target's logits (1, n, V)."""
    output = EagerRunner(target, aux_layers=aux_layers).forward(ids, keep=len(ids))
    tensors = (torch.tensor(ids), torch.arange(len(ids)) >= begins, output.hidden, output.logits)
    lesson, learned, features, logits = (t.clone()[None] for t in tensors)
    return Lesson(lesson, learned, features, features), logits


@pytest.mark.parametrize("flags", [{}, {"fc_norm": True, "feeds_norm": True, "norm_before_residual": True}])
def test_the_loss_is_that_of_the_drafters_own_steps(flags: dict[str, bool]) -> None:
    """Guards mask, shifts and positions of the unrolled steps: each is redone by the drafter's runner."""
    target = build("llama", layers=4, eos=None)
    head = build_head(target, draft_vocabulary=50, **flags)
    ids, begins = prompt_ids(14), 4
    lesson, logits = taught(target, head.aux_layers, ids, begins)
    table = head.embeddings(target)
    wanted, counted = torch.zeros(STEPS), torch.zeros(STEPS)
    place = {token: i for i, token in enumerate(head.target_ids.tolist())}
    for t in range(len(ids) - 2):
        runner = HeadRunner(head, table, "auto")
        features = runner.project(lesson.features[0, : t + 1])
        draft_logits, state = runner.forward(features, ids[1 : t + 2])
        for step in range(STEPS):
            says = t + 1 + step  # where the target says the token that this step drafts
            if says + 1 >= len(ids):
                break
            best = int(logits[0, says].argmax())
            if says + 1 >= begins and best in place:
                p = logits[0, says][head.target_ids].softmax(-1)
                log_q = draft_logits[0].log_softmax(-1)
                wanted[step] += -(1 - HARD) * (p * log_q).sum() - HARD * log_q[place[best]]
                counted[step] += 1
            if step + 1 < STEPS:
                draft_logits, state = runner.forward(state, [ids[t + 2 + step]])
    expected = sum(DECAY**k * wanted[k] / counted[k] for k in range(STEPS))
    loss, agreement = unrolled_loss(head, table, lesson, logits, STEPS, DECAY, HARD)
    assert len(agreement) == STEPS
    assert loss.item() == pytest.approx(expected.item(), rel=1e-4)


def test_a_head_learns_what_its_target_says() -> None:
    """Guards the direction of the gradient in every step, with the beginning that a real run has."""
    target = build("llama", layers=4, eos=None)
    head = new_head(target, 1)
    lesson, logits = taught(target, head.aux_layers, prompt_ids(60), 1)
    optimizer = torch.optim.AdamW(head.parameters(), lr=0.01)
    shares = []
    for _ in range(60):
        loss, agreement = unrolled_loss(head, head.embeddings(target), lesson, logits, STEPS, DECAY, HARD)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        shares.append(agreement)
    assert all(last > first + 0.3 for first, last in zip(shares[0], shares[-1], strict=True))
