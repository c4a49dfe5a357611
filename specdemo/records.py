"""Records of people's files: JSON as typed records, or one sentence on what is wrong with it."""

from __future__ import annotations

from functools import cache
from typing import Any

import pydantic
import pydantic_core

from specdemo.errors import SettingsError, TraceError


def parsed(text: str | bytes, name: str) -> Any:
    """The plain data of a JSON text; ``name`` is what it should be, such as ``specdemo trace``.

    Raises:
        TraceError: it is no JSON.
    """
    try:
        return pydantic_core.from_json(text)
    except (TypeError, ValueError) as error:  # TypeError: text that is no valid Unicode
        raise TraceError(f"This is not a {name}: it is not JSON ({error}).") from error


def validated(kind: Any, data: Any, name: str) -> Any:
    """Plain data as a record of a kind, a dataclass.

    Raises:
        TraceError: says where it fails, and how.
    """
    try:
        return _adapter(kind).validate_python(data)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        place = ".".join(f"{part!s:.40}" for part in first["loc"]) or "the file"
        raise TraceError(f"This is not a {name}: {place}: {first['msg']:.240}.") from error
    except SettingsError as error:
        raise TraceError(f"This is not a {name}: {error}") from error


_adapter = cache(pydantic.TypeAdapter)
