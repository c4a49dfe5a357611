"""Whether a server's deployments answer: one small request to each, at the same time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

import httpx2

from specdemo.servers.connection import Connection
from specdemo.servers.failures import Malformed, parsed
from specdemo.servers.pair import ServerPair

PROBE_SECONDS = 4.0  # the longest wait for a response


class Health(NamedTuple):
    """Whether lanes can be expected to run on a deployment, and how it responded, for people."""

    ok: bool
    text: str


def probe(pair: ServerPair, strategies: Sequence[str]) -> dict[str, Health]:
    """Request the list of models from the deployment of each strategy; takes a few seconds at most."""
    quick = replace(pair, timeout=min(pair.timeout, PROBE_SECONDS))
    with ThreadPoolExecutor(max(len(strategies), 1)) as pool:
        return dict(zip(strategies, pool.map(lambda s: _health(quick, s), strategies), strict=True))


def _health(pair: ServerPair, strategy: str) -> Health:
    connection = Connection(pair, strategy)
    try:
        began = time.perf_counter()
        response = connection.get("/v1/models", seconds=pair.timeout)
        milliseconds = 1000 * (time.perf_counter() - began)
        if response.status_code in (401, 403):
            return Health(False, f"refuses the key (HTTP {response.status_code})")
        if not response.is_success:
            return Health(True, f"answers, but lists no models (HTTP {response.status_code})")
        match parsed(response.content):
            case {"data": [*models]} if any(
                isinstance(m, dict) and m.get("id") == pair.model_of(strategy) for m in models
            ):
                return Health(True, f"answers in {milliseconds:.0f}\u00a0ms")
        return Health(True, "answers, but does not list this model")
    except httpx2.TimeoutException:
        return Health(False, f"no answer within {pair.timeout:g} s")
    except Malformed:
        return Health(False, "answers with what is no page of its API")
    except httpx2.HTTPError:
        return Health(False, "cannot be reached")
    finally:
        connection.close()
