"""Servers by name: the file, the environment, keys, and the command line."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_vllm import FakeVLLM
from toys import endless_pair, prompt_ids, raced

import specdemo
from specdemo import ModelPair, ServerError, ServerPair, Settings, SettingsError
from specdemo.cli.main import main
from specdemo.servers import catalog
from specdemo.servers.catalog import CLOSED, FILE, SHIPPED, SINGLE, configured_pair, problems, servers

README = Path(catalog.__file__).with_name("README.md")
KEY = "sk-very-secret-0123456789"
TWO = """
[[server]]
id = "one"
label = "The first"
baseline_url = "http://a:8000"
speculative_url = "https://b/v1/"
model = "m"
api_key_env = "ONE_KEY"
chat = true
timeout = 120

[[server]]
id = "two"
speculative_url = "http://c:8000/v1"
model = "n"
"""


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith((SINGLE, FILE))]:
        monkeypatch.delenv(name)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def write(text: str) -> None:
        (tmp_path / "servers.toml").write_text(text, encoding="utf-8")
        monkeypatch.setenv(FILE, str(tmp_path / "servers.toml"))

    return write


def test_the_shipped_example_is_a_good_file(file: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the comments: whoever removes the marks gets servers, not an error."""
    tables = SHIPPED.read_text(encoding="utf-8").partition("# [[server]]")
    file("\n".join(line.removeprefix("# ").removeprefix("#") for line in "".join(tables[1:]).splitlines()))
    monkeypatch.setenv("LLAMA_70B_KEY", KEY)
    shipped = servers()
    both = ("autoregressive", "speculative")
    assert {e.id: e.strategies for e in shipped.values()} == {"llama-70b": both, "qwen-32b": both}
    file(README.read_text(encoding="utf-8").partition("```toml\n")[2].partition("```")[0])
    assert servers() == shipped, "the README tells of other servers"


def test_the_readmes_commands_are_what_vllm_accepts() -> None:
    """Guards the commands: each JSON can be read, and its draft is split as its target is."""
    parts = re.split(r"(?=vllm serve )", README.read_text(encoding="utf-8"))
    commands = [part for part in parts if part.startswith("vllm serve ")]
    drafting = [command for command in commands if "--per-request-spec-decode-metrics detailed" in command]
    for command in drafting:
        size = int(re.search(r"--tensor-parallel-size (\d+)", command)[1])
        drafts = json.loads(re.search(r"--speculative-config\s+'({.*?})'", command, re.DOTALL)[1])
        assert (drafts["method"], drafts["draft_tensor_parallel_size"]) == ("draft_model", size)
    assert (len(commands), len(drafting)) == (10, 5)


def test_a_file_names_servers_and_the_environment_holds_their_keys(
    file: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    file(TWO)
    assert "ONE_KEY" in wrong()
    assert list(servers()) == ["two"], "one that is not complete is not in the way of another"
    with pytest.raises(ServerError, match="ONE_KEY"):
        configured_pair("one")
    monkeypatch.setenv("ONE_KEY", KEY)
    assert problems() == {}
    one, two = servers().values()
    urls, options = ("http://a:8000/v1", "https://b/v1"), {"chat": True, "timeout": 120}
    assert one.pair == ServerPair(*urls, "m", api_key=KEY, name="The first", **options)
    assert KEY not in repr(one)
    assert (two.label, two.pair.baseline_url) == ("two", None)


def test_a_file_is_read_once_for_each_change(file: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the page, which asks for the servers some sixty times a load."""
    read, loads = [], catalog.tomllib.loads
    monkeypatch.setattr(catalog.tomllib, "loads", lambda text: read.append(text) or loads(text))
    for text in (TWO, TWO + "# changed"):
        file(text)
        assert [list(servers()) for _ in range(3)] == [["two"]] * 3
        assert read.pop() == text
        assert not read


ONE = '[[server]]\nid = "x"\nmodel = "m"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f'{ONE}baseline_url = "http://a"\napi_key = "sk-1"', "keep keys out of files"),
        (ONE, "there is no address"),
        ('[[server]]\nid = "x"\nbaseline_url = "http://a"', "needs an id and a model"),
        (f'{ONE}baseline_url = "http://u:p@a"', "user name or a password"),
        (f'{ONE}baseline_url = "http://a"\nport = 3', "'port' is not known"),
        (f"{ONE}baseline_url = 3", "must be a text such as"),
        (f'{ONE}baseline_url = "http://a"\nnote = 3', "note must be a text"),
        ("server = 3", r"\[\[server\]\] tables"),
        ("[[server", "no TOML file"),
        (TWO.replace('"two"', '"one"').replace('api_key_env = "ONE_KEY"', ""), "have the id 'one'"),
        ('[[server]]\nid = "a:b"\nmodel = "m"\nbaseline_url = "http://a"', "an id is made of letters"),
    ],
)
def test_a_bad_file_is_one_sentence(file: Callable, text: str, message: str) -> None:
    file(text)
    assert re.search(message, wrong())
    assert "sk-1" not in wrong()


def test_users_of_a_public_page_do_not_see_what_is_wrong(
    file: Callable, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Guards a key that was pasted where its variable's name belongs: it is shown and logged nowhere."""
    variable = "sk-pasted-1"
    file(TWO.replace("ONE_KEY", variable))
    assert "the name of an environment variable" in wrong()
    monkeypatch.setenv("SPECDEMO_PUBLIC", "1")
    assert list(servers()) == ["two"]
    with pytest.raises(ServerError, match=re.escape(CLOSED)):
        configured_pair("one")
    file("[[server")
    with pytest.raises(ServerError, match=re.escape(CLOSED)):
        servers()
    assert variable not in wrong() + caplog.text


def test_no_file_and_no_server_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    assert SHIPPED.exists()
    assert servers() == {}
    monkeypatch.setenv(FILE, "/nowhere/servers.toml")
    with pytest.raises(ServerError, match="cannot be read"):
        servers()


def wrong() -> str:
    """What is wrong with the description."""
    try:
        return " ".join(map(str, problems().values()))
    except ServerError as error:
        return str(error)


def test_one_server_needs_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SINGLE + "SPECULATIVE_URL", "http://a:8000")
    assert "needs an id and a model" in wrong()
    monkeypatch.setenv(SINGLE + "MODEL", "m")
    monkeypatch.setenv(SINGLE + "API_KEY", KEY)
    monkeypatch.setenv(SINGLE + "CHAT", "on")
    (entry,) = servers().values()
    assert (entry.id, entry.pair.chat, entry.pair.api_key) == ("server", True, KEY)
    monkeypatch.setenv(SINGLE + "NAME", "Our 70B, new")
    (entry,) = servers().values()
    assert (entry.id, entry.label) == ("Our-70B-new", "Our 70B, new")


ADDRESSES = ["ftp://a", "http://", "http://u:p@a", "http://a:99999", "http://a/v1?key=1", "http://a b", 3, None]
UNUSABLE = {
    "baseline_url": [*ADDRESSES, "http://a/v1/chat/completions"],
    "model": ["", None],
    "timeout": [0, True],
    "chat": [1],
    "api_key": ["a\nb", "schlüssel"],
}


@pytest.mark.parametrize("field", UNUSABLE)
def test_an_address_a_model_or_an_option_that_cannot_be_used_is_refused(field: str) -> None:
    for value in UNUSABLE[field]:
        with pytest.raises(ServerError, match=field) as caught:
            ServerPair(**{"baseline_url": "http://a", "speculative_url": None, "model": "m", field: value})
        assert "schlüssel" not in str(caught.value)


def test_settings_name_a_configured_server(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = endless_pair("llama")
    with FakeVLLM(pair, Settings(gamma=3)) as fake:
        monkeypatch.setenv(SINGLE + "SPECULATIVE_URL", fake.url)
        monkeypatch.setenv(SINGLE + "MODEL", "toy")
        settings = Settings(engine="server", server="server", max_new_tokens=12)
        trace = specdemo.run(None, prompt_ids(9), settings)
        assert trace.token_ids == fake.traces[0].token_ids
        lanes = [settings, Settings(max_new_tokens=12)]
        assert [t.server is None for t in raced(pair, prompt_ids(9), lanes)] == [False, True]
    with pytest.raises(ServerError, match="choose one of 'server'"):
        specdemo.run(None, "a", Settings(engine="server", server="nope"))
    with pytest.raises(SettingsError, match="engine"):
        Settings(server="server")
    with pytest.raises(SettingsError, match="name"):
        specdemo.run(pair, "a", Settings(engine="server"))


def test_the_command_line_runs_races_and_sweeps_on_a_server(
    text_pair: ModelPair, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    def typed(*words: str) -> str:
        assert main([*words, "--max-new-tokens", "12"]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    with FakeVLLM(text_pair, Settings(gamma=3)) as fake, FakeVLLM(text_pair) as base:
        monkeypatch.setenv(SINGLE + "SPECULATIVE_URL", fake.url)
        monkeypatch.setenv(SINGLE + "BASELINE_URL", base.url)
        monkeypatch.setenv(SINGLE + "MODEL", "toy")
        monkeypatch.setenv(SINGLE + "CHAT", "on")
        assert "rounds from the server's own record" in typed("run", "Hello", "--server", "server")
        kept = tmp_path / "race.json"
        assert "client’s clock" in typed("race", "Hello", "--server", "server", "--json", str(kept))
        assert "γ = 3" in typed("sweep", "Hello", "--server", "server")
        mixed = ("--lane", "server=server", "--lane", "strategy=autoregressive")
        assert "Lane 1, toy on server" in typed("race", "Hello", *mixed)
        kept_check = tmp_path / "check.json"
        assert "identical: Both wrote the same 12" in typed(
            "compare", "Hello", "--server", "server", "--json", str(kept_check)
        )
        assert "127.0.0.1" not in kept_check.read_text()
        assert main(["run", "Hello", "--server", "nope"]) == 2
        assert "not configured" in capsys.readouterr().err
    traces = specdemo.Recording.load(kept).traces
    assert [t.server.level for t in traces] == ["speed", "detailed"]
    assert json.loads(kept.read_text())["metrics"][1]["draft_cost"] is None
