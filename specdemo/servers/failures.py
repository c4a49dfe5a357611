"""What goes wrong between here and a server, as one sentence that says what to do; no key, no address."""

from __future__ import annotations

import json
from typing import Any

import httpx2

from specdemo.errors import ServerError
from specdemo.servers.pair import ServerPair

LONGEST_QUOTE = 160


class Malformed(httpx2.HTTPError):
    """A server sent something that is no chunk of a response."""


class Unending(httpx2.HTTPError):
    """A response took too long as a whole; the message says how long."""


class Refused(Exception):
    """A server answered a request with another status than success."""

    def __init__(self, response: httpx2.Response) -> None:
        super().__init__(f"HTTP {response.status_code}")
        self.status = response.status_code
        self.retry_after = response.headers.get("retry-after", "")
        self.message = _message(response) or response.reason_phrase or "it does not say why"


class EndedByServer(Exception):
    """A server reported an error in the middle of a response."""

    def __init__(self, error: Any) -> None:
        super().__init__(_said(error) or "it does not say which")


FAILURES = (Refused, EndedByServer, httpx2.HTTPError)
"""The exceptions with which a request, or reading its response, can end."""


def parsed(data: bytes) -> Any:
    """The value of a JSON text; Malformed if it is none, or nested or large beyond what Python reads."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Malformed("it is no JSON") from error


REASONS: tuple[tuple[type[Exception], str], ...] = (
    (
        httpx2.ConnectTimeout,
        "took no connection; see its address and port, and whether it is https:// or http://.",
    ),
    (
        httpx2.TimeoutException,
        "did not answer within {seconds:g} s; see whether it is busy, or give the pair a longer timeout.",
    ),
    (httpx2.ConnectError, "cannot be reached; see that it runs, and that its address and port are right."),
    (Unending, "{said}; see whether it is busy, or ask for fewer tokens."),
    (Malformed, "sent what is no piece of an answer ({said}); see that the address is that of its API."),
    (EndedByServer, "ended with an error: {said}; its log says more."),
    (Exception, "broke off its answer; see its log, and run again."),
)
"""What to say of each kind of failure but a refusal, the first that fits."""


def explained(error: Exception, pair: ServerPair, strategy: str) -> ServerError:
    """The error for people; what the server said is quoted without the key."""
    if isinstance(error, Refused):
        reason = _status_reason(error, pair.model_of(strategy), pair.api_key)
    else:
        text = next(text for kind, text in REASONS if isinstance(error, kind))
        reason = text.format(seconds=pair.timeout, said=_quoted(str(error), pair.api_key))
    both = pair.baseline_url and pair.speculative_url and not pair.same
    which = "the baseline of" if strategy == "autoregressive" else "the speculative deployment of"
    return ServerError(f"{f'{which} ' if both else ''}{pair.name!r} {reason}")


def _status_reason(error: Refused, model: str, key: str | None) -> str:
    code, message = error.status, _quoted(error.message, key)
    if code in (401, 403):  # not quoted: some servers repeat the key
        return f"refuses the key (HTTP {code}); set the right api_key, or the variable that holds it."
    if code == 404:
        advice = "see its /v1/models, and that its address ends with /v1"
        return f"knows no model or API of this name (HTTP 404, model {model!r}): {message}; {advice}."
    if code == 429:
        when = f"in {error.retry_after} s" if error.retry_after.isdigit() else "a little later"
        return f"has too many requests (HTTP 429); try again {when}."
    if code >= 500:
        return f"failed (HTTP {code}): {message}; see its log, and run again."
    return f"refuses the request (HTTP {code}): {message}"


def _message(response: httpx2.Response) -> str | None:
    try:
        body = parsed(response.content)
    except Malformed:
        return None
    return _said(body.get("error") or body) if isinstance(body, dict) else None


def _said(error: Any) -> str | None:
    """The message in an error as servers write it: a text, or an object with one."""
    match error:
        case str(text) | {"message": str(text)} | {"detail": str(text)}:
            return text or None
    return None


def _quoted(text: str, key: str | None) -> str:
    """Text of another program on one line, short, and without the key."""
    if key:
        text = text.replace(key, "***")
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= LONGEST_QUOTE else text[: LONGEST_QUOTE - 1] + "…"
