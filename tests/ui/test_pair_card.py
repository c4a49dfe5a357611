"""What the card says of a pair, and how a load's progress reads."""

from __future__ import annotations

from pathlib import Path

import gradio as gr
import pytest
from checkpoints import checkpoint
from hub import Hub

import specdemo
from specdemo.errors import LoadCancelled
from specdemo.models.progress import STOPPED, LoadStep
from specdemo.runs.store import PairStore
from specdemo.ui.panel.controls import Controls
from specdemo.ui.panel.pair_card import UNCHANGED, PairLoading, card, checked, loaded, working
from specdemo.ui.panel.panel import create_pair_controls
from specdemo.ui.state.request import named, pair_request, parts_of
from specdemo.ui.state.state import CUSTOM, PairChoice
from specdemo.view.progress_text import describe


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (LoadStep("Loading", 3, 12), "Loading: 25%"),
        (
            LoadStep("Downloading", 1_500_000_000, 3_000_000_000, in_bytes=True, per_second=5e7),
            "Downloading: 1.5 GB of 3.0 GB, 50 MB/s, 30\u00a0s left",
        ),
    ],
)
def test_progress_says_how_far_and_how_long(step: LoadStep, text: str) -> None:
    """Guards the line that people wait in front of."""
    assert describe(step) == text


def test_names_and_messages_are_text_never_markup(tmp_path: Path) -> None:
    """Guards the card, which is HTML, against a folder or an answer of the hub that is called like a script."""
    folder = checkpoint(tmp_path / "<img src=x onerror=alert(1)>", "llama", layers=1)
    report = specdemo.preflight(str(folder), device="cpu")
    for html in (checked(report), card("problem", "<script>"), working(LoadStep("<b>"))):
        assert "<img" not in html
        assert "<script>" not in html
        assert "<b></b>" not in html
    assert "&lt;img" in checked(report)


def test_a_loaded_pair_states_measured_bytes_and_saving() -> None:
    """Guards the figure people quote: counted in memory, not estimated."""
    store = PairStore()
    request = pair_request(PairChoice(target_weights="int8", device="cpu"))
    with store.using(request) as load:
        pair = load.future.result()
        html = loaded(load)
    held = pair.footprints()
    assert f"In memory, {sum(f.nbytes for f in held.values()) / 1e6:.0f} MB." in html
    assert f"int8 · {held['target'].nbytes / 1e6:.0f} MB, {held['target'].saved:.0%} saved" in html
    assert "float32 · 7 MB<" in html


def test_the_controls_name_what_load_pair_understands(tmp_path: Path) -> None:
    """Guards that what is typed in reaches the same door as the Python API."""
    own = PairChoice(pair=CUSTOM, target=" org/big ", draft="org/small@v1", device="cpu")
    typed = pair_request(own.model_copy(update={"target_weights": "int8", "dtype": "bfloat16"}))
    assert (typed.name, typed.draft.revision) == ("org/big + org/small@v1", "v1")
    assert (typed.target_quantization, typed.draft_quantization, typed.dtype) == ("int8", None, "bfloat16")
    assert pair_request(PairChoice(pair=CUSTOM, target=str(tmp_path))).target.folder == tmp_path
    assert pair_request(PairChoice(pair="qwen3-float8")).target_quantization is None
    with pytest.raises(specdemo.PairError, match="target: it is empty; type a repository"):
        pair_request(PairChoice(pair=CUSTOM, target="  ", draft="org/small"))


def test_a_stopped_load_ends_though_another_look_was_on_its_way(hub: Hub, folders) -> None:
    """Guards Stop loading: a field that was left as it was pressed once waited for the load anew, to its end."""
    name = hub.add_pair(folders("llama"))
    hub.misbehave("org/target", delay=0.2)
    loading = PairLoading(store := PairStore())
    choice = PairChoice(pair=CUSTOM, target="org/target", draft="org/draft", device="cpu")
    watched = loading.show("visitor", choice, load=True)
    assert "pair-card" in next(watched)[0]
    load = store.find(pair_request(choice))
    assert load is not None
    assert load.request.name == name
    loading.cancel("visitor", choice)
    assert STOPPED in next(loading.show("visitor", choice))[0]
    assert [*watched] == [UNCHANGED]
    assert isinstance(load.future.exception(30), LoadCancelled)
    hub.behave("org/target")


@pytest.mark.parametrize(
    ("pair", "target", "draft", "expected"),
    [
        ("builtin-target", "", "x", set()),
        ("qwen3-eagle3", "", "", {"head"}),
        (CUSTOM, "a", "b", {"draft"}),
        (CUSTOM, "a", "AngelSlim/Qwen3-4B_eagle3", {"head"}),
        (CUSTOM, "a", " ", set()),
        (CUSTOM, "Qwen/Qwen3.5-0.8B", "", {"mtp"}),
        (CUSTOM, "Qwen/Qwen3.6-27B", "b", {"draft", "mtp"}),
        (CUSTOM, "", "", {"draft"}),
    ],
)
def test_what_a_pair_drafts_with(pair: str, target: str, draft: str, expected: set[str]) -> None:
    """Guards the list of methods, and that nothing is looked at before it is named."""
    assert parts_of(pair, target, draft) == expected
    assert named(PairChoice(pair=pair, target=target)) is (pair != CUSTOM or bool(target))


@pytest.mark.parametrize(("public", "offered"), [("1", False), ("0", True)])
def test_a_public_page_offers_the_catalogue_only(
    public: str, offered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards a public host: no folder of its own can be typed in, nor any model of any size."""
    monkeypatch.setenv("SPECDEMO_PUBLIC", public)
    with gr.Blocks():
        controls = Controls()
        create_pair_controls(controls)
    assert (CUSTOM in [value for _, value in controls["pair"].choices]) is offered
    if not offered:
        with pytest.raises(specdemo.PairError, match="public page loads no other models"):
            pair_request(PairChoice(pair=CUSTOM, target="/etc"))
