"""Under the race: files of what was run, recordings to open, and those that come with the app."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import cache
from html import escape
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import gradio as gr

from specdemo.errors import TraceError
from specdemo.files import slug
from specdemo.models.source import ASSETS
from specdemo.recording import Recording
from specdemo.trace import Trace
from specdemo.ui.event_options import UNSEEN
from specdemo.ui.jobs.session_recordings import SessionRecordings
from specdemo.ui.tabs.round_streams import RoundStreams
from specdemo.view.export import replay_parts, rounds_csv, tokens_csv
from specdemo.view.lane_headers import trace_headers
from specdemo.view.race_value import replay_value

T = TypeVar("T")
GALLERY = ASSETS / "recordings"
PLOTLY: dict[str, Any] = {"script": "plotly.min.js"}
"""Stands for Plotly's script, which the visitor's browser has already."""

BYTE_ORDER_MARK = "\ufeff"  # without it spreadsheets read UTF-8 as something else
RUNNING = "A run is under way. Press Stop or wait for its end, then open the recording."
GONE = "There is nothing to save any more. Press Run, or open a recording, and save again."
_serial = count(1)

IN_TURN: dict[str, Any] = {"concurrency_id": "recordings", "concurrency_limit": 1, **UNSEEN}
"""Options of events that read a recording or make a file of one: a second of computing where it is long."""
REST = 2.0
"""Times what such an event took, in which none follows, so that runs keep most of the machine."""

# Files are put together in the browser and never lie on the server's disk. `props.value` is one from `_file`.
SAVE = """
const whole = async (part) => typeof part === "string" ? part
  : (await fetch([...document.scripts].find((s) => s.src.endsWith(part.script)).src)).text();
watch("value", async () => {
  const file = props.value;
  if (!file || !file.parts) return;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(await Promise.all(file.parts.map(whole)), { type: file.type }));
  link.download = file.name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
});
"""


class Desk:
    """Where recordings are opened and saved, one after another, with rests between them.

    All in one thread: the C library gives each thread a heap, and a long recording leaves holes in its own.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "recordings")
        self._rested = 0.0

    def do(self, work: Callable[[], T]) -> T:
        """The result of some work there; waits while the rest goes on."""
        return self._thread.submit(copy_context().run, self._paced, work).result()

    def _paced(self, work: Callable[[], T]) -> T:
        time.sleep(max(0.0, self._rested - time.monotonic()))
        began = time.thread_time()
        try:
            return work()
        finally:
            self._rested = time.monotonic() + REST * (time.thread_time() - began)


@dataclass(frozen=True, slots=True)
class Save:
    """One way to take a recording away: the button's text, and the file as parts of text."""

    id: str
    label: str
    ending: str
    type: str
    parts: Callable[[Recording], list[Any]]


def _replay(recording: Recording) -> list[Any]:
    before, after = replay_parts(recording)
    return [before, PLOTLY, after]


def _table(written: Callable[[Sequence[Trace]], str]) -> Callable[[Recording], list[Any]]:
    return lambda recording: [BYTE_ORDER_MARK, written(recording.traces)]


SAVES = (
    Save("json", "Save recording (JSON)", ".json", "application/json", lambda r: [r.to_json()]),
    Save("html", "Save replay (HTML)", "-replay.html", "text/html", _replay),
    Save("tokens", "Tokens (CSV)", "-tokens.csv", "text/csv", _table(tokens_csv)),
    Save("rounds", "Rounds (CSV)", "-rounds.csv", "text/csv", _table(rounds_csv)),
)


@cache
def shipped() -> tuple[Recording, ...]:
    """The recordings that come with the app, in the order of their files' names."""
    return tuple(Recording.load(path) for path in sorted(GALLERY.glob("*.json")))


def create_saves(recordings: SessionRecordings, desk: Desk) -> tuple[gr.Row, gr.Button]:
    """Build the row of save buttons in the current layout, hidden until there is something to save.

    Returns the row, and its button that takes over the settings, which the links wire.
    """
    file = gr.HTML(value=None, html_template="", js_on_load=SAVE, visible="hidden", elem_id="race-file")

    def saver(way: Save) -> Callable[[gr.Request], dict[str, Any] | None]:
        def save(request: gr.Request) -> dict[str, Any] | None:
            return desk.do(lambda: saved(request.session_hash or ""))

        def saved(session: str) -> dict[str, Any] | None:
            recording = recordings.get(session)
            if recording is None:
                gr.Warning(GONE)
                return None
            # The serial lets the browser see that the same file was asked for again.
            name = file_name(recording) + way.ending
            return {"serial": next(_serial), "name": name, "type": way.type, "parts": way.parts(recording)}

        return save

    with gr.Row(visible=False, elem_id="race-saves") as row:
        use = gr.Button("Use these settings", size="sm", min_width=90, elem_id="use-settings")
        for way in SAVES:
            button = gr.Button(way.label, size="sm", min_width=90, elem_id=f"save-{way.id}")
            button.click(saver(way), None, file, **IN_TURN)
    return row, use


def create_recordings(
    view: gr.HTML, saves: gr.Row, recordings: SessionRecordings, desk: Desk, streams: RoundStreams
) -> None:
    """Build the gallery and the place to open a file, and wire both to the view."""
    with gr.Column(elem_id="recordings"):
        gr.HTML(
            "<h3>Recordings</h3><p>Runs of the builtin pair as they were measured; they need no models.</p>",
            padding=False,
        )
        with gr.Row(elem_id="gallery"):
            chosen = [
                gr.Button(_caption(r), size="sm", min_width=180, elem_id=f"recording-{number}")
                for number, r in enumerate(shipped(), start=1)
            ]
            upload = gr.File(
                label="Open a recording (JSON)",
                show_label=False,
                file_types=[".json"],
                height=62,
                min_width=180,
                elem_id="open-recording",
            )
        message = gr.HTML(value=None, padding=False, elem_id="recording-message")

    def show(recording: Recording, session: str) -> list[Any]:
        if recordings.running(session):
            return [gr.update(), gr.update(), _notice(RUNNING), None]
        recordings.keep(session, recording)
        return [streams.offer(replay_value(recording)), gr.update(visible=True), None, None]

    def shower(recording: Recording) -> Callable[[gr.Request], list[Any]]:
        def show_shipped(request: gr.Request) -> list[Any]:
            return desk.do(lambda: show(recording, request.session_hash or ""))

        return show_shipped

    def read(path: str | None, request: gr.Request) -> list[Any]:
        if path is None:
            return [gr.update(), gr.update(), gr.update(), None]
        try:
            return desk.do(lambda: show(Recording.load(path), request.session_hash or ""))
        except TraceError as error:
            return [gr.update(), gr.update(), _notice(str(error)), None]
        finally:
            Path(path).unlink(missing_ok=True)  # what a visitor opens does not stay here

    outputs = [view, saves, message, upload]
    for button, recording in zip(chosen, shipped(), strict=True):
        button.click(shower(recording), None, outputs, **IN_TURN)
    upload.upload(read, upload, outputs, **IN_TURN)


def file_name(recording: Recording) -> str:
    """How the names of a recording's files begin: pair, lanes, the prompt's first words, and the day."""
    titles = " vs ".join(header["title"] for header in trace_headers(recording.traces))
    parts = [recording.traces[0].pair, titles, slug(recording.prompt or "", 30), recording.date]
    return "-".join(filter(None, map(slug, ["specdemo", *parts])))


def _caption(recording: Recording) -> str:
    on = recording.hardware.label if recording.hardware else "another machine"
    return f"{recording.title}\nrecorded on {on}"


def _notice(text: str) -> str:
    return f'<p role="alert">{escape(text)}</p>'
