"""Messages name settings as the code does; on the page they are named as their controls are."""

from __future__ import annotations

import re

WORDS = {
    "gamma": "γ",
    "max_new_tokens": "Length",
    "length": "Length",
    "temperature": "Temperature",
    "top_k": "Top-k",
    "top_p": "Top-p",
    "seed": "Seed",
    "prompt": "Prompt",
    "acceptance": "Acceptance",
    "accept_top_k": "Accept among the target's top",
    "lookup_ngram": "Longest match",
    "exit_layer": "Layers that draft",
    "drafter": "Drafts with",
    "method": "Decodes by",
    "strategy": "Decodes by",
    "runs": "Pairs of runs",
    "tokens": "Tokens a run",
    "repeats": "Repeats",
    "rows": "Rows",
    "target": "Target",
    "draft": "Draft",
    "pair": "Model pair",
    "engine": "Engine",
    "adaptive_gamma": "Adapt γ",
    "tree_nodes": "Draft tree",
}
"""Labels of controls by the fields of settings and requests."""
FIELD = re.compile(r"(?P<before>^|^Lane \d+, )(?P<field>\w+): ")


def in_page_words(message: str) -> str:
    """The message with the field that it begins with, after its lane, called as on the page."""

    def named(found: re.Match[str]) -> str:
        field = found["field"]
        return f"{found['before']}{WORDS[field]}: " if field in WORDS else found[0]

    # What holds for no lane in particular begins with its reason.
    text = FIELD.sub(named, message, count=1).removeprefix("lanes: ")
    return text if text.startswith("γ") else text[:1].upper() + text[1:]  # a capital γ is another letter
