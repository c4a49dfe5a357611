"""specdemo: see, measure and believe speculative decoding of language models.

The public names stand in ``specdemo.public``. They are imported when the first of them is used, since that takes
seconds, in which the command line must already know what to do when it is interrupted.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specdemo.public import *  # noqa: F403


def __getattr__(name: str) -> Any:
    if name.startswith("__") and name != "__all__":
        raise AttributeError(name)
    public = import_module("specdemo.public")
    found = {"__all__": public.__all__, **{each: getattr(public, each) for each in public.__all__}}
    globals().update(found)
    if name not in globals():
        raise AttributeError(f"module 'specdemo' has no attribute {name!r}")
    return globals()[name]


def __dir__() -> list[str]:
    return [*globals(), *__getattr__("__all__")]
