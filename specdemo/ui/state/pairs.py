"""What the choice of a pair means: the models that it names, what they draft with, and what goes with them."""

from __future__ import annotations

from specdemo.errors import PairError
from specdemo.models.catalog import catalog
from specdemo.models.eagle3_config import named_like_head
from specdemo.models.request import PairRequest, request_pair
from specdemo.servers.catalog import offered
from specdemo.ui.state.server_choice import needs_models, server_of
from specdemo.ui.state.state import BEST, CUSTOM, PairChoice


def pair_request(choice: PairChoice) -> PairRequest:
    """The pair that is chosen.

    Raises:
        PairError: no name is typed in, a server is chosen, or a name is unknown.
    """
    server = server_of(choice.pair)
    if server is not None:
        raise PairError(f"pair: {needs_models(server)}")
    device = None if choice.device == BEST else choice.device
    held = (device, choice.dtype, choice.target_weights, choice.draft_weights)
    if choice.pair != CUSTOM:
        return request_pair(choice.pair, *held)
    typed = [part.strip() for part in (choice.target or "", choice.draft or "")]
    if not typed[0]:
        raise PairError("target: it is empty; type a repository of the hub (owner/name) or a folder's path.")
    return request_pair([part for part in typed if part], *held)


def named(choice: PairChoice) -> bool:
    """Whether a pair is named yet."""
    return choice.pair != CUSTOM or bool((choice.target or "").strip())


def parts_of(pair: str, target: str | None = None, draft: str | None = None) -> frozenset[str]:
    """What the chosen pair has besides its target; a draft is assumed until a custom target alone is typed in."""
    if server_of(pair) is not None:  # it drafts by itself
        return frozenset({"draft"})
    if pair != CUSTOM:
        return catalog()[pair].parts
    second = (draft or "").strip()
    if second and named_like_head(second):
        return frozenset({"head"})
    return frozenset({"draft"} if second or not (target or "").strip() else ())


def chats(pair: str) -> bool:
    """Whether a pair's prompts go into its chat template unless one says otherwise."""
    server = server_of(pair)
    if server is not None:
        entry = offered().get(server)
        return entry is None or entry.pair.chat
    return pair not in catalog() or catalog()[pair].chat
