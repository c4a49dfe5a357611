"""Do two deployments of one model write the same?"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from threading import Event
from typing import Any

from specdemo.errors import ServerError
from specdemo.losslessness.certify import ERROR_RATE, RUNS, check_test
from specdemo.losslessness.deployment_check import DeploymentCheck
from specdemo.runs.single import checked
from specdemo.servers.pair import ServedPair, ServerPair
from specdemo.servers.request import sweep_prompts
from specdemo.settings import Settings

TOKENS = 24
"""Of a sampled run: longer than here, where a draft's own distribution is no evidence."""


def compare_deployments(
    pair: ServedPair | None,
    prompts: Any,
    settings: Settings | None = None,
    runs: int = RUNS,
    tokens: int = TOKENS,
    error_rate: float = ERROR_RATE,
) -> DeploymentCheck:
    """Judge whether the deployment that speculates writes what the one without does.

    At temperature 0 both write every prompt, alone and beside other requests. Above it many short runs of both are
    held against each other by a sequential test, as :func:`specdemo.certify` does with models in this process.

    Args:
        pair: the deployments, or None if the settings name a configured server.
        prompts: one or several, texts or token ids.
        settings: of both; at temperature 0 their length is that of the outputs.
        runs: above temperature 0: pairs of runs at most, in turns from each prompt.
        tokens: of each of these runs.
        error_rate: the chance, at most, that deployments that draw from one distribution are said to differ.

    Raises:
        PromptError, SettingsError: what cannot be sent or tested.
        ServerError: a deployment is missing, does not answer, or breaks off; or it gives no log-probabilities,
            without which sampled runs cannot be compared.
    """
    *_, last = stream_comparison(pair, prompts, settings, (runs, tokens, error_rate))
    return last


def stream_comparison(
    pair: Any, prompts: Any, settings: Settings | None, test: tuple[int, int, float], stop: Event | None = None
) -> Generator[DeploymentCheck]:
    """The same a few prompts or runs at a time; ``test`` are runs, tokens and error rate.

    What cannot be compared is refused at once. Setting ``stop`` raises LoadCancelled within a moment.
    """
    settings = replace(checked(settings), strategy="speculative")
    if not settings.greedy:
        check_test(settings, *test)
    served, wanted = sweep_prompts(pair, prompts, settings)
    if isinstance(served, ServerPair) and served.same:
        raise ServerError(f"both addresses of {served.name!r} are the same; give those of two deployments.")
    if served.one_at_a_time:
        raise ServerError(f"{served.name!r} runs one server at a time on a public page; compare both on your own.")
    from specdemo.losslessness.served_outputs import compared  # with the libraries that only servers need

    return compared(served, wanted, settings, test, stop or Event())
