"""The report on a pair before its weights are fetched: what it finds, what it refuses, and what it says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import transformers
from checkpoints import trained_tokenizer, with_special_tokens
from hub import Hub
from toys import generate, raced

import specdemo
from specdemo import PairError, Settings
from specdemo.models import memory
from specdemo.models.compatibility import check_quantization
from specdemo.models.memory import WORKING_TOKENS
from specdemo.models.preflight import Preflight, gigabytes, resolve_dtype

Folders = Callable[[str], tuple[Path, Path]]
Doctored = Callable[[str], Path]


def look(*sources: Path | str, **options: object) -> Preflight:
    return specdemo.preflight(" + ".join(map(str, sources)), **{"device": "cpu", **options})


def refusal(*sources: Path | str, **options: object) -> str:
    """What is wrong with a pair; loading it must fail for the same reason, after fetching no weights."""
    report = look(*sources, **options)
    assert not report.ok
    assert report.conclusion == f"Cannot run: {report.problems[0]}"
    with pytest.raises(PairError) as caught:
        specdemo.load_pair(" + ".join(map(str, sources)), **{"device": "cpu", **options})
    assert str(caught.value) == report.problems[0]
    return report.problems[0]


def rewritten(folder: Path, name: str = "config.json", **fields: object) -> Path:
    """Change fields of a JSON file; None takes one away."""
    content = json.loads((folder / name).read_text()) | fields
    (folder / name).write_text(json.dumps({k: v for k, v in content.items() if v is not None}))
    return folder


def test_the_report_states_the_facts_of_both_models(hub: Hub, folders: Folders) -> None:
    """Guards the card: sizes, classes, licence and commit are the repositories' own, and no weight is fetched."""
    target, draft = folders("llama")
    commit = hub.add("org/target", target, licence="mit", gated="auto", token="t")
    hub.add("org/draft", draft, licence=None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_TOKEN", "t")
        report = look("org/target", "org/draft")
    first, second = report.models
    model = transformers.AutoModelForCausalLM.from_pretrained(target)
    assert (first.role, first.name, first.checkpoint.commit) == ("target", "org/target", commit)
    assert (second.role, second.name) == ("draft", "org/draft")
    assert first.context == 256
    assert first.parameters == model.num_parameters()
    assert (first.licence, first.gated, first.dtype) == ("mit", True, "float32")
    assert (second.licence, second.gated) == (None, False)
    weights = [(folder / "model.safetensors").stat().st_size for folder in (target, draft)]
    assert [m.download for m in report.models] == weights
    assert report.download == sum(weights)
    assert f"Will run: {gigabytes(sum(weights))} to download" in report.conclusion
    assert "model.safetensors" not in hub.fetched("org/target") + hub.fetched("org/draft")


def test_a_folder_needs_no_download_and_a_target_may_be_alone(folders: Folders) -> None:
    """Guards local models: nothing is asked of the hub, which is out of reach here."""
    report = look(folders("gpt2")[0])
    assert (report.ok, report.download, len(report.models)) == (True, 0, 1)
    assert report.conclusion.startswith("Will run: it is on this machine and needs ")
    assert (report.tokenizers.relation, report.tokenizers.text) == ("alone", "no draft model")


def test_looking_leaves_the_default_dtype_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards pairs that are loaded meanwhile: the default is the process's, and weights would take it."""
    monkeypatch.setattr(torch, "set_default_dtype", lambda dtype: pytest.fail(f"set to {dtype}"))
    assert look("builtin").ok


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2", "gpt_neox"])
def test_working_memory_is_that_of_two_real_caches(family: str, folders: Folders) -> None:
    """Guards the estimate against head sizes and grouped heads that a formula gets wrong."""
    report = look(folders(family)[0])
    model = transformers.AutoModelForCausalLM.from_pretrained(folders(family)[0], dtype=torch.float32)
    cache = model(torch.tensor([[1] * 8])).past_key_values
    held = sum(t.numel() * t.element_size() for layer in cache.layers for t in (layer.keys, layer.values))
    assert report.memory - report.models[0].weights.nbytes == 2 * held * WORKING_TOKENS // 8


@pytest.mark.parametrize(
    ("fields", "device", "instructions", "dtype"),
    [
        ({"dtype": "float16"}, "cuda", None, torch.float16),
        ({"dtype": "float32"}, "cuda", None, torch.bfloat16),  # half the memory
        ({"n_embd": 48, "vocab_size": 100}, "cpu", "avx512", torch.float32),  # greedy outputs stay equal
        ({}, "cpu", "avx512", torch.bfloat16),
        ({}, "cpu", None, torch.float32),  # bfloat16 would be emulated
    ],
)
def test_what_auto_means(
    fields: dict, device: str, instructions: str | None, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specdemo.models.preflight.bfloat16_instructions", lambda: instructions)
    with torch.device("meta"):  # a GPT-2, of 124M parameters unless told, without memory
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**fields))
    assert resolve_dtype("auto", model, device) is dtype
    assert resolve_dtype("float16", model, device) is torch.float16


def test_16_bit_on_a_cpu_without_instructions_is_told(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against a choice that halves memory and, there, the speed."""
    folder = folders("llama")[0]
    for instructions, dtype, told in (
        (None, "bfloat16", "no bfloat16 instructions: float32 is quicker"),
        ("avx512", "float16", "no float16 instructions: float32 is quicker"),
        ("avx512", "bfloat16", ""),
        (None, "float32", ""),
    ):
        monkeypatch.setattr("specdemo.models.preflight.bfloat16_instructions", lambda found=instructions: found)
        notes = " ".join(look(folder, dtype=dtype).notes)
        assert told in notes
        assert bool(notes) is bool(told)


def test_tokenizers_that_agree_but_for_padding_or_special_tokens_are_one(
    folders: Folders, doctored: Doctored
) -> None:
    """Guards Qwen 2.5's logits of different widths, and families whose chat models add tokens."""
    report, known = look(*folders("qwen2")), len(trained_tokenizer("qwen2"))
    assert report.tokenizers.relation == "same"
    assert report.tokenizers.text == f"same tokenizer; logits padded to {known + 40} and {known + 16}"
    assert look(*folders("llama")).tokenizers.text == "same tokenizer"
    report = look(folders("qwen2")[0], with_special_tokens(doctored("qwen2"), "qwen2", "<|a|>", "<|b|>"))
    assert (report.ok, report.tokenizers.relation) == (True, "specials")
    assert report.tokenizers.text == "same tokenizer but for 2 special tokens"
    assert specdemo.load_pair(report.request.name, device="cpu").draft_tokenizer is None


def test_different_tokenizers_are_bridged_by_text_and_change_nothing(folders: Folders) -> None:
    """Guards drafts of another family: the target's greedy output stays its own."""
    name = f"{folders('llama')[0]} + {folders('gpt2')[0]}"
    report = look(name)
    assert (report.ok, report.tokenizers.relation) == (True, "reencoded")
    pair = specdemo.load_pair(name, device="cpu")
    assert pair.draft_tokenizer is not None
    lanes = [Settings(strategy="autoregressive", max_new_tokens=24), Settings(gamma=3, max_new_tokens=24)]
    plain, fast = raced(pair, "The quick brown fox", lanes)
    assert fast.token_ids == plain.token_ids == generate(pair.target, plain.prompt_ids, 24)


def test_a_tokenizer_that_loses_text_cannot_draft_for_another(folders: Folders, doctored: Doctored) -> None:
    """Guards lower-casing drafts of another family: what they write could not be found in the text again."""
    spoilt = rewritten(doctored("gpt2"), "tokenizer.json", normalizer={"type": "Lowercase"})
    said = "draft: the tokenizers differ, and the draft's does not give back the text"
    assert said in refusal(folders("llama")[0], spoilt)


def spoil(folder: Path, texts: dict[str, str | None] | None = None, **fields: object) -> None:
    """Write files of a checkpoint, or take away those without a text; or change its configuration."""
    for name, text in (texts or {}).items():
        (folder / name).unlink(missing_ok=True)
        if text is not None:
            (folder / name).write_text(text)
    if fields:
        rewritten(folder, **fields)


ONE_FILE, INDEX = "model.safetensors", "model.safetensors.index.json"
SHARDS = json.dumps({"weight_map": {str(i): f"model-0000{i}-of-00002.safetensors" for i in (1, 2)}})
TINY = {"vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
BERT = transformers.BertConfig(**TINY, architectures=["BertForMaskedLM"]).to_json_string()
RWKV = transformers.RwkvConfig(**TINY, architectures=["RwkvForCausalLM"]).to_json_string()
FUTURE = {"model_type": "from_the_future", "architectures": ["Future"]}

SPOILT = [
    ({"texts": {"config.json": None}}, "holds no config.json", "give the repository or folder that has one"),
    ({"texts": {"config.json": "{"}}, "could not be loaded", "config.json"),
    (FUTURE, "from_the_future", "Transformers"),
    (
        {"texts": dict.fromkeys(("tokenizer.json", "tokenizer_config.json"))},
        "tokenizer",
        "choose a repository that has",
    ),
    ({"texts": {"tokenizer.json": "{"}}, "has no tokenizer that can be read", "add its tokenizer.json"),
    ({"texts": {ONE_FILE: None, "pytorch_model.bin": ""}}, "as pickles only, which can run code", "safetensors"),
    ({"texts": {ONE_FILE: None}}, "holds no weights", "choose the repository that has them"),
    ({"texts": {ONE_FILE: None, INDEX: "[]"}}, f"{INDEX} cannot be read", "fetch the model again"),
    ({"texts": {ONE_FILE: None, INDEX: SHARDS}}, "00001-of-00002.safetensors is missing, and 1 more", "fetch it"),
    ({"texts": {"config.json": BERT}}, "BertForMaskedLM, which is no causal language model", "continues text"),
    ({"texts": {"config.json": RWKV}}, "RwkvForCausalLM has no KV cache", "an architecture that has one"),
    ({"num_hidden_layers": 10**7}, "num_hidden_layers in its config.json is 10,000,000", "another repository"),
    ({"text_config": {"num_labels": 10**12}}, "num_labels in its config.json is 1,000,000,000,000", "another"),
    ({"quantization_config": {"quant_method": "gptq"}}, "quantised (by gptq)", "it was made from"),
]


@pytest.mark.parametrize(("how", "wrong", "advice"), SPOILT)
def test_what_cannot_run_is_refused_before_any_weight_is_fetched(
    how: dict, wrong: str, advice: str, hub: Hub, folders: Folders, doctored: Doctored
) -> None:
    """Guards each refusal, of a target in a folder and of a draft on the hub."""
    folder, good = doctored("llama"), folders("llama")[1]
    spoil(folder, **how)
    hub.add("org/spoilt", folder)
    for role, name, sources in (("target", folder, (folder, good)), ("draft", "org/spoilt", (good, "org/spoilt"))):
        said = refusal(*sources)
        assert str(name) in said or said.startswith(f"{role}: ")
        assert wrong in said
        assert advice in said
    assert not [name for name in hub.fetched("org/spoilt") if name.endswith((".safetensors", ".bin"))]
    both = look(folder, folder)
    assert (len(both.problems), both.tokenizers) == (2, None), "all problems are told at once"


@pytest.mark.parametrize("kind", ["unknown architecture", "known architecture", "tokenizer"])
def test_code_that_a_repository_brings_is_never_run(
    kind: str, hub: Hub, doctored: Doctored, tmp_path: Path
) -> None:
    """Guards the machine: ``auto_map`` names code to import. It is refused, or the library's class runs."""
    folder, trace = doctored("llama"), tmp_path / "it-ran"
    (folder / "custom.py").write_text(f"open({str(trace)!r}, 'w')\n")
    classes = {"AutoConfig": "custom.Config", "AutoModelForCausalLM": "custom.Model"}
    if kind == "unknown architecture":
        rewritten(folder, auto_map=classes, model_type="custom", architectures=["Model"])
    elif kind == "known architecture":
        rewritten(folder, auto_map=classes)
    else:
        rewritten(folder, "tokenizer_config.json", auto_map={"AutoTokenizer": ["custom.Slow", "custom.Fast"]})
    hub.add("org/custom", folder)
    for name in (str(folder), "org/custom"):
        if kind == "unknown architecture":
            assert "brings its own code, which is never run here" in refusal(name)
        else:
            assert type(specdemo.load_pair(name, device="cpu").target) is transformers.LlamaForCausalLM
    assert not trace.exists()
    assert "custom.py" not in hub.fetched("org/custom")


def test_a_pair_that_does_not_fit_into_memory_is_refused(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards against a process that the system kills: say both numbers, and what would help."""
    monkeypatch.setattr("specdemo.models.memory._free_main_memory", lambda: 5_000_000)
    said = refusal(*folders("llama"))
    assert f"the pair needs {gigabytes(look(*folders('llama')).memory)} and 5 MB are free" in said
    assert "choose a smaller pair, a 16-bit dtype or a quantisation" in said


def test_what_a_container_may_take_is_what_is_free(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Guards Spaces: the machine has more memory than its containers may use."""
    free = memory.free_memory("cpu")
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("400000\n")
    monkeypatch.setattr(memory, "Path", lambda _: tmp_path)
    assert memory.free_memory("cpu") == 600_000
    (tmp_path / "memory.current").write_text("1400000\n")
    assert memory.free_memory("cpu") == 0
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.free_memory("cpu") > free / 2


def test_a_download_that_does_not_fit_onto_the_disk_is_refused(
    hub: Hub, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards against a full disk after an hour of downloading; what is there already needs no room."""
    name = hub.add_pair(folders("llama"))
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1_000_000))
    assert "disk: 3 MB are to be downloaded and 1 MB are free" in refusal(name)
    assert look(*folders("llama")).ok


def test_a_quantisation_that_this_device_has_not_is_refused(
    folders: Folders, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Guards against failures in the middle of the first run: quanto loads what it cannot compute with."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PairError, match="Apple GPU has no float8; choose int8 or int4"):
        check_quantization("float8", "mps", torch.float16)
    with pytest.raises(PairError, match=r"no C\+\+ compiler with ninja here; choose bfloat16, or int8"):
        check_quantization("int4", "cpu", torch.float16)
    for works in (("float8", "cpu"), ("int8", "cpu"), ("int8", "mps"), ("int4", "cuda")):
        check_quantization(*works, torch.float32)
    check_quantization("int4", "cpu", torch.bfloat16)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for device in ("cpu", "auto"):
        assert "no C++ compiler" in refusal(folders("llama")[0], device=device, target_quantization="int4")
    monkeypatch.setattr("importlib.util.find_spec", lambda *_: None)
    with pytest.raises(PairError, match=r"needs optimum-quanto.*pip install -r requirements\.txt"):
        check_quantization("int8", "cpu", torch.float32)


def test_quantisation_that_changes_nothing_is_said(folders: Folders) -> None:
    """Guards GPT-2, whose layers quanto does not know: claiming int8 would be untrue."""
    report = look(*folders("gpt2"), target_quantization="int8")
    assert report.ok
    assert (report.models[0].quantization, report.models[0].weights.saved) == (None, 0)
    (note,) = report.notes
    assert "int8 changes nothing in the target: GPT2LMHeadModel" in note
