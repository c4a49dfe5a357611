"""The training machinery, on a corpus of a few sentences; the real run is the model card's."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import pytest
import torch

from specdemo.training.__main__ import main
from specdemo.training.corpus import Windows, as_dialogue, load_streams, split, training_texts
from specdemo.training.distill import distillation_loss
from specdemo.training.labels import generated, labelled, likeliest_tokens, load, save
from specdemo.training.loop import Run, schedule
from specdemo.training.muon import Muon
from specdemo.training.pretrain import build_model, grown, pretrain
from specdemo.training.recipe import END_OF_TEXT, Recipe, Source, tiny_recipe
from specdemo.training.tokenizer import train_tokenizer


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the form the recipe reads, 100 short documents a file."""
    folder = tmp_path_factory.mktemp("corpus")
    for source in tiny_recipe().sources:
        for name in source.files:
            documents = [
                f"User: Question {i} of {name}?\nAssistant: It is {i}. So it goes, and goes on.\n" * 4
                for i in range(100)
            ]
            with gzip.open(folder / name, "wt", encoding="utf-8") as file:
                file.write(f"{END_OF_TEXT}\n".join(documents))
    return folder


def test_every_fiftieth_document_is_held_out_and_never_trained_on() -> None:
    """A leak would make the card's held-out loss a lie."""
    train, held_out = split([str(i) for i in range(120)])
    assert held_out == ["0", "50", "100"]
    assert not set(train) & set(held_out)
    assert len(train) + len(held_out) == 120


def test_wrapping_loses_no_text() -> None:
    """A wrapped document is the same words behind User: and Assistant:."""
    import random

    story = "Once there was a fox. It ran. It slept."
    wrapped = as_dialogue(story, "sentence", random.Random(0))
    assert wrapped.startswith("User: ")
    assert wrapped.split("Assistant: ")[1] in story
    source = Source(("x.txt.gz",), "code", 1.0, 1.0, wrap="lines")
    code = "import os\n\ndef f():\n    return 1\n"
    assert any("def f" in t for t in training_texts([code] * 4, source, seed=0))


def test_batches_depend_on_the_step_alone(corpus: Path, tmp_path: Path) -> None:
    """A resumed run must see what the uninterrupted one would have seen."""
    recipe = tiny_recipe()
    tokenizer = train_tokenizer(corpus, recipe)
    streams = load_streams(corpus, tokenizer, recipe, tmp_path)
    shares = [s.source.share for s in streams]
    first = Windows(streams, shares, 1)
    again = Windows(load_streams(corpus, tokenizer, recipe, tmp_path), shares, 1)
    assert torch.equal(first.batch(7, 4, 33), again.batch(7, 4, 33))
    assert not torch.equal(first.batch(7, 4, 33), first.batch(8, 4, 33))


def test_the_tokenizer_keeps_any_text_and_splits_digits(corpus: Path) -> None:
    """Byte level: nothing is unknown; digits one by one."""
    tokenizer = train_tokenizer(corpus, tiny_recipe())
    text = "def f(x):\n    return 1234  # 你好 🙂"
    ids = tokenizer(text)["input_ids"]
    assert ids[0] == tokenizer.bos_token_id
    assert tokenizer.decode(ids[1:]) == text
    assert {"1", "2", "3", "4"} <= set(tokenizer.convert_ids_to_tokens(ids))
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": " Hi "}], tokenize=False, add_generation_prompt=True
    )
    assert chat == f"{END_OF_TEXT}User: Hi\nAssistant:"


def test_a_grown_model_repeats_the_trained_layers() -> None:
    """Depth growth by stacking: layer i of the deep model is layer i mod n of the shallow one."""
    recipe = tiny_recipe()
    shallow = build_model(recipe.target, 2, recipe)
    deep = grown(shallow, recipe.target, 5, recipe)
    for i, layer in enumerate(deep.model.layers):
        for name, weight in layer.state_dict().items():
            assert torch.equal(weight, shallow.model.layers[i % 2].state_dict()[name])
    assert torch.equal(deep.model.embed_tokens.weight, shallow.model.embed_tokens.weight)


def test_training_resumes_where_it_was_stopped(corpus: Path, tmp_path: Path) -> None:
    """A run killed after a checkpoint ends with the same weights as one that was not."""
    recipe = tiny_recipe()
    tokenizer = train_tokenizer(corpus, recipe)
    streams = load_streams(corpus, tokenizer, recipe, tmp_path / "tokens")
    windows = Windows(streams, [s.source.share for s in streams], recipe.seed)

    class Killed(Exception):
        pass

    def kill_in_the_second_phase(message: str) -> None:
        if "grown" in message:
            raise Killed

    def run(folder: str, log: object) -> Run:
        return Run(tmp_path / folder, torch.device("cpu"), torch.float32, False, log, recipe.checkpoint_every)

    arguments = ("target", recipe.target, recipe.target_phases, windows, recipe)
    whole = pretrain(*arguments, run("whole", lambda message: None))
    with pytest.raises(Killed):
        pretrain(*arguments, run("broken", kill_in_the_second_phase))
    resumed = pretrain(*arguments, run("broken", lambda message: None))
    for name, weight in whole.state_dict().items():
        torch.testing.assert_close(resumed.state_dict()[name], weight)


def test_distillation_has_its_minimum_at_the_target() -> None:
    """The loss is lowest where the draft predicts what the target does; its gradient vanishes there (h = 0)."""
    torch.manual_seed(0)
    p = torch.randn(1, 3, 70)
    likeliest, probabilities = likeliest_tokens(p)
    assert likeliest.shape[-1] < p.shape[-1], "the truncated case must be the one under test"
    label = likeliest.long(), probabilities.float()
    q = p.clone().requires_grad_()
    loss = distillation_loss(q, *label, 0.0)
    loss.backward()
    assert q.grad.abs().max() < 1e-4
    assert distillation_loss(p + torch.randn(1, 3, 70), *label, 0.0) > loss


def test_the_hard_part_is_the_cross_entropy_to_the_best_token() -> None:
    """With h = 1 the loss is the cross entropy to the target's own choice, first among the kept tokens."""
    torch.manual_seed(0)
    p, q = torch.randn(1, 3, 70), torch.randn(1, 3, 70)
    likeliest, probabilities = likeliest_tokens(p)
    loss = distillation_loss(q, likeliest.long(), probabilities.float(), 1.0)
    assert loss == pytest.approx(torch.nn.functional.cross_entropy(q[0], p[0].argmax(-1)).item(), abs=1e-5)


def test_labels_hold_the_targets_distribution_at_every_position(tmp_path: Path) -> None:
    """A shift by one, or the wrong row, would teach the draft nonsense; what is stored comes back."""
    recipe = tiny_recipe()
    teacher = build_model(recipe.target, 2, recipe).eval()
    prompts = torch.randint(0, 320, (4, 9), generator=torch.Generator().manual_seed(0))
    labels = generated(teacher, prompts, 32, 0, torch.Generator().manual_seed(0))
    with torch.no_grad():
        logits = teacher(labels.ids.long()).logits
    assert torch.equal(labels.ids[:, :9].long(), prompts)
    assert torch.equal(labels.likeliest[..., 0].long(), logits.argmax(-1))
    torch.testing.assert_close(
        labels.probabilities.float(), logits.softmax(-1).gather(-1, labels.likeliest.long()), atol=1e-3, rtol=0
    )
    greedy = labels.ids[0, 9:].long()
    assert torch.equal(greedy, logits[0, 8:-1].argmax(-1)), "the first row is greedy"
    again = labelled(teacher, labels.ids.long())
    assert torch.equal(again.likeliest[..., 0], labels.likeliest[..., 0])
    save(labels, tmp_path / "x.npz")
    stored = load(tmp_path / "x.npz")
    assert torch.equal(stored.ids, labels.ids)
    assert torch.equal(stored.likeliest, labels.likeliest)
    assert torch.equal(stored.probabilities, labels.probabilities)


def test_muon_agrees_with_torch() -> None:
    """Ours differs from torch.optim.Muon in precision alone."""
    torch.manual_seed(0)
    start = [torch.randn(6, 10), torch.randn(12, 5), torch.randn(6, 10)]
    ours, theirs = ([torch.nn.Parameter(w.clone()) for w in start] for _ in range(2))
    optimizers = [
        Muon(ours, 0.1, torch.float32, weight_decay=0.5),
        torch.optim.Muon(theirs, lr=0.1, weight_decay=0.5, momentum=0.95),
    ]
    for _ in range(3):
        for a, b in zip(ours, theirs, strict=True):
            a.grad = torch.randn_like(a)
            b.grad = a.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=0.02, rtol=0)


def test_the_learning_rate_warms_up_holds_and_falls_to_zero() -> None:
    """Guards the order of the three parts."""
    assert schedule(0, 1000, 0.2, 0, 10) == pytest.approx(0.1)
    assert schedule(500, 1000, 0.2, 50, 10) == 1.0
    assert schedule(900, 1000, 0.2, 90, 10) == pytest.approx(0.5)
    assert schedule(1000, 1000, 0.2, 99, 10) == 0.0


def trained(corpus: Path, work: Path, out: Path, *more: str) -> None:
    """``python -m specdemo.training``, in this process."""
    words = ["--tiny", "--no-compile", "--device", "cpu", "--corpus", str(corpus), "--work", str(work)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["training", *words, "--out", str(out), *more])
        main()


@pytest.fixture(scope="module")
def pair(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the whole command wrote."""
    folder = tmp_path_factory.mktemp("trained")
    trained(corpus, folder / "work", folder / "out")
    return folder / "out"


def test_the_whole_command_makes_a_pair_that_races(pair: Path) -> None:
    """Every stage of ``python -m specdemo.training`` in one go, weights, tokenizer and card included."""
    card = (pair / "README.md").read_text(encoding="utf-8")
    for part in ("Held-out loss", "| chat |", "## Samples", "GSM8K"):
        assert part in card
    assert list((pair / "target").glob("*.safetensors"))
    assert list((pair / "draft").glob("*.safetensors"))


def test_the_recipe_shares_sum_to_one() -> None:
    """Shares are the card's promise of the mix."""
    assert sum(s.share for s in Recipe().sources) == pytest.approx(1.0)
    assert sum(s.draft_share for s in Recipe().sources) == pytest.approx(1.0)


def test_a_draft_is_trained_for_a_finished_target(corpus: Path, pair: Path, tmp_path: Path) -> None:
    """``--target`` keeps the target's files as they are and writes a draft of its vocabulary."""
    target = pair / "target"
    before = {p.name: p.read_bytes() for p in target.iterdir()}
    trained(corpus, tmp_path / "work", tmp_path / "out", "--target", str(target))
    assert {p.name: p.read_bytes() for p in target.iterdir()} == before
    assert not (tmp_path / "work" / "target.pt").exists()
    assert list((tmp_path / "out" / "draft").glob("*.safetensors"))
    for folder in (pair, tmp_path / "out"):
        assert "each depth started from a copy" in (folder / "README.md").read_text(encoding="utf-8")
