"""Does a model decode here as it should? Found out by trying, before anybody waits for its output."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch

from specdemo.decoding.batch.runner import RaggedCache, RaggedRunner
from specdemo.decoding.engines.eager import EagerRunner, Engine
from specdemo.decoding.engines.kv_cache import LaneCache
from specdemo.decoding.engines.open import choose
from specdemo.decoding.proposal import Tree
from specdemo.errors import PairError, SettingsError, SpecDemoError
from specdemo.models.failures import not_finite, out_of_memory
from specdemo.models.pair import ModelPair, context_of, embeddings_of, keeps_states
from specdemo.models.types import PreTrainedModel

TOKENS = 16
"""Of a trial from the beginning of a text."""
TREE = Tree([0] * 8 + [1] * 3 + [9] * 3)
"""A path of three tokens whose slots are far from their depths, among others that it must not see."""
PATH = TREE.path(12)
ROWS = (1, 2, 3), (4,)
"""What two rows of unequal lengths are fed."""
TOLERANCE, ROUGH_TOLERANCE = 0.005, 0.25
"""Of differences, in float32 and in coarser types; what is wrong altogether is off by more than one."""
WINDOW_WORDS = ("window", "chunk", "block", "local", "sparse", "span", "stride")
LEAST_WINDOW, MOST_WINDOW = 32, 8192
"""Windows passed in any case, and those passed at the most: what is made up takes memory, a layer at a time."""
FED = 16
"""Tokens that a trial feeds behind what is made up, at the most."""
QUIET = 0.1
"""Of keys: attention spreads over all that it sees."""
IN_ORDER = "its recurrent layers read one text, token after token"
"""Why a model with states reads no trees, rows or first layers alone."""


def check_chain(role: str, model: PreTrainedModel, engine: Engine = "auto") -> None:
    """A PairError where tokens fed one by one or several at once give other logits than one forward.

    These are the forwards that a first run would have to warm up anyway. A model with states is tried twice
    behind one checkpoint, the second time with all of the tokens at once.
    """

    def off() -> float:
        runner = EagerRunner(model, engine)
        count = min(TOKENS, context_of(model) or TOKENS)
        ids, begin = tokens_of(model, count), count // 2
        whole = runner.forward(ids, count).logits
        turns, rows = [[ids[begin : begin + 1], ids[begin + 1 :]]], []
        if keeps_states(model):
            turns += [[ids[begin:]], [[token] for token in ids[begin:]]]
        for feeds in turns:
            runner.rollback_to(begin)
            if missing := ids[runner.length : begin]:
                runner.forward(missing)
            runner.checkpoint()
            parts = torch.cat([runner.forward(feed, len(feed)).logits for feed in feeds if feed])
            rows.append(differences(parts, whole[begin:]))
        found = torch.cat(rows).nan_to_num(0.0)  # a run of NaN is told when it ends
        # In coarse types a mixture of experts may choose another at a near tie in one row, and is not wrong.
        return float(found.max() if model.dtype == torch.float32 else found.median())

    def refused(reason: str) -> PairError:
        return PairError(
            f"{role}: {type(model).__name__} cannot decode with a KV cache ({reason}); choose another model."
        )

    _try(role, model, off, refused, "its logits there are not those of one forward over all tokens")


def check_trees(role: str, model: PreTrainedModel, engine: str) -> None:
    """A SettingsError where tokens of a draft tree give other logits than a path alone, past every window."""
    if choose(model, engine).name == "direct":  # which is our own code, for models known to the last detail
        return

    def off(past: MadeUpPast) -> float:
        ids, begin = tokens_of(model, len(TREE.depths)), past.length
        runner = EagerRunner(model, "eager", cache=TrialCache(past, begin))
        runner.length = begin
        together = runner.forward(ids[:1], len(ids), torch.tensor(ids[1:]), TREE.mask(begin)).logits
        runner.rollback_to(begin)
        alone = runner.forward([ids[0], *(ids[slot] for slot in PATH)], 1 + len(PATH)).logits
        return differences(together[[*PATH]], alone[1:]).max().item()

    def refused(reason: str) -> SettingsError:
        return SettingsError(
            "tree_nodes", f"the {role}, a {type(model).__name__}, reads no draft trees ({reason}); set it to 0."
        )

    if keeps_states(model):
        raise refused(IN_ORDER)
    for empty in (True, False):
        wrong = "tokens of a path come out otherwise than without the rest of the tree"
        _try(role, model, partial(off, MadeUpPast(model, empty)), refused, wrong)


def check_rows(role: str, model: PreTrainedModel) -> None:
    """A PairError where rows of unequal lengths do not give the logits of each alone, past every window."""

    def off(past: MadeUpPast) -> float:
        together = RaggedRunner(model, rows=2)
        lengths = [past.length, past.shorter]
        together.cache = TrialRows(past, lengths, together.device)
        alone = [
            EagerRunner(model, "eager", cache=TrialCache(past, length)).forward(feed).logits[0]
            for length, feed in zip(lengths, ROWS, strict=True)
        ]
        return differences(together.forward(ROWS, last=True), torch.stack(alone)).max().item()

    def refused(reason: str) -> PairError:
        return PairError(
            f"{role}: {type(model).__name__} cannot decode a batch of unequal rows ({reason}); "
            "choose another pair, or run the prompts one after the other."
        )

    if keeps_states(model):
        raise refused(IN_ORDER)
    for empty in (True, False):
        measured = partial(off, MadeUpPast(model, empty))
        _try(role, model, measured, refused, "its rows come out otherwise than each alone")


def check_batches(pair: ModelPair, *, drafting: bool) -> None:
    """:func:`check_rows` of a pair's target, and of its draft model where that takes part; once a pair."""
    for role, model in zip(("target", "draft"), pair.models if drafting else [pair.target], strict=False):
        once(pair, f"{role} in batches", partial(check_rows, role, model))


def once(pair: ModelPair, name: str, check: Callable[[], None]) -> None:
    """Run a check that a pair has not passed yet."""
    if name not in pair.prepared:
        check()
        pair.prepared.add(name)


def tokens_of(model: PreTrainedModel, count: int) -> list[int]:
    """Ids that the model knows, unlike one another as far as it has so many; a filler is often the first."""
    known = embeddings_of(model)
    return [(1 + token) % known for token in range(count)]


def differences(got: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """(n,) how far each row of logits (n, V) is off, in standard deviations of that row; NaN where any is."""
    return (got - expected).pow(2).mean(-1).sqrt() / expected.std(-1)


def _try(
    role: str,
    model: PreTrainedModel,
    measured: Callable[[], float],
    refused: Callable[[str], SpecDemoError],
    wrong: str,
) -> None:
    """Refuse a model that is off by more than rounding, or that raises; memory that ran out says nothing of it."""
    try:
        off = measured()
    except SpecDemoError:
        raise
    except Exception as error:  # a family's own code, which may raise anything
        if out_of_memory(error):
            raise
        raise refused(f"{type(error).__name__}: {' '.join(str(error).split())[:120]}") from error
    if math.isnan(off):
        raise not_finite(role)
    if off > (TOLERANCE if model.dtype == torch.float32 else ROUGH_TOLERANCE):
        raise refused(wrong)


class MadeUpPast:
    """Keys and values of tokens that nobody fed, the same for every cache that is made of it; ``empty`` has none.

    They are twice as many as the largest window that the model can have, as far as it has positions, and as large
    as the first states that a layer was fed. They are random and drift with their place, so that attention over
    other places gives another result.

    A window is called ``sliding_window``, ``window_size``, ``attention_chunk_size`` and more, so every small
    number of the configuration counts whose name speaks of such a thing; one that is none only makes the trial
    longer.
    """

    def __init__(self, model: PreTrainedModel, empty: bool = False) -> None:
        stated = model.config.get_text_config().to_dict()
        named = [n for name, n in stated.items() if type(n) is int and any(word in name for word in WINDOW_WORDS)]
        self._windows = [LEAST_WINDOW, *(n for n in named if 0 < n <= MOST_WINDOW)]
        context = context_of(model)
        wanted = 0 if empty else 2 * max(self._windows) + FED
        self.length = wanted if context is None else max(0, min(wanted, context - FED))  # tokens, at the most
        self.shorter = self.length - self.length // 4  # fewer, and past all windows too
        self._shared: dict[object, torch.Tensor] = {}
        self._scales: dict[object, torch.Tensor] = {}

    def before(
        self, keys: torch.Tensor, values: torch.Tensor, length: int, layer: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values (1, heads, length, dim) to stand before those (B, heads, n, dim) of a layer."""
        return self._made(keys, length, layer, "keys"), self._made(values, length, layer, "values")

    def _made(self, states: torch.Tensor, length: int, layer: int, kind: str) -> torch.Tensor:
        _, heads, _, dim = states.shape
        key = (kind, heads, dim, states.device, states.dtype)
        if key not in self._shared:  # all layers share it: a long text's would take too much memory
            generator = torch.Generator().manual_seed(len(kind))
            made = torch.randn(heads, self.length, dim, generator=generator)
            made += torch.linspace(-2.0, 2.0, self.length)[:, None]
            made *= QUIET if kind == "keys" else self._loudness()
            self._shared[key] = made.to(states.device, states.dtype)[None]
        scale = self._scales.setdefault((layer, kind), states.float().std().to(states.dtype))
        return self._shared[key][:, :, :length] * scale

    def _loudness(self) -> torch.Tensor:
        """(length, 1) of values: at the edge of a window, one more or less in sight is to show among thousands."""
        factors = torch.ones(self.length, 1)
        for edge in (end - window for end in (self.length, self.shorter) for window in self._windows):
            factors[max(edge - FED, 0) : max(edge + FED, 0)] = max(1.0, self.length / FED)
        return factors


class TrialCache(LaneCache):
    """A lane's cache that begins with ``length`` tokens of a past; it keeps nothing of what it is fed."""

    def __init__(self, past: MadeUpPast, length: int) -> None:
        super().__init__()
        self._past, self._length = past, length
        self.layer(0).length = length  # transformers asks it how long the text is before any layer writes

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.layer(layer_idx).length = self._length + key_states.shape[2]
        keys, values = self._past.before(key_states, value_states, self._length, layer_idx)
        return torch.cat([keys, key_states], dim=2), torch.cat([values, value_states], dim=2)

    def update_indexer(self, indexer_key_states: torch.Tensor, layer_idx: int) -> torch.Tensor:
        keys = indexer_key_states[:, None]
        return torch.cat([self._past.before(keys, keys, self._length, layer_idx)[0], keys], dim=2)[:, 0]


class TrialRows(RaggedCache):
    """A batch's cache whose rows begin with so many tokens of a past each; it takes one forward."""

    def __init__(self, past: MadeUpPast, lengths: list[int], device: torch.device) -> None:
        super().__init__(len(lengths), device)
        self._past, self.lengths = past, list(lengths)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        past = self._past.before(key_states, value_states, max(self.lengths), layer_idx)
        for name, states in zip(("keys", "values"), past, strict=True):
            self.stores[name, layer_idx] = states.transpose(1, 2).repeat(len(key_states), 1, 1, 1)
        read = super().update(key_states, value_states, layer_idx)
        self.stores.clear()  # a long past of all layers would take too much memory
        return read

    def update_indexer(self, indexer_key_states: torch.Tensor, layer_idx: int) -> torch.Tensor:
        keys = indexer_key_states[:, None]
        past = self._past.before(keys, keys, max(self.lengths), layer_idx)[0]
        self.stores["indexer", layer_idx] = past.transpose(1, 2).repeat(len(keys), 1, 1, 1)
        return super().update_indexer(indexer_key_states, layer_idx)
