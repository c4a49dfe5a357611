"""vLLM's ``/metrics`` before and after a request: the difference is the request's if nothing else ran."""

from __future__ import annotations

import time

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from specdemo.server_record import Counts
from specdemo.servers.connection import Connection
from specdemo.servers.response import Speculation

TRIES, SECONDS = 10, 0.05
TOTALS = tuple(f"vllm:spec_decode_num_{what}_total" for what in ("drafts", "draft_tokens", "accepted_tokens"))
BY_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"  # accepted tokens with a label ``position``
FINISHED = "vllm:request_success_total"
GENERATED = "vllm:generation_tokens_total"  # tokens of all outputs
BUSY = ("vllm:num_requests_running", "vllm:num_requests_waiting")
READ = (*TOTALS, BY_POSITION, FINISHED, GENERATED, *BUSY)


def page(connection: Connection) -> str | None:
    """The page of metrics now; None without one."""
    try:
        found = connection.get("/metrics")
    except httpx2.HTTPError:
        return None  # if nobody is there at all, the request itself will say so
    return found.text if found.is_success else None


def difference(connection: Connection, before: str, completion_tokens: int | None) -> Speculation:
    """The request's totals by the page before it and one after, or why they are not the request's.

    The counters may follow the end of the response with a short delay, which is waited for.
    """
    try:
        first = _sums(before)
        for _ in range(TRIES):
            after = page(connection)
            if after is None:
                return Speculation()
            last = _sums(after)
            if last.get(FINISHED, 0) > first.get(FINISHED, 0) and not _busy(last):
                break
            time.sleep(SECONDS)
        if any(name not in sums for sums in (first, last) for name in TOTALS):
            return Speculation()
        grown = {name: int(value - first.get(name, 0)) for name, value in last.items()}
    except (ValueError, OverflowError):  # the second: an infinite number
        return Speculation(complaints=("the server's page of metrics cannot be read",))
    steps, drafted, accepted = (grown[name] for name in TOTALS)
    by_position = {int(place): n for name, n in grown.items() if (place := name.partition("/")[2])}
    positions = tuple(by_position[place] for place in sorted(by_position))
    finished, generated = grown.get(FINISHED, 0), grown.get(GENERATED, 0)
    for wrong, reason in (
        (_busy(first), "it was busy with other requests when this one began"),
        (_busy(last), "it is busy with other requests"),
        (finished != 1, f"{finished} requests ended while this one ran, so they are not of this one alone"),
        (
            completion_tokens not in (None, generated),
            f"they count {generated} tokens, but the answer has {completion_tokens}",
        ),
        (
            not 0 <= accepted <= drafted or steps < 0 or (positions and sum(positions) != accepted),
            "they do not add up",
        ),
    ):
        if wrong:
            return Speculation(complaints=(f"the server's counters are not used: {reason}",))
    counts = Counts(steps, drafted, accepted, len(positions) or None, per_position=positions or None)
    return Speculation(counts, by_counters=True)


def _sums(text: str) -> dict[str, float]:
    """Sums over all engines of a deployment by name; those of accepted tokens by name and draft position.

    Raises:
        ValueError: it is no page of metrics.
    """
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in READ:
                place = f"/{int(sample.labels.get('position', -1))}" if sample.name == BY_POSITION else ""
                sums[sample.name + place] = sums.get(sample.name + place, 0.0) + sample.value
    return sums


def _busy(sums: dict[str, float]) -> bool:
    return any(sums.get(name) for name in BUSY)
