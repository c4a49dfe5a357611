"""The folder of a Space: what is in it, its front matter, and the app as a Space starts it."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import httpx
import psutil
import pytest
import yaml
from apps import free_port, wait_for_page
from huggingface_hub import SpaceHardware
from tab import Tab, tokens_of, under_way

import specdemo
from specdemo.cli.main import main
from specdemo.cli.space import LARGEST, ROOT

TOKEN = "hf_aTokenThatNobodyMayEverSee"
QUIT_SECONDS = 20
PROMPT = "Book a table for two near the harbour."

# https://huggingface.co/docs/hub/spaces-config-reference
TEXTS = ("title", "emoji", "colorFrom", "colorTo", "sdk", "sdk_version", "python_version", "app_file", "license")
KINDS = {
    **dict.fromkeys((*TEXTS, "short_description", "suggested_hardware"), str),
    **dict.fromkeys(("models", "tags"), list),
    **dict.fromkeys(("fullWidth", "pinned"), bool),
}
COLOURS = {"red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the command writes; far from the repository, so that nothing of it can be imported by luck."""
    made = tmp_path_factory.mktemp("space") / "app"
    assert main(["space", str(made)]) == 0
    return made


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_the_folder_holds_what_the_app_needs_and_nothing_else(folder: Path) -> None:
    """Guards against a Space that lacks a script, or carries tests, benches and caches."""
    found = files(folder)
    assert {"app.py", "requirements.txt", "README.md", "specdemo/view/web/race.js"} <= found
    assert {"specdemo/ui/web/page.css", "assets/pairs.toml", "assets/builtin/draft/model.safetensors"} <= found
    unwanted = ("tests/", "specdemo/bench/", "specdemo/training/", "specdemo/cli/", ".git", ".ci/")
    assert not [name for name in found if name.startswith(unwanted) or "__pycache__" in name]
    assert max(path.stat().st_size for path in folder.rglob("*")) <= LARGEST
    assert all((folder / name).read_bytes() == (ROOT / name).read_bytes() for name in found)


def test_every_package_that_is_imported_is_declared() -> None:
    """Guards an installation against packages that are there only while another one needs them."""
    lines = (ROOT / "requirements.txt").read_text().lower().split()
    declared = {re.split(r"[\[=]", line)[0].replace("-", "_") for line in lines}
    imported = set()
    for path in (ROOT / "specdemo").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(node.module.split(".")[0])
    # Some names are not their package's: optimum-quanto is imported as optimum.
    of = {
        name: {package.lower().replace("-", "_") for package in packages}
        for name, packages in packages_distributions().items()
    }
    missing = {name for name in imported if not ({name} | of.get(name, set())) & declared}
    elsewhere = {"specdemo", "spaces"}  # ZeroGPU brings the second
    assert missing - elsewhere - sys.stdlib_module_names == set()


def test_a_folder_in_use_is_refused_and_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    assert main(["space", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert files(tmp_path) == {"mine.txt"}


def test_it_says_how_to_push(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The commands must be those of the hub's own tool, whatever its next version renames."""
    assert main(["space", str(tmp_path / "my space")]) == 0
    commands = re.findall(r"^ +hf (.*)$", capsys.readouterr().out, re.M)
    assert [command.split()[0] for command in commands] == ["auth", "repos", "upload"]
    hf = Path(sys.executable).with_name("hf")
    for command in commands:
        words = re.match(r"[a-z ]+[a-z]", command)[0].split()
        told = subprocess.run([hf, *words, "--help"], capture_output=True, text=True, timeout=120)
        assert told.returncode == 0, told.stderr
        assert all(option in told.stdout for option in re.findall(r"--\w+", command))


def test_the_front_matter_holds_documented_keys_and_values_only(folder: Path) -> None:
    """Guards against a Space that shows "Configuration error" instead of the app."""
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert text.startswith("---\n"), "the block must come first"
    settings = yaml.safe_load(text.split("---\n")[1])
    assert {name: type(value) for name, value in settings.items()} == KINDS
    assert settings["sdk"] == "gradio"
    assert {settings["colorFrom"], settings["colorTo"]} <= COLOURS
    assert settings["suggested_hardware"] in {hardware.value for hardware in SpaceHardware}
    assert len(settings["short_description"]) <= 60
    assert f"gradio[mcp]=={settings['sdk_version']}" in (folder / "requirements.txt").read_text().splitlines()
    assert (folder / settings["app_file"]).is_file()


# --- the app as a Space starts it -----------------------------------------------------------------------------


def space_environment(port: int, home: Path) -> dict[str, str]:
    """What the platform sets, and nothing of this machine's but where programs are found."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "HF_HOME": str(home / ".cache" / "huggingface"),
        "LANG": "C.UTF-8",
        "SYSTEM": "spaces",
        "SPACE_ID": "someone/specdemo",
        "SPACE_HOST": "someone-specdemo.hf.space",
        "GRADIO_SERVER_NAME": "0.0.0.0",
        "GRADIO_SERVER_PORT": str(port),
        "GRADIO_ALLOW_FLAGGING": "never",
        "GRADIO_ANALYTICS_ENABLED": "False",  # the tests' own: nothing may leave the machine
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",  # as all tests: threads of one would wait for cores that another uses
        "HF_TOKEN": TOKEN,
    }


CLOSED_LOOPS = re.compile(
    r"Exception ignored in: <function BaseEventLoop\.__del__.*?Invalid file descriptor: -1\n", re.DOTALL
)
"""What Python 3.11 writes when it collects event loops that Gradio's own code on a Space has closed already."""


@pytest.fixture(scope="module")
def space(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Path, subprocess.Popen[str]]]:
    """The running Space: its address, what it wrote so far, and its program."""
    home, port = tmp_path_factory.mktemp("home"), free_port()
    environment, log = space_environment(port, home), home / "log"
    where = [sys.executable, "-c", "import importlib.util as u; print(u.find_spec('specdemo').origin)"]
    found = subprocess.run(where, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert Path(found.stdout.strip()) == folder / "specdemo" / "__init__.py", found.stderr
    with log.open("w") as out:
        app = subprocess.Popen(
            [sys.executable, "app.py"],
            cwd=folder,
            env=environment,
            stdout=out,
            stderr=subprocess.STDOUT,
            text=True,
        )
    try:
        yield wait_for_page(app, port), log, app
    finally:
        app.kill()
        app.wait()


def test_a_run_on_the_builtin_pair_finishes_in_a_space(space: tuple[str, Path, subprocess.Popen[str]]) -> None:
    """The whole way with the Space's variables, a clean environment and the folder as the only source."""
    url, log, _ = space
    with Tab(url) as tab:
        *_, view = tab.run(prompt=PROMPT, max__tokens=24, ignore__eos=True, lane2__gamma=4)
        view = tab.whole(view)
    expected = specdemo.run(specdemo.load_pair(), PROMPT, specdemo.Settings(max_new_tokens=24, gamma=4))
    for lane in (0, 1):
        assert tokens_of(view, lane) == list(expected.token_ids)
    assert "Traceback" not in re.sub(CLOSED_LOOPS, "", log.read_text())


def test_a_space_is_public_and_never_shows_its_token(space: tuple[str, Path, subprocess.Popen[str]]) -> None:
    """Guards against strangers that make it download what they like, and HF_TOKEN in page, messages and log."""
    url, log, _ = space
    tab = Tab(url)
    config = httpx.get(f"{url}/config", timeout=30).json()
    [pairs] = [c["props"]["choices"] for c in config["components"] if c["props"].get("elem_id") == "pair"]
    assert len(pairs) > 5
    assert not [label for label, _ in pairs if "own models" in label]
    look = tab.event("dtype", "change")
    shown = list(tab.send(look, tab.values(look, pair="llama3")))  # gated, and the hub cannot be reached
    card = json.dumps(shown, ensure_ascii=False)
    assert "hub cannot be reached" in card
    for name in ("", "/config", "/gradio_api/info"):
        assert TOKEN not in httpx.get(url + name, timeout=30).text
    assert TOKEN not in card + log.read_text()


def test_a_space_ends_cleanly_in_the_middle_of_a_run(space: tuple[str, Path, subprocess.Popen[str]]) -> None:
    """By the signal by which Spaces and containers stop a program; a long run must not hold it up."""
    url, log, app = space
    with Tab(url) as tab:
        assert any(under_way(view) for view in tab.run(prompt=PROMPT, max__tokens=256, ignore__eos=True))
        children = psutil.Process(app.pid).children(recursive=True)
        app.terminate()
        assert app.wait(QUIT_SECONDS) == 0, log.read_text()
    assert "Traceback" not in re.sub(CLOSED_LOOPS, "", log.read_text())
    assert psutil.wait_procs(children, timeout=5)[1] == []
