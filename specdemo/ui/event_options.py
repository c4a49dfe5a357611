"""Options of events that only touch the page."""

from __future__ import annotations

from typing import Any

UNSEEN: dict[str, Any] = {"show_progress": "hidden", "show_progress_on": [], "api_visibility": "private"}
"""No spinner over what is updated, and no endpoint of the public API.

With every message of any event Gradio passes its status to all components that ever showed one, hidden or not, and
copies their values for that: for this page's controls it took half of the browser's time in a run. So none does.
"""

UNQUEUED: dict[str, Any] = {"queue": False, **UNSEEN}  # moreover without waiting behind events that compute
