"""What Gradio holds for its visitors until they fetch it: bounded in bytes and in age."""

from __future__ import annotations

from asyncio import Queue
from itertools import chain
from sys import getsizeof
from time import monotonic
from typing import Any

from gradio.utils import LRUCache

MAILBOXES = 2_000
MESSAGE_BYTES = 1_000
"""That one takes beside its content."""
UNREAD_SECONDS = 300.0
"""For which an answer waits, for whoever copies its number by hand from one command to the next."""


class Mailbox(Queue[Any]):
    """Messages to one visitor.

    Attributes:
        size: bytes of those that were not fetched.
    """

    def __init__(self) -> None:
        super().__init__()
        self.size = 0
        self._asked, self._asking = monotonic(), 0

    async def get(self) -> Any:
        """The next message, once there is one. An open page asks for it every ten seconds."""
        self._asking += 1
        try:
            return await super().get()
        finally:
            self._asking -= 1
            self._asked = monotonic()

    def idle(self) -> float:
        """Seconds since anybody asked for a message."""
        return 0.0 if self._asking else monotonic() - self._asked

    def _put(self, message: Any) -> None:
        super()._put((message, size := MESSAGE_BYTES + nbytes(getattr(message, "output", None))))
        self.size += size

    def _get(self) -> Any:
        message, size = super()._get()
        self.size -= size
        return message


class Mailboxes(LRUCache[str, Queue[Any]]):
    """The mailboxes of all sessions, in place of Gradio's, which keeps everything for the last 2,000.

    Args:
        most: bytes of what was not fetched.
    """

    def __init__(self, most: int) -> None:
        super().__init__(MAILBOXES)
        self._most = most

    def __setitem__(self, session: str, _: Queue[Any]) -> None:
        super().__setitem__(session, Mailbox())

    def __missing__(self, session: str) -> Queue[Any]:
        return Mailbox()  # of one who is forgotten: what still comes for them is dropped

    def __delitem__(self, session: str) -> None:
        self.pop(session, None)

    def abandoned(self) -> list[str]:
        """Sessions for which nobody asks any more: the old ones, and of the others those that take too much."""
        found, size = [], sum(box.size for box in self.values())
        for session, box in sorted(self.items(), key=lambda item: -item[1].idle()):
            if box.idle() < UNREAD_SECONDS and (size <= self._most or not box.idle()):
                break
            found.append(session)
            size -= box.size
        return found


def nbytes(value: Any) -> int:
    """Bytes of plain data in memory; what stands in it twice counts twice."""
    if isinstance(value, dict):
        inner = chain(value, value.values())
    else:
        inner = value if isinstance(value, list | tuple) else ()
    return getsizeof(value) + sum(map(nbytes, inner))
