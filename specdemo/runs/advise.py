"""The advisor: which method with which γ is the fastest for this pair, these prompts and this machine?"""

from __future__ import annotations

import re
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, zip_longest
from numbers import Real
from threading import Event

from specdemo.analysis.advice import AdviceReport, block_speedups
from specdemo.analysis.advice_rows import AdviceRun, settings_of
from specdemo.analysis.racing import PLAIN, SERVER, TREES, Contender, Race, contenders_of
from specdemo.analysis.repetition import loops
from specdemo.decoding.drafters.early_exit import exit_layer_of
from specdemo.decoding.drafters.registry import check_drafter
from specdemo.drafters import DRAFTERS
from specdemo.errors import SettingsError, quoted
from specdemo.models.pair import ModelPair
from specdemo.models.quantization import quantization_of
from specdemo.models.source import ASSETS
from specdemo.prompt import one_by_one, read_ids
from specdemo.runs.encode import encode_all
from specdemo.runs.measuring import Progress, drafting, finished_run, measured_on, run_of, warm_up
from specdemo.runs.single import Prompt
from specdemo.servers.pair import ServerPair, on_server
from specdemo.settings import SEEDS, Settings
from specdemo.trace import Trace

BUDGET_SECONDS = 120.0
LONGEST_BUDGET = 86_400.0
WARM_UP_TOKENS = 8
HUB_CACHE = re.compile(r"/models--([^/]+)/snapshots/")
"""A model of the hub, as its files lie in this machine's cache."""
AdviceProgress = Progress[AdviceRun, AdviceReport]
Clock = Callable[[], float]


def advise(
    pair: ModelPair | ServerPair | None,
    prompts: Prompt | Sequence[Prompt],
    settings: Settings | None = None,
    budget_seconds: float = BUDGET_SECONDS,
    methods: Sequence[str] | None = None,
    kinds: Sequence[str] | None = None,
) -> AdviceReport:
    """Measure every method that this pair allows on these prompts, and recommend one.

    Every drafter takes part with many γ and with a γ of its own choice. Those that are beaten beyond doubt are
    dropped early, see :mod:`specdemo.analysis.racing`, so that the budget goes to the close ones.

    Args:
        pair: the models; or their deployments, or None if the settings name a configured server. A server's
            speculation is then one method, as it was started.
        prompts: one prompt or several; a list of whole numbers is one prompt's token ids.
        settings: of all runs; drafter and γ are the advisor's.
        budget_seconds: for all runs together, warm-up included. A run that would pass it is not begun.
        methods: names of the drafters to try; None for all that the pair allows.
        kinds: the kind of each prompt, for advice by kind; None for none.

    Raises:
        PromptError: there is no prompt, or one cannot be decoded.
        SettingsError: a value is out of range, or asks for what this pair does not have, or kinds do not match.
        ServerError: a server cannot be asked, or fails on the way.
    """
    for progress in stream_advice(pair, prompts, settings, budget_seconds, methods, kinds):
        report = progress.report
    return report


def stream_advice(
    pair: ModelPair | ServerPair | None,
    prompts: Prompt | Sequence[Prompt],
    settings: Settings | None = None,
    budget_seconds: float = BUDGET_SECONDS,
    methods: Sequence[str] | None = None,
    kinds: Sequence[str] | None = None,
    stop: Event | None = None,
) -> Iterator[AdviceProgress]:
    """The same a run at a time; every step holds the report so far. ``done`` and ``total`` are seconds.

    What ``advise`` raises is raised here at once. Setting ``stop`` ends it within one round.
    """
    settings = drafting(settings, "the advisor drafts by itself and cannot run {}")
    budget = _checked_budget(budget_seconds)
    prompts = one_by_one(prompts)  # a list, since a generator can be read only once
    kinds = _checked_kinds(kinds, len(prompts))
    stop = stop or Event()
    if on_server(pair, settings):
        if methods is not None:
            raise SettingsError("methods", "a server drafts as it was started; leave methods out.")
        from specdemo.servers.request import sweep_prompts  # with the libraries that only servers need

        pair, given = sweep_prompts(pair, prompts, settings)
        contenders = (Contender(), Contender(SERVER))
        about = {"pair": pair.name, "dtype": "unknown", "server": pair.name}
    else:
        given = encode_all(pair, prompts, settings.chat)
        settings = replace(settings, adaptive_gamma=False, tree_nodes=0)
        families = allowed_drafters(pair, settings, methods)
        contenders = contenders_of(
            families, trees=[name for name in families if _drafts(pair, settings, name, min(TREES))]
        )
        about = {
            **measured_on(pair),
            "models": model_names(pair),
            "draft_quantization": pair.draft and quantization_of(pair.draft),
            "exit_layer": exit_layer_of(pair, settings) if "early_exit" in families else None,
        }
    texts = tuple(prompt if isinstance(prompt, str) else read_ids(prompt) for prompt in prompts)
    report = AdviceReport(settings, contenders, len(given), kinds, budget, texts=texts, **about)
    return _Driver(pair, given, report, stop).steps()


def allowed_drafters(pair: ModelPair, settings: Settings, methods: Sequence[str] | None = None) -> list[str]:
    """The drafters that a pair can have under these settings, or those of ``methods``, which it must have.

    Raises:
        SettingsError: one of ``methods`` is not known, or not for this pair; or a setting that only one drafter
            reads is out of its range.
    """
    if methods is not None:
        given = isinstance(methods, Iterable) and not isinstance(methods, str)
        methods = [*methods] if given else []
        if not methods or not all(isinstance(name, str) for name in methods):
            raise SettingsError("methods", f"give a list of drafters, such as {[*DRAFTERS][:2]}.")
        unknown = next((name for name in methods if name not in DRAFTERS), None)
        if unknown is not None:
            raise SettingsError("methods", f"{quoted(unknown)} is not known; choose from {', '.join(DRAFTERS)}.")
        for name in methods:
            check_drafter(pair, replace(settings, drafter=name, tree_nodes=0))
        return [name for name in DRAFTERS if name in methods]
    return [name for name in DRAFTERS if _drafts(pair, settings, name)]


def _drafts(pair: ModelPair, settings: Settings, name: str, tree: int = 0) -> bool:
    """Whether a drafter can draft for this pair, chains or a tree of so many tokens."""
    try:
        check_drafter(pair, replace(settings, drafter=name, tree_nodes=tree))
    except SettingsError as error:
        if error.field in DRAFTERS[name].reads:  # asked for wrongly, which is not the pair's lack
            raise
        return False
    return True


@dataclass
class _Driver:
    """Runs what the race asks for until it is decided or the budget is spent.

    Attributes:
        clock: seconds; another one for tests.
    """

    pair: ModelPair | ServerPair
    prompts: list[Prompt]
    report: AdviceReport
    stop: Event
    clock: Clock = time.perf_counter

    def steps(self) -> Iterator[AdviceProgress]:
        """The progress of every run."""
        began, report = self.clock(), self.report
        race, order = Race(report.contenders, report.error), deque(_mixed(report.kinds, len(self.prompts)))
        took: Counter[int] = Counter()  # seconds of each contender's longest run
        if not self._warm_up():
            return
        for repeat in count():
            if not order or (race.decided and race.blocks >= len(order)):
                break
            number, block = order[0], []
            for place in _turn(race):
                spent = self.clock() - began
                if report.runs and spent + took.get(place, took[PLAIN]) > report.budget_seconds:
                    yield self._progress(replace(report, complete=True, seconds=spent), report.runs[-1])
                    return
                trace = self._run(place, number, repeat)
                if trace is None:
                    return
                seconds = self.clock() - began
                took[place] = max(took[place], seconds - spent)
                run = run_of(trace, report.contenders[place].gamma, number, repeat)
                block.append(AdviceRun(place, run, seconds - spent, trace.peak_memory))
                report = self._with(report, block[-1], trace, seconds)
                yield self._progress(report, block[-1])
            order.rotate(-1)
            if found := block_speedups(block):
                race.add(found, report.kind_of(number))
            else:  # its answers end with their first token, which has no speed
                order.remove(number)
        yield self._progress(replace(report, complete=True), report.runs[-1])

    def _warm_up(self) -> bool:
        """Each method once, shortly, which pays for what only a first run pays; False if it was stopped."""
        contenders = {c.family: c for c in self.report.contenders}.values()
        short = warm_up(self.report.base, WARM_UP_TOKENS)
        first = self.prompts[0]
        return all(finished_run(self.pair, first, settings_of(c, short), self.stop) for c in contenders)

    def _run(self, place: int, number: int, block: int) -> Trace | None:
        base = replace(self.report.base, seed=(self.report.base.seed + block) % SEEDS)
        settings = settings_of(self.report.contenders[place], base)
        return finished_run(self.pair, self.prompts[number], settings, self.stop)

    @staticmethod
    def _with(report: AdviceReport, run: AdviceRun, trace: Trace, seconds: float) -> AdviceReport:
        in_circles = run.place == PLAIN and loops(trace.token_ids)
        looping = {*report.looping, run.run.prompt + 1} if in_circles else report.looping
        return replace(report, runs=(*report.runs, run), seconds=seconds, looping=tuple(sorted(looping)))

    @staticmethod
    def _progress(report: AdviceReport, run: AdviceRun) -> AdviceProgress:
        left = 0.0 if report.complete else max(report.budget_seconds - report.seconds, 0.0)
        return Progress(report.seconds, report.budget_seconds, run, left, report)


def _turn(race: Race) -> list[int]:
    """The next block's runs. The first block begins with plain decoding; the others rotate, to be fair to all."""
    running = race.running
    first = race.blocks % len(running)
    return [*running[first:], *running[:first]]


def _mixed(kinds: Sequence[str], prompts: int) -> list[int]:
    """The numbers of the prompts, kinds by turns, so that the first few are of all kinds."""
    groups = [[n for n in range(prompts) if kinds[n] == kind] for kind in dict.fromkeys(kinds)]
    groups = groups or [list(range(prompts))]
    return [n for turn in zip_longest(*groups) for n in turn if n is not None]


def model_names(pair: ModelPair) -> dict[str, str]:
    """The models as their files are called; what has no name is left out.

    Those that come with this project are named from its folder and those of the hub by their names there, so that
    nothing tells where they lie.
    """
    models = {"target": pair.target, "draft": pair.draft, "head": pair.head}
    names = {role: getattr(model, "name_or_path", "") for role, model in models.items()}
    if pair.draft_tokenizer is not None:
        names["draft_tokenizer"] = getattr(pair.draft_tokenizer, "name_or_path", "") or names["draft"]
    return {role: _public_name(name) for role, name in names.items() if name}


def _public_name(name: str) -> str:
    cached = HUB_CACHE.search(name)
    return cached[1].replace("--", "/") if cached else name.removeprefix(f"{ASSETS.parent}/")


def _checked_budget(seconds: object) -> float:
    valid = isinstance(seconds, Real) and not isinstance(seconds, bool) and 0 < seconds <= LONGEST_BUDGET
    if not valid:
        raise SettingsError(
            "budget_seconds", f"must be a number above 0 and at most {LONGEST_BUDGET:,.0f}, not {quoted(seconds)}."
        )
    return float(seconds)


def _checked_kinds(kinds: Sequence[str] | None, prompts: int) -> tuple[str, ...]:
    given = [*kinds] if isinstance(kinds, Iterable) and not isinstance(kinds, str) else kinds
    if given is None or given == []:
        return ()
    if not isinstance(given, list) or len(given) != prompts or not all(isinstance(kind, str) for kind in given):
        raise SettingsError("kinds", f"give a text for each of the {prompts} prompts, or leave them out.")
    if any(len(kind.splitlines()) > 1 for kind in given):
        raise SettingsError("kinds", "one has several lines; give a word or two for each.")
    return tuple(kind.strip() or "other" for kind in given) if any(given) else ()
