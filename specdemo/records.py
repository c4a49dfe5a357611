"""Records of people's files: JSON as typed records, or one sentence on what is wrong with it."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from typing import Any

import pydantic
import pydantic_core

from specdemo.errors import SettingsError, TraceError, quoted

LARGEST_NUMBER = 2**63


def parsed(text: str | bytes, name: str) -> Any:
    """The plain data of a JSON text, or TraceError, also of a number that nothing measures.

    ``name`` is what the text should be, such as ``specdemo trace``.
    """
    try:
        data = pydantic_core.from_json(text)
    except (TypeError, ValueError) as error:  # TypeError: text that is no valid Unicode
        raise TraceError(f"This is not a {name}: it is not JSON ({error}).") from error
    level = [data]
    while level:  # one of nesting after the other, since files may be large
        if wrong := [n for n in level if isinstance(n, int | float) and not abs(n) <= LARGEST_NUMBER]:
            raise TraceError(f"This is not a {name}: no figure of it can be {quoted(wrong[0])}.")
        lists = [value.values() if isinstance(value, dict) else value for value in level]
        level = [inner for values in lists if not isinstance(values, _SINGLE) for inner in values]
    return data


def plain_data(record: Any) -> dict[str, Any]:
    """A record as the data of its JSON, without the draws of rounds that have none."""
    draws = ("u", "residual")
    return asdict(record, dict_factory=lambda fields: {k: v for k, v in fields if v is not None or k not in draws})


def validated(kind: Any, data: Any, name: str) -> Any:
    """Plain data as a record of a kind, a dataclass; TraceError says where it fails, and how."""
    try:
        return _adapter(kind).validate_python(data)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        place = ".".join(f"{part!s:.40}" for part in first["loc"]) or "the file"
        raise TraceError(f"This is not a {name}: {place}: {first['msg']:.240}.") from error
    except SettingsError as error:
        raise TraceError(f"This is not a {name}: {error}") from error


_SINGLE = str | int | float | None
_adapter = cache(pydantic.TypeAdapter)
