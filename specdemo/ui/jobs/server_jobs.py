"""Where jobs run: in the models' thread, or, where servers do all the work, in one of many beside it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor

from specdemo.runs.store import Load, PairStore
from specdemo.ui.jobs.limits import PRIVATE
from specdemo.ui.jobs.queue import Turns

AWAY = ThreadPoolExecutor(PRIVATE.servers, "servers")
"""As many as there are turns for such jobs. They wait for the network and compute next to nothing."""


def place_of(loads: Sequence[Load | None], store: PairStore, here: Turns, away: Turns) -> tuple[Executor, Turns]:
    """The thread and the line of a job.

    Args:
        loads: the pair of each of its lanes; None for one on a server.
        store: whose thread the models run in.
        here: the line of jobs that need models.
        away: the line of those that need none.
    """
    return (store.thread, here) if any(loads) else (AWAY, away)
