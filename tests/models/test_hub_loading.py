"""From a hub to a race through the real code, with every trouble a hub, a disk and a memory can make."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch
import transformers
from checkpoints import checkpoint, checkpoint_pair, trained_tokenizer
from hub import Hub
from huggingface_hub import constants, get_token
from toys import build, generate, living_models, raced

import specdemo
from specdemo import LoadCancelled, PairError, Settings
from specdemo.losslessness.compare import compare
from specdemo.models.loading import fetch
from specdemo.models.preflight import examine
from specdemo.models.progress import LoadProgress
from specdemo.models.request import request_pair
from specdemo.runs.load import assemble_warm, load

Folders = Callable[[str], tuple[Path, Path]]

PROMPT = "The quick brown fox"
LANES = [Settings(strategy="autoregressive", max_new_tokens=24), Settings(gamma=3, max_new_tokens=24)]
WEIGHTS = "model.safetensors"
NO_KV = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes. Error code 12"


def load_pair(name: str, **options: object) -> specdemo.ModelPair:
    return specdemo.load_pair(name, "cpu", **options)


def failure(name: str, **options: object) -> str:
    """What is said when a pair cannot be loaded; no model must stay, though the error is still held."""
    before = living_models()
    with pytest.raises(PairError) as caught:
        load_pair(name, **options)
    assert living_models() == before
    return str(caught.value)


def parts(tmp_path: Path) -> list[int]:
    """Sizes of downloads that are not finished."""
    return [p.stat().st_size for p in (tmp_path / "cache").rglob("*.part")]


@pytest.mark.parametrize("family", ["gpt2", "llama", "qwen2", "qwen3", "gpt_neox"])
def test_a_pair_of_the_hub_is_checked_fetched_loaded_and_raced(family: str, hub: Hub, folders: Folders) -> None:
    """Guards the whole way for each architecture: nothing lossy on it, and no byte fetched twice."""
    name = hub.add_pair(folders(family))
    report = specdemo.preflight(name, device="cpu")
    assert (report.ok, report.tokenizers.relation) == (True, "same")
    pair = load_pair(name)
    assert load_pair(name).draft_tokenizer is None
    plain, fast = raced(pair, PROMPT, LANES)
    assert fast.token_ids == plain.token_ids == generate(pair.target, plain.prompt_ids, 24)
    assert compare(plain, fast).outcome == "identical"
    assert fast.metrics().accepted > 0
    assert [hub.fetched(r).count(WEIGHTS) for r in ("org/target", "org/draft")] == [1, 1]


def test_shards_are_fetched_and_put_together(hub: Hub, tmp_path: Path) -> None:
    """Guards large models: an index and several files, each fetched once."""
    model = build("llama", vocabulary=len(trained_tokenizer("llama")), hidden=64)
    folder = checkpoint(tmp_path / "model", "llama", model=model, shards=True)
    hub.add("org/sharded", folder)
    shards = sorted(p.name for p in folder.glob("*.safetensors"))
    report = specdemo.preflight("org/sharded", device="cpu")
    assert len(shards) > 1
    assert report.download == sum((folder / name).stat().st_size for name in shards)
    pair = load_pair("org/sharded")
    assert sorted(n for n in hub.fetched("org/sharded") if n.endswith(".safetensors")) == shards
    ids = pair.tokenizer(PROMPT)["input_ids"]
    assert generate(pair.target, ids, 12) == generate(model, ids, 12)


def test_a_revision_is_pinned_and_a_new_commit_is_fetched(hub: Hub, folders: Folders, tmp_path: Path) -> None:
    """Guards pins: ``@commit`` takes that one; without it a changed repository is fetched again."""
    first = hub.add("org/model", folders("llama")[0])
    assert specdemo.preflight("org/model", device="cpu").models[0].checkpoint.commit == first
    load_pair(f"org/model@{first}")
    second = hub.add("org/model", checkpoint_pair(tmp_path / "other", "llama", seed=3)[0])
    assert second != first
    assert specdemo.preflight("org/model", device="cpu").download > 0
    load_pair("org/model")
    assert hub.fetched("org/model").count(WEIGHTS) == 2


def test_an_unknown_repository_or_revision_is_told(
    hub: Hub, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards the message for a typo, with a token (404) and without (401, as if it were private)."""
    hub.add("org/model", folders("llama")[0])
    for token in ("", "secret"):
        monkeypatch.setenv("HF_TOKEN", token)
        assert "org/nothing is not on the hub, or is private; check the spelling" in failure("org/nothing")
    assert "org/model has no revision 'v9'; leave the revision out" in failure("org/model@v9")


def test_a_gated_repository_needs_the_token_of_the_environment(
    hub: Hub, folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards Llama, and against visitors who use what the owner of the machine once logged in with."""
    name = hub.add_pair(folders("llama"), gated=True, token="hf_right")
    (tmp_path / "token").write_text("hf_right")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    assert get_token() == "hf_right", "the library would send it"
    for token in ("", "hf_wrong"):
        monkeypatch.setenv("HF_TOKEN", token)
        said = failure(name)
        assert "org/target is gated: accept its licence at huggingface.co/org/target and set HF_TOKEN" in said
        assert "hf_wrong" not in said
        assert len(specdemo.preflight(name, device="cpu").problems) == 2
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    assert [m.gated for m in specdemo.preflight(name, device="cpu").models] == [True, True]
    assert load_pair(name).target is not None


@pytest.mark.parametrize("trouble", ["closed", "offline", "status 429"])
def test_what_was_fetched_loads_without_the_hub(
    trouble: str, hub: Hub, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards trains and talks: what is in the cache loads, by branch and by pinned commit; the rest is told."""
    name = hub.add_pair(folders("llama"))
    commit = specdemo.preflight(name, device="cpu").models[0].checkpoint.commit
    hub.add("org/only-seen", folders("llama")[0])
    specdemo.preflight("org/only-seen", device="cpu")  # fetches its description, not its weights
    ids = specdemo.run(load_pair(name), PROMPT, LANES[1]).token_ids
    if trouble == "closed":
        hub.close()
    elif trouble == "offline":
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    else:
        for repository in ("org/target", "org/only-seen", "org/never-seen"):
            hub.misbehave(repository, status=int(trouble.split()[1]))
    hub.requests.clear()
    for again in (name, f"org/target@{commit} + org/draft"):
        report = specdemo.preflight(again, device="cpu")
        assert (report.ok, report.download, report.models[0].checkpoint.commit) == (True, 0, commit)
        assert specdemo.run(load_pair(again), PROMPT, LANES[1]).token_ids == ids
    assert trouble != "offline" or not hub.requests
    for absent in ("org/never-seen", "org/only-seen"):
        said = f"{absent} is not on this machine and the hub cannot be reached; check the network"
        assert said in failure(absent)


@pytest.mark.parametrize(("status", "only"), [(418, None), (503, "config.json")])
def test_a_refusal_nobody_foresaw_is_passed_on(status: int, only: str | None, hub: Hub, folders: Folders) -> None:
    """Guards against silence: the status is told, and what to do."""
    name = hub.add_pair(folders("llama"))
    hub.misbehave("org/target", status=status, only=only)
    assert re.fullmatch(f"org/target: the hub answered .*{status}.*try again later.", failure(name))


def test_a_cut_connection_is_taken_up_where_it_broke(hub: Hub, folders: Folders) -> None:
    """Guards gigabytes: the second request asks for the rest only, and a 503 in between ends nothing."""
    name = hub.add_pair(folders("llama"))
    hub.misbehave("org/target", cut_after=700_000, times=1)
    hub.misbehave("org/draft", status=503, only=WEIGHTS, times=1)
    ids = specdemo.run(load_pair(name), PROMPT, LANES[1]).token_ids
    assert hub.fetched("org/target").count(WEIGHTS) == 2
    (resumed,) = hub.ranges("org/target")
    assert 0 < int(resumed.removeprefix("bytes=").removesuffix("-")) <= 700_000
    assert ids == specdemo.run(load_pair(" + ".join(map(str, folders("llama")))), PROMPT, LANES[1]).token_ids


def disk_full(self: LoadProgress, done: int, text: str | None = None) -> None:
    if self.step.in_bytes and self.step.done > 400_000:  # in the loop that writes
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    ADVANCE(self, done, text)


ADVANCE, CUT = LoadProgress.advance, {"cut_after": 700_000}
THROWN_AWAY = "arrived damaged (its hash is not the hub's) and was thrown away; load the pair again"
BROKEN = {
    "cut": (CUT, "the connection to the hub broke off; load it again, it goes on where it stopped"),
    "an older part is too long": (CUT, "the connection to the hub broke off"),
    "the disk is full": ({}, "the disk is full; free some space (the download goes on where it stopped)"),
    "damaged, by LFS's hash": ({"corrupt": True}, f"{WEIGHTS} {THROWN_AWAY}"),
    "damaged, by git's hash": ({"corrupt": True, "only": "config.json"}, f"config.json {THROWN_AWAY}"),
}


@pytest.mark.parametrize("trouble", BROKEN)
def test_a_download_that_failed_is_told_and_the_next_load_goes_on(
    trouble: str, hub: Hub, folders: Folders, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Guards gigabytes and right weights: tries end, what came is kept for the next load, what is damaged goes."""
    name, (how, said) = hub.add_pair(folders("llama")), BROKEN[trouble]
    hub.misbehave("org/target", **how)
    with monkeypatch.context() as patch:
        if trouble == "the disk is full":
            patch.setattr(LoadProgress, "advance", disk_full)
        assert f"org/target: {said}" in failure(name)
    kept = parts(tmp_path)
    assert len(kept) == (0 if "corrupt" in how else 1)
    assert (1 < hub.fetched("org/target").count(WEIGHTS) < 10) == ("cut_after" in how)
    if trouble == "an older part is too long":  # which no request could ever complete
        next((tmp_path / "cache").rglob("*.part")).write_bytes(b"x" * 9_000_000)
        kept = []
    hub.behave("org/target")
    hub.requests.clear()
    assert raced(load_pair(name), PROMPT, LANES)[1].complete
    assert hub.ranges("org/target") == [f"bytes={size}-" for size in kept]
    assert not parts(tmp_path)


def cut_short(folder: Path) -> None:
    content = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(content[: len(content) // 2])


def lacking_a_tensor(folder: Path) -> None:
    tensors = safetensors.torch.load_file(folder / WEIGHTS)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    safetensors.torch.save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


def of_another_shape(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": 320}))


DAMAGED = "the weights cannot be read, the file is damaged or cut short"
INCOMPLETE = "the configuration asks for; they are incomplete or belong to another model"


@pytest.mark.parametrize(
    ("spoil", "quantization", "wrong"),
    [
        (cut_short, None, DAMAGED),
        (lacking_a_tensor, None, f"lack model.layers.1.mlp.up_proj.weight, which {INCOMPLETE}"),
        (lacking_a_tensor, "int8", f"lack model.layers.1.mlp.up_proj.weight, which {INCOMPLETE}"),
        (of_another_shape, None, f"hold model.layers.0.mlp.down_proj.weight in another shape than {INCOMPLETE}"),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_spoilt_weights_are_told_and_nothing_stays(
    spoil: Callable, quantization: str | None, wrong: str, folders: Folders, doctored: Callable
) -> None:
    """Guards partial copies: random numbers in place of a tensor would decode, and decode nonsense."""
    folder = doctored("llama")
    spoil(folder)
    # As the draft, so that a whole target is in memory when it fails.
    said = failure(f"{folders('llama')[0]} + {folder}", draft_quantization=quantization)
    assert str(folder) in said
    assert wrong in said


@pytest.mark.parametrize(
    ("moment", "error"),
    [
        ("first model", RuntimeError(NO_KV)),
        ("second model", torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")),
        ("warm-up", MemoryError()),
    ],
)
def test_memory_that_runs_out_while_loading_leaves_nothing_behind(
    error: Exception, moment: str, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards GPUs: after it failed, the models that were there must be gone though the error is still held."""
    name = " + ".join(map(str, folders("llama")))
    calls = []

    def exhausted(self: torch.nn.Module, *args: object) -> torch.nn.Module:
        if type(self) is transformers.LlamaForCausalLM:
            calls.append(self.num_parameters())
            if len(calls) == {"first model": 1, "second model": 3}.get(moment):
                raise error
        return self.train(False)

    with monkeypatch.context() as patch:
        patch.setattr(transformers.LlamaForCausalLM, "eval", exhausted)  # at the end of from_pretrained, and after
        if moment == "warm-up":
            patch.setattr("specdemo.runs.load.warm_up", lambda _: (_ for _ in ()).throw(error))
        said = failure(name)
    calls.clear()
    assert "memory ran out; choose a smaller pair, a 16-bit dtype or a quantisation" in said
    assert str(folders("llama")[1 if moment == "second model" else 0]) in said
    assert raced(load_pair(name), PROMPT, LANES)[1].complete


class Impatient(LoadProgress):
    """Ends the load at a certain moment."""

    def __init__(self, text: str, done: int) -> None:
        super().__init__()
        self._until = (text, done)

    def begin(self, *args: object, **options: object) -> None:
        super().begin(*args, **options)
        self._look()

    def advance(self, *args: object) -> None:
        super().advance(*args)
        self._look()

    def _look(self) -> None:
        if self._until[0] in self.step.text and self.step.done >= self._until[1]:
            self.cancel()


@pytest.mark.parametrize(
    ("text", "done"),
    [
        ("Looking at the draft", 0),
        ("Downloading the target", 600_000),
        ("Downloading the draft", 2_000_000),
        ("Loading the target", 0),
        ("Loading the draft", 3),
        ("Warming up", 0),
    ],
)
def test_a_cancelled_load_ends_and_leaves_nothing_but_what_was_fetched(
    text: str, done: int, hub: Hub, folders: Folders, tmp_path: Path
) -> None:
    """Guards every moment of a load: no model stays, the next one works and fetches only what is missing."""
    name = hub.add_pair(folders("llama"))
    request, before, progress = request_pair(name, "cpu"), living_models(), Impatient(text, done)
    with pytest.raises(LoadCancelled, match=r"stopped.*goes on with what was downloaded") as caught:
        load(request, progress)
    assert living_models() == before
    assert text in progress.step.text
    kept = [size for size in parts(tmp_path) if size]
    hub.requests.clear()
    assert load_pair(name).name == name
    assert hub.ranges("org/target") + hub.ranges("org/draft") == [f"bytes={size}-" for size in kept]
    assert (len(kept) == 1) == text.startswith("Downloading")
    del caught


def test_progress_counts_bytes_and_files_of_both_models(
    hub: Hub, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards the bar on the page: it ends at the total, never runs back, and names model and file."""
    seen, progress = [], LoadProgress()
    report = examine(request_pair(hub.add_pair(folders("llama")), "cpu"), progress)
    monkeypatch.setattr(
        LoadProgress, "advance", lambda self, *args: (ADVANCE(self, *args), seen.append(self.step))
    )
    fetch(report, progress)
    assemble_warm(report, progress)
    fetching = [step for step in seen if step.in_bytes]
    counts = [step.done for step in fetching]
    assert counts == sorted(counts)
    assert {step.total for step in fetching} == {report.download} == {counts[-1]}
    files = ["target (target), file 1 of 2", "draft (draft), file 2 of 2"]
    assert list(dict.fromkeys(step.text for step in fetching)) == [f"Downloading the {file}" for file in files]
    loading = [step for step in seen if step.text.startswith("Loading the draft")]
    assert loading[-1].done == loading[-1].total > 10
