"""What batch sizes, or numbers of users, measured: does drafting still pay when more is decoded together?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from specdemo.analysis.load_metrics import LoadMetrics
from specdemo.analysis.report import Report
from specdemo.analysis.rows import Row
from specdemo.analysis.wording import listed
from specdemo.settings import Settings


class SizeReport(Report):
    """Plain and drafted batches of every size.

    Every size decodes the same prompts, as many as the largest has rows, smaller ones in several batches, so that
    sizes do not also differ by their prompts; fewer prompts are repeated from the first. Where a size does not
    divide them, its last batch is filled up from the first row.
    """

    findings: ClassVar[tuple[str, ...]] = ("settings", "sizes", "crossover", "conclusion")
    thing: ClassVar[str] = "row"
    scale: ClassVar[str] = "size"
    along: ClassVar[str] = "rows decoded together"

    @property
    def settings(self) -> Settings:
        """Of the drafted batches."""
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
        limit = "" if self.ran_out is None else f" Memory ran out at {self._counted([self.ran_out])}."
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
        ends = ", ".join(
            f"{row.speedup:.2f}× with {self._counted([row.size])}" for row in known if row in (first, last)
        )
        if open_:
            parts = [f"pays with {self._counted(pays)}"] * bool(pays)
            parts += [f"{'not' if pays else 'does not pay'} with {self._counted(loses)}"] * bool(loses)
            claim = f"drafting {' and '.join(parts)}; with" if parts else "with"
            claim += f" {self._counted(open_)} it is open, since the repeats lie on both sides of 1×"
            return f"{claim}: {ends}. Repeat it more often, or on a quieter machine."
        at = "" if first is last else f" at {'any' if loses else 'every'} {self.scale} tried"
        if not loses:
            claim = f"drafting pays{at}"
        elif not pays:
            claim = f"drafting does not pay{at}"
        elif max(pays) < min(loses):
            claim = f"drafting pays below {self._counted(loses[:1])} and not from there on"
        else:
            claim = f"drafting pays with {self._counted(pays)} and not with {listed(loses)}"
        return f"{claim}: {ends}."

    def _counted(self, sizes: Sequence[int]) -> str:
        return f"{listed(sizes)} {self.thing}{'' if [*sizes] == [1] else 's'}"


@dataclass(frozen=True, kw_only=True)
class LoadReport(SizeReport):
    """A server without and with speculation for 1, 2, 4 … users, each of whom waits for an answer and asks again.

    Every number of users works off as many ``requests``, the prompts in turn.
    """

    requests: int = 0
    findings = (*SizeReport.findings, "answers")
    plain_too, thing, scale, along = True, "user", "number of users", "users at the same time"

    @property
    def each(self) -> int:
        return self.requests

    def parts(self, size: int) -> int:
        return 1  # without pauses in which all wait for the last

    @property
    def known(self) -> Sequence[Row]:
        return [row for row in super().known if row.settings.strategy != "autoregressive"]

    def _each(self, name: str) -> list[int]:
        """What is known of a figure, by runs."""
        every = [r.figures for r in self.runs if isinstance(r.figures, LoadMetrics)]
        return [found for each in every if (found := getattr(each, name)) is not None]

    @property
    def answers(self) -> dict[str, int]:
        """How many were compared with those of one user, how many differ, and how many are to another prompt."""
        compared = self.requests * len(self._each("differing"))
        return {"compared": compared} | {name: sum(self._each(name)) for name in ("differing", "crossed")}

    @property
    def conclusion(self) -> str:
        """As of sizes; then whether answers are as they should be, and what the figures are not of."""
        said, answers = [super().conclusion], self.answers
        most, slots = max(self._each("users"), default=0), min(self._each("slots"), default=None)
        if slots is not None and slots < most:
            said.append(f"The server answers {slots} at a time, so more users wait: start it with -np {most}.")
        if any(run.contender.family and run.figures.proposed == 0 for run in self.runs if run.figures):
            said.append("Nothing was drafted: start the server with speculation (llama.cpp: --spec-type).")
        if answers["crossed"]:
            said.append(f"The server mixes requests up: {answers['crossed']} answers are those to another prompt.")
        elif answers["differing"]:
            said.append(
                f"{answers['differing']} of {answers['compared']:,} answers differ from those that one user got "
                "without speculation; rounding may decide a tie otherwise in a larger batch: `compare` tells."
            )
        elif answers["compared"]:
            said.append(f"All {answers['compared']:,} answers are those that one user got without speculation.")
        return " ".join(said)
