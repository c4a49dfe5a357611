"""Trace: the record of one lane, and its JSON. Everything a person sees is read from here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from specdemo.errors import TraceError
from specdemo.metrics import Metrics, measure
from specdemo.records import parsed, plain_data, validated
from specdemo.rounds import Round, Token
from specdemo.server_record import ServerRecord
from specdemo.settings import MAX_GAMMA, MAX_TREE_NODES, Settings

SCHEMA = 2
READABLE = (1, 2)
"""Traces of schema 1 know no draft trees; nothing else is different."""
NAME = "specdemo trace"


@dataclass(frozen=True)
class Trace:
    """The whole record of one lane.

    Attributes:
        settings: the lane's settings.
        prompt_ids: the token ids the lane started from, chat template included; empty if a server kept them.
        rounds: in order; ``rounds[0]`` is the prefill.
        pair: name of the model pair.
        dtype: of the target's weights, for judging ties; ``unknown`` on a server.
        quantization: of the target's weights, such as ``int8``; None if they are as they were trained.
        peak_memory: the most bytes taken so far when the lane was recorded: by torch on the target's GPU, else by
            the whole process; None if the system does not say. Lanes that run together share it.
        engine: what ran the models' layers, ``direct``, ``eager`` or ``graphs``, and after a colon why it was not
            what was asked for; None in records of earlier versions.
        threads: of the CPU that torch computed with, which decide the last digits of sums; None on a server,
            before the first round, and in records of earlier versions.
        server: what is known of a lane that ran on a server; None if it ran here.
        schema: version of this record.
    """

    settings: Settings
    prompt_ids: tuple[int, ...]
    rounds: tuple[Round, ...]
    pair: str = "in memory"
    dtype: str = "float32"
    quantization: str | None = None
    peak_memory: int | None = None
    engine: str | None = None
    threads: int | None = None
    server: ServerRecord | None = None
    schema: int = field(default=SCHEMA)

    @property
    def complete(self) -> bool:
        """Whether the lane stopped by itself, at an end token or a length."""
        return bool(self.rounds) and self.rounds[-1].stop is not None

    @cached_property
    def tokens(self) -> tuple[Token, ...]:
        """All tokens in order, rejected ones included."""
        return tuple(t for r in self.rounds for t in r.tokens)

    @cached_property
    def output(self) -> tuple[Token, ...]:
        """The tokens of the output, in order."""
        return tuple(t for t in self.tokens if t.kind != "rejected")

    @property
    def token_ids(self) -> list[int]:
        """Ids of the output, the end token included if one was produced; empty if a server gave only text."""
        ids = [t.id for t in self.output if t.id is not None]
        return ids if len(ids) == len(self.output) else []

    @property
    def text(self) -> str:
        """The output as text."""
        return "".join(t.text for t in self.output)

    def metrics(self, baseline: Trace | None = None) -> Metrics:
        """The lane's figures; the costs c and v(γ) need the ``baseline``, an autoregressive lane."""
        return measure(self, baseline)

    def to_json(self) -> str:
        """This record as JSON; ``Trace.from_json`` reads it back."""
        return json.dumps(plain_data(self), ensure_ascii=False, allow_nan=False)

    @staticmethod
    def from_json(text: str) -> Trace:
        """Read a saved trace; a TraceError says where it is none of this schema."""
        return trace_of(parsed(text, NAME))

    def __iter__(self) -> Iterator[Round]:
        return iter(self.rounds)


def trace_of(data: Any) -> Trace:
    """A trace from the plain data of its JSON; TraceError says where it is none of a schema known here."""
    found = data.get("schema") if isinstance(data, dict) else None
    if found is not None and found not in READABLE:  # instead of the fields in which it differs
        raise TraceError(f"This trace has schema {found!r:.40}; this version reads schemas up to {SCHEMA}.")
    trace = validated(Trace, data, NAME)
    for round_ in trace.rounds:
        if reason := _wrong(round_, here=trace.server is None):
            raise TraceError(f"This is not a {NAME}: rounds.{round_.index}: {reason}.")
    return replace(trace, schema=SCHEMA)


def _wrong(round_: Round, here: bool) -> str | None:
    """What no run records: counts that are not those of the tokens, or gaps that no server leaves."""
    kinds = [token.kind for token in round_.tokens]
    accepted, drafted = kinds.count("accepted"), kinds.count("accepted") + kinds.count("rejected")
    if (round_.accepted, round_.drafted) != (accepted, drafted):
        return (
            f"it counts {round_.accepted} of {round_.drafted} drafted tokens as accepted, but holds {accepted} of "
            f"{drafted}"
        )
    missing = [phase is None for phase in (round_.draft_seconds, round_.verify_seconds, round_.other_seconds)]
    if here and (any(missing) or "streamed" in kinds or any(t.id is None for t in round_.tokens)):
        return "it lacks what only a server may keep"
    if not here and not all(missing):
        return "a server has no times of its phases"
    return _no_tree(round_) if round_.is_tree else None


def _no_tree(round_: Round) -> str | None:
    """A draft tree that is none: each token follows one before it, and the kept ones are a path.

    The kept ones come first and the target's own token last; no setting drafts more or deeper.
    """
    kinds = [t.kind for t in round_.tokens]
    ordered = ["accepted"] * round_.accepted + ["rejected"] * (round_.drafted - round_.accepted)
    small = 0 < round_.drafted <= MAX_TREE_NODES and max(t.position for t in round_.tokens) <= MAX_GAMMA + 1
    if kinds[: round_.drafted] != ordered or len(kinds) > round_.drafted + 1 or not small:
        return "its tokens are no draft tree"
    depths = [0]
    for place, token in enumerate(round_.tokens, start=1):
        parent = token.parent
        depths.append(depths[parent] + 1 if parent is not None and 0 <= parent < place else -1)
        kept = token.kind == "rejected" or parent == min(place - 1, round_.accepted)
        if not kept or token.position != depths[-1]:
            return "its tokens are no tree with one kept path"
    return None
