"""The tasks: generators and checkers agree, held-out words and prompts are never trained on; the tokenizer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from corpus_files import ODD_TEXTS, write_corpus

from specdemo.decoding.detokenizer import Detokenizer
from specdemo.training.recipe import TINY, recipe_of
from specdemo.training.tasks import arithmetic, chat, data
from specdemo.training.tasks.corpus import END_OF_TEXT, TEMPLATES
from specdemo.training.tasks.mixture import ASKED, Domain, domains, held_out_tasks
from specdemo.training.tasks.stream import NEW_WEIGHT, TaskStream, weights_of
from specdemo.training.tasks.task import Answer, Draw, Task, is_held_out
from specdemo.training.tasks.tokenizer import ASSISTANT, END, USER, document, prompt_text, train_tokenizer

EXACT = ("data", "arithmetic", "code", "edit", "copy", "outside")
TINY_RECIPE = recipe_of(TINY.split())


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Domain]:
    return domains(write_corpus(tmp_path_factory.mktemp("corpus")))


@pytest.fixture(scope="module")
def tokenizer(every: dict[str, Domain]):
    return train_tokenizer(every, TINY_RECIPE.target)


def right(domain: Domain, tasks: list[Task], answers: list[Answer]) -> list[bool]:
    """Whether each answer is right in everything that is counted."""
    return [
        all(map(all, domain.grade(task, answer).values())) for task, answer in zip(tasks, answers, strict=True)
    ]


@pytest.mark.parametrize("name", EXACT)
def test_a_checker_accepts_the_generators_answers_and_rejects_others(name: str, every: dict[str, Domain]) -> None:
    """Others: another task's answer, half an answer, and a right one without its end."""
    domain = every[name]
    tasks = [domain.task(f"{seed}") for seed in range(600)]
    assert len({t.prompt for t in tasks}) > (300 if name == "outside" else 570), "too little variety"
    tasks = tasks[:60] if name == "code" else tasks  # each answer is run
    assert all(right(domain, tasks, [Answer(t.answer) for t in tasks]))
    tasks = tasks[:60]
    if name != "outside":
        assert sum(right(domain, tasks, [Answer(t.answer) for t in tasks[1:] + tasks[:1]])) <= 2, (
            "two may be the same"
        )
    assert not any(right(domain, tasks, [Answer(t.answer[: len(t.answer) // 2]) for t in tasks]))
    assert not any(right(domain, tasks, [Answer(t.answer, ended=False) for t in tasks]))


@pytest.mark.parametrize("side", ["unseen", "known"])
def test_no_held_out_prompt_is_trained_on(side: str, every: dict[str, Domain]) -> None:
    for name in ASKED:
        held_out = {t.prompt for t in held_out_tasks(name, every[name], 5 if name == "chat" else 50, side)}
        assert not held_out & {every[name].task(f"train {seed}").prompt for seed in range(1500)}, name


def test_training_has_no_unseen_word_and_prompts_of_unseen_words_are_full_of_them(
    every: dict[str, Domain],
) -> None:
    """Guards the split by word, on which all figures of unseen words rest."""
    corpus = every["edit"].corpus
    assert all(corpus.names[unseen] and corpus.nouns[unseen] and corpus.words[unseen] for unseen in (True, False))

    def unseen(task: Task) -> list[str]:
        text = "\n".join((task.prompt, task.answer, *task.more))
        words = re.findall(r"[A-ZÀ-Þ]?[^\W\d_A-ZÀ-Þ]+|[A-ZÀ-Þ]+", text)
        return [word for word in words if len(word) > 3 and corpus.is_unseen(word)]

    for name in every.keys() - {"code"}:  # whose examples double and reverse words
        for seed in range(400):
            assert not unseen(every[name].task(f"{seed}")), name
    for name in ("data", "edit"):
        held_out = held_out_tasks(name, every[name], 100)
        assert sum(bool(unseen(task)) for task in held_out) > 80, name
        assert not any(unseen(task) for task in held_out_tasks(name, every[name], 100, "known")), name


def test_words_of_templates_are_known(every: dict[str, Domain]) -> None:
    """They stand in every training prompt; with the corpus they alone decide what is unseen."""
    said = " ".join(text for part in TEMPLATES.values() for some in part.values() for text in some)
    assert not [word for word in re.findall(r"[^\W\d_]+", said.lower()) if every["edit"].corpus.is_unseen(word)]


def test_an_edit_changes_the_text(every: dict[str, Domain]) -> None:
    """A change that hits nothing teaches to give the text back as it was."""
    tasks = [every["edit"].task(f"{seed}") for seed in range(1500)]
    changed = [t for t in tasks if t.kind in ("replace", "capitals", "quotes")]
    assert len(changed) > 500
    assert not [t for t in changed if re.search(rf"(?<!\w){re.escape(t.answer)}", t.prompt)]


@pytest.mark.parametrize(
    ("name", "typed"),
    [
        ("edit", r"^Change \w+ to \w+[.:]"),
        ("edit", r"^Say \w+ and not \w+\.$"),
        ("edit", r"^(can you|can u|please) \w"),
        ("edit", r"\n\n"),
        ("arithmetic", r"\(\d+ \+ \d+\) \* \d"),
        ("arithmetic", r"\d, \d+ and \d+"),
        ("code", r"\Adef "),
        ("data", r"^[Aa]s JSON,? please"),
        ("data", r"^JSON:"),
        ("data", r"^Convert this to CSV"),
        ("data", r"a Markdown table of this"),
        ("edit", r'^In "[^"]+" (replace|change) \S+ (to|with) '),
        ("edit", r"^[Cc]hange the (day|month|number) to \w+"),
        ("edit", r"(Put|Add|Insert) \w+ after \w+\."),
        ("arithmetic", r"^Subtract \d+ from \d+\.$"),
        ("data", r"a JSON (list|array) of [^,]+, [^,]+ and [^,]+$"),
        ("data", r"with columns \w+, \w+ and \w+"),
        ("code", r"^Write a function \w+\(\w+\) that returns"),
        ("arithmetic", r"\d+ packs of \d+"),
        ("code", r"^def \w*double_\w*numbers\("),
        ("outside", r"^(Hi|Hello|hi|hello)\b"),
        ("outside", r"a poem about"),
    ],
)
def test_what_people_type_is_asked(name: str, typed: str, every: dict[str, Domain]) -> None:
    prompts = [every[name].task(f"{seed}", "unseen").prompt for seed in range(1500)]
    assert any(re.search(typed, prompt, re.MULTILINE) for prompt in prompts)


def test_practice_has_no_held_out_sum(every: dict[str, Domain]) -> None:
    """A check whose sums were practised would flatter the target."""
    tasks = [t for seed in range(400) if (t := every["arithmetic"].task(f"{seed}")).kind == "equations"]
    sums = [s for t in tasks for s in re.findall(r"(\d+) \+ (\d+) =", t.prompt)]
    assert len(sums) > 50
    assert not any(is_held_out("+", (int(a), int(b))) for a, b in sums)
    assert not any(t.kind == "equations" for t in held_out_tasks("arithmetic", every["arithmetic"], 200))


def test_wrong_steps_and_final_numbers_are_counted_one_by_one() -> None:
    task = Task("word problem", "?", "Ann has 5.\n5 + 3 = 8.\n8 - 2 = 6.\nThe answer is 6.")
    answers = [Answer("Ann has 5.\n5 + 3 = 9.\n9 - 2 = 7.\nThe answer is 7."), Answer("The answer is 6.")]
    wrong_step, only_final = (arithmetic.grade(task, answer) for answer in answers)
    assert wrong_step == {"final number": [False], "steps": [False, True]}
    assert only_final == {"final number": [True], "steps": [False, False]}


@pytest.mark.parametrize(("a", "b"), [(100, 1), (503, 98), (99, 99), (210, 101), (70, 7), (64, 8)])
def test_sums_are_worked_right_at_carries_and_borrows(a: int, b: int) -> None:
    for sign, result in (("+", a + b), ("-", a - b)):
        digits = re.findall(r"write (\d)", "\n".join(arithmetic.SUMS[sign][0](a, b)))
        assert int("".join(reversed(digits))) == result
    for sign, (steps, _) in arithmetic.SUMS.items():
        text = "\n".join([*steps(a, b % 10 or 1 if sign == "*" else 1 if sign == "/" else b), "The answer is 1."])
        assert all(arithmetic.grade(Task("sum", "?", text), Answer(text))["steps"]), text


def test_every_word_problem_can_be_told_and_worked(every: dict[str, Domain]) -> None:
    """Groups too: of 3 packs of 12 the answer has all 36."""
    tasks = [t for seed in range(2000) if (t := every["arithmetic"].task(f"{seed}")).kind == "word problem"]
    assert not [t for t in tasks if re.search(r"[{}<>|]", t.prompt + t.answer)]
    packs = [re.search(r"(\d+) (?:packs|boxes|bags|cartons) of (\d+)", t.prompt) for t in tasks]
    found = [(m, t) for m, t in zip(packs, tasks, strict=True) if m and t.answer.count("=") == 1]
    assert len(found) > 5
    assert all(f"The answer is {int(m[1]) * int(m[2])}." in t.answer for m, t in found)


def test_stories_are_of_the_prompts_hero_and_do_not_loop(every: dict[str, Domain]) -> None:
    """Every plot can be told: no slot is left open, sentences have capitals, and the checker accepts all of it."""
    tasks = [every["stories"].task(f"{seed}") for seed in range(2000)]
    assert all(right(every["stories"], tasks, [Answer(t.answer) for t in tasks]))
    assert not [t for t in tasks if re.search(r"[{}<>|]|\b[aA] [aeiou]|(^|[.!?] )[a-z]", t.answer)]
    assert len({t.answer for t in tasks}) > 1990
    hero = Task("about", "A story about a fox named Zuri, please.", "")
    said = " ".join(map(str, range(40)))
    grades = [every["stories"].grade(hero, Answer(text))["keeps its hero"] for text in (f"Zuri {said}", said)]
    assert grades == [[True], [False]]


JSON = Task("to JSON", "?", '[\n  {"a": 1, "b": "x"}\n]')
SQL = Task("SQL", "?", "SELECT * FROM pets WHERE name = 'Tom';")
CODE = Task("numbers", 'def f(x):\n    """Double.\n\n    >>> f(2)\n    4\n    """', "def f(x):\n    return x * 2")
FLIGHT = Task("dialogue", "Find me a flight to Oslo.", "When?")
STORY = Task("any", "Tell me a story.", "Once.")


@pytest.mark.parametrize(
    ("name", "task", "good", "bad"),
    [
        ("data", JSON, ['[{"a":1,"b":"x"}]'], ['[{"a": "1", "b": "x"}]', "[{"]),
        ("data", SQL, ["select *\nfrom pets where name='Tom'"], ["SELECT * FROM pets WHERE name = 'tom';"]),
        ("code", CODE, [CODE.answer], ["def f(x):\n    while True:\n        pass", "raise SystemExit", ""]),
        ("code", CODE, ["def f(x): return x + x"], ["import os\ndef f(x):\n    return 4", "def f(x:"]),
        ("code", CODE, [], ["def f(x):\n    return 4"]),
        ("code", CODE, [], ["def f(x):\n    return open('/etc/hostname') and 4"]),
        (
            "chat",
            FLIGHT,
            ["When do you want to fly?", "On which day?"],
            ["Sure.\nUser: Thanks", "Which hotel?", "A flight and a hotel?"],
        ),
        ("stories", STORY, [" ".join(map(str, range(40)))], ["a b c d " * 10]),
    ],
)
def test_another_good_answer_is_right_and_a_bad_one_is_wrong(
    name: str, task: Task, good: list[str], bad: list[str], every: dict[str, Domain]
) -> None:
    """Another layout; code that hangs, exits or reaches out; a dialogue that is left; a story that loops."""
    for texts, verdict in ((good, True), (bad, False)):
        assert right(every[name], [task] * len(texts), list(map(Answer, texts))) == [verdict] * len(texts)
    assert not any(right(every[name], [task] * len(good), [Answer(text, ended=False) for text in good]))


def test_a_booking_says_all_that_was_said(every: dict[str, Domain]) -> None:
    """Copying in talk: the last turn but one has what the user said in any turn, and each slot is filled."""
    tasks = [t for seed in range(300) if (t := every["chat"].task(f"{seed}")).kind == "booking"]
    assert len(tasks) > 80
    for task in tasks:
        turns = [task.prompt, task.answer, *task.more]
        assert not re.search(r"[{}<>|]", " ".join(turns))
        told = next(turn for turn in turns[1::2] if "Shall I" in turn or "Is that right" in turn)
        asked = turns[2 : turns.index(told) : 2]
        assert all(said.removesuffix(".").removesuffix(", please") in told for said in asked)


def test_dialogues_are_clean(every: dict[str, Domain]) -> None:
    tasks = [every["chat"].task(f"{seed}") for seed in range(20)]
    task = next(task for task in tasks if task.kind == "dialogue")
    assert (task.answer, task.more) == ("In which city?", ("In Oslo.", "I found one."))
    assert " ." not in task.prompt
    assert {every["outside"].task(f"{seed}").answer for seed in range(50)} == set(chat.OUTSIDE["answer"])


def test_a_word_is_cut_alike_wherever_it_stands_and_any_text_comes_back(
    every: dict[str, Domain], tokenizer
) -> None:
    """Guards copying: from a list into JSON, into an identifier, and into capitals piece by piece."""

    def pieces(before: str, word: str, after: str) -> list[str]:
        found = tokenizer.tokenize(before + word + after)
        return found[len(tokenizer.tokenize(before)) : -len(tokenizer.tokenize(after))]

    words = [*every["edit"].corpus.words[False][:200], *every["edit"].corpus.words[True], "tennis", "reykjavik"]
    for word in words:
        alike = {
            tuple(pieces(b, word, a)) for b, a in ((" ", " "), ('"', '"'), ("'", "',"), ("_", "_"), ("(", "|"))
        }
        assert len(alike) == 1, word
        (plain,) = alike
        assert [p.lower() for p in pieces("a ", word.upper(), ".")] == list(plain)
        assert [p.lower() for p in pieces("\n", word.title(), ":")] == list(plain)
    for text in (*ODD_TEXTS, *(t for d in every.values() for t in (d.task("a").prompt, d.task("a").answer))):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert tokenizer.decode(ids) == text
        lane = Detokenizer(tokenizer, tokenizer("x")["input_ids"])
        assert "".join(map(lane.push, ids)) == text


def test_the_template_gives_what_was_trained_on(tokenizer) -> None:
    """A prompt and a whole dialogue, byte for byte; code comes back with its indentation."""
    task = Task("x", "Hello?", "def f():\n    return  1\n\n\n# 你好", ("More", "Yes."))
    texts = zip(("user", "assistant") * 2, (task.prompt, task.answer, *task.more), strict=True)
    messages = [{"role": role, "content": text} for role, text in texts]
    asked = tokenizer.apply_chat_template(messages[:1], tokenize=False, add_generation_prompt=True)
    assert asked == prompt_text(task) == f"{END_OF_TEXT}{USER}Hello?{ASSISTANT}"
    assert tokenizer.apply_chat_template(messages, tokenize=False) == document(task)
    digits = tokenizer("1234", add_special_tokens=False)["input_ids"]
    assert tokenizer.convert_ids_to_tokens(digits) == list("1234")
    assert (tokenizer.eos_token, len(tokenizer) <= TINY_RECIPE.target.vocabulary) == (END, True)


def test_the_stream_is_packed_learns_answers_only_and_keeps_the_shares(
    every: dict[str, Domain], tokenizer
) -> None:
    shares = TINY_RECIPE.shares | {"chat": 0.0}
    stream = TaskStream(every, shares, tokenizer, 1)
    ids, learned = stream.batch(3, 16, 320)
    assert torch.equal(ids, TaskStream(every, shares, tokenizer, 1).batch(3, 16, 320)[0])
    assert not torch.equal(ids, stream.batch(4, 16, 320)[0])
    for row, counts in zip(ids, learned > 0, strict=True):
        wanted = "".join(
            re.findall(rf"{re.escape(ASSISTANT)}(.*?{re.escape(END)})", tokenizer.decode(row), re.DOTALL)
        )
        assert tokenizer.decode(row[counts]) == wanted
    short = stream.batch(3, 16, 320, longest=60)[0]
    assert len((short == 0).nonzero()) > 2 * (ids == 0).sum() - short.numel() // 10
    later = {name for name, _ in stream.without(("stories", "edit")).documents(5, 40_000, 1024)}
    assert later == {*shares} - {"chat", "stories", "edit"}
    tokens = dict.fromkeys(shares, 0)
    for name, ids in stream.documents(5, 40_000, 1024):
        tokens[name] += len(ids)
    for name, share in shares.items():
        assert tokens[name] / sum(tokens.values()) == pytest.approx(share / sum(shares.values()), abs=0.02)


def test_where_an_answer_leaves_the_text_weighs_more(tokenizer) -> None:
    task = Task("replace", "Change cat to dog: The cat sat on a mat.", "The dog sat on a mat.")
    ids = tokenizer(document(task), add_special_tokens=False)["input_ids"]
    weights = weights_of(ids)
    start = ids.index(tokenizer.convert_tokens_to_ids(ASSISTANT)) + 1
    assert not any(weights[:start])
    assert sum(weights) == pytest.approx(len(ids) - start)
    low = min(weights[start:])
    heavy = "".join(tokenizer.decode(i) for i, w in zip(ids, weights, strict=True) if w > low)
    assert heavy.removesuffix(END).replace(" ", "") not in ("", "Thedogsatonamat.")
    changed = next(i for i in range(start, len(ids)) if "d" in tokenizer.decode(ids[i]))
    assert weights[changed] == pytest.approx(NEW_WEIGHT * low)


def test_what_becomes_json_stands_in_its_prompt(every: dict[str, Domain]) -> None:
    """Guards labels: a request that is typed in small letters leaves what it is about as it is."""
    for seed in range(8000):
        task = data.simple(Draw(f"{seed}", every["data"].corpus))
        assert all(text in task.prompt for text in re.findall(r'"([^"]*)"', task.answer)), task


def test_json_keeps_letters_with_accents(every: dict[str, Domain]) -> None:
    answers = [every["data"].task(f"{seed}").answer for seed in range(600)]
    assert any(re.search("[éíö]", answer) for answer in answers)
    assert not any("\\u" in answer for answer in answers)


def test_a_corpus_without_its_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"chat\.txt\.gz; give"):
        domains(tmp_path)
