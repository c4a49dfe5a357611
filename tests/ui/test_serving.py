"""Starting the app where ports are taken, before the start and in the middle of it."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import gradio as gr
import httpx
import pytest
from gradio import http_server

from specdemo.ui import serving


@pytest.fixture
def page() -> Iterator[gr.Blocks]:
    """A small page; what is launched is all the same to its port."""
    with gr.Blocks(analytics_enabled=False) as made:
        gr.Markdown("here")
    yield made
    made.close(verbose=False)


def listening(port: int = 0) -> socket.socket:
    """What another program has."""
    return socket.create_server(("127.0.0.1", port))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # uvicorn's way to give up
def test_an_app_starts_although_another_takes_its_port_in_the_last_moment(
    page: gr.Blocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards two apps that are started at once: both look for a port before either of them has one."""
    with listening() as free:
        first = free.getsockname()[1]
    rivals: list[socket.socket] = []
    monkeypatch.delenv(serving.PORT, raising=False)
    monkeypatch.setattr(serving, "INITIAL_PORT_VALUE", first)
    begin = http_server.Server.run_in_thread

    def after_another(server: http_server.Server) -> None:
        if not rivals:  # Gradio has just seen that the port is free
            rivals.append(listening(first))
        begin(server)

    monkeypatch.setattr(http_server.Server, "run_in_thread", after_another)
    serving.launch(page)
    assert page.server_port > first
    assert httpx.get(page.local_url).status_code == 200
    assert httpx.get(f"{page.local_url}gradio_api/mcp/schema").status_code == 200
    rivals[0].close()


def test_a_stated_port_that_is_taken_is_told(page: gr.Blocks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against an app at another address than the one that its owner gave to others."""
    with listening() as rival:
        port = rival.getsockname()[1]
        monkeypatch.setenv(serving.PORT, str(port))
        monkeypatch.setattr(serving, "INITIAL_PORT_VALUE", port)
        with pytest.raises(SystemExit, match=f"Port {port} is taken by another program; end it, or give another"):
            serving.launch(page)
