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

    findings: ClassVar[tuple[str, ...]] = ("settings", "sizes", "conclusion")
    thing: ClassVar[str] = "row"
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
        found: dict[str, list[int]] = {"pays": [], "does not pay": [], "is undecided": []}
        for row in self.known:
            _, low, high = row.range
            found["pays" if low > 1 else "does not pay" if high < 1 else "is undecided"].append(row.size)
        claims = [f"{claim} with {self._counted(sizes)}" for claim, sizes in found.items() if sizes]
        ends = {row.size: row.speedup for row in (self.known[0], self.known[-1])}
        speeds = ", ".join(f"{speedup:.2f}× with {self._counted([size])}" for size, speedup in ends.items())
        more = " To decide it, repeat it more often, or on a quieter machine." if found["is undecided"] else ""
        more += " It was measured once: repeat it to see how sure that is." if self.repeats == 1 else ""
        return f"drafting {', '.join(claims)}: {speeds}.{more}"

    def _counted(self, sizes: Sequence[int]) -> str:
        return f"{listed(sizes)} {self.thing}{'' if [*sizes] == [1] else 's'}"


@dataclass(frozen=True, kw_only=True)
class LoadReport(SizeReport):
    """A server without and with speculation for 1, 2, 4 … users, each of whom waits for an answer and asks again.

    Every number of users works off as many ``requests``, the prompts in turn.
    """

    requests: int = 0
    findings = (*SizeReport.findings, "answers")
    plain_too, thing, along = True, "user", "users at the same time"

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
