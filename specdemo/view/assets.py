"""The race view's scripts and styles, shared by the page and the exported replay."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

WEB = Path(__file__).parent / "web"
SCRIPTS = ("race-chart.js", "race-timeline.js", "race-tokens.js", "race-png.js", "race.js", "race-player.js")
STYLES = ("race.css", "race-player.css", "race-png.css")


def race_scripts() -> list[str]:
    """The scripts, in the order in which they must be loaded."""
    return [(WEB / name).read_text(encoding="utf-8") for name in SCRIPTS]


def race_css() -> str:
    """The styles."""
    return "\n".join((WEB / name).read_text(encoding="utf-8") for name in STYLES)


def plotly_js() -> Path:
    """Plotly's script, as its wheel brings it."""
    found = find_spec("plotly")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("plotly is not installed; run: pip install -r requirements.txt")
    return Path(found.origin).parent / "package_data" / "plotly.min.js"
