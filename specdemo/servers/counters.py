"""A server's own counters, read before and after a run: their difference is the run's if nothing else ran."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from specdemo.server_record import Counts

STEPS = "vllm:spec_decode_num_drafts_total"
DRAFTED = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
BY_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
FINISHED = "vllm:request_success_total"
GENERATED = "vllm:generation_tokens_total"
BUSY = ("vllm:num_requests_running", "vllm:num_requests_waiting")
SPECULATES = (STEPS, DRAFTED, ACCEPTED)


@dataclass(slots=True)
class Counters:
    """The sums over all engines of a deployment, by name; and the accepted tokens by draft position."""

    sums: Counter[str] = field(default_factory=Counter)
    positions: Counter[int] = field(default_factory=Counter)

    @property
    def speculates(self) -> bool:
        """Whether the deployment counts any speculation."""
        return all(name in self.sums for name in SPECULATES)

    @property
    def busy(self) -> bool:
        """Whether requests run or wait."""
        return any(self.sums[name] for name in BUSY)


def read_counters(text: str) -> Counters:
    """The counters of a page of metrics.

    Raises:
        ValueError: it is no such page.
    """
    found = Counters()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.sums[sample.name] += sample.value
            if sample.name == BY_POSITION:
                found.positions[int(sample.labels.get("position", -1))] += sample.value
    return found


def settled(before: str, after: str) -> bool:
    """Whether waiting for a later page is of no use: a request has ended and none runs, or it cannot be read."""
    try:
        first, last = read_counters(before), read_counters(after)
    except ValueError:
        return True
    return last.sums[FINISHED] > first.sums[FINISHED] and not last.busy


def difference(
    before: Counters, after: Counters, completion_tokens: int | None
) -> tuple[Counts | None, str | None]:
    """The run's counts, or why the difference is not the run's."""
    if not (before.speculates and after.speculates):
        return None, None
    others = "the server's counters are not used: "
    if before.busy:
        return None, others + "it was busy with other requests when this one began."
    finished = after.sums[FINISHED] - before.sums[FINISHED]
    if after.busy:
        return None, others + "it is busy with other requests."
    if finished != 1:
        return None, others + f"{finished:g} requests ended while this one ran, so they are not of this one alone."
    generated = after.sums[GENERATED] - before.sums[GENERATED]
    if completion_tokens is not None and generated != completion_tokens:
        return None, others + f"they count {generated:g} tokens, but the answer has {completion_tokens}."
    steps, drafted, accepted = (int(after.sums[name] - before.sums[name]) for name in SPECULATES)
    by_position = [int(after.positions[i] - before.positions[i]) for i in sorted(after.positions)]
    if not 0 <= accepted <= drafted or steps < 0 or (by_position and sum(by_position) != accepted):
        return None, others + "they do not add up."
    gamma = len(by_position) or None
    return Counts(steps, drafted, accepted, gamma, per_position=tuple(by_position) or None), None
