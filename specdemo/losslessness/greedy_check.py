"""The greedy check: every position of a greedy lane against the target's own choice there."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

from specdemo.analysis.wording import counted
from specdemo.decoding.detokenizer import Detokenizer
from specdemo.decoding.engines.eager import EagerRunner
from specdemo.decoding.recorder import readings
from specdemo.decoding.sampling import Sampler
from specdemo.errors import SettingsError, TraceError
from specdemo.losslessness.compare import Outcome, tie_margin
from specdemo.losslessness.model_runs import TeacherForcing
from specdemo.models.pair import ModelPair
from specdemo.runs.encode import encode
from specdemo.runs.threads import decoding_threads
from specdemo.trace import Trace


@dataclass(frozen=True, slots=True)
class Position:
    """One emitted token.

    Attributes:
        outcome: ``identical``: it is the target's best; ``tie``: another is better, by no more than rounding;
            ``diverged``: another is better.
        margin: logits from the best other token up to this one, negative where that is better; None where the
            warpers leave nothing to compare.
        id, text: the emitted token.
        best_id, best_text: the target's best; the text is empty where it is not known.
    """

    outcome: Outcome
    margin: float | None
    id: int
    text: str
    best_id: int
    best_text: str


@dataclass(frozen=True)
class GreedyCheck:
    """The judgement on all positions of one lane.

    Attributes:
        positions: in order, the first is the prefill's token.
        tie_margin: logits that count as rounding, for the target's number type.
        lossless: whether the lane's rule is meant to be.
    """

    positions: tuple[Position, ...]
    tie_margin: float
    lossless: bool

    def places(self, outcome: Outcome) -> list[int]:
        """Positions of that outcome, from 0."""
        return [i for i, position in enumerate(self.positions) if position.outcome == outcome]

    @property
    def outcome(self) -> Outcome:
        """The worst of all positions."""
        return "diverged" if self.places("diverged") else "tie" if self.places("tie") else "identical"

    @property
    def text(self) -> str:
        """One line for people."""
        count, ties, diverged = len(self.positions), self.places("tie"), self.places("diverged")
        of = f"of {counted(count, 'position')}"
        if diverged:
            first = self.positions[diverged[0]]
            why = "" if self.lossless else "; the rule is lossy"
            by = "" if first.margin is None else f" by {-first.margin:.2g} logits"
            return (
                f"{len(diverged)} {of} diverged{why}. The first is {diverged[0] + 1}: “{first.text.strip()}” "
                f"where the target prefers “{first.best_text.strip()}”{by}."
            )
        if ties:
            widest = min(self.positions[i].margin or 0.0 for i in ties)
            return (
                f"{count - len(ties)} {of} are identical and {len(ties)} a numerical tie, where two tokens are at "
                f"most {-widest:.1g} logits apart: rounding decides."
            )
        which = "The 1 position is" if count == 1 else f"All {count:,} positions are"
        return f"{which} the target's own best token: identical to plain greedy decoding."

    def to_json(self) -> str:
        """This record as JSON."""
        return json.dumps({**asdict(self), "outcome": self.outcome, "text": self.text}, ensure_ascii=False)


def check_greedy(pair: ModelPair, trace: Trace) -> GreedyCheck:
    """Judge every position of a greedy lane against the target, teacher-forced: one forward over its output.

    At each position the target reads the lane's own tokens before it and names its best. If all agree, the output
    is plain greedy decoding's, by induction; and positions after a tie are judged too, which comparing two texts
    cannot do.

    Raises:
        SettingsError: the lane sampled.
        TraceError: it has no tokens, or is no trace.
        PairError, PromptError: ``pair`` is no ModelPair, or cannot read the trace's prompt.
    """
    if not isinstance(trace, Trace):
        raise TraceError(
            f"trace: must be a specdemo.Trace, not {type(trace).__name__}; read a saved one with Trace.from_json."
        )
    plain = replace(trace.settings, strategy="autoregressive")
    encode(pair, trace.prompt_ids, lanes=[plain])  # refuses another pair, and a prompt that this one cannot read
    if not trace.settings.greedy:
        raise SettingsError("temperature", "is above 0, so no single token is the right one; use certify instead.")
    if not trace.output:
        raise TraceError("There are no tokens to check; let the lane run for at least one round.")
    if not trace.token_ids:
        raise TraceError(
            "This trace has no token ids, only the text that a server sent; check a lane that has them."
        )
    with decoding_threads(pair):
        sampler = Sampler(trace.settings, pair.vocabulary, pair.device)
        logits = TeacherForcing(EagerRunner(pair.target), sampler, trace.prompt_ids).logits(trace.token_ids)
        margins = [reading.margin for reading in readings(logits, trace.token_ids)]
        best = logits.argmax(-1).tolist()
    tie, texts = tie_margin(trace.dtype), Detokenizer(pair.tokenizer, trace.prompt_ids)
    positions = []
    for token, best_id, margin in zip(trace.output, best, margins, strict=True):
        assert token.id is not None, "there are ids"
        near = margin is not None and -margin <= tie
        outcome: Outcome = "identical" if token.id == best_id else "tie" if near else "diverged"
        positions.append(Position(outcome, margin, token.id, token.text, best_id, texts.peek(best_id)))
        texts.push(token.id)
    return GreedyCheck(tuple(positions), tie, trace.settings.lossless)
