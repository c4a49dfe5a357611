"""GgufPair: GGUF files on this machine, run by servers of llama.cpp that are started and ended from here."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from secrets import token_urlsafe
from threading import Event, RLock
from typing import ClassVar
from weakref import finalize

import torch

from specdemo.drafters import DRAFTERS, GGUF, PARTS, offered_with
from specdemo.errors import LoadCancelled, PairError, SettingsError
from specdemo.models.memory import Footprint, best_device, free_memory
from specdemo.models.preflight import gigabytes
from specdemo.models.progress import STOPPED
from specdemo.models.request import is_public
from specdemo.servers.llama_server import LlamaServer, executable
from specdemo.servers.pair import ServedPair, ServerPair, refuse
from specdemo.settings import Settings

_servers: OrderedDict[tuple[str, tuple[str, ...]], LlamaServer] = OrderedDict()
"""By their pair's key and their flags, the least recently used first."""
_lock = RLock()
ANSWER_SECONDS = 900.0
"""The longest wait for a token: a long prompt in a large model on a slow machine."""
PLAIN = Settings(strategy="autoregressive")
CELLS = 256
"""Tokens by which the context of a slot grows."""


@dataclass(eq=False)
class GgufPair(ServedPair):
    """A target in a GGUF file, perhaps with a draft or a head, in place of a :class:`specdemo.ModelPair`.

    Made by :func:`specdemo.load_pair`. Each lane's drafter and γ are flags of its server; there is one server for
    each set of flags. All of them end with :meth:`close`, with this object, and with the program.
    """

    name: str  # how people call it
    # paths by role: ``target``, perhaps ``draft`` and ``head``; of a split file the first part
    files: Mapping[str, Path]
    weights: dict[str, Footprint] = field(repr=False)  # bytes of each, which all servers share
    chat: bool = False  # whether the target has a chat template
    context: int = 2048  # tokens that prompt and output of a lane have together
    threads: int | None = None  # of the CPU for each server; None leaves it to llama.cpp
    mtp: bool = False  # whether the target's file carries an MTP head
    kept: int = 4  # how many servers, of all pairs, are kept for the next lane; on a public page one
    kv: int = 0  # bytes of the KV caches of a token, of all its models
    slots: int = 1  # requests that each server answers at the same time, each with a context of its own
    obeys: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.starting = 0.0  # seconds in which servers were started
        self._key = token_urlsafe(24)
        self._closing = finalize(self, _end_all, self._key)

    @property
    def parts(self) -> frozenset[str]:
        """What it has besides the target: of ``specdemo.drafters.PARTS``, and ``GGUF``."""
        return frozenset(self.files) - {"target"} | {GGUF} | ({"mtp"} if self.mtp else set())

    @property
    def one_at_a_time(self) -> bool:  # type: ignore[override]
        """On a public page, whose memory strangers share."""
        return is_public()

    @property
    def device(self) -> torch.device:
        """What its lanes run on: the CPU, unless an executable is there, which may be built for a GPU."""
        return torch.device("cpu" if executable() is None else best_device())

    def footprints(self) -> dict[str, Footprint]:
        """Bytes of the weights, by role."""
        return self.weights

    def model_of(self, strategy: str) -> str:
        return self.files["target"].name

    def check(self, settings: Settings) -> None:
        """Refuse what llama.cpp cannot do, and drafters that these files do not have."""
        drafts, info = settings.strategy == "speculative", DRAFTERS[settings.drafter]
        sure = drafts and settings.p_min > 0
        refuse(
            settings,
            ("adaptive_gamma", drafts and settings.adaptive_gamma, "llama.cpp has one γ; switch adaptive γ off"),
            ("tree_nodes", drafts and settings.drafts_trees, "llama.cpp drafts chains; set 0"),
            ("drafter", drafts and info.llama_cpp is None, f"llama.cpp is not run with {info.label} here"),
            ("p_min", sure and "{p_min}" not in str(info.llama_cpp), "llama.cpp's n-grams have none; set 0"),
            ("chat", bool(settings.chat) and not self.chat, "this file has no chat template; switch chat off"),
        )
        if drafts and info.needs is not None and info.needs not in self.parts:
            able = " or ".join(repr(other.name) for other in offered_with(self.parts))
            lacks = f"{info.name!r} needs {PARTS[info.needs]}, and this pair has none"
            raise SettingsError("drafter", f"{lacks}; choose {able}.")

    def flags(self, settings: Settings) -> tuple[str, ...]:
        """The flags of ``llama-server`` for a lane, but for host, port and key."""
        given = ["-m", str(self.files["target"]), "-c", str(self.slots * self.context)]
        given += ["-np", str(self.slots)]
        given += [] if self.threads is None else ["-t", str(self.threads)]
        drafting = DRAFTERS[settings.drafter].llama_cpp if settings.strategy == "speculative" else None
        values = {
            "gamma": settings.gamma,
            "p_min": settings.p_min,
            "lookup_ngram": min(settings.lookup_ngram, settings.gamma),  # llama.cpp drafts no less than it matched
            **{f"{role}_gguf": path for role, path in self.files.items()},
        }
        return (*given, *(flag.format(**values) for flag in (drafting or "").split()))

    @contextmanager
    def deployed(self, settings: Settings, stop: Event | None = None) -> Iterator[ServerPair]:
        """A server with this lane's flags, which runs until the lane ends and perhaps longer."""

        def check() -> None:
            if stop is not None and stop.is_set():
                raise LoadCancelled(STOPPED)

        server = self._server(self.flags(settings), check)
        try:
            both = server.url, server.url, self.model_of(settings.strategy)
            yield ServerPair(*both, self._key, self.name, self.chat, timeout=ANSWER_SECONDS)
        finally:
            with _lock:
                server.users -= 1

    def with_slots(self, slots: int, tokens: int) -> GgufPair:
        """The same files with other servers, which answer so many requests at a time, each of so many ``tokens``.

        A SettingsError where the KV caches of a plain and a speculative server do not fit into memory.
        """
        context = min(self.context, CELLS * -(-tokens // CELLS))
        need, free = 2 * slots * context * self.kv, free_memory(str(self.device))
        if need > free:
            caches = f"KV caches of {slots} slots of {context:,} tokens need {gigabytes(need)}"
            advice = "take fewer users, or shorter prompts and outputs"
            raise SettingsError("users", f"{caches} and {gigabytes(free)} are free; {advice}.")
        return replace(self, slots=slots, context=context, kept=max(self.kept, 2))

    def clock(self) -> float:
        """Seconds, which stand still while a server starts."""
        return time.perf_counter() - self.starting

    def start(self, check: Callable[[], object] = bool) -> None:
        """Start the server of plain decoding, a PairError if it does not; what ``check`` raises ends it."""
        self._server(self.flags(PLAIN), check, lanes=0)

    def close(self) -> None:
        """End all servers; lanes that run on them break off."""
        with _lock:
            self._closing()

    def __enter__(self) -> GgufPair:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _server(self, flags: tuple[str, ...], check: Callable[[], object], lanes: int = 1) -> LlamaServer:
        """The server with these flags, for so many more lanes; a crashed one is started again."""
        with _lock:
            if not self._closing.alive:
                raise PairError(f"{self.name} was closed; load it again.")
            key = self._key, flags
            server = _servers.get(key)
            if server is None or not server.running:
                idle = [other for other, found in _servers.items() if not found.users]
                kept = 1 if self.one_at_a_time else self.kept
                for other in idle[: max(len(_servers) - kept + 1, 0)]:
                    _servers.pop(other).end()
                began = time.perf_counter()
                server = _servers[key] = LlamaServer(flags, check, self._key)
                self.starting += time.perf_counter() - began
            _servers.move_to_end(key)
            server.users += lanes
            return server


def _end_all(key: str) -> None:
    """End a pair's servers; without the lock, since garbage is collected, and the program ends, in any thread."""
    for found in tuple(_servers):
        if found[0] == key and (server := _servers.pop(found, None)):
            server.end()
