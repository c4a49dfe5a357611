"""HTML made of the Jinja2 templates in ``web``: every value in it is escaped, model texts and prompts too."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from specdemo.view.assets import WEB
from specdemo.view.measured_table import number

_environment = Environment(
    loader=FileSystemLoader(WEB), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)
_environment.filters["number"] = number


def fill(template: str, **values: Any) -> str:
    """The HTML of a template, by its file's name, for these values."""
    return _environment.get_template(template).render(values)
