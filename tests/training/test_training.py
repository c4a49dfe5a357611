"""Training on a tiny scale: losses, optimizer, lessons, a run that is killed, the commands and the model card."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from corpus_files import write_corpus

from specdemo import Eagle3Head, load_pair
from specdemo.training.__main__ import main
from specdemo.training.answers import generated
from specdemo.training.drafters import distillation_loss, new_head, train_draft, train_head
from specdemo.training.gguf import write_pair
from specdemo.training.lessons import Lessons
from specdemo.training.loop import Muon, Run, Spent, load_checkpoint, schedule
from specdemo.training.models import build_model, grow, read_model, read_tokenizer
from specdemo.training.recipe import TINY, Rates, Target, recipe_of
from specdemo.training.start import start_copying
from specdemo.training.target import summed_loss, train_target
from specdemo.training.tasks.mixture import domains
from specdemo.training.tasks.stream import TaskStream, task_mask
from specdemo.training.tasks.tokenizer import ASSISTANT_ID, BOS_ID, END_ID

CPU = torch.device("cpu")
RECIPE = recipe_of(TINY.split())


def test_a_grown_model_computes_the_same_and_trains_everywhere() -> None:
    shallow, deep = (build_model(RECIPE.target, layers, 400, 256, layers).eval() for layers in (2, 5))
    grow(shallow, deep)
    text = torch.randint(4, 400, (2, 20))
    logits = deep(text).logits
    torch.testing.assert_close(logits, shallow(text).logits)
    logits.logsumexp(-1).sum().backward()
    assert all(layer.self_attn.o_proj.weight.grad.any() for layer in deep.model.layers)


def test_a_task_sees_no_other_task_of_its_window() -> None:
    model, run = build_model(RECIPE.target, 1, 400, 256, 1), Run(Path(), RECIPE, CPU, torch.float32, print)
    ids = torch.randint(4, 400, (2, 24))
    ids[:, 0] = ids[:, 9] = BOS_ID
    weights = torch.zeros(2, 24)
    weights[:, 10:] = torch.rand(2, 14) + 0.1
    alone = summed_loss(model, ids[:, 9:], weights[:, 9:], run)
    torch.testing.assert_close(summed_loss(model, ids, weights, run), alone)


def test_a_new_target_copies_before_it_is_trained() -> None:
    """Of random tokens said twice, it gives more than half the second time; without that start it gives none."""
    model = build_model(Target(), 2, 3072, 1024, 1).eval()
    text = torch.randint(4, 3072, (4, 40))
    rates = []
    for _ in range(2):
        with torch.no_grad():
            best = model(text.repeat(1, 2)).logits.argmax(-1)
        rates.append((best[:, 45:-1] == text[:, 6:]).float().mean().item())
        start_copying(model)
    assert rates[0] < 0.02
    assert rates[1] > 0.9


def test_distillation_has_its_minimum_at_the_target_and_a_hard_part() -> None:
    """h = 0: the gradient vanishes where the draft is the target. h = 1: only the best token counts."""
    torch.manual_seed(0)
    p, other = torch.randn(3, 70), torch.randn(3, 70)
    q = p.clone().requires_grad_()
    loss = distillation_loss(q, p, 0.0)
    loss.backward()
    assert q.grad.abs().max() < 1e-6
    assert distillation_loss(other, p, 0.0) > loss
    hard = torch.nn.functional.cross_entropy(other, p.argmax(-1)).item()
    assert distillation_loss(other, p, 1.0).item() == pytest.approx(hard, abs=1e-5)


def test_muon_agrees_with_torch() -> None:
    """Ours differs from torch.optim.Muon in precision alone."""
    torch.manual_seed(0)
    start = [torch.randn(6, 10), torch.randn(12, 5), torch.randn(6, 10)]
    ours, theirs = ([torch.nn.Parameter(w.clone()) for w in start] for _ in range(2))
    optimizers = [
        Muon(ours, 0.1, torch.float32),
        torch.optim.Muon(theirs, lr=0.1, weight_decay=0.01, momentum=0.95),
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
    rates = Rates(warmup_steps=10, decay_share=0.2)
    found = [schedule(0, 1.0, rates), schedule(50, 0.5, rates), schedule(90, 0.1, rates), schedule(99, 0.0, rates)]
    assert found == pytest.approx([0.1, 1.0, 0.5, 0.0])


def command(folders: dict[str, Path], stage: str, *more: str) -> None:
    words = [word for name, folder in folders.items() for word in (f"--{name}", str(folder))]
    main([stage, "--tiny", "--no-compile", "--device", "cpu", *words, *more])


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A corpus, and a folder where the command trained a target and made lessons."""
    root = tmp_path_factory.mktemp("training")
    made = {"corpus": write_corpus(root / "corpus"), "work": root / "work"}
    for stage in ("target", "lessons"):
        command(made, stage)
    return made


def test_what_counts_in_a_lesson_are_answers(folders: dict[str, Path]) -> None:
    """A mask one place off would teach drafters to end prompts, and never to end answers."""
    tokenizer = read_tokenizer(folders["work"] / "target")
    stream = TaskStream(domains(folders["corpus"]), RECIPE.shares, tokenizer, 1)
    ids, weights = stream.batch(0, 4, 160)
    assert weights.any()
    for row, counted in zip(ids.tolist(), (weights > 0).tolist(), strict=True):
        for place in range(1, len(row)):
            assert (counted[place] and not counted[place - 1]) == (row[place - 1] == ASSISTANT_ID)
            if counted[place - 1] and not counted[place]:
                assert row[place - 1] == END_ID


def test_a_lesson_holds_what_the_target_computes(folders: dict[str, Path]) -> None:
    """A drafter would learn from states of other tokens, or of other layers, without an error."""
    target = read_model(folders["work"] / "target")
    lessons, layers = Lessons(folders["work"], 1), new_head(target, 1).aux_layers
    assert len(lessons) == 4, "two of the target's texts, two of training tasks"
    seen = set()
    for step in range(len(lessons)):
        lesson = lessons.at(step).to(CPU)
        seen.add(lesson.ids.numpy().tobytes())
        with torch.no_grad():
            output = target(lesson.ids, task_mask(lesson.ids, torch.float32), output_hidden_states=True)
        wanted = torch.cat([output.hidden_states[layer] for layer in layers], dim=-1)
        torch.testing.assert_close(lesson.features, wanted, atol=2e-3, rtol=2e-3)
        torch.testing.assert_close(lesson.says(target.lm_head), output.logits, atol=5e-3, rtol=5e-3)
        assert (lesson.places()[:, :-1] == lesson.learned[:, 1:]).all()
    assert len(seen) == len(lessons), "a pass over the lessons leaves some out"
    before = {path: path.stat().st_mtime_ns for path in folders["work"].rglob("lessons/*")}
    command(folders, "lessons", "--set", "lessons.parts=2")
    after = {path: path.stat().st_mtime_ns for path in folders["work"].rglob("lessons/*")}
    assert before.items() < after.items(), "lessons that are there stay, and more come"


class Killed(Exception):
    pass


@pytest.mark.parametrize("name", ["target", "draft", "head"])
def test_a_run_that_is_killed_ends_as_one_that_was_not(
    name: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    """Killed a step after a checkpoint inside the second phase; all three stages share the loop.

    It goes on with a process of its own for the batches, which must be the same ones.
    """
    tokenizer = read_tokenizer(folders["work"] / "target")
    target, lessons = read_model(folders["work"] / "target"), Lessons(folders["work"], 1)
    tasks = TaskStream(domains(folders["corpus"]), RECIPE.shares, tokenizer, 1)

    def trained(folder: str, log: Callable[[str], None], workers: int = 0) -> tuple[torch.nn.Module, Spent]:
        run = Run(tmp_path / folder, RECIPE, CPU, torch.float32, log, workers, save_every=0.0)
        if name == "target":
            return train_target(tasks, run)
        return train_draft(target, lessons, tasks, run) if name == "draft" else train_head(target, lessons, run)

    def kill(message: str) -> None:
        if "phase 2 of 2" in message:
            raise Killed

    whole, spent = trained("whole", lambda message: None)
    with pytest.raises(Killed):
        trained("killed", kill)
    state = load_checkpoint(tmp_path / "killed" / f"{name}.pt")
    assert state is not None
    assert (state["phase"], state["step"] > 1) == (1, True)
    resumed, longer = trained("killed", lambda message: None, workers=1)
    assert longer.seconds > state["seconds"]
    assert spent.seconds > 0
    assert min(spent.loss, longer.loss) > 0
    for key, weight in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[key], weight), key


def test_a_phase_learns_without_the_domains_that_it_leaves_out(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards the way from the recipe to the batches: stories would drown what is to be learned first."""
    learned: list[set[str]] = []
    documents = TaskStream.documents
    monkeypatch.setattr(
        TaskStream, "documents", lambda *args: learned.append({*args[0].shares}) or documents(*args)
    )
    recipe = recipe_of([*TINY.split(), 'target.phases=[[1,640,160,["chat","stories"]],[1,640]]'])
    stream = TaskStream(domains(folders["corpus"]), recipe.shares, read_tokenizer(folders["work"] / "target"), 1)
    train_target(stream, Run(tmp_path, recipe, CPU, torch.float32, lambda message: None))
    assert learned == [{*recipe.shares} - {"chat", "stories"}, {*recipe.shares}]


def test_drafters_go_on_with_more_tokens_and_the_card_tells_of_every_part(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    """Guards the commands: what is written, what measures it, and that other numbers do not go on."""
    pair = folders["work"]
    (pair / "draft").mkdir()
    (pair / "draft" / "old.safetensors").write_bytes(b"")
    for stage in ("draft", "head"):
        command(folders, stage)
        first = load_checkpoint(pair / f"{stage}.pt")
        command(folders, stage, "--set", f"{stage}.tokens=4000")
        second = load_checkpoint(pair / f"{stage}.pt")
        assert first["step"] < second["step"]
        for other in (f"{stage}.matrix_lr=1", "lessons.answer_tokens=30"):
            with pytest.raises(SystemExit, match=rf"{stage}\.pt is of a run with other numbers; give another"):
                command(folders, stage, "--set", other)
        target = read_model(pair / "target")
        model = Eagle3Head.load(pair / "head", target) if stage == "head" else read_model(pair / "draft")
        name = "fc.weight" if stage == "head" else "model.norm.weight"
        assert torch.equal(model.state_dict()[name].bfloat16(), second["model"][name].bfloat16())
    assert read_model(pair / "draft").config.eos_token_id == END_ID
    assert not (pair / "draft" / "old.safetensors").exists()
    command(folders, "card", "--set", "prompts=1")
    card = (pair / "README.md").read_text(encoding="utf-8")
    for part in (
        *("| EAGLE-3 head | chat |", "| draft model | edit |", "| arithmetic | steps |", "token 4", "### code"),
        *("unseen words | known words |", "| outside | right | 0 of 1 (0%) | 0 of 1 (0%) |"),
        *("**EAGLE-3 head**: 0.004M tokens, ", "0.002048M tokens at 2 layers, ", "loss at the end "),
    ):
        assert part in card
    log = (pair / "log.txt").read_text(encoding="utf-8")
    assert "head: start in float32 on cpu" in log
    loaded = load_pair(" + ".join(str(pair / part) for part in ("target", "draft", "head")))
    assert [path.stem for path in write_pair(loaded, tmp_path, "float32")] == ["target", "draft", "head"]


def test_the_check_reads_a_finished_target_and_a_checkpoint(
    folders: dict[str, Path], tmp_path: Path, capsys
) -> None:
    for pair in ({}, {"pair": tmp_path}):
        command(folders | pair, "check", "--set", "prompts=1")
        assert "| edit | right | 0 of 1 (0%) | 0 of 1 (0%) |" in capsys.readouterr().out
    empty = folders | {"work": tmp_path}
    with pytest.raises(SystemExit, match="holds no finished target"):
        command(empty, "check")
    with pytest.raises(SystemExit, match="holds no finished target; train one first"):
        command(empty, "draft")
    with pytest.raises(SystemExit, match="holds no lessons; run the stage lessons first"):
        command(empty | {"pair": folders["work"]}, "head")


def test_a_long_answer_goes_on_as_if_it_were_written_at_once(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    target, prompts = read_model(folders["work"] / "target"), [[0, 1, 50, 2], [0, 1, 60, 70, 80, 2]]
    whole = generated(target, prompts, 40)
    monkeypatch.setattr("specdemo.training.answers.SHORT", 12)
    assert generated(target, prompts, 40) == whole
    assert max(map(len, whole)) > 12


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("head --device cuda:99", "'cuda:99' is no device of this machine"),
        ("check --threads 0", "threads"),
        ("card --set prompts=0", "prompts: Input should be greater than 0"),
        ("target --set target.decay_share=2", "target.decay_share: Input should be less than or equal to 1"),
        ("target --set target.width=224 target.heads=3", "3 heads do not share a width of 224"),
        ("target --set shares={}", "shares: Dictionary should have at least 1 item"),
        ("target --set shares.poems=1", "shares.poems"),
        ('target --set shares={"chat":1} target.phases=[[2,640,128,["chat"]]]', "in some phase no domain has one"),
        ("target --set shares.chat=-1", "greater than or equal to 0"),
        ("target --set target.phases=[[4,640],[2,640]]", "fewer layers than the one before"),
        ("target --workers -1", "give 0 or more"),
        ("target --set target.width", "no NAME=VALUE"),
        ("target --set target.widht=224", "target.widht: Extra inputs are not permitted"),
        ("target --set seed.x=1", "no NAME=VALUE"),
        ("target --set target.phases=[[8,1e999]]", "target.phases.0.1"),
    ],
)
def test_a_value_that_no_run_can_use_is_refused_in_a_sentence(
    words: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """Guards hours of training against a typing mistake."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["--corpus", ".", *words.split()])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_recipe_is_changed_by_name() -> None:
    made = recipe_of(["shares.chat=0", "target.phases=[[8,4.5e6],[16,6.2e6,128]]", "seed=3"])
    assert (made.shares["chat"], made.shares["edit"], made.seed) == (0, recipe_of([]).shares["edit"], 3)
    assert made.target.phases == ((8, 4_500_000, 1024, ()), (16, 6_200_000, 128, ()))
    assert sum(recipe_of([]).shares.values()) == pytest.approx(1)
