"""Token and Round: what one round of a lane did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

Kind = Literal["target", "accepted", "corrected", "bonus", "rejected", "streamed"]
Stop = Literal["eos", "length", "context"]
LONGEST_SECONDS = 7 * 24 * 3600.0
Seconds = Annotated[float, Field(ge=0, le=LONGEST_SECONDS)]
LISTED = 4  # candidates of a rejected token's place, and the one drawn
Share = Annotated[float, Field(ge=0, le=1 + 1e-5)]  # a float32 softmax may pass 1


@dataclass(frozen=True, slots=True)
class Token:
    """One token of a lane.

    Attributes:
        id: token id; None if a server did not give it: of every token it rejected, and of pieces of text.
        text: the characters that this token completed; empty while a multi-byte character is unfinished.
        kind: ``target``, ``accepted``, ``corrected``, ``bonus`` or ``rejected``; ``streamed`` came from a server
            and nobody knows which of these it was.
        round: index of its round; 0 is the prefill.
        position: place in the round from 1, in a draft tree its depth; a corrected token has the place of the
            first rejected one.
        p: the target's probability of this token. After the warpers when sampling; at temperature 0 the
            plain softmax, since the greedy distribution would say 1 of everything.
        q: the draft's probability of it, likewise; None where the draft gave no distribution.
        acceptance: the probability with which the rule accepts it; None for tokens never tested.
        seconds: the lane clock when its round ended.
        margin: how far its score stands above the target's best other token, in logits, negative where
            another was better; None for rejected tokens.
        parent: in a draft tree, the token of its round that it follows, counted from 1 as the round lists them; 0
            is the last token before the round. None in a chain, where each follows the one before.
        u: the number drawn from [0, 1) by which the rules ``sampling`` and ``naive`` decide: kept where below
            ``acceptance``. None of tokens never tested, of other rules and engines, and in older records.
    """

    id: int | None
    text: str
    kind: Kind
    round: int
    position: int
    p: Share | None
    q: Share | None
    acceptance: Share | None
    seconds: Seconds
    margin: float | None = None
    parent: int | None = None
    u: Share | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A token that could be drawn in place of a rejected one, with p, q (1 of a copied token) and its share of the
    residual: max(p − q, 0) over the sum of that over the vocabulary.
    """

    id: int
    text: str
    p: Share
    q: Share
    share: Share


@dataclass(frozen=True, slots=True)
class Round:
    """One draft phase and one verify forward; index 0 is the prefill, which emits one token.

    Attributes:
        tokens: accepted ones, then rejected ones, then the target's own.
        drafted: tokens the drafter proposed.
        accepted: drafted tokens that were kept in the output.
        seconds: the lane clock at the end of the round.
        draft_seconds, verify_seconds, other_seconds: where the round's time went; None where only a server knows.
        overlaps: sum of min(p, q) over the vocabulary at each tested position, when sampling.
        stop: why the lane ends with this round, if it does.
        source: for drafted tokens copied from prompt and output: the place, counted from the prompt's first
            token, that the first of them was copied from.
        residual: where rule ``sampling`` rejected a token of a chain: the likeliest in its place, and the one
            drawn. None in batches, of other engines, and in older records.
        drafter: of several in a row the one that drafted; None of a single one, and on servers, llama.cpp's too:
            their answers do not say which one it was.
    """

    index: int
    tokens: tuple[Token, ...]
    drafted: int
    accepted: int
    seconds: float
    draft_seconds: Seconds | None
    verify_seconds: Seconds | None
    other_seconds: Seconds | None
    overlaps: tuple[float, ...] | None = None
    stop: Stop | None = None
    source: int | None = None
    residual: Annotated[tuple[Candidate, ...], Field(max_length=LISTED + 1)] | None = None
    drafter: str | None = None

    @property
    def is_tree(self) -> bool:
        """Whether several guesses a position were drafted."""
        return any(t.parent is not None for t in self.tokens)

    @property
    def offered(self) -> int:
        """Positions that had a guess behind what was kept before them: γ of a chain; of a tree those kept, and one
        more where all guesses were rejected.
        """
        if not self.is_tree:
            return self.drafted
        return self.accepted + any(t.kind == "corrected" for t in self.tokens)

    @property
    def first_guesses(self) -> int:
        """Leading accepted tokens that were the first guess of their position, as a chain would keep."""
        tested = {t.parent for t in self.tokens if t.kind == "rejected" and t.acceptance is not None}
        kept = [t.parent is None or t.parent not in tested for t in self.tokens if t.kind == "accepted"]
        return (*kept, False).index(False)

    @property
    def saved(self) -> bool:
        """Whether a token was kept that was not the first guess of its position: a chain ends there."""
        return self.first_guesses < self.accepted

    @property
    def reading(self) -> tuple[Token, ...]:
        """The tokens that a text shows: of a tree the kept path, and the first guess where it ended."""
        if not self.is_tree:
            return self.tokens
        tried = [t for t in self.tokens if t.kind == "rejected" and t.parent == self.accepted]
        return tuple(t for t in self.tokens if t.kind != "rejected" or t in tried[: self.offered - self.accepted])

    @property
    def emitted(self) -> tuple[Token, ...]:
        """The tokens that entered the output."""
        return tuple(t for t in self.tokens if t.kind != "rejected")
