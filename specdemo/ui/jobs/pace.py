"""How fast each pair decoded lately, by which a tab says how long a measurement will take."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from threading import Lock

from specdemo.trace import Trace
from specdemo.ui.jobs.gpu_time import Work

REMEMBERED = 64  # pairs of which the pace is kept
PREFILL = 3  # what the prefill of a run takes, in tokens; roughly
ROW_COST = 0.15  # what one more row adds to a step of a batch, in steps of one row; roughly


class Paces:
    """Seconds a token by pair, plain and drafted, as the last race of anyone on this app measured them."""

    def __init__(self) -> None:
        self._paces: OrderedDict[tuple[str, bool], float] = OrderedDict()
        self._lock = Lock()

    def learn(self, pair: str, seconds: float, *, drafted: bool) -> None:
        with self._lock:
            self._paces[pair, drafted] = seconds
            self._paces.move_to_end((pair, drafted))
            while len(self._paces) > 2 * REMEMBERED:
                self._paces.popitem(last=False)

    def learn_race(self, traces: tuple[Trace, ...]) -> None:
        """Remember what the lanes of a race that ran here took, their prefills included."""
        for trace in traces:
            if trace.server is None and trace.output:
                drafted = trace.settings.strategy != "autoregressive"
                self.learn(trace.pair, trace.rounds[-1].seconds / len(trace.output), drafted=drafted)

    def seconds(self, pair: str, work: Iterable[Work]) -> float | None:
        """What these runs take at most, roughly; None where the pair has not run yet.

        Where only plain or only drafted ones ran before, they stand for both.
        """
        with self._lock:
            slow, fast = (self._paces.get((pair, kind)) for kind in (False, True))
        slow, fast = slow or fast, fast or slow
        if slow is None or fast is None:
            return None
        found = 0.0
        for each in work:
            pace = slow if each.settings.strategy == "autoregressive" else fast
            tokens = each.settings.max_new_tokens + PREFILL
            found += pace * each.times * tokens * (1 + (each.rows - 1) * ROW_COST)
        return found
