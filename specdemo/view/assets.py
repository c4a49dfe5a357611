"""The scripts and styles of the views, which the page and exported replays share, and their templates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from specdemo.analysis.disturbance import FEWEST
from specdemo.analysis.wording import LEVEL
from specdemo.view.headline import STEADY

NOTHING = "–"
"""Stands where nothing was measured."""
SPEEDS = ("0.1", "0.25", "0.5", "1", "2", "4", "8")
"""The player's speeds."""
SHARED = {"speeds": SPEEDS, "level": LEVEL, "settled": {"tokens": FEWEST, "rounds": STEADY, "seconds": 0.15}}
"""What scripts need of Python; ``settled``: with less decoding, the speed-up of a run under way is noise."""
WEB = Path(__file__).parent / "web"
SCRIPTS = (
    "dom.js",
    "race-charts.js",
    "race-tips.js",
    "race-tokens.js",
    "race-rounds.js",
    "race-apart.js",
    "race-headline.js",
    "race.js",
    "race-player.js",
)
"""In the order in which they must be loaded."""
STYLES = ("race.css", "race-tree.css", "race-player.css", "advice.css")
_templates = Environment(
    loader=FileSystemLoader(WEB), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)


def number(value: float | None, form: str, unit: str = "") -> str:
    """A figure, or a dash where nothing was measured."""
    return NOTHING if value is None else f"{value:{form}}{unit}"


_templates.filters["number"] = number


def race_scripts() -> list[str]:
    """The text of each script, in the order of loading."""
    return [f"window.SpecDemoShared = {json.dumps(SHARED)};", *(script_of(WEB / name) for name in SCRIPTS)]


def script_of(path: Path) -> str:
    """A script in a scope of its own: only what it puts on ``window`` is there for those loaded after it."""
    return f'(() => {{\n"use strict";\n{path.read_text(encoding="utf-8")}}})();\n'


def race_css() -> str:
    return "\n".join((WEB / name).read_text(encoding="utf-8") for name in STYLES)


def plotly_js() -> Path:
    """Path of Plotly's script in the installed package."""
    import plotly  # here, since who only exports figures to a notebook need not wait for it

    return Path(plotly.__file__).parent / "package_data" / "plotly.min.js"


def fill(template: str, **values: Any) -> str:
    """The HTML of a template in ``web``; every value in it is escaped, model texts and prompts too."""
    return _templates.get_template(template).render(values)
