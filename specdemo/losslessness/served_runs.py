"""Sampled runs of two deployments, and their evidence: the baseline says how likely each token of both was.

What it says is a function of the text alone. So a test that bets on which text of a pair is whose errs no more
often where it rounds, or lists too few tokens; it only finds less.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from specdemo.errors import ServerError
from specdemo.losslessness.deployment_check import ServedSamples
from specdemo.losslessness.model_runs import RunSource
from specdemo.losslessness.sequential_test import RunEvidence, run_evidence
from specdemo.servers.deployment import COMPANY, Deployment
from specdemo.servers.logprobs import Place
from specdemo.servers.response import Response
from specdemo.settings import Settings

WORD = re.compile(r"\s*\S+")
CHOICES = 64  # likeliest tokens of a place that are used, at most
NOT_TOLD = "without which sampled outputs cannot be compared; compare at temperature 0."


class ServedRuns(RunSource):
    """Pairs of runs of both deployments, from each prompt in turn, then from those that leave the most choice."""

    def __init__(
        self, sides: Sequence[Deployment], prompts: Sequence[Any], settings: Settings, tokens: int
    ) -> None:
        settings = replace(settings, max_new_tokens=tokens)
        super().__init__(sides[0].pair.name, (), settings, exact=False, at_once=COMPANY)
        self._sides, self._prompts = sides, prompts
        self._worth = [math.inf] * len(prompts)  # how much a run from each shows of another temperature
        self.rows = [ServedSamples(str(p) if isinstance(p, str) else f"{len(p)} token ids") for p in prompts]
        self._places: dict[Any, Place] = {}  # by what stands before
        self._words: dict[str, int] = {}  # numbers where tokens have no ids

    def pairs(self, count: int) -> list[tuple[RunEvidence, RunEvidence]]:
        """From one prompt; all outputs of a deployment come beside each other."""
        able = [turn for turn, worth in enumerate(self._worth) if worth >= max(self._worth) / 2]
        turn = min(able, key=lambda turn: self.rows[turn].runs)
        prompt, row = self._prompts[turn], self.rows[turn]
        written = [
            side.together([partial(side.write, prompt, settings) for settings in lanes])
            for side, lanes in zip(self._sides, zip(*self.seeded(count), strict=True), strict=True)
        ]
        by_ids = all((r.ids or not r.chunks) and r.prompt_ids for responses in written for r in responses)
        cut = [[self._cut(prompt, response, by_ids) for response in responses] for responses in written]
        self._sides[0].together([partial(self._ask, steps) for responses in cut for steps in responses])
        found = [[self._evidence(steps) for steps in responses] for responses in cut]
        logs = [sum((own for _, own in side), ()) for side in found]
        shown = float(np.mean([run.warmer[0] ** 2 for side in found for run, _ in side]))
        self._worth[turn] = shown if math.isinf(self._worth[turn]) else (self._worth[turn] + shown) / 2
        self.rows[turn] = replace(
            row,
            runs=row.runs + count,
            sent=tuple(responses[0].whole for responses in written),
            plain=row.plain + logs[0],
            speculative=row.speculative + logs[1],
        )
        return [(plain, other) for (plain, _), (other, _) in zip(*found, strict=True)]

    def _cut(self, prompt: Any, response: Response, by_ids: bool) -> list[tuple[Any, Any]]:
        """The places after an output's first token, or word: what stands before each, and what follows."""
        if by_ids:
            self.texts |= dict(zip(response.ids, response.token_texts, strict=True))
            start, ids = response.prompt_ids, tuple(response.ids)
            return [((*start, *ids[:place]), ids[place:]) for place in range(1, len(ids))]
        chats = self._sides[0].pair.chat if self.settings.chat is None else self.settings.chat
        if chats or not isinstance(prompt, str):
            raise ServerError(f"{self.name!r} sends no token ids of chats, {NOT_TOLD}")
        starts = [found.start() for found in WORD.finditer(response.text)][1:]
        return [(prompt + response.text[:start], response.text[start:]) for start in starts]

    def _ask(self, steps: Sequence[tuple[Any, Any]]) -> None:
        """Have the likeliest tokens at each place of an output, in order, since what is before is cached."""
        one = replace(self.settings, max_new_tokens=1, chat=False, temperature=0.0, acceptance="exact")
        for start, _ in steps:
            if start not in self._places:
                places = self._sides[0].ask(start if isinstance(start, str) else list(start), one)
                if not places or not places[0]:
                    raise ServerError(f"{self.name!r} gives no log-probabilities, {NOT_TOLD}")
                self._places[start] = places[0]

    def _evidence(self, steps: Sequence[tuple[Any, Any]]) -> tuple[RunEvidence, tuple[float, ...]]:
        """The evidence of an output, and the log-probabilities of its tokens."""
        tokens, chosen, rows, logs = [], [], [], []
        for start, rest in steps:
            place = self._places[start][:CHOICES]
            if isinstance(rest, str):
                fits = [i for i, c in enumerate(place) if c.text and rest.startswith(c.text)]
                word = (WORD.match(rest) or [rest])[0]
                tokens.append(self._words.setdefault(word, len(self._words)))
                self.texts[tokens[-1]] = word
            else:
                fits = [i for i, c in enumerate(place) if c.id == rest[0]]
                tokens.append(rest[0])
            best = max(fits, key=lambda i: len(place[i].text), default=-1)
            chosen.append(best if fits else CHOICES)
            logs.append(place[best].logprob or 0.0)  # of one that is not listed the last one's, at most
            rows.append(_law(place, self.settings))
        p = np.array(rows).reshape(-1, CHOICES + 1)
        likeliest = np.eye(CHOICES + 1)[p.argmax(-1)]
        return run_evidence(tokens, p, likeliest, np.array(chosen, dtype=int), warmer=True), tuple(logs)


def _law(place: Place, settings: Settings) -> np.ndarray:
    """What ``settings`` draw from, (CHOICES + 1,): the tokens listed, zeros, and all others together.

    The others are taken to be as likely each as the last one listed, as many as their probability makes.
    """
    logs = np.array([candidate.logprob or 0.0 for candidate in place])
    weights = np.exp((logs - logs[0]) / settings.temperature)
    others = max(1.0 - np.exp(logs).sum(), 0.0) / np.exp(logs[-1]) * weights[-1]
    if 0 < settings.top_k <= len(place):
        weights[settings.top_k :] = others = 0.0
    law = np.zeros(CHOICES + 1)
    law[: len(place)], law[-1] = weights, others
    law /= law.sum()
    law[law.cumsum() - law >= settings.top_p] = 0.0
    return law / law.sum()
