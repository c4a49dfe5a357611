"""What a γ sweep measured: its rows, and its advice."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from specdemo.analysis.contenders import PLAIN, SERVER, Contender
from specdemo.analysis.report import Report, by_repeat, middle, speed
from specdemo.analysis.rows import Row, figures_of
from specdemo.analysis.wording import listed
from specdemo.settings import Settings

AS_GOOD = 0.99
"""Speed-ups this near to the best are as good: repeats differ by more, and a lower γ wastes less."""
NEAR = 0.95
"""Those this near are as good where their repeats overlap with those of the best."""
RESTLESS = 1.3
"""Ratio of the best to the worst repeat from which on something else must have kept the machine busy."""


@dataclass(frozen=True)
class SweepReport(Report):
    """What a sweep measured: one drafter with every γ, each on every prompt in every repeat.

    Attributes:
        settings: of the speculative runs; their γ is the row's.
        gammas: the γ asked for, in ascending order; on a server one None, for its own.
        prompts: how many prompts.
        repeats: how many times over.
        server_gamma: the most tokens that the server drafts in a step; None if it does not say.
    """

    settings: Settings
    gammas: tuple[int | None, ...]
    prompts: int
    repeats: int
    server_gamma: int | None = None

    row = Row
    own = ("repeats",)
    record = (
        "settings",
        "gammas",
        "prompts",
        "repeats",
        "best_gamma",
        "recommendation",
        "plain_tokens_per_second",
    )

    @property
    def base(self) -> Settings:
        """As of every report."""
        return self.settings

    @property
    def contenders(self) -> tuple[Contender, ...]:
        """Plain decoding, then every γ."""
        family = SERVER if self.server is not None else self.settings.drafter
        return PLAIN, *(Contender(family, gamma) for gamma in self.gammas)

    @property
    def total(self) -> int:
        """Runs of a whole sweep: plain decoding and every γ, on every prompt, in every repeat."""
        return len(self.contenders) * self.prompts * self.repeats

    @property
    def complete(self) -> bool:
        """Whether every run was made."""
        return len(self.runs) == self.total

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """One row for each γ of which at least one run is finished."""
        of_each = [(c, [r for r in self.runs if r.contender == c]) for c in self.contenders]
        (_, plain), *drafted = of_each
        return tuple(
            Row(**figures_of(c, self.settings, runs, plain, self.server_gamma)) for c, runs in drafted if runs
        )

    @cached_property
    def plain_tokens_per_second(self) -> float | None:
        """Decode speed of plain decoding over all prompts, median over the repeats."""
        return middle(map(speed, by_repeat([r for r in self.runs if r.contender == PLAIN])))

    @property
    def level(self) -> list[Row]:
        """The rows that the repeats cannot tell from the fastest, in ascending γ.

        Their speed-ups are within 1 % of the largest, or within 5 % of it with ranges that overlap.
        """
        known = [row for row in self.rows if row.speedup is not None]
        top = max(known, key=lambda row: row.speedup, default=None)

        def as_good(row: Row) -> bool:
            near = row.speedup >= NEAR * top.speedup and row.speedup_high >= top.speedup_low
            return near or row.speedup >= AS_GOOD * top.speedup

        return [row for row in known if as_good(row)]

    @property
    def best(self) -> Row | None:
        """The lowest γ of those that are level with the fastest, since it wastes least."""
        return next(iter(self.level), None)

    @property
    def pays(self) -> bool | None:
        """Whether the best is faster than plain decoding in every repeat; None where the repeats disagree."""
        best = self.best
        if best is None or best.speedup_high <= 1:
            return False
        return True if best.speedup_low > 1 else None

    @property
    def best_gamma(self) -> int | None:
        """The recommended γ: the lowest of those that are level with the fastest; None without any."""
        return self.best.gamma if self.best is not None else None

    @property
    def recommendation(self) -> str:
        """One sentence for people."""
        best = self.best
        if best is None:
            return "Nothing was measured yet: a speed-up needs a plain run and a drafted one of the same prompt."
        spread = _spread(best.speedup_low, best.speedup_high)
        kept = "" if best.acceptance_rate is None else f", with {best.acceptance_rate:.0%} of drafted tokens kept"
        if self.server is not None:  # whose γ is not for us to choose
            drafts = f" (γ = {best.gamma})" if best.gamma is not None else ""
            advice = "" if best.speedup >= 1 else " Do not speculate there with this draft."
            claim = (
                f"The server's speculation{drafts} runs at {best.speedup:.2f}× the speed of its baseline"
                f"{spread}{kept}.{advice}"
            )
        elif self.pays is None:
            claim = (
                f"Whether speculation pays here is open: the best of these, γ = {best.gamma}, runs at "
                f"{best.speedup:.2f}× the speed of plain decoding{spread}. Repeat it more often."
            )
        elif not self.pays:
            claim = (
                f"Do not speculate here: even the best of these, γ = {best.gamma}, "
                f"runs at {best.speedup:.2f}× the speed of plain decoding{spread}.{self._edge()}"
            )
        else:
            claim = (
                f"Draft {best.gamma} token{'s' if best.gamma > 1 else ''} a round (γ = {best.gamma}): "
                f"{best.speedup:.2f}× as fast as plain decoding{spread}{kept}.{self._level_text()}{self._edge()}"
            )
        return f"{'' if self.complete else 'So far: '}{claim}{self._doubt()}"

    def _level_text(self) -> str:
        """Which γ do as well, if any."""
        gammas = [row.gamma for row in self.level]
        if len(gammas) < 2:
            return ""
        between = [row.gamma for row in self.rows if gammas[0] <= row.gamma <= gammas[-1]]
        joined = f"{gammas[0]} to {gammas[-1]}" if between == gammas and len(gammas) > 2 else listed(gammas)
        return f" γ {joined} are level; {gammas[0]} is the smallest."

    def _edge(self) -> str:
        """A best at the end of the range may not be the best."""
        measured = [row.gamma for row in self.rows]
        if not self.complete or len(measured) < 2 or self.best_gamma not in (measured[0], measured[-1]):
            return ""
        upper = self.best_gamma == measured[-1]
        if not upper and measured[0] == 1:
            return ""
        return f" It is the {'largest' if upper else 'smallest'} tried; try {'larger' if upper else 'smaller'} γ."

    def _doubt(self) -> str:
        """A warning where times cannot be, where there was one repeat, or where those of a greedy run differ."""
        if impossible := self.impossible(self.best):
            return f" {impossible}"
        if self.repeats == 1:
            return " It was measured once: repeat it to see how sure that is."
        rivals = [r for r in self.rows if r.speedup is not None and r.speedup_high >= self.best.speedup_low]
        if not self.settings.greedy or all(r.speedup_high < RESTLESS * r.speedup_low for r in rivals):
            return ""
        return " The repeats differ widely: close what else keeps the machine busy, and sweep again."


def _spread(low: float | None, high: float | None) -> str:
    if low is None or high is None or f"{low:.2f}" == f"{high:.2f}":
        return ""
    return f" ({low:.2f} to {high:.2f} over the repeats)"
