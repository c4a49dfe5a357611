"""Every knob of a run, validated once, with the message a person needs."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from numbers import Real
from operator import index
from typing import Any

from specdemo.drafters import DEFAULT_DRAFTER, DRAFTERS
from specdemo.errors import SettingsError, quoted

STRATEGIES = ("autoregressive", "speculative", "assisted")
LOSSLESS_RULES = {
    "exact": "exact match",
    "sampling": "rejection sampling",
    "token_match": "token match",
    "block": "block verification",
}
LOSSY_RULES = {"top_k": "among top k", "typical": "typical", "naive": "naive"}
"""Names of the acceptance rules, and what people read."""
ACCEPTANCE_RULES = {
    **{name: f"{label} · lossless" for name, label in LOSSLESS_RULES.items()},
    **{name: f"{label} · lossy" for name, label in LOSSY_RULES.items()},
}
"""All of them, labelled."""
LLAMA_CPP = "llama.cpp"
ENGINES = ("auto", "eager", "graphs", "server", LLAMA_CPP)
MAX_GAMMA = 16
MAX_TREE_NODES = 64
TREE_RULES = ("exact", "sampling", "token_match")
"""Acceptance rules that know draft trees."""
MAX_LOOKUP_NGRAM = 8
ROW = "suffix,model"
"""An example of drafters in a row."""
SEEDS = 2**63  # seeds go from 0 to one less
LEAST_TEMPERATURE = 1e-4  # logits divided by less overflow
LEAST_PENALTY, MOST_PENALTY = 0.01, 100.0  # logits divided or multiplied by more lose the model's own order
LARGEST_WHOLE = 2**53 - 1
"""Of numbers that have no limit of their own: what JSON and browsers hold exactly, well within torch's int64."""

NAMES: dict[str, Collection[str]] = {
    "strategy": STRATEGIES,
    "drafter": DRAFTERS,
    "acceptance": ACCEPTANCE_RULES,
    "engine": ENGINES,
}
WHOLE_NUMBERS: dict[str, tuple[int, int | None, str]] = {
    "gamma": (1, MAX_GAMMA, "drafted tokens a round"),
    "tree_nodes": (0, MAX_TREE_NODES, "0 drafts a chain, a tree has at least 2"),
    "top_k": (0, None, "0 keeps all tokens"),
    "max_new_tokens": (1, None, "the length of the output"),
    "seed": (0, SEEDS - 1, "of the random draws"),
    "accept_top_k": (1, None, "how many of the target's tokens pass"),
    "lookup_ngram": (1, MAX_LOOKUP_NGRAM, "tokens to look for"),
    "exit_layer": (1, None, "how many of the target's layers draft"),
}
NUMBERS = {
    "temperature": (0.0, 100.0, "0 is greedy"),
    "top_p": (0.0, 1.0, "1 keeps all tokens"),
    "repetition_penalty": (LEAST_PENALTY, MOST_PENALTY, "1 is off"),
    "p_min": (0.0, 1.0, "0 stops no draft"),
}
"""The settings by kind, and what each may be: its names, or the least, the most and the meaning."""


@dataclass(frozen=True, slots=True)
class Settings:
    """One lane's settings.

    Args:
        strategy: ``autoregressive`` (target only), ``speculative``, or ``assisted``: transformers' own assisted
            generation, with its own acceptance rule.
        drafter: who proposes tokens, one of ``specdemo.drafters.DRAFTERS``: ``model`` is the pair's draft model,
            ``prompt_lookup`` copies what followed the last tokens before, ``suffix`` copies what followed them
            most often, ``early_exit`` is the target's own first layers, ``eagle3`` is the pair's EAGLE-3 head,
            ``mtp`` the MTP head that the target's files carry. Two names with a comma between are asked in a row:
            ``suffix,model`` copies where that promises more tokens, else the draft model drafts.
        acceptance: which drafted tokens are kept. ``exact`` (temperature 0), ``sampling``, ``token_match`` and
            ``block`` are lossless; ``top_k``, ``typical`` and ``naive`` are lossy.
        gamma: drafted tokens a round, 1 to 16; of a draft tree its depth.
        tree_nodes: 0 drafts a chain; from 2 to 64, draft a tree of at most so many tokens a round, several guesses
            a position, for a draft model, an EAGLE-3 head, early exit or suffix decoding with the rules ``exact``,
            ``sampling`` and ``token_match``.
        p_min: stop a draft where the drafter's most likely token is less likely than that, decided before a token
            is drawn; of a copy by its estimated probability. 0 stops none.
        adaptive_gamma: choose γ anew in every round from measured costs and acceptance; ``gamma`` is the first.
            Where no draft pays, it decodes plainly for a while and tries again.
            Costs are times, so a sampled run is drawn from the same distribution but cannot be repeated by seed.
        temperature: 0 is greedy decoding; top_k, top_p then have no effect.
        top_k: keep the k most likely tokens, 0 keeps all.
        top_p: keep the smallest set of tokens whose probability reaches this, 1 keeps all.
        repetition_penalty: divides the scores of tokens already seen (CTRL, arXiv 1909.05858), 1 is off; from
            0.01 to 100.
        max_new_tokens: the longest output, in tokens.
        ignore_eos: write that many tokens whatever the target says of its end; for measuring at one length.
        seed: of the random draws; the same seed gives the same output on the same machine with
            the same number of threads.
        lookup_ngram: for ``prompt_lookup``, the longest end of the text that is looked for, in tokens.
        earlier_outputs: for ``suffix``, copy from the earlier outputs that a run is given too.
        exit_layer: for ``early_exit``, how many of the target's layers draft; None means a third of them.
        accept_top_k: for the acceptance rule ``top_k``, how many of the target's tokens pass.
        chat: apply the tokenizer's chat template to a text prompt; None means if it has one.
        engine: what runs the models' layers. ``auto`` takes the fastest way this model and machine allow;
            ``eager`` calls the models as transformers does; ``graphs`` replays CUDA graphs where they can be
            captured; ``llama.cpp`` runs the pair's GGUF files; ``server`` leaves the decoding to a deployment.
        server: for the engine ``server``, the name of a configured deployment; None means the pair is one.

    Raises:
        SettingsError: a value is out of range; names the field.
    """

    strategy: str = "speculative"
    drafter: str = DEFAULT_DRAFTER
    acceptance: str = "exact"
    gamma: int = 5
    adaptive_gamma: bool = False
    tree_nodes: int = 0
    p_min: float = 0.0
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    max_new_tokens: int = 128
    ignore_eos: bool = False
    seed: int = 0
    accept_top_k: int = 10
    chat: bool | None = None
    lookup_ngram: int = 3
    earlier_outputs: bool = True
    exit_layer: int | None = None
    engine: str = "auto"
    server: str | None = None

    def __post_init__(self) -> None:
        for name, known in NAMES.items():
            if not isinstance(value := getattr(self, name), str) or value not in known:
                row = f", or two in a row such as {ROW!r}, whose first one copies" if name == "drafter" else ""
                raise SettingsError(name, f"{quoted(value)} is not known; choose one of {', '.join(known)}{row}.")
        for name, (least, most, meaning) in WHOLE_NUMBERS.items():
            if name != "exit_layer" or self.exit_layer is not None:
                number = _whole(name, getattr(self, name), least, most, meaning=f" ({meaning})")
                object.__setattr__(self, name, number)
        for name, (low, high, meaning) in NUMBERS.items():
            self._check_number(name, low, high, meaning)
        for name in ("adaptive_gamma", "ignore_eos", "earlier_outputs", "chat"):
            if not isinstance(value := getattr(self, name), bool) and not (name == "chat" and value is None):
                known = "True, False or None" if name == "chat" else "True or False"
                raise SettingsError(name, f"must be {known}, not {quoted(value)}.")
        for field, reason in self._contradictions():
            raise SettingsError(field, reason)

    def _contradictions(self) -> Iterator[tuple[str, str]]:
        """What cannot be, of values that are each in their range: the field, and what to do."""
        drafter, server, nodes = DRAFTERS[self.drafter], self.server, "tree_nodes"
        if 0 < self.temperature < LEAST_TEMPERATURE:
            yield "temperature", f"{self.temperature!r} is as good as 0; use 0, which is greedy."
        if server is not None and (not isinstance(server, str) or not server):
            yield "server", f"must be the name of a configured server, not {quoted(server)}."
        if server is not None and self.engine != "server":
            yield "server", f"{quoted(server)} is only asked by the engine 'server'; choose that engine."
        if self.strategy == "assisted" and not drafter.assisted:
            theirs = " or ".join(repr(info.name) for info in DRAFTERS.values() if info.assisted)
            yield "drafter", f"'assisted' drafts with {theirs}; for {drafter.label} choose 'speculative'."
        if self.tree_nodes == 1:
            yield nodes, "1 is a chain of one token: set 0 and gamma to 1, or give at least 2."
        if self.strategy == "assisted" and self.tree_nodes:
            yield nodes, "transformers drafts chains only; set 0 or choose 'speculative'."
        if self.drafts_trees and not drafter.trees:
            able = " or ".join(repr(info.name) for info in DRAFTERS.values() if info.trees)
            yield nodes, f"{drafter.label} has one guess a position and drafts no tree; set 0, or choose {able}."
        if self.drafts_trees and self.acceptance not in TREE_RULES:
            able = " or ".join(repr(rule) for rule in TREE_RULES if rule != "exact" or self.greedy)
            yield nodes, f"the rule {self.acceptance!r} is for chains; set 0, or choose {able}."
        if self.drafts_trees and self.adaptive_gamma:
            yield nodes, "adaptive γ is for chains; switch it off, or set 0."
        if self.strategy == "speculative" and self.acceptance == "exact" and self.temperature > 0:
            yield (
                "acceptance",
                "'exact' compares with the target's single best token and needs temperature 0; "
                "choose 'sampling' (rejection sampling), which is lossless at any temperature.",
            )

    def _check_number(self, field: str, low: float, high: float, meaning: str) -> None:
        """Check a number, numpy's too, and keep it as a float: transformers refuses 2 where it takes 2.0."""
        value, above = getattr(self, field), field == "top_p"  # a set with no probability holds no token
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        if not is_number or not low <= value <= high or (above and float(value) == low):
            span = f"above {low:g} and at most {high:g}" if above else f"from {low:g} to {high:g}"
            raise SettingsError(field, f"must be a number {span} ({meaning}), not {quoted(value)}.")
        object.__setattr__(self, field, float(value))

    @property
    def drafts_trees(self) -> bool:
        """Whether several guesses a position are drafted."""
        return self.strategy == "speculative" and self.tree_nodes != 0

    @property
    def needs(self) -> str | None:
        """The part of a pair that drafts for this lane, besides the target: as of a drafter's specification."""
        return None if self.strategy == "autoregressive" else DRAFTERS[self.drafter].needs

    @property
    def reads_earlier(self) -> bool:
        """Whether this lane's drafter can copy from the outputs of earlier runs."""
        here = self.strategy == "speculative" and self.engine != "server"
        return here and "earlier_outputs" in DRAFTERS[self.drafter].reads

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature == 0

    @property
    def lossless(self) -> bool:
        """Whether the output is the target's own (in exact arithmetic)."""
        return self.strategy != "speculative" or self.acceptance in LOSSLESS_RULES


def at_least_one(field: str, value: object) -> int:
    """One whole number as :func:`whole_numbers` checks it."""
    return whole_numbers(field, [value], None, "3")[0]


def whole_numbers(field: str, values: Any, most: int | None, example: str) -> tuple[int, ...]:
    """The values of any list of whole numbers, numpy's too, in ascending order, each once; else a SettingsError.

    Each is from 1 to ``most``, None for no limit; ``example`` says how to write them.
    """
    try:
        wanted = list(values)
    except TypeError:  # a single one
        wanted = [values]
    if not wanted:
        raise SettingsError(field, f"there are none; give at least one, such as {example}.")
    kind = "whole numbers" if len(wanted) > 1 else "a whole number"
    return tuple(sorted({_whole(field, value, 1, most, kind) for value in wanted}))


def _whole(
    field: str, value: Any, low: int, high: int | None, kind: str = "a whole number", meaning: str = ""
) -> int:
    """A whole number of any library as an int; that there is a largest one at all is said to those who meet it."""
    try:
        number = None if isinstance(value, bool) else index(value)
    except TypeError:
        number = None
    if number is None or not low <= number <= (LARGEST_WHOLE if high is None else high):
        below = " and below 2**53" if number is not None and number > LARGEST_WHOLE else ""
        span = f"of at least {low}{below}" if high is None else f"from {low} to {high}"
        raise SettingsError(field, f"must be {kind} {span}{meaning}, not {quoted(value)}.")
    return number
