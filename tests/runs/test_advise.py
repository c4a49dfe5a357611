"""The advisor on real models: its report, what it says where nothing pays, and the lines it hands over."""

from __future__ import annotations

import csv
import json
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest
from toys import build, endless_pair, generate, prompt_ids

import specdemo
from specdemo.analysis.advice import AdviceReport
from specdemo.analysis.contenders import PLAIN, TREES, Contender
from specdemo.analysis.engine_lines import FRAMEWORKS, engine_lines
from specdemo.analysis.racing import Race
from specdemo.analysis.rows import Run
from specdemo.drafters import DRAFTERS
from specdemo.metrics import RoundCounts
from specdemo.models.request import ASSETS
from specdemo.runs.advise import allowed_drafters, model_names, stream_advice
from specdemo.settings import Settings
from specdemo.view.charts import MOST_IN_FOREST, forest
from specdemo.view.tables import report_table

PROMPTS = [prompt_ids(9), prompt_ids(17)]
SHORT = Settings(max_new_tokens=8, chat=False)


@pytest.fixture(scope="module")
def report() -> AdviceReport:
    """Two prompts of two kinds; every drafter of a toy pair for some seconds."""
    return specdemo.advise(endless_pair("llama"), PROMPTS, SHORT, budget_seconds=4, kinds=["code", "chat"])


def test_a_report_has_every_method_and_tree_and_keeps_its_budget(report: AdviceReport) -> None:
    assert report.complete
    assert report.seconds <= report.budget_seconds + max(run.wall_seconds for run in report.runs)
    alone = ("draft model", "prompt lookup", "early exit", "EAGLE-3 head", "MTP head", "suffix decoding")
    rows = (f"suffix decoding, else {last}" for last in ("draft model", "EAGLE-3 head", "MTP head"))
    methods = {"plain decoding", *alone, *rows}
    assert {row.method for row in report.rows} == methods
    plain = next(row for row in report.rows if row.method == "plain decoding")
    assert (plain.speedup, plain.mean_acceptance_length) == (1, 1)
    assert report.rows[0].verdict in ("recommended", "ahead, not proven", "open")  # on a busy machine
    if not report.noisy:
        assert report.settings() == replace(report.rows[0].settings, seed=0)
    blocks = {run.repeat for run in report.runs}
    assert {run.repeat for run in report.runs if run.contender == PLAIN} >= blocks - {max(blocks)}
    trees = [row for row in report.rows if row.method == "draft model" and row.settings.tree_nodes]
    assert {(row.settings.tree_nodes, row.settings.gamma) for row in trees} == set(TREES.items())
    assert {row.width for row in trees} == {f"tree of {nodes}, depth {depth}" for nodes, depth in TREES.items()}


def test_its_files_hold_its_rows_and_its_counts_are_those_of_the_runs(report: AdviceReport) -> None:
    saved = json.loads(report.to_json())
    lines = list(csv.DictReader(report.to_csv().splitlines()))
    assert [float(line["speedup"]) for line in lines] == [row.speedup for row in report.rows]
    assert saved["recommendation"] == report.recommendation
    assert sum(len(run["steps"]) for run in saved["runs"]) == sum(len(r.steps) for r in report.runs)
    chosen = Contender("model", 4)
    steps = [s for r in report.counted if r.contender == chosen for s in r.steps]
    row = next(row for row in report.rows if (row.method, row.width) == (chosen.method, chosen.width))
    assert row.acceptance_rate == sum(s.accepted for s in steps) / sum(s.drafted for s in steps)
    traced = specdemo.run(endless_pair("llama"), PROMPTS[0], replace(SHORT, gamma=4)).rounds[1:]
    first = next(r for r in report.runs if r.contender == chosen and r.prompt == 0)
    assert [s.accepted for s in first.steps] == [r.accepted for r in traced]


def test_stop_keeps_what_is_known() -> None:
    stop, seen = Event(), []
    for progress in stream_advice(endless_pair("llama"), PROMPTS, SHORT, 60, stop=stop):
        seen.append(progress)
        if len(seen) == 3:
            stop.set()
    assert len(seen[-1].report.runs) == 3
    assert seen[-1].report.recommendation.startswith("So far: ")


def test_answers_that_end_with_their_first_token_end_the_race_and_are_told() -> None:
    target = build("llama", eos=[*range(64)])
    report = specdemo.advise(specdemo.ModelPair(target), PROMPTS, SHORT, budget_seconds=60, methods=["early_exit"])
    assert len(report.runs) == len(PROMPTS) * len(Race(report.contenders).running), "every prompt once"
    assert report.recommendation.startswith("The answers are too short to time: ")


def test_a_prompt_whose_answer_ends_with_its_first_token_is_left_out_of_later_blocks() -> None:
    endless = build("llama", eos=None)
    first, other = (generate(endless, prompt, 1)[0] for prompt in PROMPTS)
    assert first != other, "else both would end"
    pair = specdemo.ModelPair(build("llama", eos=[first]))
    report = specdemo.advise(pair, PROMPTS, SHORT, budget_seconds=1.5, methods=["prompt_lookup"])
    blocks = {(r.repeat, r.prompt) for r in report.runs}
    assert [repeat for repeat, prompt in blocks if prompt == 0] == [0]
    assert len(blocks) > 3
    assert "since their answers end with the first token: prompt 1." in report.recommendation


def test_a_pair_offers_only_what_it_has() -> None:
    alone = specdemo.ModelPair(endless_pair("llama").target)
    assert allowed_drafters(alone, SHORT) == ["prompt_lookup", "suffix", "early_exit"]
    with pytest.raises(specdemo.SettingsError, match="needs a draft model"):
        allowed_drafters(alone, SHORT, ["model"])


# --- what it says, of runs made by hand -----------------------------------------------------------------------


def made_up(
    seconds: dict[Contender, tuple[int, float, float]], prompts: int = 8, rounds: int = 20, **fields: object
) -> AdviceReport:
    """A report of like rounds: of each contender (tokens kept, draft seconds, verify seconds)."""
    contenders = (Contender(), *seconds)
    runs = []
    for prompt in range(prompts):
        wobble = 1 + 0.01 * (-1) ** prompt
        for place, contender in enumerate(contenders):
            drafted = contender.gamma or 0
            kept, draft, verify = (0, 0.0, 1.0) if place == 0 else seconds[contender]
            step = RoundCounts(drafted, kept, kept + 1, draft * (wobble if place else 1), verify, 0.0)
            runs.append(Run(contender, prompt, prompt, (step,) * rounds, wall_seconds=10.0))
    return AdviceReport(
        base=Settings(), contenders=contenders, prompts=prompts, runs=tuple(runs), ended=True, **fields
    )


def without(seconds: dict[Contender, tuple[int, float, float]], *untried: Contender) -> AdviceReport:
    found = made_up(seconds)
    return replace(found, runs=tuple(r for r in found.runs if r.contender not in untried))


MODEL, LOOKUP = Contender("model", 4), Contender("prompt_lookup", 4)


DEAR = {LOOKUP: (4, 0.0, 6.0), Contender("prompt_lookup", 2): (2, 0.0, 4.0)}
GOOD = {MODEL: (3, 0.4, 1.2), LOOKUP: (1, 0.01, 1.2)}
LARGE = {MODEL: (4, 4.4, 1.05), Contender("model", 2): (2, 2.2, 1.05), LOOKUP: (0, 0.0, 1.1)}
LOOPS = made_up({MODEL: (0, 0.4, 1.05), LOOKUP: (0, 0.0, 1.1)}, looping=(2, 3))
NONE, TOO_DEAR = without(GOOD, *GOOD, PLAIN), "Checking 5 tokens of prompt lookup costs 6.00 steps of the target"


@pytest.mark.parametrize(
    ("found", "pays", "said"),
    [
        (made_up(LARGE), False, "A step of draft model costs 1.10 of the target's: with γ 2, 4 it cannot pay"),
        (LOOPS, False, "None: plain decoding is fastest; prompt lookup, γ 4 runs at 0.91×"),
        (LOOPS, False, "The plain output of prompts 2, 3 loops"),
        (made_up(DEAR), False, f"{TOO_DEAR}: with γ 2, 4 it cannot pay"),
        (made_up({MODEL: (4, 0.4, 1.2), **DEAR}), True, TOO_DEAR),  # also where another method pays
        (made_up({MODEL: (3, 2.9, 1.15)}, prompts=2), None, "Whether speculation pays here is open: plain deco"),
        (made_up({MODEL: (3, 0.4, 0.8)}), None, "took 0.80 of a plain step, which no target can do"),
        (made_up({LOOKUP: (0, 0.0, 1.2)}, prompts=1, rounds=10), None, "Only 10 tokens were timed"),
        (replace(made_up(GOOD), base=Settings(acceptance="typical")), True, "The rule 'typical' is lossy"),
        (without(GOOD, LOOKUP), True, "Not tried: prompt lookup; give more seconds."),
        (NONE, None, "Give more seconds"),
        (replace(NONE, ended=False), None, "Nothing was measured yet"),
    ],
)
def test_the_advice_says_what_the_runs_show(found: AdviceReport, pays: bool | None, said: str) -> None:
    assert found.pays is pays
    assert said in found.recommendation
    assert found.settings().strategy == ("speculative" if pays else "autoregressive")


def test_costs_measured_once_are_not_called_hopeless() -> None:
    assert "cannot pay" not in made_up(DEAR, prompts=2).recommendation + LOOPS.recommendation


def test_the_recommendation_names_the_rival_and_its_certainty() -> None:
    found = made_up(GOOD)
    assert found.best.name == "draft model, γ 4"
    assert found.best.speedup == pytest.approx(2.5, rel=0.01)
    low, high = found.best.interval
    assert low < found.best.speedup < high < 1.05 * low
    assert found.best.interval_over == "prompts"
    assert "prompt lookup, γ 4 is slower (certainty over 99.9 %)" in found.recommendation
    assert f"{found.best.speedup:.2f}× [{low:.2f}, {high:.2f}]" in found.recommendation
    assert made_up({MODEL: (3, 0.4, 1.2)}, prompts=2).best.interval is None
    mixed = made_up(GOOD, kinds=("code", "chat") * 4)
    kinds, every = mixed.by_kind, {(row.name, row.kind): row for row in mixed.matrix}
    assert len(every) == len(mixed.matrix) == 2 * (len(mixed.rows) - 1), "all that drafts, on both kinds"
    for row in kinds:
        assert every[row.name, row.kind] == row
        assert row.mean_acceptance_length == found.best.mean_acceptance_length
    assert made_up(GOOD).matrix == ()
    table = report_table(mixed)
    assert f">{kinds[0].mean_acceptance_length:.2f} · {kinds[0].speedup:.2f}×<" in table
    assert [(row.kind, row.prompts, row.name) for row in kinds] == [
        ("code", 4, "draft model, γ 4"),
        ("chat", 4, "draft model, γ 4"),
    ]


def test_figures_are_of_blocks_that_have_their_plain_run() -> None:
    whole = made_up({MODEL: (3, 0.4, 1.2)})
    cut = replace(whole, runs=(*whole.runs[:-2], whole.runs[-1]))
    row = cut.rows[0]
    assert (row.runs, row.prompts, row.emitted) == (7, 7, 7 * 80)
    assert row.tokens_per_second == pytest.approx(4 / 1.6, rel=0.01)
    assert row.seconds == 80, "its time was spent all the same"
    assert "Measured on 7 of 8 prompts; give more seconds." in cut.recommendation


def test_a_higher_figure_on_easier_prompts_does_not_lead() -> None:
    """The other γ ran on the two easiest prompts only, on which the leader was far faster."""
    found = made_up({MODEL: (3, 0.4, 1.2), Contender("model", 8): (3, 0.4, 1.2)}, prompts=6)
    runs = []
    for run in found.runs:
        easy = run.prompt < 2
        if run.gamma == 8 and not easy:
            continue
        pace = {0: 1.0, 4: 4.0 if easy else 1.0, 8: 3.0}[run.gamma]
        steps = tuple(replace(s, draft_seconds=0.0, verify_seconds=s.emitted / pace) for s in run.steps)
        runs.append(replace(run, steps=steps))
    found = replace(found, runs=tuple(runs))
    best, other = found.rows[0], next(row for row in found.rows if row.gamma == 8)
    assert best.gamma == 4
    assert other.speedup > best.speedup
    assert other.verdict == "far behind, not proven"


def test_few_prompts_mark_their_interval_and_their_certainty() -> None:
    found = made_up(GOOD)
    runs = tuple(replace(r, prompt=r.prompt % 2) for r in found.runs)
    few = replace(found, runs=runs, prompts=2)
    assert few.rows[0].interval_over == "runs"
    assert "] over runs" in report_table(few)
    assert "Dashed: over the runs on these prompts" in forest(few)
    assert "Dashed" not in forest(found)
    assert "(certainty over 99.9 % on these prompts)" in few.recommendation
    assert "] over runs" not in report_table(found)


# --- what it hands over ---------------------------------------------------------------------------------------

MODELS = {"target": "Qwen/Qwen3-4B", "draft": "Qwen/Qwen3-0.6B", "head": "AngelSlim/Qwen3-4B_eagle3"}


@pytest.mark.parametrize("drafter", [*DRAFTERS, "suffix,model", "prompt_lookup,mtp", "suffix,prompt_lookup"])
def test_every_line_has_the_form_its_engine_reads(drafter: str) -> None:
    """JSON in one shell word for vLLM, flags in pairs for the others, a program for transformers."""
    lines = {e: engine_lines(e, Settings(drafter=drafter, gamma=6, exit_layer=3), MODELS) for e in FRAMEWORKS}
    for engine, text in lines.items():
        if "has no" in text:
            assert text.startswith(f"# {FRAMEWORKS[engine]} has no")
            continue
        if engine == "transformers":
            compile(text, "script", "exec")
            continue
        words = shlex.split(text.replace("\\\n", " "), comments=True)
        flags = dict(zip(words[-2::-2], words[-1::-2], strict=False))
        if engine == "vllm":
            config = json.loads(flags["--speculative-config"])
            assert config["num_speculative_tokens"] == 6
            assert config["method"] in ("draft_model", "ngram", "suffix", "eagle3", "mtp")
        elif engine == "sglang":
            assert flags["--speculative-num-draft-tokens"] == "7", "the last token itself is one of them"
        else:
            types = flags["--spec-type"].split(",")
            assert len(types) == len(drafter.split(","))
            assert {*types} <= {"draft-simple", "ngram-simple", "draft-eagle3", "draft-mtp"}
            assert "6" in (flags.get("--spec-draft-n-max"), flags.get("--spec-ngram-simple-size-m"))
    with pytest.raises(specdemo.SettingsError, match="choose one of transformers, vllm"):
        engine_lines("exllama", Settings(), MODELS)


ADAPTIVE, LOOKING_UP = Settings(adaptive_gamma=True), Settings(drafter="prompt_lookup")
OWN_TOKENIZER = {"models": {**MODELS, "draft_tokenizer": "gpt2"}}


@pytest.mark.parametrize(
    ("engine", "settings", "options", "said"),
    [
        ("vllm", ADAPTIVE, {"fixed_gamma": 3}, "# γ was adaptive; 3 is the fastest fixed γ that was measured."),
        ("vllm", ADAPTIVE, {"fixed_gamma": 3}, '"num_speculative_tokens": 3'),
        ("vllm", Settings(acceptance="typical"), {}, "lossy"),
        ("sglang", LOOKING_UP, {}, "lookup_ngram 3, which is not set"),
        ("vllm", Settings(), {"weights": {"draft": "int8"}}, "# Measured with int8 weights of the draft"),
        ("llama.cpp", Settings(), {}, "convert_hf_to_gguf.py"),
        ("llama.cpp", Settings(p_min=0.4), {}, "--spec-draft-p-min 0.4"),
        (
            "llama.cpp",
            Settings(drafter="suffix,model"),
            {},
            "# llama.cpp has no suffix decoding, else draft",
        ),
        ("vllm", Settings(p_min=0.4), {}, "# Measured with p_min 0.4, which is not set here."),
        (
            "vllm",
            Settings(drafter="suffix", earlier_outputs=False),
            {},
            '"suffix_decoding_max_cached_requests": 0',
        ),
        ("transformers", Settings(p_min=0.4), {}, "assistant_confidence_threshold = 0.4"),
        ("sglang", Settings(), OWN_TOKENIZER, "# SGLang cannot draft with a tokenizer other than the target's."),
        ("transformers", Settings(), OWN_TOKENIZER, 'draft_tokenizer = AutoTokenizer.from_pretrained("gpt2")'),
        ("transformers", Settings(), OWN_TOKENIZER, "assistant_tokenizer=draft_tokenizer,"),
    ],
)
def test_what_differs_from_what_was_measured_is_said(
    engine: str, settings: Settings, options: dict, said: str
) -> None:
    assert said in engine_lines(engine, settings, **{"models": MODELS, **options})


def test_an_adaptive_gamma_is_replaced_by_the_fastest_fixed_one_and_an_open_exit_layer_by_its_number() -> None:
    adaptive, small = Contender("early_exit"), Contender("early_exit", 2)
    found = made_up(
        {adaptive: (3, 0.1, 1.0), small: (2, 0.1, 1.0), Contender("early_exit", 4): (2, 0.1, 1.1)}, exit_layer=5
    )
    assert found.contenders[found.race.leader] == adaptive
    script = found.code("transformers")
    assert "2 is the fastest fixed γ that was measured" in script
    assert "target.generation_config.num_assistant_tokens = 2" in script
    assert "assistant_early_exit=5," in script


def test_the_scripts_for_transformers_run_and_write_what_we_write(tmp_path: Path) -> None:
    """On the builtin pair, in a process of its own, greedily; the scripts one after the other."""
    pair = specdemo.load_pair("builtin")
    drafters = ("model", "prompt_lookup", "early_exit")
    lanes = [Settings(drafter=name, gamma=4, max_new_tokens=12, exit_layer=1) for name in drafters]
    scripts = [engine_lines("transformers", lane, model_names(pair), pair.dtype) for lane in lanes]
    script = tmp_path / "script.py"
    script.write_text('print("\\f")\n'.join(scripts), encoding="utf-8")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=ASSETS.parent)
    assert done.returncode == 0, done.stderr[-2000:]
    ours = [specdemo.run(pair, "Once upon a time", lane).token_ids for lane in lanes]
    texts = [pair.tokenizer.decode(ids, skip_special_tokens=True).strip() for ids in ours]
    assert [text.strip() for text in done.stdout.split("\f")] == texts


def test_the_chart_keeps_plain_decoding_beside_many_faster_settings() -> None:
    families = ("model", "prompt_lookup", "early_exit", "eagle3")
    many = [Contender(family, gamma) for family in families for gamma in (2, 4, 6, 8)]
    found = made_up({contender: (contender.gamma or 0, 0.01, 1.0) for contender in many}, prompts=2)
    assert found.rows[-1].name == "plain decoding"
    assert len(found.rows) == MOST_IN_FOREST + 1
    assert "plain decoding" in forest(found)
