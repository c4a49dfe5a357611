"""What goes wrong between here and a server, as one sentence that says what to do; no key, no address."""

from __future__ import annotations

import json

import httpx2
import openai
import pydantic

from specdemo.errors import ServerError
from specdemo.servers.pair import ServerPair

LONGEST_QUOTE = 160


class Malformed(Exception):
    """A server sent something that is no chunk of a response."""


FAILURES = (
    openai.OpenAIError,
    httpx2.HTTPError,
    Malformed,
    json.JSONDecodeError,
    UnicodeDecodeError,
    pydantic.ValidationError,
)
"""The exceptions with which a request, or reading its response, can end."""


def explained(error: Exception, pair: ServerPair, strategy: str) -> ServerError:
    """The error for people; what the server said is quoted without the key."""
    return ServerError(f"{pair.name!r} {_reason(error, pair, strategy)}")


def _reason(error: Exception, pair: ServerPair, strategy: str) -> str:
    if isinstance(error, openai.APIStatusError):
        return _status_reason(error, pair.model_of(strategy), pair.api_key)
    if isinstance(error, openai.APITimeoutError | httpx2.TimeoutException):
        return (
            f"did not answer within {pair.timeout:g} s; see whether it is busy, or give the pair a longer timeout."
        )
    if isinstance(error, openai.APIConnectionError | httpx2.ConnectError) and not _broke_off(error):
        return "cannot be reached; see that it runs, and that its address and port are right."
    if isinstance(error, Malformed | json.JSONDecodeError | UnicodeDecodeError):
        detail = f" ({_quoted(str(error), pair.api_key)})" if isinstance(error, Malformed) else ""
        return f"sent what is no piece of an answer{detail}; see that it speaks OpenAI's protocol there."
    if isinstance(error, openai.APIError) and not isinstance(error, openai.APIConnectionError):
        return f"ended with an error: {_quoted(str(error.message), pair.api_key)}; its log says more."
    return "broke off its answer; see its log, and run again."


def _broke_off(error: Exception) -> bool:
    """Whether there was a connection, and it ended."""
    causes = (httpx2.ReadError, httpx2.WriteError, httpx2.CloseError, httpx2.ProtocolError)
    return isinstance(error, causes) or isinstance(error.__cause__, causes)


def _status_reason(error: openai.APIStatusError, model: str, key: str | None) -> str:
    code, message = error.status_code, _quoted(_message(error), key)
    if code in (401, 403):  # not quoted: some servers repeat the key
        return f"refuses the key (HTTP {code}); set the right api_key, or the variable that holds it."
    if code == 404:
        advice = "see its /v1/models, and that its address ends with /v1"
        return f"knows no model or API of this name (HTTP 404, model {model!r}): {message}; {advice}."
    if code == 429:
        wait = error.response.headers.get("retry-after", "")
        when = f"in {wait} s" if wait.isdigit() else "a little later"
        return f"has too many requests (HTTP 429); try again {when}."
    if code >= 500:
        return f"failed (HTTP {code}): {message}; see its log, and run again."
    return f"refuses the request (HTTP {code}): {message}"


def _message(error: openai.APIStatusError) -> str:
    body = error.body if isinstance(error.body, dict) else {}
    inner = body.get("error") if isinstance(body.get("error"), dict) else body
    message = next((inner[name] for name in ("message", "detail") if isinstance(inner.get(name), str)), None)
    return message or error.response.reason_phrase or "it does not say why"


def _quoted(text: str, key: str | None) -> str:
    """Text of another program on one line, short, and without the key."""
    if key:
        text = text.replace(key, "***")
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= LONGEST_QUOTE else text[: LONGEST_QUOTE - 1] + "…"
