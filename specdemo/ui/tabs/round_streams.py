"""The rounds of races on their way to the pages that show them: each crosses once, and none is lost.

In the browser Gradio serialises the whole value of a component several times at every update, so that one of a
megabyte stalls the page. So a value says only how many rounds there are, and the page fetches those that it lacks;
one that was hidden, busy or slow fetches more of them at once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from fastapi import Response

MOST = 64  # runs whose rounds can be fetched: those shown last, on any page


class RoundStreams:
    """The rounds of the runs shown last, by the names of the runs, which nobody can guess."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, Sequence[str]] = OrderedDict()

    def offer(self, value: dict[str, Any]) -> dict[str, Any]:
        """A value of the race view without its rounds, which can be fetched now; ``count`` says how many."""
        if value["rounds"]:  # those that wait or load need no place
            self._runs[value["run"]] = value["rounds"]
            self._runs.move_to_end(value["run"])
            if len(self._runs) > MOST:
                self._runs.popitem(last=False)
        return {**value, "rounds": [], "count": len(value["rounds"])}

    def fetch(self, asked: Any) -> Response:
        """The rounds of a run from a place on, as JSON; of a run that is not known, or no more, there are none.

        Args:
            asked: the run's name and the place, as the page sent them.
        """
        match asked:
            case [str(run), int(start)] if start >= 0:
                rounds = self._runs.get(run, ())[start:]
            case _:
                rounds = ()
        return Response(f"[{','.join(rounds)}]", media_type="application/json")
