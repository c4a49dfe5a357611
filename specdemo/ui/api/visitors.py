"""Lets go of what is kept of visitors, whether or not their browsers say that they left."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

import gradio as gr
from gradio.routes import file_upload_statuses

from specdemo.ui.api.mailboxes import Mailboxes
from specdemo.ui.api.sessions import Sessions
from specdemo.ui.jobs.limits import Limits

TIDY_SECONDS = 5.0
UPLOADS_TOLD = 64
"""Uploads of whose progress something is kept."""
CALLS_TOLD = 100
"""Past events of which Gradio keeps something, for a page of statistics that is not shown here."""
_log = logging.getLogger(__name__)


class Kept(Protocol):
    """Something that is kept by session."""

    def sessions(self) -> set[str]:
        """The visitors of whom something is kept."""

    def forget(self, session: str) -> None:
        """Keep nothing of this one."""


class Visitors:
    """Everything that is kept of the visitors of a page, as long as it is.

    Args:
        page: whose visitors they are; its queue is built.
        kept: what is kept of them beside what Gradio keeps.
        limits: for how long, and how much.
    """

    def __init__(self, page: gr.Blocks, kept: Sequence[Kept], limits: Limits) -> None:
        self._page, self._kept, self._limits = page, kept, limits
        self._queue = page._queue
        self._queue.pending_messages_per_session = self._mailboxes = Mailboxes(limits.unread)
        self._queue.ANALYTICS_MAX_EVENTS = CALLS_TOLD
        self._queue.ANAYLTICS_CACHE_FREQUENCY = sys.maxsize  # else it makes a table of them after each event
        page.extra_startup_events.append(self._start)

    def forget(self, session: str) -> None:
        """The visitor left."""
        for kept in self._kept:
            kept.forget(session)
        # What Gradio keeps is all that was shown to them, for an hour.
        holder = self._page.state_holder
        with holder.lock:
            holder.session_data.pop(session, None)
            holder.time_last_used.pop(session, None)

    async def tidy(self) -> None:
        """Forget answers that nobody fetches, and whoever did nothing for long or was forgotten by Gradio."""
        for session in self._mailboxes.abandoned():
            await self._queue.clean_events(session_hash=session)
            self._mailboxes.pop(session, None)
        pending = self._queue.pending_event_ids_session
        for session in pending.keys() - self._mailboxes.keys():
            del pending[session]
        holder = self._page.state_holder
        last = datetime.now() - timedelta(seconds=self._limits.idle)
        for session in [session for session, used in holder.time_last_used.copy().items() if used < last]:
            self.forget(session)
        for session in set().union(*(kept.sessions() for kept in self._kept)) - holder.session_data.keys():
            self.forget(session)
        for told in (file_upload_statuses._statuses, file_upload_statuses._signals):
            for upload in list(told)[:-UPLOADS_TOLD]:
                del told[upload]
        files = self._page.upload_file_set
        files -= await asyncio.to_thread(_gone, files.copy())

    async def _start(self) -> None:
        sessions = self._page.app.state_holder = Sessions()
        sessions.set_blocks(self._page)
        self._tidying = asyncio.create_task(self._go_on())

    async def _go_on(self) -> None:
        while self._page.is_running:
            try:
                await self.tidy()
            except Exception:
                _log.exception("what is kept of visitors could not be looked through")
            await asyncio.sleep(TIDY_SECONDS)


def _gone(paths: set[str]) -> set[str]:
    """Those of the files that are not there any more."""
    return {path for path in paths if not Path(path).exists()}
