"""Trace: the record of one lane, and its JSON. Everything a person sees is read from here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

from specdemo.errors import SettingsError, TraceError
from specdemo.metrics import Metrics, measure
from specdemo.rounds import Round, Token
from specdemo.server_record import ServerRecord
from specdemo.settings import MAX_GAMMA, MAX_TREE_NODES, Settings

SCHEMA = 2
READABLE = (1, 2)
"""Traces of schema 1 know no draft trees; nothing else is different."""
NOT_ONE = "This is not a specdemo trace: "


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
        return json.dumps(asdict(self), ensure_ascii=False, allow_nan=False)

    @staticmethod
    def from_json(text: str) -> Trace:
        """Read a saved trace.

        Raises:
            TraceError: not a trace of this schema; says where it fails.
        """
        import pydantic
        import pydantic_core

        try:
            data = pydantic_core.from_json(text)
            _check_schema(data)
            chosen = _trees_were_chosen(data)
            trace = pydantic.TypeAdapter(Trace).validate_json(json.dumps(data) if chosen else text)
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"]) or "the file"
            raise TraceError(f"{NOT_ONE}{place}: {first['msg']}.") from error
        except (TypeError, ValueError, SettingsError) as error:  # TypeError: text that is no valid Unicode
            raise TraceError(f"{NOT_ONE}{error}") from error
        for round_ in trace.rounds:
            _check_counts(round_)
            _check_tree(round_)
            _check_known(round_, here=trace.server is None)
        return replace(trace, schema=SCHEMA, settings=_largest_tree(trace) if chosen else trace.settings)

    def __iter__(self) -> Iterator[Round]:
        return iter(self.rounds)


def _check_schema(data: Any) -> None:
    """Name another version of the record, instead of the fields in which it differs."""
    found = data.get("schema") if isinstance(data, dict) else None
    if found is not None and found not in READABLE:
        raise TraceError(f"This trace has schema {found!r}; this version reads schemas up to {SCHEMA}.")


def _trees_were_chosen(data: Any) -> bool:
    """Whether a lane of an earlier version chose the size of its trees itself; the setting is then a number."""
    settings = data.get("settings") if isinstance(data, dict) else None
    if not isinstance(settings, dict) or settings.get("tree_nodes") != "auto":
        return False
    settings["tree_nodes"] = MAX_TREE_NODES
    return True


def _largest_tree(trace: Trace) -> Settings:
    """The settings of such a lane: a tree of at most what it drafted, or a chain."""
    depth = max((t.position for t in trace.tokens if t.kind in ("accepted", "rejected")), default=1)
    nodes = max((max(r.drafted, 2) for r in trace.rounds if r.is_tree), default=0)
    return replace(trace.settings, gamma=min(depth, MAX_GAMMA), tree_nodes=nodes)


def _check_known(round_: Round, here: bool) -> None:
    """Refuse gaps in what ran here, and times by phase of what ran on a server."""
    missing = [phase is None for phase in (round_.draft_seconds, round_.verify_seconds, round_.other_seconds)]
    unknown = any(t.id is None or t.kind == "streamed" for t in round_.tokens)
    if here and (any(missing) or unknown):
        raise TraceError(f"{NOT_ONE}rounds.{round_.index}: it lacks what only a server may keep.")
    if not here and not all(missing):
        raise TraceError(f"{NOT_ONE}rounds.{round_.index}: a server has no times of its phases.")


def _check_counts(round_: Round) -> None:
    """A round's counts must be those of its tokens; every figure is divided from them."""
    kinds = [token.kind for token in round_.tokens]
    accepted, drafted = kinds.count("accepted"), kinds.count("accepted") + kinds.count("rejected")
    if (round_.accepted, round_.drafted) != (accepted, drafted):
        raise TraceError(
            f"{NOT_ONE}rounds.{round_.index}: it counts {round_.accepted} of "
            f"{round_.drafted} drafted tokens as accepted, but holds {accepted} of {drafted}."
        )


def _check_tree(round_: Round) -> None:
    """Refuse a draft tree that is none: each token follows one before it, and the kept ones are a path.

    The kept ones come first and the target's own token last; no setting drafts more or deeper.
    """
    if not round_.is_tree:
        return
    parents = [t.parent for t in round_.tokens]
    kinds = [t.kind for t in round_.tokens]
    own = len(kinds) - round_.drafted
    ordered = ["accepted"] * round_.accepted + ["rejected"] * (round_.drafted - round_.accepted)
    small = 0 < round_.drafted <= MAX_TREE_NODES and max(t.position for t in round_.tokens) <= MAX_GAMMA + 1
    if kinds[: round_.drafted] != ordered or own > 1 or not small:
        raise TraceError(f"{NOT_ONE}rounds.{round_.index}: its tokens are no draft tree.")
    depths = [0]
    for place, (token, parent) in enumerate(zip(round_.tokens, parents, strict=True), start=1):
        depths.append(depths[parent] + 1 if parent is not None and 0 <= parent < place else -1)
        kept = token.kind == "rejected" or parent == min(place - 1, round_.accepted)
        if not kept or token.position != depths[-1]:
            raise TraceError(f"{NOT_ONE}rounds.{round_.index}: its tokens are no tree with one kept path.")
