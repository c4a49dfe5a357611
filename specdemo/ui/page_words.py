"""Messages name settings as the code does; on the page they are named as their controls are."""

from __future__ import annotations

import re

from specdemo.ui.state.state import labels

WORDS = {**labels(), "strategy": "Decodes by"}
FIELD = re.compile(r"(?P<before>^|^Lane \d+, )(?P<field>\w+): ")


def in_page_words(message: str) -> str:
    """The message with the field that it begins with, after its lane, called as on the page."""

    def named(found: re.Match[str]) -> str:
        field = found["field"]
        return f"{found['before']}{WORDS[field]}: " if field in WORDS else found[0]

    # What holds for no lane in particular begins with its reason.
    text = FIELD.sub(named, message, count=1).removeprefix("lanes: ")
    return text if text.startswith("γ") else text[:1].upper() + text[1:]  # a capital γ is another letter
