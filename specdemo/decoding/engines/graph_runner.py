"""One model in one lane, fed by replays of CUDA graphs.

Nobody has to believe in a graph: those that were captured for a lane are compared with the model's own forward
before it begins, each once for the workspace that holds it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specdemo.decoding.engines.base import Ids, Output
from specdemo.decoding.engines.eager import EagerRunner
from specdemo.decoding.engines.graph_capture import Replay
from specdemo.decoding.engines.graph_pool import WorkspaceLease
from specdemo.decoding.engines.graph_workspace import Failure
from specdemo.decoding.proposal import TreeMask
from specdemo.models.types import PreTrainedModel

PROOF_TOKENS = 64
"""Of a prompt that are read."""
TOLERANCE = {torch.float32: 0.01}
ROUGH_TOLERANCE = 0.2
"""Root mean square difference of a row of logits, in standard deviations of that row. Rounding in 16 bit is some
hundredths; a row that saw other tokens, or itself at another place, is off by about one."""


class GraphRunner:
    """A :class:`~specdemo.decoding.engines.base.Runner` whose cache stays in place; a rollback is a number.

    Args:
        lease: of the workspace, for as long as this runner lives.
        counts: of how many tokens forwards are captured; others are filled up to the next of them.
        layers: run only the model's first so many.
        aux_layers: layers whose input every output has.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        lease: WorkspaceLease,
        counts: Sequence[int],
        layers: int | None = None,
        aux_layers: Sequence[int] = (),
    ) -> None:
        self.model = model
        self.length = 0
        self.lease, self.workspace = lease, lease.workspace
        self.device, self.dtype = self.workspace.model.device, self.workspace.model.dtype
        self._counts = sorted(counts)
        self.layers, self.aux_layers = layers, tuple(aux_layers)

    @property
    def engine(self) -> str:
        """``graphs``, and what of this lane's work could not be captured."""
        failure = self.workspace.failure
        return "graphs" if failure is None else f"graphs: not all were captured ({failure.reason})"

    @torch.inference_mode()
    def prepare(self, prompt: Sequence[int], longest: int) -> Failure | None:
        """Capture all forwards of a lane that ends with ``longest`` tokens, and prove those that are new.

        The slots must be empty, and count as empty afterwards. The first failure, None if there was none.
        """
        workspace, new = self.workspace, {}
        workspace.inputs.send([0] * (1 + self._counts[-1]))
        for count in self._counts:
            for kv_length in workspace.kv_buckets(len(prompt) + count, longest + count):
                self._captured(count, kv_length)
                new[count, kv_length, self.layers, self.aux_layers] = count, kv_length
        forwards = [new[key] for key in new if key not in workspace.proven]
        if forwards and workspace.failure is None:
            try:
                prove_forwards(self, prompt, forwards)
                workspace.proven |= new.keys()
            except RuntimeError as error:
                workspace.failure = Failure.of(error)
                self.lease.graphs.fail(workspace.failure)
            self.rollback_to(0)
        return workspace.failure

    @torch.inference_mode()
    def forward(
        self, ids: Ids, keep: int = 1, drafted: torch.Tensor | None = None, tree_mask: TreeMask | None = None
    ) -> Output:
        """Append ``ids`` (n,), then ``drafted`` (γ,); a ValueError where there is no room, and for trees."""
        if tree_mask is not None:
            raise ValueError("draft trees are not captured")
        fed = [t for t in (ids, drafted) if t is not None and len(t)]
        count = sum(map(len, fed))
        if self.length and count <= self._counts[-1]:
            return self.replay(fed, count, keep)
        return self._uncaptured(fed, count, keep)

    def _uncaptured(self, fed: Sequence[Ids], count: int, keep: int) -> Output:
        """A prompt, which may have any length and comes once, or what a drafter missed in rounds without it."""
        self._check(count)
        workspace, end = self.workspace, self.length + count
        tokens = torch.cat([torch.as_tensor(t, dtype=torch.long, device=self.device) for t in fed])
        positions = workspace.positions[self.length : end]
        kv_length = workspace.kv_length(end) if self.length else None
        logits, hidden = workspace.run(tokens, positions, kv_length, keep, self.layers, self.aux_layers)
        self.length = end
        return Output(logits.float(), hidden)

    def replay(self, fed: Sequence[Ids], count: int, keep: int, kv_length: int | None = None) -> Output:
        """Feed at most what the widest forward takes; ``kv_length``: look at more slots than there are tokens."""
        workspace = self.workspace
        wide = next(c for c in self._counts if c >= count)
        self._check(wide)
        known = [t for part in fed if not isinstance(part, torch.Tensor) for t in part]
        workspace.inputs.send([self.length, *known])
        begin = 1 + len(known)
        for part in fed:
            if isinstance(part, torch.Tensor):
                workspace.inputs.numbers[begin : begin + len(part)].copy_(part)
                begin += len(part)
        self._captured(wide, kv_length or workspace.kv_length(self.length + wide))()
        self.length += count
        # Copies, since the next replay writes over them.
        logits, hidden = workspace.logits[count - keep : count].clone(), workspace.hidden(self.aux_layers)
        return Output(logits, None if hidden is None else hidden[:count].clone())

    def _captured(self, count: int, kv_length: int) -> Replay:
        """The forward of so many tokens; if it cannot be captured, the model's next lanes have no graphs."""
        replay = self.workspace.forward(count, kv_length, self.layers, self.aux_layers)
        if self.workspace.failure is not None:
            self.lease.graphs.fail(self.workspace.failure)
        return replay

    def _check(self, count: int) -> None:
        # A write behind the last slot would end every use of the GPU by this process.
        capacity = self.workspace.capacity
        if self.length + count > capacity:
            raise ValueError(f"no room for {count} tokens behind {self.length} of {capacity}")

    def sharing(self, model: PreTrainedModel, layers: int) -> GraphRunner:
        return GraphRunner(model, self.lease, (1, 2), layers)

    def checkpoint(self) -> None:
        """Nothing to do: no model with states has graphs."""

    def rollback_to(self, length: int, path: Sequence[int] = ()) -> None:
        end = length + len(path)
        if [*path] != [*range(len(path))] or not 0 <= end <= self.length:
            raise ValueError(f"cannot roll back from {self.length} tokens to {end}")
        self.length = end


class Disproved(RuntimeError):
    """Replays give other numbers than the model."""


@torch.inference_mode()
def prove_forwards(runner: GraphRunner, prompt: Sequence[int], forwards: Sequence[tuple[int, int]]) -> None:
    """Compare the prefill and captured forwards, (tokens fed, slots looked at), with the model called eagerly.

    :class:`Disproved` where logits, hidden states or best tokens differ by more than rounding.
    """
    ids = list(prompt[:PROOF_TOKENS])
    widest = max(count for count, _ in forwards)
    fed = (ids * widest)[:widest]
    eager = EagerRunner(runner.model, "eager", aux_layers=runner.aux_layers)
    _compare(runner, "a prompt", runner.forward(ids), eager.forward(ids))
    expected = eager.forward(fed, keep=widest)
    for count, kv_length in forwards:
        runner.rollback_to(len(ids))
        found = runner.replay([fed[:count]], count, count, kv_length)
        hidden = None if expected.hidden is None else expected.hidden[:count]
        _compare(runner, f"{count} tokens", found, Output(expected.logits[:count], hidden))


def _compare(runner: GraphRunner, what: str, found: Output, expected: Output) -> None:
    spread = expected.logits.std(-1)
    off = (found.logits - expected.logits).square().mean(-1).sqrt()
    _check(runner, f"logits of {what}", (off / spread).max())
    chosen = expected.logits.gather(-1, found.logits.argmax(-1, keepdim=True)).squeeze(-1)
    _check(runner, f"best tokens of {what}", ((expected.logits.amax(-1) - chosen) / spread).max())
    if found.hidden is not None and expected.hidden is not None:
        ours, theirs = found.hidden.float(), expected.hidden.float()
        off = (ours - theirs).square().mean(-1).sqrt() / theirs.square().mean(-1).sqrt()
        _check(runner, f"hidden states of {what}", off.max())


def _check(runner: GraphRunner, what: str, off: torch.Tensor) -> None:
    if not float(off) <= TOLERANCE.get(runner.dtype, ROUGH_TOLERANCE):  # NaN too
        raise Disproved(f"{what} are off by {float(off):.2g}")
