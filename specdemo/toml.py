"""Reads TOML on every Python we support."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:  # the same parser, before it joined the standard library
    import tomli as tomllib


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of one file."""
    return tomllib.loads(path.read_text(encoding="utf-8"))
