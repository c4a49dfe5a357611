"""The training stream: windows packed with whole tasks, made anew for every step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from transformers import PreTrainedTokenizerFast

from specdemo.training.recipe import Shares
from specdemo.training.tasks.mixture import Domain
from specdemo.training.tasks.task import Task
from specdemo.training.tasks.tokenizer import ASSISTANT_ID, BOS_ID, END_ID, document


@dataclass(frozen=True, slots=True)
class Batch:
    """Windows of tokens.

    Attributes:
        ids: int64 of shape (rows, window).
        targets: int64 of the same shape: the token after each position.
        learned: bool of the same shape: whether the target counts for the loss.
    """

    ids: torch.Tensor
    targets: torch.Tensor
    learned: torch.Tensor

    def split(self, rows: int) -> list[Batch]:
        """Parts of so many rows."""
        return [
            Batch(*some)
            for some in zip(*(t.split(rows) for t in (self.ids, self.targets, self.learned)), strict=True)
        ]


class TaskStream:
    """Batches of packed tasks; each a pure function of seed and step, so that a resumed run repeats them.

    Args:
        shares: of the tokens, by name of the domain; a domain of share 0 or without one gives no tasks.
    """

    def __init__(
        self, domains: Mapping[str, Domain], shares: Shares, tokenizer: PreTrainedTokenizerFast, seed: int
    ) -> None:
        self.shares: dict[str, float] = {name: share for name, share in shares.items() if share > 0}
        self.domains, self.tokenizer, self._seed = domains, tokenizer, seed

    def batch(self, step: int, rows: int, window: int, longest: int | None = None) -> Batch:
        """Whole tasks, the longest first, each into the first window with room.

        Args:
            longest: tokens of a task; longer ones are left out.
        """
        documents = self.documents(step, rows * (window + 1), min(longest or window, window) + 1)
        packed: list[list[int]] = [[] for _ in range(rows)]
        for _, ids in sorted(documents, key=lambda made: len(made[1]), reverse=True):
            for row in packed:
                if len(row) + len(ids) <= window + 1:
                    row.extend(ids)
                    break
        return _with_targets(packed, window)

    def documents(self, step: int, tokens: int, longest: int) -> list[tuple[str, list[int]]]:
        """(domain, ids) of at least so many tokens, always of the domain that lacks most of its share."""
        taken = dict.fromkeys(self.shares, 0)
        made: list[tuple[str, list[int]]] = []
        tried = 0
        while sum(taken.values()) < tokens:
            name = min(taken, key=lambda n: taken[n] / self.shares[n])
            ids = self._ids(self.domains[name].task(f"{self._seed} {step} {tried}"))
            tried += 1
            if fits := len(ids) <= longest:
                made.append((name, ids))
            taken[name] += len(ids) if fits else 1  # so that a domain of long tasks does not hold up the others
        return made

    def one_each(self, tasks: list[Task], window: int) -> Batch:
        """One task in each window, for held-out loss."""
        return _with_targets([self._ids(task)[: window + 1] for task in tasks], window)

    def _ids(self, task: Task) -> list[int]:
        return self.tokenizer.backend_tokenizer.encode(document(task), add_special_tokens=False).ids


def _with_targets(texts: list[list[int]], window: int) -> Batch:
    """Texts of up to window + 1 tokens, filled up; an answer goes from its token to its end token."""
    ids = torch.tensor([text + [BOS_ID] * (window + 1 - len(text)) for text in texts])
    # At the token that begins an answer or inside it, its end token excluded.
    learned = (ids == ASSISTANT_ID).cumsum(1) > (ids == END_ID).cumsum(1)
    return Batch(ids[:, :-1], ids[:, 1:], learned[:, :-1])
