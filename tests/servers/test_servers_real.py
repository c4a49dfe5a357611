"""A server that is not ours: ``transformers serve`` with the builtin target."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import specdemo
from specdemo import ModelPair, ServerPair, Settings
from specdemo.losslessness.compare import compare
from specdemo.models.source import ASSETS

MODEL = str(ASSETS / "builtin" / "target")
PROMPT = "Once upon a time, there was a little dog"
START_SECONDS = 120


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address; a process of its own, on loopback."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["serve", MODEL, "--host", "127.0.0.1", "--port", str(port), "--device", "cpu", "--dtype", "float32"]
    log = tmp_path_factory.mktemp("serve") / "log"
    command = [sys.executable, "-c", "from transformers.cli.transformers import main; main()", *words]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=environment)
        try:
            url = f"http://127.0.0.1:{port}"
            _await(url, process, log)
            yield url
        finally:
            process.terminate()
            process.wait(20)


def _await(url: str, process: subprocess.Popen, log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        assert process.poll() is None, log.read_text()
        try:
            if httpx.get(f"{url}/health", timeout=5).is_success:
                return
        except httpx.TransportError:
            time.sleep(0.2)
    pytest.fail(f"the server did not start within {START_SECONDS} s:\n{log.read_text()}")


@pytest.fixture(scope="module")
def builtin() -> ModelPair:
    return specdemo.load_pair("builtin")


@pytest.mark.parametrize("chat", [False, True])
def test_its_greedy_text_is_our_autoregressive_lanes(server: str, builtin: ModelPair, chat: bool) -> None:
    pair = ServerPair(server, None, MODEL, chat=chat, name="transformers serve")
    plain = Settings(engine="server", strategy="autoregressive", max_new_tokens=16)
    trace = specdemo.run(pair, PROMPT, plain)
    here = specdemo.run(builtin, PROMPT, Settings(strategy="autoregressive", max_new_tokens=16, chat=chat))
    assert trace.text == here.text
    assert trace.rounds[-1].stop == here.rounds[-1].stop
    assert compare(here, trace).outcome == "identical"
    assert trace.server.level == "speed"
    assert trace.server.completion_tokens == len(here.output)
    assert trace.server.prompt_tokens == len(here.prompt_ids)
    figures = trace.metrics()
    assert 0 < figures.ttft < figures.seconds
    assert figures.emitted == len(here.output) - 1
    assert 0 < trace.server.network_seconds < 1


def test_what_it_says_to_a_wrong_request_is_passed_on(server: str) -> None:
    pair = ServerPair(server, None, MODEL)
    with pytest.raises(specdemo.ServerError, match="HTTP 4"):
        specdemo.run(pair, [1, 2, 3], Settings(engine="server", strategy="autoregressive"))
