"""The training stream: windows packed with whole tasks, made anew for every step, and what each token weighs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from transformers import PreTrainedTokenizerFast

from specdemo.training.recipe import Shares
from specdemo.training.tasks.mixture import Domain
from specdemo.training.tasks.task import Task
from specdemo.training.tasks.tokenizer import ASSISTANT_ID, BOS_ID, END_ID, document

NEW_WEIGHT = 5.0  # of a token that the prompt does not have behind the same two; of others 1


class TaskStream:
    """Batches of packed tasks; each a pure function of seed and step, so that a resumed run repeats them.

    Args:
        shares: of the tokens, by name of the domain; a domain of share 0 or without one gives no tasks.
    """

    def __init__(
        self, domains: Mapping[str, Domain], shares: Shares, tokenizer: PreTrainedTokenizerFast, seed: int
    ) -> None:
        self.shares: Shares = {name: share for name, share in shares.items() if share > 0}
        self.domains, self.tokenizer, self._seed = domains, tokenizer, seed

    def without(self, names: Sequence[str]) -> TaskStream:
        """The stream without these domains."""
        shares = {name: share for name, share in self.shares.items() if name not in names}
        return TaskStream(self.domains, shares, self.tokenizer, self._seed)

    def batch(
        self, step: int, rows: int, window: int, longest: int | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids and their weights in the loss, both (rows, window): 0 but for tokens of answers.

        Whole tasks, the longest first, each into the first window with room.

        Args:
            longest: tokens of a task; longer ones are left out.
        """
        documents = self.documents(step, rows * window, min(longest or window, window))
        packed: list[list[int]] = [[] for _ in range(rows)]
        weights: list[list[float]] = [[] for _ in range(rows)]
        for _, ids in sorted(documents, key=lambda made: len(made[1]), reverse=True):
            for row, weighed in zip(packed, weights, strict=True):
                if len(row) + len(ids) <= window:
                    row.extend(ids)
                    weighed.extend(weights_of(ids))
                    break
        filled = torch.tensor([text + [BOS_ID] * (window - len(text)) for text in packed])
        return filled, torch.tensor([weighed + [0.0] * (window - len(weighed)) for weighed in weights])

    def documents(self, step: int, tokens: int, longest: int) -> list[tuple[str, list[int]]]:
        """(domain, ids) of at least so many tokens, always of the domain that lacks most of its share."""
        taken = dict.fromkeys(self.shares, 0)
        made: list[tuple[str, list[int]]] = []
        tried = 0
        while tokens > 0:
            name = min(taken, key=lambda n: taken[n] / self.shares[n])
            ids = self._ids(self.domains[name].task(f"{self._seed} {step} {tried}"))
            tried += 1
            taken[name] += len(ids)  # also if it is left out: a domain of long tasks does not hold up the others
            if len(ids) <= longest:
                made.append((name, ids))
                tokens -= len(ids)
        return made

    def _ids(self, task: Task) -> list[int]:
        return self.tokenizer.backend_tokenizer.encode(document(task), add_special_tokens=False).ids


def weights_of(ids: Sequence[int]) -> list[float]:
    """What each token of a task weighs in the loss: on average 1 over its answers, and 0 elsewhere.

    Nearly all of an edit is copied, and its few tokens that are not, where it leaves the text, are what is to be
    learned: a token that follows the two before it somewhere in the prompt weighs less than others.
    """
    answered = False
    end = ids.index(ASSISTANT_ID)
    given = set(zip(ids[:end], ids[1:end], ids[2:end], strict=False))
    weights = [0.0] * len(ids)
    for i, token in enumerate(ids):
        if answered:
            weights[i] = 1.0 if (ids[i - 2], ids[i - 1], token) in given else NEW_WEIGHT
        answered = token == ASSISTANT_ID or (answered and token != END_ID)
    scale = sum(weight > 0 for weight in weights) / sum(weights)
    return [weight * scale for weight in weights]


def task_mask(ids: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """(B, 1, n, n) to be added to attention's scores: a token sees those before it of its own task."""
    task = (ids == BOS_ID).cumsum(1)
    return torch.where((task[:, None] == task[..., None]).tril(), 0.0, -torch.inf).to(dtype)[:, None]
