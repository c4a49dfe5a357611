"""The advisor: which method with which γ is the fastest for this pair, these prompts and this machine?"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from numbers import Real
from threading import Event
from typing import Any

from specdemo.analysis.advice import AdviceReport
from specdemo.analysis.contenders import P_MINS, PLAIN, SERVER, TREES, Contender, contenders_of
from specdemo.analysis.repetition import loops
from specdemo.analysis.rows import Run
from specdemo.decoding.drafters.early_exit import exit_layer_of
from specdemo.decoding.drafters.registry import check_drafter
from specdemo.drafters import DRAFTERS, all_with, in_a_row
from specdemo.errors import SettingsError, quoted
from specdemo.models.pair import ModelPair, quantization_of
from specdemo.models.request import ASSETS
from specdemo.prompt import one_by_one, read_ids
from specdemo.runs.beside import in_engine
from specdemo.runs.measuring import Block, Driver, Progress, drafting, measured_on, opened, to_its_end, turned
from specdemo.runs.single import Prompt
from specdemo.servers.gguf import GgufPair
from specdemo.servers.pair import ServedPair, on_server
from specdemo.settings import Settings
from specdemo.trace import Trace

BUDGET_SECONDS = 120.0
LONGEST_BUDGET = 86_400.0
WARM_UP_TOKENS = 8
HUB_CACHE = re.compile(r"/models--([^/]+)/snapshots/")
"""A model of the hub, as its files lie in this machine's cache."""


def stream_advice(
    pair: ModelPair | ServedPair | None,
    prompts: Prompt | Sequence[Prompt],
    settings: Settings | None = None,
    budget_seconds: float = BUDGET_SECONDS,
    methods: Sequence[str] | None = None,
    kinds: Sequence[str] | None = None,
    stop: Event | None = None,
) -> Iterator[Progress[AdviceReport]]:
    """Measure every method that this pair allows on these prompts, and recommend one.

    Every drafter takes part with many γ and with a γ of its own choice. Those that are beaten beyond doubt are
    dropped early, see :mod:`specdemo.analysis.racing`, so that the budget goes to the close ones. Each step holds
    the report so far, its ``done`` and ``total`` in seconds; ``advise`` gives the last report.

    Args:
        pair: the models; or their deployments, or None if the settings name a configured server. A server's
            speculation is then one method, as it was started.
        prompts: one prompt or several; a list of whole numbers is one prompt's token ids.
        settings: of all runs; drafter, γ and ``p_min`` are the advisor's.
        budget_seconds: for all runs together, warm-up included. A run that would pass it is not begun.
        methods: names of the drafters to try; None for all that the pair allows.
        kinds: the kind of each prompt, for advice by kind; None for none.
        stop: ends it within one round.

    Raises:
        PromptError: there is no prompt, or one cannot be decoded. At once, as all of these.
        SettingsError: a value is out of range, or asks for what this pair does not have, or kinds do not match.
        ServerError: a server cannot be asked, or fails on the way.
    """
    settings = drafting(settings, "the advisor drafts by itself and cannot run {}")
    real = isinstance(budget_seconds, Real) and not isinstance(budget_seconds, bool)
    if not real or not 0 < budget_seconds <= LONGEST_BUDGET:
        said = f"must be a number above 0 and at most {LONGEST_BUDGET:,.0f}, not {quoted(budget_seconds)}."
        raise SettingsError("budget_seconds", said)
    prompts = one_by_one(prompts)  # a list, since a generator can be read only once
    kinds = _checked_kinds(kinds, len(prompts))
    pair = in_engine(pair, settings)
    if on_server(pair, settings) and not isinstance(pair, GgufPair):
        if methods is not None:
            raise SettingsError("methods", "a server drafts as it was started; leave methods out.")
    else:
        settings = replace(settings, adaptive_gamma=False, tree_nodes=0, p_min=0.0)
    pair, given = opened(pair, prompts, PLAIN.settings(settings) if isinstance(pair, GgufPair) else settings)
    about = measured_on(pair)
    contenders: tuple[Contender, ...] = (PLAIN, Contender(SERVER))
    if isinstance(pair, GgufPair):
        contenders = contenders_of(allowed_drafters(pair, settings, methods), adaptive=False, sure=P_MINS)
        about |= {"models": {role: str(path) for role, path in pair.files.items()}}
    if isinstance(pair, ModelPair):
        families = allowed_drafters(pair, settings, methods)
        alone = [name for name in families if len(in_a_row(name)) == 1]
        trees = [name for name in alone if _drafts(pair, settings, name, min(TREES))]
        contenders = contenders_of(families, trees=trees, sure=P_MINS[:1])
        about |= {
            "models": model_names(pair),
            "draft_quantization": pair.draft and quantization_of(pair.draft),
            "exit_layer": exit_layer_of(pair, settings) if "early_exit" in families else None,
        }
    report = AdviceReport(
        base=settings,
        contenders=contenders,
        prompts=len(given),
        kinds=kinds,
        budget_seconds=float(budget_seconds),
        texts=tuple(prompt if isinstance(prompt, str) else read_ids(prompt) for prompt in prompts),
        **about,
    )
    firsts = {c.family: c for c in contenders}
    return _Advisor(pair, given, report, stop or Event()).steps(WARM_UP_TOKENS, [*firsts.values()])


advise = to_its_end("advise", stream_advice)


def allowed_drafters(
    pair: ModelPair | GgufPair, settings: Settings, methods: Sequence[str] | None = None
) -> list[str]:
    """The drafters that a pair can have under these settings, or those of ``methods``, which it must have.

    Raises:
        SettingsError: one of ``methods`` is not known, or not for this pair; or a setting that only one drafter
            reads is out of its range.
    """
    if methods is None:
        return [info.name for info in all_with(pair.parts) if _drafts(pair, settings, info.name)]
    given = _texts(methods)
    if not given:
        raise SettingsError("methods", f"give a list of drafters, such as {[*DRAFTERS][:2]}.")
    for name in given:
        if name not in DRAFTERS:
            raise SettingsError("methods", f"{quoted(name)} is not known; choose from {', '.join(DRAFTERS)}.")
        _check(pair, replace(settings, drafter=name, tree_nodes=0))
    return list(dict.fromkeys(given))


def _texts(values: Any) -> list[str] | None:
    """The texts of a list of any kind; None of all else."""
    given: list[Any] = [*values] if isinstance(values, Iterable) and not isinstance(values, str) else [None]
    return given if all(isinstance(text, str) for text in given) else None


def _check(pair: ModelPair | GgufPair, settings: Settings) -> None:
    """Refuse a drafter that this pair cannot have."""
    if isinstance(pair, GgufPair):
        pair.check(settings)
    else:
        check_drafter(pair, settings)


def _drafts(pair: ModelPair | GgufPair, settings: Settings, name: str, tree: int = 0) -> bool:
    """Whether a drafter can draft for this pair, chains or a tree of so many tokens."""
    try:
        _check(pair, replace(settings, drafter=name, tree_nodes=tree))
    except SettingsError as error:
        if error.field in DRAFTERS[name].reads:  # asked for wrongly, which is not the pair's lack
            raise
        return False
    return True


class _Advisor(Driver[AdviceReport]):
    """Runs what the race asks for until it is decided or the budget is spent."""

    def steps(self, tokens: int, warmed: Sequence[Contender]) -> Iterator[Progress[AdviceReport]]:
        """As of every driver, and once more where it ended before the budget was spent."""
        yield from super().steps(tokens, warmed)
        if self.report.runs and not self.report.complete and not self.stop.is_set():
            self.report = replace(self.report, ended=True)
            yield self.progress(None)

    def blocks(self) -> Iterator[Block]:
        """As of every driver; of a race that is decided every prompt is still run once."""
        kinds, every = self.report.kinds, range(len(self.prompts))
        # Kinds by turns, so that the first few prompts are of all kinds.
        waiting = deque(sorted(every, key=lambda n: kinds[:n].count(kinds[n])) if kinds else every)
        for block in count():
            race = self.report.race
            if not waiting or (race.decided and race.blocks >= len(waiting) and not self.report.noisy):
                break
            running = [self.report.contenders[place] for place in race.running]
            yield waiting[0], block, turned(running, race.blocks)
            if self.report.block_speedups(self.report.runs[-len(running) :]):
                waiting.rotate(-1)
            else:  # its answers end with their first token, which has no speed
                waiting.popleft()

    def look(self, contender: Contender, prompt: int, trace: Trace) -> None:
        if contender == PLAIN and loops(trace.token_ids):
            self.report = replace(self.report, looping=tuple(sorted({*self.report.looping, prompt + 1})))

    def over(self, contender: Contender) -> bool:
        """Where its longest run, or the longest plain one, would pass the budget."""
        took = [r.wall_seconds for r in self.report.of(contender) or self.report.of(PLAIN)]
        over = bool(took) and self.clock() - self.began + max(took) > self.report.budget_seconds
        if over:
            self.report = replace(self.report, ended=True)
        return over

    def progress(self, run: Run | None) -> Progress[AdviceReport]:
        """In seconds."""
        self.report = report = replace(self.report, seconds=self.clock() - self.began)
        left = 0.0 if report.complete else max(report.budget_seconds - report.seconds, 0.0)
        return Progress(report.seconds, report.budget_seconds, run or report.runs[-1], left, report)


def model_names(pair: ModelPair) -> dict[str, str]:
    """The models as their files are called; what has no name is left out.

    Those that come with this project are named from its folder and those of the hub by their names there, so that
    nothing tells where they lie.
    """
    models = {"target": pair.target, "draft": pair.draft, "head": pair.head}
    names = {role: getattr(model, "name_or_path", "") for role, model in models.items()}
    if pair.draft_tokenizer is not None:
        names["draft_tokenizer"] = getattr(pair.draft_tokenizer, "name_or_path", "") or names["draft"]
    cached = {role: HUB_CACHE.search(name) for role, name in names.items()}
    return {
        role: found[1].replace("--", "/") if (found := cached[role]) else name.removeprefix(f"{ASSETS.parent}/")
        for role, name in names.items()
        if name
    }


def _checked_kinds(kinds: Sequence[str] | None, prompts: int) -> tuple[str, ...]:
    given = _texts([] if kinds is None else kinds)
    if given == []:
        return ()
    if given is None or len(given) != prompts or any(len(kind.splitlines()) > 1 for kind in given):
        raise SettingsError("kinds", f"give a text of one line for each of the {prompts} prompts, or none at all.")
    return tuple(kind.strip() or "other" for kind in given) if any(given) else ()
