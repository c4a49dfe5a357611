"""How fast each pair decoded lately, by which a tab says how long a measurement will take."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from specdemo.trace import Trace

REMEMBERED = 64
"""Pairs of which the pace is kept."""


class Paces:
    """Seconds a token by pair, plain and drafted, as the last race of anyone on this app measured them."""

    def __init__(self) -> None:
        self._paces: OrderedDict[tuple[str, bool], float] = OrderedDict()
        self._lock = Lock()

    def learn(self, pair: str, seconds: float, *, drafted: bool) -> None:
        """Remember the seconds that one token took."""
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

    def seconds(self, pair: str, plain: float, drafted: float) -> float | None:
        """What so many plain and drafted tokens take, roughly; None where the pair has not run yet.

        Where only one of the two is known it stands for both.
        """
        with self._lock:
            slow, fast = (self._paces.get((pair, kind)) for kind in (False, True))
        slow, fast = slow or fast, fast or slow
        return None if slow is None or fast is None else slow * plain + fast * drafted
