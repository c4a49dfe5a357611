"""The engines that are known. To add one: write its class, and add it here."""

from __future__ import annotations

from specdemo.servers.connection import Connection
from specdemo.servers.engines.base import Engine
from specdemo.servers.engines.llama_cpp import LlamaCpp
from specdemo.servers.engines.ollama import Ollama
from specdemo.servers.engines.openai import LMStudio, OpenAI, SGLang
from specdemo.servers.engines.vllm import VLLM

SERVER_KINDS: tuple[type[Engine], ...] = (LlamaCpp, VLLM, SGLang, Ollama, LMStudio, OpenAI)
"""In the order in which they are tried; the last one takes every server."""


def detected(connection: Connection) -> type[Engine]:
    """The engine of a deployment, by what it says of itself; an httpx2.HTTPError if nobody is there."""
    match connection.page("/v1/models"):
        case {"data": [{"owned_by": str(owner)}, *_]}:
            own = [kind for kind in SERVER_KINDS if kind.owner == owner]
            for kind in own:
                if not kind.mark or connection.page(kind.mark) is not None:
                    return kind
    return SERVER_KINDS[-1]
