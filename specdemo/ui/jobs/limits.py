"""How much one job may ask for: little where strangers share a machine, a lot on one's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network

from specdemo.errors import PromptError, SettingsError, SpecDemoError
from specdemo.models.request import is_public
from specdemo.recording import LARGEST_FILE
from specdemo.runs.prompts import MOST_PROMPTS
from specdemo.settings import Settings

IPV6_PREFIX = 64  # bits that tell customers apart; the rest of an address they choose themselves


@dataclass(frozen=True, slots=True)
class Limits:
    """The most of everything that a visitor can ask for; on one's own machine unless given."""

    characters: int = 1_000_000  # of one prompt
    tokens: int = 1024  # of one output
    lanes: int = 4  # of one race
    prompts: int = MOST_PROMPTS  # of one measurement
    runs: int = 3000  # of one measurement
    body: int = 16_000_000  # bytes of one request, which is no file
    # bytes of one file; a recording that is too large is told so in its own words
    upload: int = LARGEST_FILE + 1_000_000
    uploads: int = 10_000_000_000  # bytes of all visitors' files together
    files: int = 100_000  # their number
    kept: int = 500_000_000  # bytes of all visitors' recordings together, packed
    unread: int = 500_000_000  # bytes of all answers together that nobody fetched yet
    idle: float = 86_400.0  # seconds after which nothing is kept of a visitor who did nothing
    seconds: float | None = None  # that one job may have the models for; None is no limit
    waiting: int = 32  # jobs that wait for the models
    visitor: int = 8  # jobs of one visitor, waiting or running
    address: int = 40  # jobs from one network address, waiting or running; many visitors may share one
    servers: int = 32  # jobs that run on servers alone, at the same time, unless those servers are on this machine


PRIVATE = Limits()
PUBLIC = Limits(
    characters=4_000,
    tokens=256,
    prompts=18,  # all examples
    runs=240,
    body=1_000_000,  # 18 prompts of 4,000 characters, at six bytes each, are 432,000
    upload=6_000_000,
    uploads=500_000_000,
    files=1_000,
    kept=20_000_000,
    unread=10_000_000,
    idle=3_600.0,
    seconds=120.0,
    waiting=24,
    visitor=2,
    address=12,
)


def limits() -> Limits:
    return PUBLIC if is_public() else PRIVATE


@lru_cache(4096)
def network_of(address: str) -> str:
    """What stands for one visitor's network: an IPv4 address, or the /64 of an IPv6 address."""
    try:
        ip = ip_address(address)
    except ValueError:
        return address
    if not isinstance(ip, IPv6Address):
        return address
    return str(ip.ipv4_mapped or ip_network((int(ip), IPV6_PREFIX), strict=False))


def check_prompts(prompts: Sequence[str]) -> None:
    """Raises PromptError where there are too many, or one is too long."""
    most = limits()
    if len(prompts) > most.prompts:
        raise PromptError(f"there are {len(prompts):,}; give at most {most.prompts}.{_hint()}")
    longest = max((len(prompt) for prompt in prompts), default=0)
    if longest > most.characters:
        raise PromptError(
            f"it has {longest:,} characters, and {most.characters:,} are the most here; shorten it.{_hint()}"
        )


def check_lanes(lanes: Sequence[Settings]) -> None:
    """Raises SettingsError where there are none or too many, or one is too long."""
    most = limits()
    if not 1 <= len(lanes) <= most.lanes:
        raise SettingsError("lanes", f"there are {len(lanes):,}; give 1 to {most.lanes}.")
    longest = max(settings.max_new_tokens for settings in lanes)
    if longest > most.tokens:
        reason = f"{_counted(longest)} is more than the {most.tokens:,} of a run; ask for fewer.{_hint()}"
        raise SettingsError("max_new_tokens", reason)


def check_runs(runs: int) -> None:
    """Raises SpecDemoError where a measurement of so many runs is too large."""
    most = limits().runs
    if runs > most:
        raise SpecDemoError(
            f"These are {_counted(runs)} runs, and {most:,} are the most; take fewer prompts or repeats.{_hint()}"
        )


def _counted(number: int) -> str:
    """A number for a sentence; its digits were a stranger's choice."""
    return f"{number:,}" if number < 10**21 else "far too many"


def _hint() -> str:
    return " On your own machine the app takes more." if is_public() else ""
