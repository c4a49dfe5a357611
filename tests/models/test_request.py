"""Names, sources, the catalogue and public mode: what can be asked for, and what is said of the rest."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import specdemo
from specdemo import PairError
from specdemo.models.request import ModelSource, catalog, is_public, parse_source, request_pair

WORD = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_]{0,20}", fullmatch=True)


@pytest.fixture(autouse=True)
def private(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPECDEMO_PUBLIC", "SPACE_ID"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("id_", catalog())
def test_every_entry_is_a_request(id_: str) -> None:
    """Guards against a typo in pairs.toml, and pins: a branch or a short hash would follow whatever is pushed."""
    entry, request = catalog()[id_], request_pair(id_, device="cpu")
    assert (request.name, request.device) == (id_, "cpu")
    assert (request.draft is None) == (entry.draft is None)
    assert all((entry.label, entry.note, entry.licence, entry.memory_gb > 0))
    for pin, source in ((entry.target_revision, request.target), (entry.draft_revision, request.draft)):
        assert pin is None or (re.fullmatch(r"[0-9a-f]{40}", pin) and source.revision == pin)


def test_the_catalogue_gives_way_to_what_is_asked() -> None:
    """Guards the order: what a person asks, then the entry's value; ``none`` undoes a default."""
    chosen = request_pair("qwen3-float8", "cpu", "float16", "none", "int8")
    assert (chosen.dtype, chosen.target_quantization, chosen.draft_quantization) == ("float16", None, "int8")
    large = request_pair("llama2-70b")
    assert (large.device, large.dtype) == ("auto", "float16")
    assert request_pair("llama2-70b", device="cpu", dtype=torch.bfloat16).dtype == "bfloat16"
    assert request_pair("builtin-target", draft_quantization="int8").draft_quantization is None
    plain = request_pair("qwen3-float8", "cpu", "float16").unquantized_target()
    assert (plain.draft, plain.target_quantization, plain.draft_quantization) == (None, None, None)
    assert (plain.target, plain.dtype, plain.device) == (parse_source("Qwen/Qwen3-4B"), "float16", "cpu")


@given(owner=WORD, name=WORD, revision=WORD)
def test_a_repository_is_read_with_and_without_its_revision(owner: str, name: str, revision: str) -> None:
    """Guards the spelling owner/name@revision; what is typed goes before what the catalogue pins."""
    repo = f"{owner}/{name}"
    assert parse_source(f" {repo} ") == ModelSource(repo)
    assert parse_source(repo, "main") == ModelSource(repo, "main")
    assert parse_source(f"{repo}@{revision}", "main") == ModelSource(repo, revision)
    assert parse_source(repo).title == name
    pair = request_pair(f"{repo}@{revision} + {repo}-c", device="cpu")
    assert (pair.target, pair.draft) == (ModelSource(repo, revision), ModelSource(f"{repo}-c"))
    assert hash(pair) == hash(request_pair([f"{repo}@{revision}", f"{repo}-c"], device="cpu"))


ODD_NAMES = ("x" * 300, "a\0b", "/a\0b", "\ud800", "/\ud800", "~no-such-user/model", "@main", "a/b/c")


@given(st.one_of(st.text(max_size=60), st.sampled_from(ODD_NAMES)))
def test_any_text_is_a_source_or_told_to_be_none(text: str) -> None:
    """Guards the field on the page: whatever is typed, only a PairError comes back, saying what to write."""
    try:
        source = parse_source(text)
    except PairError as error:
        said = str(error)
    else:
        said = "owner/name" if source.folder is None or source.folder.is_dir() else text
    assert "owner/name" in said or "there is no folder" in said


def test_folders_are_found_by_absolute_relative_and_home_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards local models, wherever the program was started."""
    folder = tmp_path / "some model"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for text in (str(folder), "./some model", "some model", "~/some model"):
        assert parse_source(text).folder == folder.resolve()
        assert parse_source(text).title == "some model"
    with pytest.raises(PairError, match=r"no folder or file './nothing'.*config\.json"):
        parse_source("./nothing")


def test_a_folder_may_have_a_plus_in_its_name(tmp_path: Path) -> None:
    """Alone it is found as it is; beside another, quotes say where a name ends."""
    folder = tmp_path / "a + b"
    folder.mkdir()
    assert request_pair(str(folder)).target.folder == folder
    for name in (f'"{folder}" + org/b', f' org/b + "{folder}"', f'"{folder}" + "{folder}"'):
        pair = request_pair(name)
        assert folder in (pair.target.folder, pair.draft.folder)
    typed = request_pair([str(folder), "org/b"])
    assert request_pair(typed.name) == typed, "the name that is shown can be typed"


@pytest.mark.parametrize("name", ["a/b + c/d + e/f + g/h", "a/b +  ", " + a/b"])
def test_more_or_fewer_names_than_there_are_parts_are_refused(name: str) -> None:
    """Guards against a name dropped in silence, or an empty one asked of the hub."""
    with pytest.raises(PairError, match=r"target \+ draft"):
        request_pair(name, device="cpu")


def test_a_mistyped_id_is_put_right_and_a_repository_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards both: a typo must not be asked of the hub, and what resembles an id can still be had."""
    with pytest.raises(PairError, match=r"did you mean 'builtin'\?.*owner/name"):
        request_pair("bulitin", device="cpu")
    assert request_pair("org/gpt2", device="cpu").target == ModelSource("org/gpt2")
    assert request_pair("gpt2@main", device="cpu").target == ModelSource("gpt2", "main")
    (tmp_path / "gpt2-x").mkdir()
    monkeypatch.chdir(tmp_path)
    assert request_pair("gpt2-x", device="cpu").target.folder == (tmp_path / "gpt2-x").resolve()


@pytest.mark.parametrize("name", ["", "  ", None, 5, [], [5]])
def test_no_name_lists_the_catalogue(name: object) -> None:
    """Guards the message: it must say what there is."""
    with pytest.raises(PairError, match=r"names no models.*builtin.*target \+ draft"):
        request_pair(name)


CHOICES = {
    "device": ("toaster", "cuda:99", "meta", "", 3.5, ("cpu",)),
    "dtype": ("float99", torch.int8, ""),
    "target_quantization": ("int3", ""),
    "draft_quantization": ("int3", ""),
}


@pytest.mark.parametrize("field", CHOICES)
def test_a_choice_that_is_not_there_is_refused(field: str) -> None:
    """Guards against a load that fails after the download; the device ``meta`` would load nothing at all."""
    for choice in CHOICES[field]:
        with pytest.raises(PairError, match=r"(device|dtype|quantisation): .* is not (available|known).*; choose"):
            request_pair("builtin", **{"device": "cpu", field: choice})


def test_one_device_has_one_name() -> None:
    """Guards against a pair that is loaded twice."""
    for cpu in ("cpu", "cpu:0", torch.device("cpu", 0)):
        assert request_pair("builtin", device=cpu).device == "cpu"


OUTSIDE = ("org/some-model", "org/a + org/b", "gpt2@main", ".", "/etc", "~", "assets:builtin/target", "bulitin")


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_public_page_loads_nothing_but_the_catalogue(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards a Space: a stranger must neither read its disk nor fill it, by load or by preflight."""
    monkeypatch.setenv("SPECDEMO_PUBLIC", "1")
    for ask in (request_pair, specdemo.preflight, specdemo.load_pair):
        with pytest.raises(PairError, match="not in the catalogue, and this public page loads no other models"):
            ask(name, device="cpu")
    assert request_pair("gpt2", device="cpu").target.name == "openai-community/gpt2"


def test_public_mode_follows_the_space_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the switch: a duplicated private Space may allow every model."""
    monkeypatch.setenv("SPACE_ID", "someone/space")
    assert is_public()
    for stated in ("0", ""):
        monkeypatch.setenv("SPECDEMO_PUBLIC", stated)
        assert not is_public()
