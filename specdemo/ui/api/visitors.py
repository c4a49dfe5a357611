"""What Gradio keeps for visitors, bounded; and its end, whether or not their browsers say that they left."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import OrderedDict
from collections.abc import Sequence
from time import monotonic
from types import SimpleNamespace
from typing import Any

from gradio.routes import file_upload_statuses
from gradio.state_holder import SessionState, StateHolder

from specdemo.models.request import is_public
from specdemo.ui.api.addresses import BoundedConnection
from specdemo.ui.jobs.limits import Limits

TIDY_SECONDS = 5.0
MESSAGE_BYTES = 1_000  # that one takes beside its content, which is counted as text
UNREAD_SECONDS = 300.0
"""For which an answer waits, for whoever copies its number by hand from one command to the next."""
LISTENING_SECONDS = 15.0  # for which nobody need ask to be taken for one who listens
UPLOADS = 64  # uploads of whose progress something is kept
_log = logging.getLogger(__name__)


class Session(SessionState):
    """One visitor's components, where they differ from the page's.

    Gradio also builds a description of every component for each visitor, which takes 45 ms of the server's time,
    and keeps all that was shown to them in it, for its "deep links".
    """

    def __init__(self, blocks: Any) -> None:
        super().__init__(SimpleNamespace(default_config=blocks.default_config, blocks={}))  # type: ignore[arg-type]
        self.blocks_config.config_for_block = lambda *_: {}  # type: ignore[method-assign]
        self.used = monotonic()  # Gradio keeps the local time, which jumps


class Sessions(StateHolder):
    """The sessions of all visitors, up to the page's capacity; the longest unused goes first."""

    session_data: OrderedDict[str, Session]  # type: ignore[assignment]

    def __getitem__(self, session: str) -> SessionState:
        if session not in self.session_data:
            self.session_data[session] = Session(self.blocks)
        self.session_data[session].used = monotonic()
        return super().__getitem__(session)

    def idle(self, seconds: float) -> list[str]:
        """Those that were not used for so long."""
        return [n for n, s in self.session_data.copy().items() if s.used < monotonic() - seconds]

    def forget(self, session: str) -> None:
        """The visitor left; Gradio keeps all that was shown to them for an hour."""
        with self.lock:
            self.session_data.pop(session, None)
            self.time_last_used.pop(session, None)


class Mailbox(asyncio.Queue[Any]):
    """Messages to one visitor; knows the bytes of those that were not fetched, and when somebody last asked."""

    def __init__(self) -> None:
        super().__init__()
        self.size, self.asked = 0, monotonic()

    async def get(self) -> Any:
        """The next message, once there is one. An open page asks for it every ten seconds."""
        self.asked = monotonic()
        message, size = await super().get()
        self.asked = monotonic()
        self.size -= size
        return message

    def put_nowait(self, message: Any) -> None:
        size = MESSAGE_BYTES + len(repr(getattr(message, "output", None)))
        self.size += size
        super().put_nowait((message, size))


class Mailboxes(dict[str, Mailbox]):
    """The mailboxes of all sessions, for ``most`` unfetched bytes; Gradio's keep everything for the last 2,000."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, session: str, _: object) -> None:
        super().__setitem__(session, Mailbox())

    def __missing__(self, session: str) -> Mailbox:
        return Mailbox()  # of one who is forgotten: what still comes for them is dropped

    def __delitem__(self, session: str) -> None:
        self.pop(session, None)

    def abandoned(self) -> list[str]:
        """Sessions for which nobody asks any more: the old ones, and of the others those that take too much."""
        found, size, now = [], sum(box.size for box in self.values()), monotonic()
        for session, box in sorted(self.items(), key=lambda item: item[1].asked):
            unread = now - box.asked
            if unread < LISTENING_SECONDS or (unread < UNREAD_SECONDS and size <= self._most):
                break
            found.append(session)
            size -= box.size
        return found


class Visitors:
    """Everything that is kept of the visitors of a page, as long as it is.

    ``kept`` is what is kept beside Gradio's, each with ``sessions()`` and ``forget(session)``.
    """

    def __init__(self, page: Any, kept: Sequence[Any], limits: Limits) -> None:
        self._page, self._kept, self._limits = page, kept, limits
        self._sessions, self._mailboxes = Sessions(), Mailboxes(limits.unread)
        self._sessions.set_blocks(page)
        self._queue = page._queue
        self._queue.pending_messages_per_session = self._mailboxes
        self._queue.ANAYLTICS_CACHE_FREQUENCY = sys.maxsize  # else it makes a table of them after each event
        page.extra_startup_events.append(self._start)

    def forget(self, session: str) -> None:
        for kept in (*self._kept, self._sessions):
            kept.forget(session)

    async def tidy(self) -> None:
        """Forget answers that nobody fetches, and whoever did nothing for long or was forgotten by Gradio."""
        for session in self._mailboxes.abandoned():
            await self._queue.clean_events(session_hash=session)
            self._mailboxes.pop(session, None)
        pending = self._queue.pending_event_ids_session
        for session in pending.keys() - self._mailboxes.keys():
            del pending[session]
        gone = set().union(*(kept.sessions() for kept in self._kept)) - self._sessions.session_data.keys()
        for session in (*gone, *self._sessions.idle(self._limits.idle)):
            self.forget(session)
        uploads: dict[str, Any]
        for uploads in (file_upload_statuses._statuses, file_upload_statuses._signals):
            for upload in list(uploads)[:-UPLOADS]:
                del uploads[upload]

    async def _start(self) -> None:
        self._page.app.state_holder = self._sessions
        self._sessions.set_blocks(self._page)  # whose capacity is known by now
        if is_public():
            self._page.server.config.http_protocol_class = BoundedConnection
        self._tidying = asyncio.create_task(self._go_on())

    async def _go_on(self) -> None:
        while self._page.is_running:
            try:
                await self.tidy()
            except Exception:
                _log.exception("what is kept of visitors could not be looked through")
            await asyncio.sleep(TIDY_SECONDS)
