"""Under the race: files of what was run, the runs of this visit, recordings to open, and those of the app."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from html import escape
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import gradio as gr

from specdemo.errors import TraceError
from specdemo.files import slug
from specdemo.models.request import ASSETS
from specdemo.recording import Recording
from specdemo.ui.jobs.session_recordings import GONE, RoundStreams, SessionRecordings
from specdemo.ui.jobs.worker import StopSignals
from specdemo.ui.links import link_of
from specdemo.ui.panel.controls import UNQUEUED, UNSEEN, drawn_by
from specdemo.view.export import replay_parts, rounds_csv, tokens_csv
from specdemo.view.lane_headers import trace_headers
from specdemo.view.race_value import replay_value

GALLERY = ASSETS / "recordings"
BYTE_ORDER_MARK = "\ufeff"  # without it spreadsheets read UTF-8 as something else
RUNNING = "A run is under way. Press Stop or wait for its end, then open the recording."
_serial = count(1)

IN_TURN: dict[str, Any] = {"concurrency_id": "recordings", "concurrency_limit": 1, **UNSEEN}
"""Options of events that read a recording or make a file of one: a second of computing where it is long."""

# Files are put together in the browser and never lie on the server's disk. `props.value` is one from `save`;
# of its parts one may stand for Plotly's script, which the visitor's browser has already.
SAVE = """
const textOf = async (part) => typeof part === "string" ? part
  : (await fetch([...document.scripts].find((s) => s.src.endsWith(part.script)).src)).text();
watch("value", async () => {
  const file = props.value;
  if (!file || !file.parts) return;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(await Promise.all(file.parts.map(textOf)), { type: file.type }));
  link.download = file.name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
});
"""
HISTORY = """
const show = () => window.SpecDemoHistory.show(element.querySelector(".history"), props.value, (number) => {
  trigger("select", { number });
});
watch("value", show);
show();
"""


class Save(NamedTuple):
    """One way to take a recording away: the button's name and text, and the file as parts of text."""

    id: str
    label: str
    ending: str
    type: str
    parts: Callable[[Recording], list[Any]]


def _replay(recording: Recording) -> list[Any]:
    before, after = replay_parts(recording)
    return [before, {"script": "plotly.min.js"}, after]


SAVES = (
    Save("json", "Save recording (JSON)", ".json", "application/json", lambda r: [r.to_json()]),
    Save("html", "Save replay (HTML)", "-replay.html", "text/html", _replay),
    Save("tokens", "Tokens (CSV)", "-tokens.csv", "text/csv", lambda r: [BYTE_ORDER_MARK, tokens_csv(r.traces)]),
    Save("rounds", "Rounds (CSV)", "-rounds.csv", "text/csv", lambda r: [BYTE_ORDER_MARK, rounds_csv(r.traces)]),
)


@cache
def shipped() -> tuple[Recording, ...]:
    return tuple(Recording.load(path) for path in sorted(GALLERY.glob("*.json")))


class RecordingsPanel:
    """Built in the current layout, and wired to the view of the race, which replays what is opened."""

    def __init__(
        self, view: gr.HTML, recordings: SessionRecordings, signals: StopSignals, streams: RoundStreams
    ) -> None:
        self._view, self._recordings, self._signals, self._streams = view, recordings, signals, streams
        self._create_saves()
        self.history = drawn_by(HISTORY, "history", value=None, elem_id="history")
        with gr.Column(elem_id="recordings"):
            gr.HTML(
                "<h3>Recordings</h3><p>Runs of the builtin pair as they were measured; they need no models.</p>",
                padding=False,
            )
            with gr.Row(elem_id="gallery"):
                gallery = []
                for number, recording in enumerate(shipped(), start=1):
                    on = recording.hardware.label if recording.hardware else "another machine"
                    text, element = f"{recording.title}\nrecorded on {on}", f"recording-{number}"
                    gallery.append(gr.Button(text, size="sm", min_width=180, elem_id=element))
                self._upload = gr.File(
                    label="Open a recording (JSON)",
                    show_label=False,
                    file_types=[".json"],
                    height=62,
                    min_width=180,
                    elem_id="open-recording",
                )
            self._message = gr.HTML(value=None, padding=False, elem_id="recording-message")

        def read(path: str | None, request: gr.Request) -> dict[Any, Any]:
            if path is None:
                return {self._upload: None}
            try:
                return self._open(lambda: Recording.load(path), request.session_hash or "")
            finally:
                Path(path).unlink(missing_ok=True)  # what a visitor opens does not stay here

        outputs = [view, self.saves, self.history, self._message, self._upload]
        self.history.select(self._look_back, None, outputs, **IN_TURN)
        for button, recording in zip(gallery, shipped(), strict=True):

            def open_shipped(request: gr.Request, recording: Recording = recording) -> dict[Any, Any]:
                return self._open(lambda: recording, request.session_hash or "")

            button.click(open_shipped, None, outputs, **IN_TURN)
        self._upload.upload(read, self._upload, outputs, **IN_TURN)

    def _create_saves(self) -> None:
        file = gr.HTML(value=None, html_template="", js_on_load=SAVE, visible="hidden", elem_id="race-file")

        with gr.Row(visible=False, elem_id="race-saves") as self.saves:
            use = gr.Button("Use these settings", size="sm", min_width=90, elem_id="use-settings")
            use.click(None, None, None, js="() => { window.SpecDemoPanel.used(); }", **UNQUEUED)
            for kind in SAVES:
                button = gr.Button(kind.label, size="sm", min_width=90, elem_id=f"save-{kind.id}")

                def save(request: gr.Request, kind: Save = kind) -> dict[str, Any] | None:
                    """What the browser makes a file of; by the serial it sees that one was asked for again."""
                    recording = self._recordings.get(request.session_hash or "")
                    if recording is None:
                        gr.Warning(GONE)
                        return None
                    name = file_name(recording) + kind.ending
                    parts = kind.parts(recording)
                    return {"serial": next(_serial), "name": name, "type": kind.type, "parts": parts}

                button.click(save, None, file, **IN_TURN)

    def _look_back(self, event: gr.EventData, request: gr.Request) -> dict[Any, Any]:
        number, session = getattr(event, "number", None), request.session_hash or ""
        run = number if isinstance(number, int) else 0
        return self._open(lambda: self._recordings.look_back(session, run), session, kept=True)

    def _open(self, find: Callable[[], Recording | None], session: str, *, kept: bool = False) -> dict[Any, Any]:
        """Show a recording, which the visitor's are from now on; ``kept``: it is one of them already."""
        try:
            if self._signals.running(session, "race"):
                raise TraceError(RUNNING)
            if (recording := find()) is None:
                raise TraceError(GONE)
        except TraceError as error:
            return {self._message: f'<p role="alert">{escape(str(error))}</p>', self._upload: None}
        if not kept:
            self._recordings.keep(session, recording)
        return {
            self._view: self._streams.offer(replay_value(recording)) | {"link": link_of(recording)},
            self.saves: gr.update(visible=True),
            self.history: self._recordings.history(session),
            self._message: None,
            self._upload: None,
        }


def file_name(recording: Recording) -> str:
    """How the names of a recording's files begin: pair, lanes, the prompt's first words, and the day."""
    titles = " vs ".join(header["title"] for header in trace_headers(recording.traces))
    parts = [recording.traces[0].pair, titles, slug(recording.prompt or "", 30), recording.date]
    return "-".join(filter(None, map(slug, ["specdemo", *parts])))
