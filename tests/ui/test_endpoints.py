"""The public API, called as programs and agents call it."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from gradio_client import Client

import specdemo
from specdemo.models.request import catalog
from specdemo.recording import Recording
from specdemo.runs.store import PairStore
from specdemo.settings import Settings
from specdemo.ui.jobs.queue import JobQueue

PROMPT = "Book a table for two."


def mcp(url: str, work: Any) -> Any:
    """Do something in a session of the Model Context Protocol."""
    from mcp import ClientSession
    from mcp.client.streamable_http import streamablehttp_client

    async def session() -> Any:
        async with (
            streamablehttp_client(f"{url}gradio_api/mcp/") as (reader, writer, _),
            ClientSession(reader, writer) as agent,
        ):
            await agent.initialize()
            return await work(agent)

    # In a thread: a browser that another file of this process opened keeps an event loop in this one.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, session()).result()


def test_five_endpoints_are_public_and_typed_and_nothing_else(client: Client, url: str) -> None:
    """What the page does by itself cannot be called by name; every parameter says what it is."""
    named = client.view_api(return_format="dict")["named_endpoints"]
    assert set(named) == {"/pairs", "/run", "/race", "/sweep", "/advise"}
    assert client.view_api(return_format="dict")["unnamed_endpoints"] == {}
    assert [pair["id"] for pair in client.predict(api_name="/pairs")] == list(catalog())
    settings = {p["parameter_name"]: p["type"] for p in named["/run"]["parameters"]}["settings"]
    assert set(settings["properties"]) == set(Settings.__dataclass_fields__)
    assert settings["properties"]["acceptance"]["enum"][:2] == ["exact", "sampling"]
    tools = {tool["name"]: tool for tool in httpx.get(f"{url}gradio_api/mcp/schema").json()}
    assert set(tools) == {"pairs", "run", "race", "sweep", "advise"}
    for tool in tools.values():
        assert len(tool["description"]) > 40
        assert all(p.get("description") for p in tool["inputSchema"]["properties"].values())


def test_a_run_is_the_run_of_the_library(client: Client) -> None:
    """The same tokens, and figures under the names of Metrics."""
    settings = {"gamma": 4.0, "max_new_tokens": 24, "chat": None}
    answer = client.predict(PROMPT, settings, api_name="/run")
    trace = specdemo.run(specdemo.load_pair(), PROMPT, Settings(gamma=4, max_new_tokens=24))
    assert answer["token_ids"] == trace.token_ids
    assert answer["output"] == trace.text
    assert answer["metrics"]["accepted"] == trace.metrics().accepted
    assert set(answer["metrics"]) == set(trace.metrics().as_dict())
    assert answer["hardware"]["device"] == "CPU"
    assert answer["settings"]["gamma"] == 4


def test_a_race_says_speedups_verdict_and_why_and_the_page_could_open_it(client: Client) -> None:
    """The default lanes are plain and speculative; with rounds there is the whole recording."""
    answer = client.predict(PROMPT, api_name="/race", rounds=True)
    assert [lane["title"] for lane in answer["lanes"]] == ["Plain", "Draft model"]
    assert answer["speedups"][0] == 1
    speeds = [lane["metrics"]["tokens_per_second"] for lane in answer["lanes"]]
    assert answer["noisy"] or answer["speedups"][1] == pytest.approx(speeds[1] / speeds[0])
    assert answer["verdict"]["kind"] == "identical"
    assert answer["lanes"][1]["metrics"]["draft_cost"] > 0
    assert "of drafted tokens were kept" in answer["why"]
    recording = Recording.from_json(json.dumps(answer["recording"]))
    assert [list(t.token_ids) for t in recording.traces] == [lane["token_ids"] for lane in answer["lanes"]]
    assert recording.prompt == PROMPT


def test_a_sweep_measures_and_advises(client: Client) -> None:
    """Rows for the γ asked for; one prompt may come without its list."""
    answer = client.predict(PROMPT, [2, 4], 1, {"max_new_tokens": 16}, api_name="/sweep")
    assert [row["gamma"] for row in answer["rows"]] == [2, 4]
    assert answer["complete"]
    assert answer["recommendation"]
    assert "runs" not in answer


def test_advice_names_a_setting_and_the_lines_that_set_it(client: Client) -> None:
    """One method, so that a few seconds are enough for a block on a busy machine."""
    asked = [[PROMPT, "A farmer has 40 cows."], 4, ["prompt_lookup"], ["a", "b"], {"max_new_tokens": 8}]
    answer = client.predict(*asked, api_name="/advise")
    assert {row["method"] for row in answer["rows"]} == {"plain decoding", "prompt lookup"}
    assert answer["complete"]
    assert answer["settings"]["max_new_tokens"] == 8
    assert set(answer["code"]) == {"transformers", "vllm", "sglang", "llama.cpp"}
    assert answer["models"]["target"] == "assets/builtin/target"
    assert "runs" not in answer


def test_who_waits_is_told_so_and_may_leave(client: Client, url: str, store: PairStore, queues: JobQueue) -> None:
    """While the models are busy a call says where it stands; cancelled, it frees its place."""
    over, running = threading.Event(), threading.Event()
    first = client.submit(PROMPT, {"max_new_tokens": 8}, api_name="/run")
    first.result(timeout=60)
    store.thread.submit(lambda: (running.set(), over.wait(60)))
    running.wait(60)
    try:
        holder = client.submit(PROMPT, {"max_new_tokens": 8}, api_name="/run")
        other = Client(url, verbose=False, analytics_enabled=False)
        waiting = other.submit(PROMPT, {"max_new_tokens": 8}, api_name="/run")
        news = next(iter(waiting))
        assert news["state"] == "waiting"
        assert "number 1 in line" in news["message"]
        assert queues.busy() == 2
        waiting.cancel()
        other.close()
        deadline = time.monotonic() + 20
        while queues.busy() > 1 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert queues.busy() == 1, "who left still has a place in line"
    finally:
        over.set()
    assert holder.result(timeout=60)["output"]
    assert client.predict(PROMPT, {"max_new_tokens": 8}, api_name="/run")["output"]


def test_an_agent_lists_and_calls_the_tools(url: str) -> None:
    """Over the Model Context Protocol: a run's answer, and a mistake as an error of the tool."""

    async def work(agent: Any) -> Any:
        tools = [tool.name for tool in (await agent.list_tools()).tools]
        good = await agent.call_tool("run", {"prompt": PROMPT, "settings": {"max_new_tokens": 12}})
        bad = await agent.call_tool("run", {"prompt": PROMPT, "settings": {"gamma": 99}})
        return tools, good, bad

    tools, good, bad = mcp(url, work)
    assert sorted(tools) == ["advise", "pairs", "race", "run", "sweep"]
    assert not good.isError
    answer = json.loads(good.content[0].text)
    trace = specdemo.run(specdemo.load_pair(), PROMPT, Settings(max_new_tokens=12))
    assert answer["output"] == trace.text
    assert bad.isError
    assert "from 1 to 16" in bad.content[0].text
    assert "Traceback" not in bad.content[0].text
