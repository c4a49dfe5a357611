"""Whether two models can work together, judged from their tokenizers before any weight is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from transformers import PreTrainedTokenizerBase

PROBE = "Hello, world! 12 345\n\tdéjà vu — 你好, مرحبا 🙂 x = f(y);  # two  spaces"
ROUND_TRIP = "Hello, World:\n  1 plus 2 is 3."


@dataclass(frozen=True, slots=True)
class TokenizerMatch:
    """How the draft's tokenizer compares with the target's.

    Attributes:
        relation: ``alone``: there is no draft; ``same``; ``specials``: only special tokens differ, which does no
            harm; ``reencoded``: drafted text must be encoded again for the target; ``refused``: it cannot be.
        text: one line for the user.
    """

    relation: Literal["alone", "same", "specials", "reencoded", "refused"]
    text: str


def match_tokenizers(
    target: PreTrainedTokenizerBase, draft: PreTrainedTokenizerBase | None = None, *, widths: Sequence[int]
) -> TokenizerMatch:
    """Compare two tokenizers by what they do: ids of shared tokens, and one probe text in several scripts.

    Args:
        target, draft: the tokenizers; no draft leaves nothing to compare.
        widths: of the models' logits, which padding may make wider than the vocabulary.
    """
    if draft is None:
        return TokenizerMatch("alone", "no draft model")
    ours, theirs = target.get_vocab(), draft.get_vocab()
    differing = {token for token in ours.keys() | theirs.keys() if ours.get(token) != theirs.get(token)}
    added = target.get_added_vocab().keys() | draft.get_added_vocab().keys()
    probes = [tokenizer(PROBE, add_special_tokens=False)["input_ids"] for tokenizer in (target, draft)]
    if differing <= added and probes[0] == probes[1]:
        padding = "" if widths[0] == widths[1] else f"; logits padded to {widths[0]:,} and {widths[1]:,}"
        if not differing:
            return TokenizerMatch("same", f"same tokenizer{padding}")
        count = f"{len(differing)} special token" + ("s" if len(differing) > 1 else "")
        return TokenizerMatch("specials", f"same tokenizer but for {count}{padding}")
    # The drafter checks this as well; here the answer comes before gigabytes are downloaded.
    for role, tokenizer in (("target", target), ("draft", draft)):
        if not gives_back(tokenizer):
            return TokenizerMatch(
                "refused",
                f"the tokenizers differ, and the {role}'s does not give back the text it encodes, so drafted text "
                "cannot be encoded anew; choose a draft of the target's own family",
            )
    return TokenizerMatch("reencoded", "different tokenizers: drafted text is encoded anew for the target")


def gives_back(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether a text survives encoding and decoding, as far as re-encoding needs: a leading space may go."""
    ids = tokenizer(ROUND_TRIP, add_special_tokens=False)["input_ids"]
    text = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return str(text).strip() == ROUND_TRIP.strip()
