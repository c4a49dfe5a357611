"""One model in one lane, fed by replays: the same calls as :class:`specdemo.decoding.engines.eager.Runner`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from specdemo.decoding.engines.graph_capture import Replay
from specdemo.decoding.engines.graph_pool import Lease
from specdemo.decoding.proposal import Proposal
from specdemo.decoding.sampling import Sampler

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class GraphRunner:
    """Feeds tokens to a model in slots that do not move; a rollback is a number.

    Args:
        model: whose forward it is.
        lease: the seat, for as long as this runner lives.
        counts: of how many tokens forwards are captured; others are filled up to the next of them.
        layers: run only the model's first so many.
    """

    engine = "graphs"

    def __init__(
        self,
        model: PreTrainedModel,
        lease: Lease,
        counts: Sequence[int],
        layers: int | None = None,
    ) -> None:
        self.model = model
        self.length = 0
        """Tokens in the slots."""
        self.lease = lease
        self.device = lease.seat.model.device
        self._counts = sorted(counts)
        self.layers = layers

    @property
    def held(self) -> int:
        """Bytes of keys and values allocated."""
        return self.lease.seat.slots.held

    @torch.inference_mode()
    def prepare(self, begun: int, most: int) -> None:
        """Capture all forwards of a lane that begins with ``begun`` tokens and ends with ``most``.

        The slots must be empty.
        """
        seat = self.lease.seat
        seat.inbox.send([0] * (1 + self._counts[-1]))
        for count in self._counts:
            for seen in seat.stages(begun + count, most + count):
                seat.forward(count, seen, self.layers)

    @torch.inference_mode()
    def forward(
        self, ids: Sequence[int] | torch.Tensor, keep: int = 1, drafted: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Append ``ids`` (n,), then ``drafted`` (γ,); returns the float32 logits (keep, vocabulary) of the last.

        Raises:
            ValueError: they do not fit in the room that was set aside.
        """
        fed = [t for t in (ids, drafted) if t is not None and len(t)]
        count = sum(map(len, fed))
        if not self.length:
            return self._prefill(fed, count, keep)
        if count <= self._counts[-1]:
            return self._replay(fed, count)[count - keep : count].clone()
        # More than any forward takes: one piece after the other. No lane does this, so it need not be fast.
        whole = torch.cat([torch.as_tensor(t, dtype=torch.long, device=self.device) for t in fed])
        pieces = whole.split(self._counts[-1])
        rows = torch.cat([self._replay([piece], len(piece))[: len(piece)].clone() for piece in pieces])
        return rows[count - keep :]

    def _prefill(self, fed: Sequence[Sequence[int] | torch.Tensor], count: int, keep: int) -> torch.Tensor:
        """Behind nothing, in no graph: prompts are of every length, and each comes once."""
        self._check(count)
        seat = self.lease.seat
        tokens = torch.cat([torch.as_tensor(t, dtype=torch.long, device=self.device) for t in fed])
        logits = seat.model.forward(tokens, seat.slots.numbers[:count], seat.slots, None, keep, self.layers)
        self.length = count
        return logits.float()

    def _replay(self, fed: Sequence[Sequence[int] | torch.Tensor], count: int) -> torch.Tensor:
        """Feed what the widest forward takes at most; returns the seat's logits, which the next replay changes."""
        seat = self.lease.seat
        wide = next(c for c in self._counts if c >= count)
        self._check(wide)
        known = [t for part in fed if not isinstance(part, torch.Tensor) for t in part]
        seat.inbox.send([self.length, *known])
        begin = 1 + len(known)
        for part in fed:
            if isinstance(part, torch.Tensor):
                seat.inbox.numbers[begin : begin + len(part)].copy_(part)
                begin += len(part)
        seat.forward(wide, seat.seen(self.length + wide), self.layers)()
        self.length += count
        return seat.logits

    def _check(self, count: int) -> None:
        # A write behind the last slot would end every use of the GPU by this process.
        if self.length + count > self.lease.seat.room:
            raise ValueError(f"no room for {count} tokens behind {self.length} of {self.lease.seat.room}")

    def sharing(self, model: PreTrainedModel, layers: int) -> GraphRunner:
        """A runner of the first ``layers`` layers in the same slots."""
        return GraphRunner(model, self.lease, (1, 2), layers)

    def rollback_to(self, length: int) -> None:
        """Forget everything after the first ``length`` tokens.

        Raises:
            ValueError: there are fewer.
        """
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot roll back from {self.length} tokens to {length}")
        self.length = length


class CapturedDraft:
    """All γ steps of a round's draft in one replay.

    Every draft begins by feeding the last ``lead`` committed tokens. With two, a draft whose last token was kept
    and never fed begins like any other; where it was fed, the same is written into its slot once more.

    Args:
        runner: of the draft model.
        sampler: chooses the tokens.
        gamma: the most tokens asked for in a round; for fewer the last ones are dropped.
        lead: tokens fed at the beginning of a draft.
    """

    def __init__(self, runner: GraphRunner, sampler: Sampler, gamma: int, lead: int) -> None:
        self._runner, self._sampler, self._gamma, self._lead = runner, sampler, gamma, lead
        self._seat = runner.lease.seat

    @torch.inference_mode()
    def prepare(self, begun: int, most: int) -> str | None:
        """Capture all drafts of a lane that begins with ``begun`` tokens and ends with ``most``.

        The slots must be empty. Returns why it cannot be done, None if it is.
        """
        known = self._runner.lease.graphs.stepwise
        recipe = self._sampler.recipe
        if recipe not in known:
            self._seat.inbox.send([0] * (1 + self._lead))
            for seen in self._seat.stages(begun + self._gamma, most + self._gamma):
                self._replay(seen)
            known |= self._seat.draft_failures
        return known.get(recipe)

    @torch.inference_mode()
    def __call__(self, committed: Sequence[int], gamma: int) -> Proposal:
        """γ tokens after ``committed``, which the runner holds but for the last ones, at most ``lead``."""
        runner, seat = self._runner, self._seat
        start = len(committed) - self._lead
        if runner.length < start:
            runner.forward(committed[runner.length : start], keep=0)
        end = start + self._lead + self._gamma - 1
        if end > seat.room:
            raise ValueError(f"no room for a draft up to {end} of {seat.room}")
        room = seat.draft_room(self._sampler)
        if not self._sampler.greedy:
            room.draw(gamma, self._sampler.generator)
        seat.inbox.send([start, *committed[start:]])
        self._replay(seat.seen(end))()
        runner.length = start + self._lead + gamma - 1
        q = None if self._sampler.greedy else room.q[:gamma].clone()
        return Proposal(room.tokens[:gamma].clone(), q, room.scores[:gamma].clone())

    def _replay(self, seen: int) -> Replay:
        return self._seat.draft(self._gamma, self._lead, seen, self._sampler, self._runner.layers)
