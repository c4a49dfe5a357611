"""Options of events that only touch the page."""

from __future__ import annotations

from typing import Any

UNSEEN: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
"""No spinner over what is updated, and no endpoint of the public API."""

QUIET: dict[str, Any] = {"queue": False, **UNSEEN}
"""Moreover without waiting behind events that compute."""
