"""Files made of finished runs: one HTML file that replays them offline, and CSV tables of tokens and rounds.

Text that models and people wrote is data in these files, never markup, script or formula.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from specdemo.files import write_whole
from specdemo.recording import Recording, check_playable
from specdemo.trace import Trace
from specdemo.view.assets import plotly_js, race_css, race_scripts
from specdemo.view.lane_headers import trace_headers
from specdemo.view.race_value import ROUND_FIELDS, replay_value

FORMULA = frozenset("=+-@＝＋－＠'")
"""What a spreadsheet reads as the beginning of a formula, plain and full-width, and the mark that prevents it."""

# The page's own script: the theme of the reader's system, then the recording.
START = """
const dark = matchMedia("(prefers-color-scheme: dark)");
const follow = () => document.documentElement.classList.toggle("dark", dark.matches);
dark.addEventListener("change", follow);
follow();
const value = JSON.parse(document.getElementById("recording").textContent);
window.SpecDemoPlayer.mount(document.querySelector(".race-root")).update(value);
"""
PAGE_CSS = """
body { margin: 0; background: var(--race-card); color: var(--race-ink); }
main { max-width: 1280px; margin: 0 auto; padding: 22px 24px 40px; }
@media (max-width: 520px) { main { padding: 14px 14px 32px; } }
h1 { margin: 0 0 10px; font: 600 15px/1.4 var(--race-font); }
"""


def export_html(traces: Sequence[Trace] | Recording, path: str | Path) -> None:
    """Write one file that replays the traces side by side, in real time, with no server and no network.

    Args:
        traces: a lane each; or a recording, which also shows its prompt and what it ran on.
        path: of the file, which is replaced if it is there.

    Raises:
        TraceError: there is nothing to replay, or a trace cannot be.
        OSError: the file cannot be written; what was there before is as it was.
    """
    recording = traces if isinstance(traces, Recording) else Recording(tuple(traces))
    check_playable(recording.traces)
    write_whole(path, replay_html(recording))


def replay_html(recording: Recording) -> str:
    return plotly_js().read_text(encoding="utf-8").join(replay_parts(recording))


def replay_parts(recording: Recording) -> tuple[str, str]:
    """The file before and after Plotly's script, which need not be sent to a browser that already has it.

    The page's content security policy loads nothing from outside, and allows these scripts only, by their hashes.
    """
    scripts = [*race_scripts(), START]
    texts = (plotly_js().read_text(encoding="utf-8"), *scripts)
    hashes = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts)
    allowed = " ".join(f"'sha256-{each}'" for each in hashes)
    policy = f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"
    value = replay_value(recording)
    value["rounds"] = [json.loads(text) for text in value["rounds"]]
    title = escape(recording.title or "Speculative decoding, replayed")
    before = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{PAGE_CSS}{race_css()}</style>\n</head>\n<body>\n"
        '<main><h1>Speculative decoding, token by token</h1><div class="race-root"></div></main>\n'
        f'<script type="application/json" id="recording">{script_json(value)}</script>\n<script>'
    )
    return before, "</script>\n" + "".join(f"<script>{s}</script>\n" for s in scripts) + "</body>\n</html>\n"


def script_json(value: Any) -> str:
    """JSON that nothing can break out of inside a script element: only ASCII, and no character of markup."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def tokens_csv(traces: Sequence[Trace]) -> str:
    """One line for each token of each lane, rejected ones included, in the order in which they were decided.

    ``output`` counts the lane's kept tokens from 1 and is empty for rejected ones; ``parent`` is that
    of a token in a draft tree. Texts that a spreadsheet would take for a formula begin with an apostrophe; the
    recording's JSON has them as they are.
    """
    names = ("round", "position", "parent", "kind", "id", "text", "p", "q", "acceptance", "margin", "seconds", "u")
    rows: list[Sequence[Any]] = []
    for lane, trace, title in _lanes(traces):
        kept = 0
        for token in trace.tokens:
            kept += token.kind != "rejected"
            place = "" if token.kind == "rejected" else kept
            rows.append([lane, title, place, *(getattr(token, name) for name in names)])
    return _csv(["lane", "title", "output", *names], rows)


def rounds_csv(traces: Sequence[Trace]) -> str:
    """One line for each round of each lane; round 0 is the prefill. Times are seconds of the lane's clock."""
    fields = ROUND_FIELDS[1:]
    rows = [
        [lane, title, r.index, len(r.emitted), *(getattr(r, name) for name in fields)]
        for lane, trace, title in _lanes(traces)
        for r in trace.rounds
    ]
    return _csv(["lane", "title", "round", "emitted", *fields], rows)


def _lanes(traces: Sequence[Trace]) -> Iterable[tuple[int, Trace, str]]:
    headers = trace_headers(traces)
    return [(lane, t, h["title"]) for lane, (t, h) in enumerate(zip(traces, headers, strict=True), start=1)]


def _csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text)  # lines end as RFC 4180 says, which also lets it quote a lone \r
    writer.writerow(columns)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    """An apostrophe goes before text that a spreadsheet would take for a formula, also after trimming."""
    if isinstance(value, str) and next((c for c in value if c.isprintable() and c != " "), "") in FORMULA:
        return "'" + value
    return "" if value is None else value
