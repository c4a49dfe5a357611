"""The tasks: generators and checkers agree, wrong answers are found out, held-out prompts are never trained on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from corpus_files import write_corpus

from specdemo.training.recipe import TINY, recipe_of
from specdemo.training.tasks import arithmetic
from specdemo.training.tasks.corpus import END_OF_TEXT
from specdemo.training.tasks.mixture import domains, held_out_tasks
from specdemo.training.tasks.stream import TaskStream
from specdemo.training.tasks.task import Answer, Domain, Draw, Task, is_held_out
from specdemo.training.tasks.tokenizer import ASSISTANT, END, USER, document, prompt_text, train_tokenizer

GENERATED = ("data", "arithmetic", "code", "edit")
TINY_RECIPE = recipe_of(TINY.split())


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Domain]:
    return domains(write_corpus(tmp_path_factory.mktemp("corpus")))


@pytest.fixture(scope="module")
def tokenizer(every: dict[str, Domain]):
    return train_tokenizer(every, TINY_RECIPE.target)


def right(domain: Domain, tasks: list[Task], answers: list[Answer]) -> list[bool]:
    """Whether each answer is right in everything that is counted."""
    return [all(a == b for a, b in grade.values()) for grade in domain.grades(tasks, answers)]


@pytest.mark.parametrize("name", GENERATED)
def test_a_checker_accepts_the_generators_answers_and_rejects_others(name: str, every: dict[str, Domain]) -> None:
    """Others: another task's answer, half an answer, and a right one without its end."""
    domain = every[name]
    tasks = [domain.task(Draw(f"{seed}")) for seed in range(1000)]
    assert all(right(domain, tasks, [Answer(t.answer) for t in tasks]))
    assert len({t.prompt for t in tasks}) > 950, "too little variety"
    tasks = tasks[:60]
    assert sum(right(domain, tasks, [Answer(t.answer) for t in tasks[1:] + tasks[:1]])) <= 2, "two may be the same"
    assert not any(right(domain, tasks, [Answer(t.answer[: len(t.answer) // 2]) for t in tasks]))
    assert not any(right(domain, tasks, [Answer(t.answer, ended=False) for t in tasks]))


@pytest.mark.parametrize("name", [*GENERATED, "chat", "stories"])
def test_no_held_out_prompt_is_trained_on(name: str, every: dict[str, Domain]) -> None:
    count = 300 if name in GENERATED else 5
    held_out = {t.prompt for t in held_out_tasks(name, every[name], count)}
    assert len(held_out) == count
    assert not held_out & {every[name].task(Draw(f"train {seed}")).prompt for seed in range(3000)}


def test_held_out_prompts_stay_the_same(every: dict[str, Domain]) -> None:
    """The model card counts right answers to these: with others, two cards could not be compared."""
    first = {name: held_out_tasks(name, every[name], 1)[0].prompt.split("\n")[0] for name in GENERATED}
    assert first == {
        "data": "Write a query for students(student, subject, grade, passed).",
        "arithmetic": "Hugo shares 28 buttons evenly among 7 friends. How many does each friend get?",
        "code": "Write this function.",
        "edit": "- 4 cookies",
    }


def test_practice_is_never_asked_and_has_no_held_out_sum(every: dict[str, Domain]) -> None:
    """A check that asks what was drilled, or whose sums were practised, would flatter the target."""
    for name, kind in {"arithmetic": "equations", "edit": "capital words"}.items():
        assert any(every[name].task(Draw(f"{seed}")).kind == kind for seed in range(100))
        assert not any(task.kind == kind for task in held_out_tasks(name, every[name], 300))
    tasks = [every["arithmetic"].task(Draw(f"{seed}")) for seed in range(300)]
    sums = [s for t in tasks if t.kind == "equations" for s in re.findall(r"(\d+) \+ (\d+) =", t.prompt)]
    assert len(sums) > 100
    assert not any(is_held_out("+", (int(a), int(b))) for a, b in sums)


def test_wrong_steps_and_final_numbers_are_counted_one_by_one() -> None:
    task = Task("word problem", "?", "Ann has 5.\n5 + 3 = 8.\n8 - 2 = 6.\nThe answer is 6.")
    answers = [Answer("Ann has 5.\n5 + 3 = 9.\n9 - 2 = 7.\nThe answer is 7."), Answer("The answer is 6.")]
    wrong_step, only_final = arithmetic.grades([task] * 2, answers)
    assert wrong_step == {"final number": (0, 1), "steps": (1, 2)}
    assert only_final == {"final number": (1, 1), "steps": (0, 2)}


@pytest.mark.parametrize(("a", "b"), [(100, 1), (503, 98), (99, 99), (210, 101), (70, 7), (64, 8)])
def test_sums_are_worked_right_at_carries_and_borrows(a: int, b: int) -> None:
    for work, result in ((arithmetic.added, a + b), (arithmetic.subtracted, a - b)):
        digits = re.findall(r"write (\d)", "\n".join(work(a, b)))
        assert int("".join(reversed(digits))) == result
    for steps in (arithmetic.added(a, b), arithmetic.subtracted(a, b), arithmetic.multiplied(a, b % 10 or 1)):
        text = "\n".join([*steps, "The answer is 1."])
        (grade,) = arithmetic.grades([Task("sum", "?", text)], [Answer(text)])
        assert grade["steps"][0] == grade["steps"][1], text


def test_answers_in_another_layout_are_right(every: dict[str, Domain]) -> None:
    json_task = Task("to JSON", "?", '[\n  {"a": 1, "b": "x"}\n]')
    sql_task = Task("SQL", "?", "SELECT * FROM pets WHERE name = 'Tom';")
    answers = ['[{"a":1,"b":"x"}]', '[{"a": "1", "b": "x"}]', "select *\nfrom pets where name='Tom'"]
    answers.append("SELECT * FROM pets WHERE name = 'tom';")
    tasks = [json_task, json_task, sql_task, sql_task]
    assert right(every["data"], tasks, [Answer(a) for a in answers]) == [True, False, True, False]


def test_code_that_hangs_exits_or_reaches_out_is_wrong_and_the_next_is_still_run(every: dict[str, Domain]) -> None:
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
    assert right(every["code"], tasks, answers) == [True, False, True, *[False] * 5, True]


def test_dialogues_are_clean_and_answers_that_leave_them_are_found(every: dict[str, Domain]) -> None:
    task = every["chat"].task(Draw("x"))
    assert (task.answer, task.more) == ("In which city?", ("In Oslo.", "I found one."))
    assert task.prompt.endswith(".")
    assert " ." not in task.prompt
    task = Task("dialogue", "Find me a flight to Oslo.", "When?")
    texts = ["When do you want to fly?", "Sure.\nUser: Thanks", "Which hotel do you want?", "On which day?"]
    assert right(every["chat"], [task] * 4, [Answer(t) for t in texts]) == [True, False, False, True]
    assert right(every["chat"], [task], [Answer("On which day?", ended=False)]) == [False]


def test_stories_that_loop_are_counted(every: dict[str, Domain]) -> None:
    task = every["stories"].task(Draw("x"))
    varied, looping = Answer("", True, tuple(range(40))), Answer("", True, (1, 2, 3, 4) * 10)
    assert right(every["stories"], [task] * 2, [varied, looping]) == [True, False]


def test_the_template_gives_what_was_trained_on(tokenizer) -> None:
    """A prompt and a whole dialogue, byte for byte; code comes back with its indentation."""
    task = Task("x", "Hello?", "def f():\n    return  1\n\n\n# 你好", ("More", "Yes."))
    texts = zip(("user", "assistant") * 2, (task.prompt, task.answer, *task.more), strict=True)
    messages = [{"role": role, "content": text} for role, text in texts]
    asked = tokenizer.apply_chat_template(messages[:1], tokenize=False, add_generation_prompt=True)
    assert asked == prompt_text(task) == f"{END_OF_TEXT}{USER}Hello?{ASSISTANT}"
    assert tokenizer.apply_chat_template(messages, tokenize=False) == document(task)
    assert tokenizer.decode(tokenizer(task.answer, add_special_tokens=False)["input_ids"]) == task.answer
    digits = tokenizer("1234", add_special_tokens=False)["input_ids"]
    assert tokenizer.convert_ids_to_tokens(digits) == list("1234")
    assert tokenizer.eos_token == END


def test_the_stream_is_packed_learns_answers_only_and_keeps_the_shares(
    every: dict[str, Domain], tokenizer
) -> None:
    shares = TINY_RECIPE.shares | {"chat": 0.0}
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
    tokens = dict.fromkeys(shares, 0)
    for i, task in enumerate(stream.tasks(5, 40_000)):
        name = next(n for n, d in every.items() if d.task(Draw(f"1 5 {i}")) == task)
        tokens[name] += len(tokenizer(document(task), add_special_tokens=False)["input_ids"])
    for name, share in shares.items():
        assert tokens[name] / sum(tokens.values()) == pytest.approx(share / sum(shares.values()), abs=0.02)


def test_a_corpus_without_its_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"chat\.txt\.gz; give"):
        domains(tmp_path)
