"""What a γ sweep measured, one drafter with every γ, and its advice."""

from __future__ import annotations

from functools import cached_property
from statistics import median

from specdemo.analysis.contenders import PLAIN
from specdemo.analysis.report import Report
from specdemo.analysis.rows import Row, by_repeat, speed
from specdemo.analysis.wording import listed
from specdemo.settings import Settings

AS_GOOD = 0.99
"""Speed-ups this near to the best are as good: repeats differ by more, and a lower γ wastes less."""
RESTLESS = 1.3
"""Ratio of the best to the worst repeat from which on something else must have kept the machine busy."""
NEAR = 0.95
"""Those this near are as good where their repeats overlap with those of the best."""


class SweepReport(Report):
    """Plain decoding, then every γ in ascending order; on a server its own γ. Every prompt, in every repeat."""

    findings = ("settings", "gammas", "best_gamma", "recommendation", "plain_tokens_per_second")

    @property
    def settings(self) -> Settings:
        """Of the speculative runs; their γ is the row's."""
        return self.base

    @property
    def gammas(self) -> tuple[int | None, ...]:
        """The γ asked for; on a server one None."""
        return tuple(c.gamma for c in self.contenders if c.family)

    @cached_property
    def plain_tokens_per_second(self) -> float | None:
        """Decode speed of plain decoding over all prompts, median over the repeats."""
        speeds = [found for some in by_repeat(self.of(PLAIN)) if (found := speed(some)) is not None]
        return median(speeds) if speeds else None

    @property
    def doubt(self) -> str | None:
        """As of every report; or that the repeats of a greedy run differ, of those that may be the fastest."""
        least = max((row.range for row in self.measured), default=(0.0, 0.0, 0.0))[1]
        rivals = [row.range for row in self.measured if row.range[2] >= least]
        restless = self.base.greedy and any(high > RESTLESS * low for _, low, high in rivals)
        return super().doubt or ("The repeats differ widely." if restless else None)

    @property
    def level(self) -> list[Row]:
        """The rows that the repeats cannot tell from the fastest, in ascending γ.

        Their speed-ups are within 1 % of the largest, or within 5 % of it with ranges that overlap.
        """
        top, low, _ = max((row.range for row in self.known), default=(0.0, 0.0, 0.0))

        def as_good(row: Row) -> bool:
            found, _, high = row.range
            return found >= AS_GOOD * top or (found >= NEAR * top and high >= low)

        return [row for row in self.known if as_good(row)] if top else []

    @property
    def best(self) -> Row | None:
        """The lowest γ of those that are level with the fastest, since it wastes least."""
        return next(iter(self.level), None)

    @property
    def best_gamma(self) -> int | None:
        return self.best.gamma if self.best is not None else None

    @property
    def pays(self) -> bool | None:
        """Whether the best is faster than plain decoding in every repeat; None where that is open."""
        if self.noisy:
            return None
        _, low, high = self.best.range if self.best is not None else (0.0, 0.0, 0.0)
        return True if low > 1 else False if high <= 1 else None

    @property
    def recommendation(self) -> str:
        """One sentence for people, and what casts doubt on it."""
        best = self.best
        if self.noisy:
            return self.noise
        if best is None:
            return "Nothing was measured yet: a speed-up needs a plain run and a drafted one of the same prompt."
        found, low, high = best.range
        pace = f"{found:.2f}×"
        spread = "" if f"{low:.2f}" == f"{high:.2f}" else f" ({low:.2f} to {high:.2f} over the repeats)"
        rate = best.acceptance_rate
        kept = "" if rate is None else f", with {rate:.0%} of drafted tokens kept"
        than_plain = f"γ = {best.gamma}, runs at {pace} the speed of plain decoding{spread}."
        if self.server is not None:  # whose γ is not for us to choose
            drafts = f" (γ = {best.gamma})" if best.gamma is not None else ""
            advice = "" if found >= 1 else " Do not speculate there with this draft."
            said = (
                f"The server's speculation{drafts} runs at {pace} the speed of its baseline{spread}{kept}.{advice}"
            )
        elif self.pays is None:
            said = f"Whether speculation pays here is open: the best of these, {than_plain} Repeat it more often."
        elif not self.pays:
            said = f"Do not speculate here: even the best of these, {than_plain}{self._edge()}"
        else:
            tokens = "token" if best.gamma == 1 else "tokens"
            said = (
                f"Draft {best.gamma} {tokens} a round (γ = {best.gamma}): {pace} as fast as plain decoding"
                f"{spread}{kept}.{self._level_text()}{self._edge()}"
            )
        once = " It was measured once: repeat it to see how sure that is." if self.repeats == 1 else ""
        return f"{'' if self.complete else 'So far: '}{said}{once}"

    def _level_text(self) -> str:
        """Which γ do as well, if any."""
        gammas = [row.gamma for row in self.level]
        if len(gammas) < 2:
            return ""
        measured = [row.gamma for row in self.rows]
        between = measured[measured.index(gammas[0]) : measured.index(gammas[-1]) + 1]
        joined = f"{gammas[0]} to {gammas[-1]}" if between == gammas and len(gammas) > 2 else listed(gammas)
        return f" γ {joined} are level; {gammas[0]} is the smallest."

    def _edge(self) -> str:
        """A best at the end of the range may not be the best."""
        first, *_, last = [row.gamma for row in self.rows] * 2
        if not self.complete or first == last:
            return ""
        if self.best_gamma == last:
            return " It is the largest tried; try larger γ."
        return " It is the smallest tried; try smaller γ." if self.best_gamma == first != 1 else ""
