"""transformers' own assisted generation as a lane, observed from outside."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from threading import Event
from typing import Any

import torch
from torch import nn
from transformers import GenerationConfig, StoppingCriteria
from transformers.generation.streamers import BaseStreamer

from specdemo.decoding.acceptance import TreeVerdict, exact, rejection_sampling
from specdemo.decoding.engines.eager import evaluating
from specdemo.decoding.engines.model_views import observable
from specdemo.decoding.lane import Lane, RawRound
from specdemo.decoding.proposal import Proposal
from specdemo.models.failures import not_finite
from specdemo.models.types import PreTrainedModel


def assisted(
    lane: Lane, target: PreTrainedModel, draft: PreTrainedModel | None, stop: Event | None = None
) -> Iterator[RawRound]:
    """Rounds of ``generate(assistant_model=draft)``, or of its prompt lookup where ``draft`` is None.

    ``generate`` cannot be suspended: the first round runs it to its end, or to the round in which ``stop`` is
    set, and the rounds follow with the times they had. It drafts before it has read the prompt, so round 0, the
    prefill, may hold drafted tokens.
    """
    settings, device = lane.settings, lane.sampler.device
    watched = observable(target)
    watched.generation_config = _generation_config(lane)
    options: dict[str, Any] = {
        "prompt_lookup_num_tokens": settings.gamma,
        "max_matching_ngram_size": settings.lookup_ngram,
    }
    assistant = None
    if draft is not None:
        assistant = observable(draft)
        assistant.generation_config = _assistant_config(lane, draft)
        options = {"assistant_model": assistant}
    if stop is not None:
        options["stopping_criteria"] = [_Stopped(stop)]
    observer = AssistedObserver(lane, watched, assistant)
    prompt = torch.tensor([list(lane.prompt_ids)], device=device)
    modules = [module for model in (target, draft) if model is not None for module in model.modules()]
    forked = torch.random.fork_rng([] if device.type == "cpu" else [device], device_type=device.type)
    with forked, evaluating(modules):
        torch.manual_seed(settings.seed)
        lane.clock.resume()
        try:
            watched.generate(prompt, attention_mask=torch.ones_like(prompt), streamer=observer, **options)
        except RuntimeError as error:  # torch draws nothing from NaN
            observer.explain(error)
            raise
    yield from observer.rounds


class _Stopped(StoppingCriteria):
    """Ends ``generate`` after a round once a signal is set."""

    def __init__(self, stop: Event) -> None:
        self._stop = stop

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **_: object) -> torch.Tensor:
        """(B,) whether each row has ended."""
        return torch.full((len(input_ids),), self._stop.is_set(), device=input_ids.device)


def _generation_config(lane: Lane) -> GenerationConfig:
    """The lane's settings in transformers' words; nothing is taken from the model's own defaults."""
    settings = lane.settings
    sampling = {"temperature": settings.temperature, "top_k": settings.top_k or None, "top_p": settings.top_p}
    return GenerationConfig(
        max_new_tokens=lane.budget,
        do_sample=not settings.greedy,
        repetition_penalty=settings.repetition_penalty,
        eos_token_id=sorted(lane.eos_ids) or None,
        pad_token_id=_pad(lane),
        **({} if settings.greedy else sampling),
    )


def _pad(lane: Lane) -> int | None:
    """transformers hides pad tokens from the assistant, so nothing that may stand in the text can be one."""
    return min(lane.eos_ids, default=None)


def _assistant_config(lane: Lane, draft: PreTrainedModel) -> GenerationConfig:
    """A constant γ; with ``adaptive_gamma`` transformers' own way (20 tokens, fewer where the draft is unsure)."""
    config = copy.deepcopy(draft.generation_config)
    config.pad_token_id = _pad(lane)
    if not lane.settings.adaptive_gamma:
        config.num_assistant_tokens = lane.settings.gamma
        config.num_assistant_tokens_schedule = "constant"
        config.assistant_confidence_threshold = lane.settings.p_min
    return config


class AssistedObserver(BaseStreamer):
    """Sees what goes into each verify, what comes out, and what is kept, and makes rounds of it.

    The target's forwards are the verifies, whose input says what was drafted; the draft's are the draft steps.
    """

    def __init__(self, lane: Lane, target: nn.Module, draft: nn.Module | None) -> None:
        self._lane = lane
        self.rounds: list[RawRound] = []
        self._drafted: tuple[int, ...] = ()
        self._logits = torch.empty(0)
        self._draft_logits: list[torch.Tensor] = []
        self._cached = 0
        self._begun = False
        target.register_forward_pre_hook(self._before_verify, with_kwargs=True)
        target.register_forward_hook(self._after_verify)
        if draft is not None:
            draft.register_forward_hook(self._after_draft_step)

    def _after_draft_step(self, model: nn.Module, inputs: tuple, output: Any) -> None:
        self._draft_logits.append(output.logits[:, -1].float())

    def _before_verify(self, model: nn.Module, inputs: tuple, kwargs: dict) -> None:
        self._lane.clock.lap("draft")
        fed = kwargs["input_ids"][0].tolist()
        self._drafted = tuple(fed[len(self._lane.committed) - self._cached :])

    def _after_verify(self, model: nn.Module, inputs: tuple, output: Any) -> None:
        self._logits = output.logits[0, -len(self._drafted) - 1 :].float()
        self._lane.clock.lap("verify")

    def put(self, value: torch.Tensor) -> None:
        """transformers hands over the prompt, then the kept tokens of each round."""
        if self._begun:
            self._lane.clock.lap("other")
            self.rounds.append(self._round(value.flatten().tolist()))
            self._lane.clock.resume()
        self._begun = True

    def end(self) -> None:
        """The last round was put already."""

    def explain(self, error: RuntimeError) -> None:
        """A PairError if what a model gave last is no distribution, which is then the reason for ``error``."""
        for role, logits in (("drafter", self._draft_logits[-1:]), ("target", [self._logits])):
            if not all(each.logsumexp(-1).isfinite().all() for each in logits):
                raise not_finite(role) from error

    def _round(self, emitted: list[int]) -> RawRound:
        lane, sampler, drafted = self._lane, self._lane.sampler, self._drafted
        proposal, q = Proposal.known(drafted), None
        if drafted and self._draft_logits:
            logits = torch.cat(self._draft_logits[-len(drafted) :]).to(sampler.device)
            q_scores = sampler.scores(logits, lane.committed, proposal.paths())
            proposal, q = Proposal.known(drafted, q_scores), sampler.probabilities(q_scores)[None]
        scores = sampler.scores(self._logits.to(sampler.device), lane.committed, proposal.paths())
        # The emitted tokens are the drafted ones as far as they were kept: a replaced one always differs.
        same = [a == b for a, b in zip(emitted, drafted, strict=False)]
        passed = same.index(False) if False in same else len(same)
        # transformers' rule is ours, with draws of its own: only the probabilities of acceptance are read here.
        rule = exact if sampler.greedy else rejection_sampling
        chance = rule(scores[None], proposal.tokens[None].to(sampler.device), q, sampler).probability
        kept = lane.commit(emitted)
        own = emitted[passed] if len(emitted) > passed else emitted[-1]
        self._cached = len(lane.committed) - 1
        self._draft_logits.clear()
        verdict = TreeVerdict(range(1, passed + 1), own, chance[0])
        return lane.ended(RawRound(scores, own, kept, drafted, proposal, verdict))
