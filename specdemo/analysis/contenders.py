"""The ways to decode that a measurement compares: plain decoding, and drafters with their γ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from specdemo.drafters import DRAFTERS, in_a_row
from specdemo.settings import MAX_GAMMA, Settings

GRID = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, MAX_GAMMA)
"""The γ that the advisor may try."""
TREES = {8: 5, 24: 6}
"""The draft trees that it may try: their tokens, and how deep they are."""
ROW_GAMMAS = (4, 8, 12, MAX_GAMMA)
"""The γ of drafters in a row."""
P_MINS = (0.4, 0.7, 0.9)
"""Of drafts that end where the drafter is not sure; here the first one alone."""
SERVER = "server"
"""The family of a server's own speculation."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to decode: a drafter with its γ.

    Attributes:
        family: the drafter's name, or ``SERVER``; empty for plain decoding.
        gamma: drafted tokens a round; None of a tree, and if it is chosen anew in every round, or by a server.
        tree: tokens of a draft tree, one of ``TREES``; 0 for chains.
        size: prompts decoded together.
        p_min: of the settings.
    """

    family: str = ""
    gamma: int | None = None
    tree: int = 0
    size: int = 1
    p_min: float = 0.0

    @property
    def plain(self) -> Contender:
        """What it is compared with: plain decoding of as many prompts together."""
        return Contender(size=self.size)

    @property
    def method(self) -> str:
        """What people call its drafter."""
        if not self.family:
            return "plain decoding"
        return "the server's speculation" if self.family == SERVER else DRAFTERS[self.family].label

    @property
    def width(self) -> str:
        """How much it drafts, in words; empty where there is no choice."""
        if self.family in ("", SERVER):
            return ""
        if self.tree:
            return f"tree of {self.tree}, depth {TREES[self.tree]}"
        sure = f", p_min {self.p_min:g}" if self.p_min else ""
        return "adaptive γ" if self.gamma is None else f"γ {self.gamma}{sure}"

    @property
    def name(self) -> str:
        """Method and γ, as sentences have them."""
        return f"{self.method}, {self.width}" if self.width else self.method

    def settings(self, shared: Settings) -> Settings:
        """The settings of its runs, from those that all contenders share."""
        if not self.family:
            return replace(shared, strategy="autoregressive", adaptive_gamma=False, tree_nodes=0)
        if self.family == SERVER:
            return shared
        return replace(
            shared,
            drafter=self.family,
            gamma=self.gamma or TREES.get(self.tree, shared.gamma),
            adaptive_gamma=self.gamma is None and not self.tree,
            tree_nodes=self.tree,
            p_min=self.p_min or shared.p_min,
        )


PLAIN = Contender()


def contenders_of(
    families: Sequence[str], adaptive: bool = True, trees: Sequence[str] = (), sure: Sequence[float] = ()
) -> tuple[Contender, ...]:
    """Plain decoding, then every family with every γ, with adaptive γ, and those of ``trees`` with each tree.

    Drafters in a row have some γ only. Where trained weights draft, each γ comes with every ``p_min`` of ``sure``.
    """
    found = [PLAIN]
    for family in families:
        alone = len(in_a_row(family)) == 1
        gammas = GRID if alone else ROW_GAMMAS
        found += [Contender(family, gamma) for gamma in gammas]
        found += [Contender(family)] if adaptive and alone else []
        found += [Contender(family, tree=nodes) for nodes in TREES if family in trees]
        if sure and DRAFTERS[family].needs:
            found += [Contender(family, gamma, p_min=p_min) for p_min in sure for gamma in gammas]
    return tuple(found)
