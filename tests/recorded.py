"""Random recordings, and texts that try to be more than text."""

from __future__ import annotations

from hypothesis import strategies as st

from specdemo import Recording, Settings, Trace
from specdemo.recording import Hardware
from specdemo.rounds import Round, Token

HOSTILE = (
    "</script><script>window.broken = 1</script>",
    "<!--<script>",
    "<img src=x onerror='window.broken = 1'>",
    "]]>\u2028\u2029\\u003c/script>",
    '=HYPERLINK("http://x")',
    " \t+1",
    "${1+1}{{2+2}}",
    "\x1b[2J\x07\x9b31m\u202e",
    "'-",
    'a"b,c\r\nd',
    "שלום 你好 👩‍👩‍👧",
)

texts = st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(exclude_categories=("Cs",)), max_size=6))
shares = st.floats(0.0, 1.0)
maybe = st.none() | shares


@st.composite
def _token(draw: st.DrawFn, kind: str, index: int, position: int, seconds: float) -> Token:
    margin = None if kind == "rejected" else draw(st.floats(-50, 50))
    odds = draw(maybe), draw(maybe), draw(maybe)
    return Token(draw(st.integers(0, 10**6)), draw(texts), kind, index, position, *odds, seconds, margin)


@st.composite
def _round(draw: st.DrawFn, index: int, seconds: float, drafts: bool, last: bool) -> Round:
    accepted, rejected = (draw(st.integers(0, 3)), draw(st.integers(0, 2))) if drafts and index else (0, 0)
    own = "target" if not drafts or not index else "corrected" if rejected else "bonus"
    kinds = ["accepted"] * accepted + ["rejected"] * rejected + [own]
    places = [*range(1, accepted + rejected + 1), accepted + 1]
    tokens = tuple(draw(_token(k, index, p, seconds)) for k, p in zip(kinds, places, strict=True))
    spent = [draw(st.floats(0.0, 0.5)) for _ in range(3)]
    source = draw(st.none() | st.integers(0, 3)) if accepted + rejected else None
    overlaps = draw(st.none() | st.lists(shares, max_size=3).map(tuple))
    stop = draw(st.sampled_from(["eos", "length", "context"])) if last else None
    return Round(index, tokens, accepted + rejected, accepted, seconds, *spent, overlaps, stop, source)


@st.composite
def _trace(draw: st.DrawFn, settings: Settings, prompt: tuple[int, ...]) -> Trace:
    count, finished = draw(st.integers(1, 5)), draw(st.booleans())
    clock, rounds = 0.0, []
    for index in range(count):
        clock += draw(st.floats(0.0, 0.3))
        last = finished and index == count - 1
        rounds.append(draw(_round(index, clock, settings.strategy != "autoregressive", last)))
    weights = draw(st.sampled_from([None, "int8"]))
    memory = draw(st.none() | st.integers(0, 10**12))
    return Trace(settings, prompt, tuple(rounds), draw(texts), "float32", weights, memory)


WAYS = (
    Settings(strategy="autoregressive"),
    Settings(gamma=3),
    Settings(drafter="prompt_lookup"),
    Settings(acceptance="sampling", temperature=0.7, seed=2**63 - 1),
    Settings(acceptance="top_k", adaptive_gamma=True),
    Settings(strategy="assisted"),
)


@st.composite
def recordings(draw: st.DrawFn) -> Recording:
    """One to four lanes of any kind, with or without what is known besides the traces."""
    prompt = tuple(draw(st.lists(st.integers(0, 99), min_size=1, max_size=5)))
    ways = draw(st.lists(st.sampled_from(WAYS), min_size=1, max_size=4))
    pieces = tuple(draw(texts) for _ in prompt)
    hardware = st.builds(Hardware, texts, texts, st.none() | st.integers(1, 512), st.integers(1, 512))
    return Recording(
        traces=tuple(draw(_trace(way, prompt)) for way in ways),
        title=draw(texts),
        prompt=draw(st.none() | texts),
        prompt_pieces=draw(st.none() | st.just(pieces)),
        hardware=draw(st.none() | hardware),
        versions=draw(st.dictionaries(texts, texts, max_size=2)),
        date=draw(texts),
    )
