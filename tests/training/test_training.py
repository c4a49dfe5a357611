"""The training machinery, on a corpus of a few sentences; the real run is the model card's."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from corpus_files import write_corpus
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

import specdemo.training.__main__ as command
import specdemo.training.tasks.__main__ as tasks_command
from specdemo import Eagle3Head
from specdemo.training import check
from specdemo.training.draft import distillation_loss
from specdemo.training.head import new_head
from specdemo.training.lessons import Lessons, of_tasks, says
from specdemo.training.loop import load_checkpoint, schedule
from specdemo.training.models import build_model, grown, read_model, write_model
from specdemo.training.muon import Muon
from specdemo.training.recipe import tiny_recipe
from specdemo.training.tasks.documents import split
from specdemo.training.tasks.domains import domains
from specdemo.training.tasks.plan import tiny_plan
from specdemo.training.tasks.stream import TaskStream
from specdemo.training.tasks.tokenizer import ASSISTANT_ID, END_ID, train_tokenizer


def test_every_fiftieth_document_is_held_out_and_never_trained_on() -> None:
    """A leak would make the card's right answers a lie."""
    train, held_out = split([str(i) for i in range(120)])
    assert held_out == ["0", "50", "100"]
    assert not set(train) & set(held_out)
    assert len(train) + len(held_out) == 120


def test_a_grown_model_repeats_the_trained_layers() -> None:
    """Depth growth by stacking: layer i of the deep model is layer i mod n of the shallow one."""
    shape = tiny_plan().shape()
    shallow = build_model(shape, 2, 1)
    deep = grown(shallow, shape, 5, 1)
    for i, layer in enumerate(deep.model.layers):
        for name, weight in layer.state_dict().items():
            assert torch.equal(weight, shallow.model.layers[i % 2].state_dict()[name])
    assert torch.equal(deep.model.embed_tokens.weight, shallow.model.embed_tokens.weight)


def test_distillation_has_its_minimum_at_the_target() -> None:
    """The loss is lowest where the draft predicts what the target does; its gradient vanishes there (h = 0)."""
    torch.manual_seed(0)
    p = torch.randn(3, 70)
    q = p.clone().requires_grad_()
    loss = distillation_loss(q, p, 0.0)
    loss.backward()
    assert q.grad.abs().max() < 1e-6
    assert distillation_loss(p + torch.randn(3, 70), p, 0.0) > loss


def test_the_hard_part_is_the_cross_entropy_to_the_best_token() -> None:
    """With h = 1 the loss is the cross entropy to the target's own choice."""
    torch.manual_seed(0)
    p, q = torch.randn(3, 70), torch.randn(3, 70)
    expected = torch.nn.functional.cross_entropy(q, p.argmax(-1)).item()
    assert distillation_loss(q, p, 1.0).item() == pytest.approx(expected, abs=1e-5)


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


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A pair's folder with an untrained target, a corpus, and a folder for checkpoints."""
    plan, root = tiny_plan(), tmp_path_factory.mktemp("drafters")
    made = {name: root / name for name in ("pair", "corpus", "work")}
    every = domains(write_corpus(made["corpus"]))
    tokenizer = train_tokenizer(every, plan.sample_shares(), plan.vocab_size, plan.context, plan.sample_characters)
    write_model(build_model(plan.shape(), 4, 1), tokenizer, made["pair"] / "target", "none")
    return made


def test_what_counts_in_a_lesson_are_answers(folders: dict[str, Path]) -> None:
    """A mask one place off would teach drafters to end prompts, and never to end answers."""
    recipe, tokenizer = tiny_recipe(1.0), PreTrainedTokenizerFast.from_pretrained(folders["pair"] / "target")
    stream = TaskStream(domains(folders["corpus"]), tiny_plan().shares, tokenizer, 1, answers_only=True)
    ids, answers = of_tasks(stream, 0, recipe)
    assert answers.any()
    for row, counted in zip(ids.tolist(), answers.tolist(), strict=True):
        for place in range(1, len(row)):
            begins = counted[place] and not counted[place - 1]
            assert begins == (row[place - 1] == ASSISTANT_ID)
            if counted[place - 1] and not counted[place]:
                assert row[place - 1] == END_ID


@pytest.fixture(scope="module")
def taught(folders: dict[str, Path]) -> dict[str, Path]:
    """The folders, with lessons."""
    with pytest.MonkeyPatch.context() as patch:
        _command(patch, folders, "lessons", "--minutes", "0.02")
    return folders


def test_a_lesson_holds_what_the_target_computes(taught: dict[str, Path]) -> None:
    """A drafter would learn from states of other tokens, or of other layers, without an error."""
    target, recipe = read_model(taught["pair"] / "target"), tiny_recipe(1.0)
    lessons, taps = Lessons(taught["work"], recipe), new_head(target, recipe).taps
    assert len(lessons) >= 3
    seen = set()
    for step in range(len(lessons)):
        lesson = lessons.at(step, torch.device("cpu"))
        seen.add(lesson.ids.numpy().tobytes())
        with torch.no_grad():
            output = target(lesson.ids, output_hidden_states=True)
        wanted = torch.cat([output.hidden_states[tap] for tap in taps], dim=-1)
        torch.testing.assert_close(lesson.features, wanted, atol=2e-3, rtol=2e-3)
        torch.testing.assert_close(says(target.lm_head, lesson.hidden), output.logits, atol=5e-3, rtol=5e-3)
        assert (lesson.places()[:, :-1] == lesson.learned[:, 1:]).all()
    assert len(seen) == len(lessons), "a pass over the lessons leaves some out"


@pytest.mark.parametrize("stage", ["lessons", "draft", "head"])
def test_a_stage_goes_on_where_it_stopped(
    stage: str, taught: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards the command: checkpoints, lessons that stay, and the weights that are written."""

    def start(minutes: str) -> dict:
        _command(monkeypatch, taught, stage, "--minutes", minutes)
        return load_checkpoint(taught["work"] / f"{stage}.pt")

    before = {path: path.stat().st_mtime_ns for path in taught["work"].rglob("*.npz")}
    first, second = start("0.02"), start("0.05")
    after = {path: path.stat().st_mtime_ns for path in taught["work"].rglob("*.npz")}
    assert before.items() <= after.items()
    if stage == "lessons":
        assert len(after) > len(before)
        return
    assert 1 <= first["step"] < second["step"]
    assert second["seconds"] > first["seconds"]
    target = read_model(taught["pair"] / "target")
    if stage == "head":
        name, model = "fc.weight", Eagle3Head.load(taught["pair"] / "head", target)
    else:
        name, model = "model.norm.weight", read_model(taught["pair"] / "draft")
        assert model.config.eos_token_id == target.config.eos_token_id
    assert torch.equal(model.state_dict()[name].bfloat16(), second["model"][name].bfloat16())


def test_drafters_need_lessons(taught: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match="holds no lessons; run the stage lessons first"):
        _command(monkeypatch, taught | {"work": tmp_path}, "draft")


def test_the_card_tells_of_every_part(taught: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the stage that measures what is shipped."""
    for stage in ("draft", "head", "card"):
        _command(monkeypatch, taught, stage, "--minutes", "0.01", "--prompts", "1")
    card = (taught["pair"] / "README.md").read_text(encoding="utf-8")
    for part in (
        "| EAGLE-3 head | chat |",
        "| draft model | edit |",
        "| arithmetic | steps |",
        "token 4",
        "### code",
        "**EAGLE-3 head**: 0.01 minutes on",
    ):
        assert part in card


def test_a_folder_without_a_target_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    with pytest.raises(SystemExit):
        _command(monkeypatch, {"pair": tmp_path, "corpus": tmp_path, "work": tmp_path}, "draft")
    assert "has no target/config.json; train a target first" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("module", "words", "said"),
    [
        (command, "draft --minutes nan", "'nan' is no number above 0"),
        (command, "lessons --minutes -1", "'-1' is no number above 0"),
        (command, "card --prompts 0", "'0' is no whole number of 1 or more"),
        (command, "head --device cuda:99", "'cuda:99' is no device of this machine"),
        (command, "lessons --work FILE", "is a file; give a folder"),
        (check, "FOLDER --threads 0", "'0' is no whole number"),
        (tasks_command, "--decay 2", "'2' is more than 1"),
        (tasks_command, "--batch 0", "'0' is no whole number"),
        (tasks_command, "--width 224 --heads 3", "3 of them do not share a width of 224"),
        (tasks_command, "--shares {}", "none above 0; use JSON such as"),
        (tasks_command, '--shares {"chat":-1,"edit":2}', "holds what is no share"),
        (tasks_command, "--shares chat", "is no object"),
        (tasks_command, '--shares {"poems":1}', "no domain is called poems; use chat"),
    ],
)
def test_a_value_that_no_run_can_use_is_refused_in_a_sentence(
    module: ModuleType, words: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """Guards hours of training, and the records of finished drafters, against a typing mistake."""
    (tmp_path / "FILE").touch()
    folder = ["--out", "run"] if module is tasks_command else [] if module is check else ["--pair", "."]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["training", *words.split(), *folder, "--corpus", "."])
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["FILE"]


def _command(monkeypatch: pytest.MonkeyPatch, folders: dict[str, Path], stage: str, *more: str) -> None:
    words = [word for name, folder in folders.items() for word in (f"--{name}", str(folder))]
    monkeypatch.setattr(sys, "argv", ["training", stage, "--tiny", "--device", "cpu", *words, *more])
    command.main()


def test_a_written_model_is_read_again(folders: dict[str, Path], tmp_path: Path) -> None:
    """Guards that an older run's files in the folder do not stay beside the new ones."""
    (tmp_path / "old.safetensors").write_bytes(b"")
    model = build_model(tiny_plan().shape(), 2, 1)
    write_model(model, PreTrainedTokenizerFast.from_pretrained(folders["pair"] / "target"), tmp_path, "a note")
    again = LlamaForCausalLM.from_pretrained(tmp_path)
    assert again.config.training_note == "a note"
    assert not (tmp_path / "old.safetensors").exists()
