"""What requests from one address may cost: a page hardly touches it, and a flood is slowed to a trickle."""

from __future__ import annotations

from collections import OrderedDict
from time import monotonic

PURSE, INCOME = 100.0, 20.0
"""What requests from one address may cost at once, and in a second; further ones wait until it is there again."""
PURSES = 4_096
"""Addresses of which it is known what they spent lately."""


class Purses:
    """What each address may still ask for."""

    def __init__(self) -> None:
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def spend(self, address: str, cost: float) -> float:
        """Take from an address's purse; returns the seconds until it is out of debt."""
        now = monotonic()
        left, since = self._left.pop(address, (PURSE, now))
        left = min(PURSE, left + INCOME * (now - since)) - cost
        self._left[address] = left, now
        if len(self._left) > PURSES:
            self._left.popitem(last=False)
        return max(0.0, -left / INCOME)
