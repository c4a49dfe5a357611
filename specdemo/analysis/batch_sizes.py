"""What batch sizes measured: does drafting still pay when more rows are decoded together?"""

from __future__ import annotations

from collections.abc import Sequence

from specdemo.analysis.report import Report
from specdemo.analysis.wording import listed
from specdemo.settings import Settings


class SizeReport(Report):
    """Plain and drafted batches of every size.

    Every size decodes the same prompts, as many as the largest has rows, smaller ones in several batches, so that
    sizes do not also differ by their prompts; fewer prompts are repeated from the first. Where a size does not
    divide them, its last batch is filled up from the first row.
    """

    findings = ("settings", "sizes", "crossover", "conclusion")

    @property
    def settings(self) -> Settings:
        return self.base

    @property
    def each(self) -> int:
        """As many as the largest batch has rows."""
        return max(self.sizes)

    @property
    def crossover(self) -> int | None:
        """The smallest measured size from which on drafting is slower than not; None if it pays at the largest."""
        slower: int | None = None
        for row in reversed(self.known):
            if row.range[2] >= 1:
                break
            slower = row.size
        return slower

    @property
    def conclusion(self) -> str:
        """One or two sentences for people: drafting pays where every repeat was faster."""
        if not (self.known or self.noisy):
            return "Nothing was measured yet: a speed-up needs a plain and a drafted batch of one size."
        limit = "" if self.ran_out is None else f" Memory ran out at {_rows([self.ran_out])}."
        if self.noisy:
            return self.noise + limit
        text = self._claim()
        return (text[0].upper() + text[1:] if self.complete else f"So far {text}") + limit

    def _claim(self) -> str:
        known = self.known
        pays = [row.size for row in known if row.range[1] > 1]
        loses = [row.size for row in known if row.range[2] < 1]
        open_ = [row.size for row in known if row.size not in (*pays, *loses)]
        first, last = known[0], known[-1]
        ends = ", ".join(f"{row.speedup:.2f}× with {_rows([row.size])}" for row in known if row in (first, last))
        if open_:
            parts = [f"pays with {_rows(pays)}"] * bool(pays)
            parts += [f"{'not' if pays else 'does not pay'} with {_rows(loses)}"] * bool(loses)
            claim = f"drafting {' and '.join(parts)}; with" if parts else "with"
            claim += f" {_rows(open_)} it is open, since the repeats lie on both sides of 1×"
            return f"{claim}: {ends}. Repeat it more often, or on a quieter machine."
        at = "" if first is last else f" at {'any' if loses else 'every'} size tried"
        if not loses:
            claim = f"drafting pays{at}"
        elif not pays:
            claim = f"drafting does not pay{at}"
        elif max(pays) < min(loses):
            claim = f"drafting pays below {_rows(loses[:1])} and not from there on"
        else:
            claim = f"drafting pays with {_rows(pays)} and not with {listed(loses)}"
        return f"{claim}: {ends}."


def _rows(sizes: Sequence[int]) -> str:
    return f"{listed(sizes)} {'row' if [*sizes] == [1] else 'rows'}"
