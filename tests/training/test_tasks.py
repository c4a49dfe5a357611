"""The tasks: generators and checkers agree, wrong answers are found out, held-out prompts are never trained on."""

from __future__ import annotations

import copy
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from corpus_files import write_corpus

from specdemo.training import check as check_command
from specdemo.training.loop import Run
from specdemo.training.models import build_model, write_model
from specdemo.training.tasks import __main__ as command
from specdemo.training.tasks import arithmetic, code, data, edit
from specdemo.training.tasks.attention import NAME, causal_attention
from specdemo.training.tasks.chat import Chat
from specdemo.training.tasks.documents import END_OF_TEXT
from specdemo.training.tasks.domains import domains, held_out_tasks
from specdemo.training.tasks.loss import summed_cross_entropy
from specdemo.training.tasks.plan import Phase, Plan, tiny_plan
from specdemo.training.tasks.stream import TaskStream
from specdemo.training.tasks.task import Answer, Domain, Draw, Task, is_held_out
from specdemo.training.tasks.tokenizer import ASSISTANT, END, USER, document, prompt_text, train_tokenizer
from specdemo.training.tasks.train import train

GENERATED = (data, arithmetic, code, edit)
SEEDS = 1000


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def every(corpus: Path) -> dict[str, Domain]:
    return domains(corpus)


@pytest.fixture(scope="module")
def tokenizer(every: dict[str, Domain]):
    plan = tiny_plan()
    return train_tokenizer(every, plan.sample_shares(), 400, plan.context, plan.sample_characters)


def right(domain: Domain, tasks: list[Task], answers: list[Answer]) -> list[bool]:
    """Whether each answer is right in everything that is counted."""
    return [all(a == b for a, b in grade.values()) for grade in domain.grades(tasks, answers)]


@pytest.mark.parametrize("domain", GENERATED, ids=lambda d: d.name)
def test_the_checker_accepts_the_generators_answers(domain: Domain) -> None:
    tasks = [domain.task(Draw(f"{seed}")) for seed in range(SEEDS)]
    assert all(right(domain, tasks, [Answer(t.answer) for t in tasks]))
    assert len({t.prompt for t in tasks}) > 0.95 * SEEDS, "too little variety"


def test_practice_is_never_asked_and_has_no_held_out_sum() -> None:
    """A check that asks what was drilled, or whose sums were practised, would flatter the target."""
    practice = {arithmetic: "equations", edit: "capital words"}
    for domain, kind in practice.items():
        assert any(domain.task(Draw(f"{seed}")).kind == kind for seed in range(100))
        assert not any(task.kind == kind for task in held_out_tasks(domain, 300))
    tasks = [arithmetic.task(Draw(f"{seed}")) for seed in range(300)]
    sums = [s for t in tasks if t.kind == "equations" for s in re.findall(r"(\d+) \+ (\d+) =", t.prompt)]
    assert len(sums) > 100
    assert not any(is_held_out("+", (int(a), int(b))) for a, b in sums)


@pytest.mark.parametrize("domain", GENERATED, ids=lambda d: d.name)
def test_the_checker_rejects_answers_that_are_wrong_or_do_not_end(domain: Domain) -> None:
    """Another task's answer, half an answer, and a right one without its end."""
    tasks = [domain.task(Draw(f"{seed}")) for seed in range(60)]
    others = [Answer(t.answer) for t in tasks[1:] + tasks[:1]]
    halves = [Answer(t.answer[: len(t.answer) // 2]) for t in tasks]
    endless = [Answer(t.answer, ended=False) for t in tasks]
    assert sum(right(domain, tasks, others)) <= 2, "two tasks may ask for the same by chance"
    assert not any(right(domain, tasks, halves))
    assert not any(right(domain, tasks, endless))


@pytest.mark.parametrize("domain", GENERATED, ids=lambda d: d.name)
def test_no_held_out_prompt_is_trained_on(domain: Domain) -> None:
    held_out = {t.prompt for t in held_out_tasks(domain, 300)}
    trained = {domain.task(Draw(f"train {seed}")).prompt for seed in range(3000)}
    assert len(held_out) == 300
    assert not held_out & trained


def test_a_composition_is_on_one_side_whatever_the_seed() -> None:
    """The numbers of a sum, drawn often on both sides: no pair on both, and each side has its share."""

    def pair(draw: Draw) -> tuple[int, int]:
        return draw.new("+", lambda: (draw.number(1, 20), draw.number(1, 20)))

    sides = [{pair(Draw(f"{seed}", side)) for seed in range(800)} for side in (False, True)]
    assert not sides[0] & sides[1]
    assert len(sides[0]) > len(sides[1]) > 30


def test_wrong_steps_and_final_numbers_are_counted_one_by_one() -> None:
    task = Task(
        "word problem", "?", "Ann has 5.\nShe finds 3: 5 + 3 = 8.\nShe loses 2: 8 - 2 = 6.\nThe answer is 6."
    )
    wrong_step = "Ann has 5.\nShe finds 3: 5 + 3 = 9.\nShe loses 2: 9 - 2 = 7.\nThe answer is 7."
    only_final = "The answer is 6."
    grades = arithmetic.grades([task] * 2, [Answer(wrong_step), Answer(only_final)])
    assert grades[0] == {"final number": (0, 1), "steps": (1, 2)}
    assert grades[1] == {"final number": (1, 1), "steps": (0, 2)}


@pytest.mark.parametrize(("a", "b"), [(100, 1), (503, 98), (99, 99), (210, 101), (70, 7), (64, 8)])
def test_sums_are_worked_right_at_carries_and_borrows(a: int, b: int) -> None:
    for worked in (arithmetic.added(a, b), arithmetic.subtracted(a, b), arithmetic.multiplied(a, b % 10 or 1)):
        task = Task("sum", "?", worked)
        assert right(arithmetic, [task], [Answer(worked)]) == [True], worked
    written = re.findall(r"write (\d)", arithmetic.added(a, b))
    assert int("".join(reversed(written))) == a + b
    written = re.findall(r"write (\d)", arithmetic.subtracted(a, b))
    assert int("".join(reversed(written))) == a - b


def test_answers_in_another_layout_are_right() -> None:
    json_task = Task("to JSON", "?", '[\n  {"a": 1, "b": "x"}\n]')
    sql_task = Task("SQL", "?", "SELECT * FROM pets WHERE name = 'Tom';")
    tasks = [json_task, json_task, sql_task, sql_task]
    answers = ['[{"a":1,"b":"x"}]', '[{"a": "1", "b": "x"}]', "select *\nfrom pets where name='Tom'"]
    answers.append("SELECT * FROM pets WHERE name = 'tom';")
    assert right(data, tasks, [Answer(a) for a in answers]) == [True, False, True, False]


def test_code_that_hangs_exits_or_reaches_out_is_wrong_and_the_next_is_still_run() -> None:
    prompt = 'def f(x):\n    """Double.\n\n    >>> f(2)\n    4\n    """'
    good = "def f(x):\n    return x * 2"
    bad = [
        "def f(x):\n    while True:\n        pass",
        "raise SystemExit",
        "import os\ndef f(x):\n    return 4",
        "def f(x):\n    return open('/etc/hostname') and 4",
        "def f(x:",
        "",
    ]
    answers = [Answer(text) for text in (good, bad[0], good, *bad[1:], good)]
    tasks = [Task("function", prompt, good)] * len(answers)
    assert right(code, tasks, answers) == [True, False, True, *[False] * 5, True]


def test_dialogues_are_clean_and_held_out_prompts_have_one_service(corpus: Path) -> None:
    chat = Chat(corpus)
    task = chat.task(Draw("x"))
    assert task.answer == "In which city?"
    assert task.prompt.endswith("."), task.prompt
    assert " ." not in task.prompt
    assert task.more == ("In Oslo.", "I found one.")


def test_chat_answers_that_go_on_as_the_user_or_leave_the_service_are_found(every: dict[str, Domain]) -> None:
    chat = every["chat"]
    task = Task("dialogue", "Find me a flight to Oslo.", "When?")
    texts = ["When do you want to fly?", "Sure.\nUser: Thanks", "Which hotel do you want?", "On which day?"]
    assert right(chat, [task] * 4, [Answer(t) for t in texts]) == [True, False, False, True]
    assert right(chat, [task], [Answer("On which day?", ended=False)]) == [False]


def test_stories_that_loop_are_counted(every: dict[str, Domain]) -> None:
    task = every["stories"].task(Draw("x"))
    varied, looping = Answer("", True, tuple(range(40))), Answer("", True, (1, 2, 3, 4) * 10)
    assert right(every["stories"], [task] * 2, [varied, looping]) == [True, False]


def test_no_held_out_dialogue_or_story_is_trained_on(every: dict[str, Domain]) -> None:
    for name in ("chat", "stories"):
        held_out = {t.prompt for t in held_out_tasks(every[name], 5)}
        trained = {every[name].task(Draw(f"{seed}")).prompt for seed in range(3000)}
        assert not held_out & trained


def test_the_template_gives_what_was_trained_on(tokenizer) -> None:
    """A prompt and a whole dialogue, byte for byte; code comes back with its indentation."""
    task = Task("x", "Hello?", "def f():\n    return  1\n\n\n# 你好", ("More", "Yes."))
    messages = [{"role": "user", "content": task.prompt}]
    asked = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert asked == prompt_text(task) == f"{END_OF_TEXT}{USER}Hello?{ASSISTANT}"
    roles = ("user", "assistant") * 2
    texts = (task.prompt, task.answer, *task.more)
    messages = [{"role": r, "content": t} for r, t in zip(roles, texts, strict=True)]
    assert tokenizer.apply_chat_template(messages, tokenize=False) == document(task)
    ids = tokenizer(task.answer, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids) == task.answer
    assert tokenizer.convert_ids_to_tokens(tokenizer("1234", add_special_tokens=False)["input_ids"]) == list(
        "1234"
    )
    assert tokenizer.eos_token == END


def test_the_stream_is_packed_learns_answers_only_and_keeps_the_shares(
    every: dict[str, Domain], tokenizer
) -> None:
    shares = tiny_plan().shares
    stream = TaskStream(every, shares, tokenizer, 1, answers_only=True)
    batch = stream.batch(3, 16, 256)
    again = TaskStream(every, shares, tokenizer, 1, answers_only=True).batch(3, 16, 256)
    assert torch.equal(batch.ids, again.ids)
    assert not torch.equal(batch.ids, stream.batch(4, 16, 256).ids)
    assert torch.equal(batch.ids[:, 1:], batch.targets[:, :-1])
    for ids, targets, learned in zip(batch.ids, batch.targets, batch.learned, strict=True):
        text = tokenizer.decode(torch.cat([ids[:1], targets]))
        wanted = "".join(re.findall(rf"{re.escape(ASSISTANT)}(.*?{re.escape(END)}|[^<]*$)", text, re.DOTALL))
        assert tokenizer.decode(targets[learned]) == wanted
    made = stream.tasks(5, 40_000)
    assert not {t.prompt for t in made} & {t.prompt for d in every.values() for t in held_out_tasks(d, 5)}
    tokens = dict.fromkeys(shares, 0)
    for i, task in enumerate(made):
        name = next(n for n, d in every.items() if d.task(Draw(f"1 5 {i}")) == task)
        tokens[name] += len(tokenizer(document(task), add_special_tokens=False)["input_ids"])
    for name, share in shares.items():
        assert tokens[name] / sum(tokens.values()) == pytest.approx(share, abs=0.02)


def test_the_fused_loss_is_the_cross_entropy() -> None:
    torch.manual_seed(0)
    hidden, weight = torch.randn(2100, 8, requires_grad=True), torch.randn(30, 8, requires_grad=True)
    targets = torch.randint(0, 30, (2100,))
    (summed_cross_entropy(hidden, weight, targets) / 7).backward()
    grads = hidden.grad.clone(), weight.grad.clone()
    hidden.grad = weight.grad = None
    loss = torch.nn.functional.cross_entropy(hidden @ weight.T, targets, reduction="sum")
    (loss / 7).backward()
    torch.testing.assert_close(summed_cross_entropy(hidden, weight, targets), loss)
    torch.testing.assert_close(grads, (hidden.grad, weight.grad), atol=1e-5, rtol=1e-4)


def test_the_attention_is_pytorchs() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 4, 9, 8), torch.randn(2, 2, 9, 8), torch.randn(2, 2, 9, 8)
    ours, _ = causal_attention(torch.nn.Identity(), q, k, v, None, scaling=8**-0.5)
    theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    torch.testing.assert_close(ours, theirs.transpose(1, 2))
    assert NAME


class Killed(Exception):
    pass


def test_a_run_that_is_killed_ends_as_one_that_was_not(every, tokenizer, tmp_path: Path) -> None:
    """Killed at a checkpoint inside the second, deeper phase."""
    plan = replace(tiny_plan(), check_every=10**9)

    def run(folder: str, log) -> Run:
        return Run(tmp_path / folder, torch.device("cpu"), torch.float32, False, log, 2)

    seen = []

    def kill_after_growing(message: str) -> None:
        seen.append(message)
        if "step 4/4" in message and any("grown" in m for m in seen):
            raise Killed

    whole, seconds = train(plan, every, tokenizer, run("whole", lambda message: None))
    with pytest.raises(Killed):
        train(plan, every, tokenizer, run("broken", kill_after_growing))
    resumed, longer = train(plan, every, tokenizer, run("broken", lambda message: None))
    assert whole.config.num_hidden_layers == plan.phases[-1].layers
    assert min(seconds, longer) > 0
    for name, weight in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], weight), name


def test_the_commands_train_and_check(corpus: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    """Both commands, on a checkpoint and on the finished target; another plan for the same folder is refused."""
    words = ["tasks", "--tiny", "--no-compile", "--corpus", str(corpus), "--out", str(tmp_path), "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", words)
    command.main()
    log = (tmp_path / "log.txt").read_text(encoding="utf-8")
    assert "held-out loss, edit" in log
    assert "| arithmetic | steps |" in log
    config = json.loads((tmp_path / "target" / "config.json").read_text(encoding="utf-8"))
    assert " layers, 0.0 hours on " in config["training_note"]
    for folder in (tmp_path, tmp_path / "target"):
        words = ["check", str(folder), "--corpus", str(corpus), "--prompts", "2", "--domains", "chat", "edit"]
        monkeypatch.setattr(sys, "argv", words)
        check_command.main()
        assert "| edit | right | 0 | 2 |" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="other phases"):
        command.keep_plan(replace(tiny_plan(), phases=(Phase(3, 2048),)), tmp_path)
    with pytest.raises(SystemExit, match=r"chat\.txt\.gz; give"):
        domains(tmp_path)
    with pytest.raises(SystemExit, match="holds neither"):
        check_command.read_target(tmp_path / "tokenizer")


def test_a_run_begins_with_a_finished_target(
    every, tokenizer, corpus: Path, tmp_path: Path, monkeypatch, capsys
) -> None:
    """Its weights and tokenizer are taken, its note goes on; layers of another shape are refused."""
    plan = tiny_plan()
    shape = replace(plan.shape(), vocab_size=len(tokenizer))
    start = build_model(shape, 1, 5)
    write_model(start, tokenizer, tmp_path / "start", "1M tokens.")
    plan = replace(plan, vocab_size=len(tokenizer), phases=(Phase(2, 512),), check_every=10**9)
    read = command.read_start(tmp_path / "start", plan)
    begun = []
    monkeypatch.setattr(
        "specdemo.training.tasks.train.Trainer.steps", lambda self: begun.append(copy.deepcopy(self._model)) or []
    )
    words = ["tasks", "--tiny", "--no-compile", "--corpus", str(corpus), "--out", str(tmp_path / "run")]
    monkeypatch.setattr(sys, "argv", [*words, "--device", "cpu", "--start", str(tmp_path / "start")])
    monkeypatch.setattr(command, "tiny_plan", lambda: plan)
    command.main()
    for layer in begun[0].model.layers:  # both began as the start's only one
        for name, weight in layer.state_dict().items():
            assert torch.equal(weight, read.model.layers[0].state_dict()[name])
    config = json.loads((tmp_path / "run" / "target" / "config.json").read_text(encoding="utf-8"))
    assert config["training_note"].startswith(
        "1M tokens. From that target: 0.000512M tokens at 2 layers, 0.0 hours on "
    )
    with pytest.raises(SystemExit, match=r"are \(32, 2, 64, \d+\), the plan's are \(64, "):
        command.read_start(tmp_path / "start", replace(plan, width=64))
    with pytest.raises(SystemExit, match=r"no config\.json; give"):
        command.read_start(tmp_path, plan)
    for text in ("8", "8:", "0:1e6", "8:many", "8:inf"):
        monkeypatch.setattr(sys, "argv", [*words, "--phases", text])
        with pytest.raises(SystemExit):
            command.main()
        assert f"{text!r} is not LAYERS:TOKENS, such as 8:40e6." in capsys.readouterr().err


def test_the_shares_sum_to_one() -> None:
    assert sum(Plan().shares.values()) == pytest.approx(1.0)
    assert sum(Plan().sample_shares().values()) == pytest.approx(1.0)
    assert set(Plan().shares) == set(Plan().sample_shares())
