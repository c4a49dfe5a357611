"""What a stranger may send to a public page: each is answered in a sentence, and nothing is left running."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from apps import launched
from tab import JSON, Tab

from specdemo.models.request import ASSETS
from specdemo.runs.store import PairStore
from specdemo.ui.api.guarded import TAKEN
from specdemo.ui.jobs.limits import PUBLIC
from specdemo.ui.jobs.queue import JobQueue

UNREADABLE = "cannot read"
MARKUP = "<img src=x onerror=alert(1)><script>alert(1)</script>"
TEMPLATE = "${alert(1)} {{constructor.constructor('alert(1)')()}} {% raw %}"
DEEP = "[" * 100_000 + "]" * 100_000
RECORDING = json.loads((ASSETS / "recordings" / "1-data.json").read_text(encoding="utf-8"))
TRACES = ("Traceback (most recent", 'File "/', "site-packages")

PAGE: list[tuple[str, dict[str, Any], str | None]] = [
    ("run", {"prompt": MARKUP}, None),
    ("run", {"prompt": "\x00\x1b[31m\u202e\u0007" * 20}, None),
    ("run", {"prompt": "   \n\t"}, "empty"),
    ("run", {"prompt": "word " * 10_000}, "characters"),
    ("run", {"prompt": "\ud800"}, "not valid Unicode"),
    ("run", {"max__tokens": 10**9}, "maximum"),
    ("run", {"lane2__gamma": [5]}, "must be a whole number from 1 to 16"),
    ("run", {"temperature": float("nan")}, "Temperature"),
    ("run", {"seed": -1}, "Seed"),
    ("run", {"pair": "custom", "custom__target": "/etc"}, "not in the list"),
    ("run", {"device": "\ud800"}, "not in the list"),
    ("sweep-run", {"sweep__from": 10**400}, "γ from"),
    ("sweep-run", {"sweep__repeats": 20, "sweep__source": "domains"}, "are the most"),
    ("sweep-run", {"sweep__source": "own", "sweep__own": "\n".join(["x"] * 100)}, "at most"),
    ("sweep-run", {"sweep__source": "own", "sweep__file": {"path": "/etc/passwd"}}, UNREADABLE),
    ("sweep-run", {"sweep__from": 5, "sweep__to": 2}, "γ: goes from 5 to 2; put the smaller one first"),
    ("sweep-run", {"sweep__to": 99}, "γ to: must be a whole number from 1 to 16, not 99"),
    ("sweep-run", {"sweep__source": "own"}, "Prompt: there is none; write one"),
    ("batch-run", {"batch__rows": 10**6}, "Rows"),
    ("batch-run", {"batch__rows": 1.5}, "Rows: must be a whole number from 1 to 16, not 1.5"),
    ("batch-run", {"max__tokens": 1}, "Length: must be a whole number from 2"),
    ("batch-measure", {"batch__rows": 16, "batch__repeats": 20}, "are the most"),
    ("losslessness-start", {"losslessness__runs": 10**7}, "maximum"),
]

API: list[tuple[str, Any, str | None]] = [
    ("run", [MARKUP, {"max_new_tokens": 4}], None),
    ("run", [], "must be a text, not null"),
    ("run", ["x" * 5000], "characters"),
    ("run", ["x", {"max_new_tokens": 10**12}], "more than the 256"),
    ("run", ["x", {"gamma": "5" * 100_000}], "gamma: must be a whole number"),
    ("run", ["x", {"__class__": 1}], "not known"),
    ("run", ["x", "{}"], "must be an object"),
    ("run", ["x", {}, "/etc/passwd"], "not in the catalogue"),
    ("run", ["x", {}, {"id": "builtin"}], "names no models"),
    ("race", ["x", [{}] * 100], "lanes: there are 100"),
    ("sweep", [["x"] * 19], "give at most 18"),
    ("sweep", [["x"] * 10, list(range(1, 17)), 16], "are the most"),
    ("sweep", [["x"], [2], 10**18], "below 2**53"),
    ("advise", [["x"], 1e300], "at most 120 seconds"),
    ("advise", [["x"], 5, {"a": 1}], "methods"),
    ("execute", [], "no endpoint of this name"),
    ("race", ["x", [{}, {"gamma": 0}]], "Lane 2, gamma"),
    ("sweep", [[], [2]], "there is none"),
    ("../run", ["x"], "not found"),
]

FILES: list[tuple[str, bytes | Any, str | None]] = [
    ("markup", {**RECORDING, "title": MARKUP, "prompt": TEMPLATE}, None),
    ("forged schema", {**RECORDING, "schema": 99}, "schema 99"),
    ("schema of another kind", {**RECORDING, "schema": {"$ref": "file:///etc/passwd"}}, "schema"),
    ("no traces", {**RECORDING, "traces": []}, "no traces"),
    ("a thousand lanes", {**RECORDING, "traces": [{}] * 1000}, "1,000 lanes"),
    ("a number beyond all", json.dumps(RECORDING).replace('"seconds":', '"seconds":1e999,"x":', 1), "not"),
    ("nested", DEEP.encode(), "not"),
    ("binary", b"\x7fELF\x00\xff\xfe" * 100, "not JSON"),
]


@pytest.fixture(scope="module")
def queues() -> JobQueue:
    return JobQueue(PUBLIC, shared=True)


@pytest.fixture(scope="module")
def url(store: PairStore, queues: JobQueue) -> Iterator[str]:
    """A public page, as on a Space."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SPECDEMO_PUBLIC", "1")
        environment.setattr("specdemo.ui.api.gate.INCOME", 1e6)  # all strangers here have one address
        with launched(store, queues) as url:
            yield url


@pytest.fixture
def wire(url: str, store: PairStore, queues: JobQueue) -> Iterator[Tab]:
    """A stranger; afterwards nobody is in line and the models' thread is free."""
    stranger = Tab(url)
    yield stranger
    stranger.close()
    deadline = time.monotonic() + 5
    while queues.busy() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert queues.busy() == 0, "a job was left in line"
    store.thread.submit(lambda: None).result(timeout=5)


def check(said: str, expected: str | None) -> None:
    assert not [trace for trace in TRACES if trace in said], said[-2000:]
    if expected is None:
        assert '"error"' not in said or '"error": null' in said, said[-2000:]
    else:
        assert expected in said, said[-2000:]
        assert len(said) < 10_000


@pytest.mark.parametrize(("button", "changed", "expected"), PAGE)
def test_values_that_no_page_sends(wire: Tab, button: str, changed: dict[str, Any], expected: str | None) -> None:
    """By way of the page's own events, past all that its scripts would have checked."""
    event = wire.event(button)
    short = {"max__tokens": 4} if button == "run" and "max__tokens" not in changed else {}
    messages = list(wire.send(event, wire.values(event, **short, **changed)))
    assert messages[-1]["msg"] in ("process_completed", "refused")
    said = json.dumps(messages if messages[-1].get("success") else messages[-1], ensure_ascii=False)
    check(said, expected)
    assert expected or (messages[-1]["success"] and '"done"' in said)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"pair": "builtin-target", "lane2__method": "draft"}, "Drafts as lane 2 of the panel does"),
        ({"lane2__method": ["draft"]}, "is not known"),
        ({"temperature": "hot"}, "Temperature: must be a number"),
    ],
)
def test_what_is_older_than_the_choices_is_no_error(wire: Tab, changed: dict[str, Any], said: str) -> None:
    """Guards what is on its way while another pair changes a lane's choices: Gradio would answer with an error."""
    (event,) = wire.events("panel-look", "click")
    ended = wire.last(event, wire.values(event, **changed))
    assert ended["success"], ended
    check(json.dumps(ended["output"]["data"], ensure_ascii=False), said)


@pytest.mark.parametrize(("endpoint", "data", "expected"), API)
def test_calls_that_mean_harm(wire: Tab, endpoint: str, data: Any, expected: str | None) -> None:
    """By way of the public API."""
    ended, said = wire.call(endpoint, data)
    if expected is None:
        assert ended == "complete", said
        assert json.loads(said)[0]["output"] is not None
    elif ended.startswith("status"):
        assert ended in ("status 404", "status 405", "status 422"), said
        check(said.lower() if expected == "not found" else said, expected)
    else:
        assert ended == "error", said
        check(said, expected)


def test_calls_by_name_that_lack_or_invent_names(wire: Tab) -> None:
    """The way of curl: what is missing or unknown is told, with what each endpoint really takes."""
    named = wire.http.get(f"{wire.api}/info").json()["named_endpoints"]
    assert {f"/{name}" for name in TAKEN} == set(named)
    for name, told in TAKEN.items():
        assert all(p["parameter_name"] in told for p in named[f"/{name}"]["parameters"])
    for endpoint, expected in (
        ("run", TAKEN["run"]),
        ("sweep", TAKEN["sweep"]),
        ("nope", "no endpoint of this name"),
    ):
        answer = wire.http.post(
            f"{wire.api}/call/v2/{endpoint}", json={"prompt": "x"} if endpoint == "sweep" else {}
        )
        assert answer.status_code in (404, 422)
        check(answer.text, expected)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("queue/join", {"data": "x" * 5000, "fn_index": 0, "session_hash": "s"}),
        ("call/run", {"data": ["x", {"x" * 5000: 1}]}),
        ("call/run", {"data": ["x", {"gamma": "x" * 5000}]}),
        ("call/run", {"data": ["x", {"seed": -(10**4000)}]}),
        ("call/run", {"data": ["x", {}, "x" * 5000]}),
        ("call/" + "x" * 1500, {"data": []}),
    ],
)
def test_no_answer_repeats_what_was_sent(wire: Tab, path: str, body: Any) -> None:
    """At most 200 characters of it, whoever finds it wrong: the server, Gradio, or the endpoint."""
    answer = wire.http.post(f"{wire.api}/{path}", content=json.dumps(body), headers=JSON)
    said = answer.text
    if "event_id" in said:
        *_, said = wire.http.get(f"{wire.api}/{path}/{answer.json()['event_id']}").text.splitlines()
    assert "x" * 201 not in said
    assert said.count("0") <= 200
    check(said, "")


def test_requests_too_large_are_refused_where_they_come_in(wire: Tab) -> None:
    """By the app as it is launched, with the bounds of a public page; a file before it fills the disk."""
    for path, sent in (
        ("call/race", {"content": b" " * (PUBLIC.body + 1), "headers": JSON}),
        ("call/race", {"json": {"data": ["x", [{}] * 3000]}}),
        ("upload", {"files": {"files": ("x.json", b" " * (PUBLIC.upload + 1))}}),
    ):
        answer = wire.http.post(f"{wire.api}/{path}", **sent)
        assert answer.status_code == 413
        check(answer.text, "")


@pytest.mark.parametrize(("name", "content", "expected"), FILES, ids=[f[0] for f in FILES])
def test_files_that_are_no_recordings(wire: Tab, name: str, content: Any, expected: str | None) -> None:
    """An opened file is data: read whole or refused in a sentence, and never kept."""
    text = content if isinstance(content, str | bytes) else json.dumps(content)
    path = upload(wire, text.encode() if isinstance(text, str) else text)
    (event,) = wire.events("open-recording", "upload")
    ended = wire.last(event, [{"path": path, "orig_name": "x.json", "meta": {"_type": "gradio.FileData"}}])
    assert ended["success"]
    said = json.dumps(ended["output"]["data"], ensure_ascii=False)
    check(said, expected)
    assert not Path(path).exists()
    assert (MARKUP.replace("<", "&lt;") in said or json.dumps(MARKUP)[1:-1] in said) == (name == "markup")


@pytest.mark.parametrize("path", ["/etc/passwd", "assets/pairs.toml", "\x00"])
def test_a_file_that_was_never_uploaded_is_neither_read_nor_removed(wire: Tab, path: str) -> None:
    """A visitor's file is named by the server, not by the visitor."""
    there = Path("/etc/passwd").exists()
    (event,) = wire.events("open-recording", "upload")
    ended = wire.last(event, [{"path": path, "meta": {"_type": "gradio.FileData"}}])
    assert not ended["success"]
    check(json.dumps(ended), UNREADABLE)
    assert Path("/etc/passwd").exists() == there
    assert (ASSETS / "pairs.toml").exists()


def test_addresses_that_lead_nowhere(wire: Tab) -> None:
    """Neither the host's files nor its network."""
    files = ("/etc/passwd", "../../../etc/passwd", "app.py", "%2e%2e%2fapp.py", "http://127.0.0.1/")
    others = ("proxy=http://127.0.0.1/", "component_server", "nothing", "run", "stream/x/1/1/a.m3u8")
    for path in (*(f"file={name}" for name in files), *others):
        answer = wire.http.get(f"{wire.api}/{path}")
        assert answer.status_code in (400, 403, 404, 405, 422), path
        check(answer.text, "")
        assert "root:" not in answer.text


@pytest.mark.parametrize(
    ("event", "data"),
    [(99_999, []), (-1, []), (0, "text"), (None, None), ("\ud800", [])],
)
def test_events_that_there_are_not(wire: Tab, caplog: pytest.LogCaptureFixture, event: Any, data: Any) -> None:
    """A sentence, whatever the number; what nobody foresaw stays in the host's log."""
    ended = wire.last(event, data)
    assert not ended.get("success")
    check(json.dumps(ended), "")
    assert "detail" in str(ended["output"]) or UNREADABLE in str(ended["output"])
    logged = [record for record in caplog.records if record.exc_info and record.name == "specdemo.ui.api.guarded"]
    assert logged or event != 99_999


@pytest.mark.parametrize("value", ["\ud800", None, [], True])
def test_whatever_reads_a_choice_tells_what_is_none(wire: Tab, value: object) -> None:
    """Guards against an answer without a word, or none at all where half a character cannot be sent back."""
    reads = wire.named["pair"]
    both = (*wire.events("pair", "input"), *wire.events("pair", "change"))
    events = [e for e in both if e["backend_fn"] and reads in e["inputs"] and e["targets"][0][0] == reads]
    assert len(events) >= 4
    for event in events:
        ended = wire.last(event, wire.values(event, pair=value))
        if ended["success"]:  # the tabs' plans say under themselves what is wrong
            assert "class='refused'" in str(ended["output"]).replace('"', "'"), event
            continue
        check(json.dumps(ended), "not in the list" if value == "\ud800" else UNREADABLE)


def test_no_visitor_hears_of_another(url: str) -> None:
    """Another session's stream has nothing of this one's run, and another's recording cannot be saved."""

    def run(tab: Tab, prompt: str) -> str:
        event = tab.event("run")
        return json.dumps(list(tab.send(event, tab.values(event, prompt=prompt, max__tokens=8))))

    mine, other = Tab(url), Tab(url)
    with ThreadPoolExecutor(1) as thread:
        heard = thread.submit(run, other, "Once upon a time")
        assert '"done"' in run(mine, "The secret word is marzipan.")
        assert "marzipan" not in heard.result(60)
    (saving, *_) = other.events("save-json")
    assert "marzipan" not in json.dumps(other.last(saving, other.values(saving)))
    mine.close()
    other.close()


def upload(wire: Tab, content: bytes) -> str:
    answer = wire.http.post(f"{wire.api}/upload", files={"files": ("x.json", content, "application/json")})
    assert answer.status_code == 200, answer.text
    return answer.json()[0]
