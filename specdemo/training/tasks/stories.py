"""Stories in a few simple sentences: a plot of a hero, told after a first sentence or about somebody.

Those of the corpus are too many-sided for a small model, whose greedy answers then run in circles: they give first
sentences alone.
"""

from __future__ import annotations

import re

from specdemo.analysis.repetition import LEAST_DISTINCT, distinct_share
from specdemo.training.tasks.corpus import TEMPLATES
from specdemo.training.tasks.task import Answer, Draw, Grade, Task, renamed

TOLD, THEMES, OPENINGS, PLOTS = (TEMPLATES[part] for part in ("stories", "themes", "openings", "plots"))
LEAST_WORDS = 15
LONGEST_SENTENCE = 160  # characters, of a first one
CORPUS_SHARE = 0.35  # of first sentences
_THEMES = {word: plot for plot, (words,) in THEMES.items() for word in words.split()}
_NEVER = frozenset(TOLD["never"][0].split())
_NAMES = TOLD["names"][0].split()
_SHE, _HE = {"he": "she", "his": "her", "him": "her"}, {"he": "he", "his": "his", "him": "him"}
_SENTENCE = re.compile(r"(?<=[.!?])[\"']?\s+")
_SOMEBODY = re.compile(r"\ban? (?:[a-z]+ )*(girl|boy|man|woman)\b|\b(?:was|lived) (?:once )?an? ")
_THING = re.compile(
    r"\b(?:had|found|saw|loved|got|wanted|with|has|of) (?:an?|the|his|her) (?:[a-z]+ )?([a-z]+)(?! named)"
)
_NAME = re.compile(r"(?<=[a-z,] )[^\W\d_a-z][^\W\d_]+")
_HERO = re.compile(r"\b(?:named|called) ([^\W\d_]+)")


def written(text: str) -> str:
    """With *an* where it is due, and a capital at the beginning of each sentence."""
    text = re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", text)
    return re.sub(r"(^|[.!?] )([a-z])", lambda m: m[1] + m[2].upper(), text)


def story(draw: Draw) -> Task:
    return _after_the_corpus(draw) if draw.chance(CORPUS_SHARE) else _of_a_hero(draw)


def _cast(draw: Draw) -> dict[str, str]:
    """Who and what a story is about, by slot."""
    kind = draw.say(TOLD[draw.one(("girls", "boys", "kinds", "kinds"))])
    slots = {slot: draw.say(TOLD[f"{slot}s"]) for slot in ("trait", "place", "food", "skill", "other")}
    names = {"kind": kind, "name": draw.proper(), "friend": slots.pop("other"), "other": draw.one(_NAMES)}
    she = kind in TOLD["girls"] or (kind not in TOLD["boys"] and draw.chance(0.4))
    return slots | names | {"it": draw.say(TOLD["things"])} | (_SHE if she else _HE)


def _sentences(draw: Draw, plot: str, cast: dict[str, str]) -> list[str]:
    return [written(draw.say(step, **cast)) for step in PLOTS[plot]]


def _of_a_hero(draw: Draw) -> Task:
    """A story that begins with its hero; most prompts name the hero, and held-out ones all do."""
    plot, cast, nobody = draw.one(list(PLOTS)), _cast(draw), not draw.held_out and draw.chance(0.2)
    looks = f"{draw.say(TOLD['looks'])} " if draw.chance(0.4) else ""
    if nobody:
        cast["name"] = draw.one(_NAMES)
    opening, named = draw.one(OPENINGS[plot]), False
    if "{it}" in opening and draw.chance(0.6):
        cast["it"], named = draw.noun(), True
    cast["does"] = draw.say([opening], **(cast | {"it": looks + cast["it"]}))
    first = draw.say(f"{draw.one(TOLD['once'])} a {{trait}} {{kind}} <named|called> {{name}} {{does}}.", **cast)
    told = [written(first), *_sentences(draw, plot, cast)]
    if not nobody and draw.chance(0.5):
        given = 1 if draw.chance(0.8) else 2
        ask = draw.say(TOLD["beginnings"], text=" ".join(told[:given]))
        return Task("beginning", ask, " ".join(told[given:]))
    if nobody and draw.chance(0.3):
        return Task("any", draw.say(TOLD["any"]), " ".join(told))
    # A thing that is not the stories' own is one that the prompt names.
    forms = [TOLD["nameless" if nobody else "heroes"], TOLD["things_of" if nobody else "with_things"]]
    hero = draw.say(forms[named or (f" {cast['it']}" in " ".join(told) and draw.chance(0.4))], **cast)
    return Task("about", written(draw.say(TOLD["about"], text=hero)), " ".join(told))


def _after_the_corpus(draw: Draw) -> Task:
    """A first sentence of the corpus, and a plot of the hero, the theme and the thing that it names, if any."""
    text = first = ""
    while not 20 < len(first) < LONGEST_SENTENCE or re.search(r"[\n\"]", first):
        text = renamed([draw.document(draw.corpus.stories)], draw, share=1.0 if draw.held_out else 0.8)[0]
        first = _SENTENCE.split(text, maxsplit=1)[0]
    words, cast = re.findall("[a-z]+", first), _cast(draw)
    she, he = (len(re.findall(rf"\b(?:{some})\b", text)) for some in ("she|her|girl", "he|his|boy"))
    cast |= _SHE if she > he else _HE
    rest = text.removeprefix(first)
    heroes = [*_HERO.findall(first), *(name for name in _NAME.findall(first) if name in rest)]
    things = [noun for noun in _THING.findall(first) if noun in draw.corpus.nouns[False] and noun not in _NEVER]
    plots = [_THEMES[word] for word in words if word in _THEMES]
    plot = draw.one(plots or list(PLOTS))
    if things:
        cast["it"] = things[-1]
    cast["name"] = heroes[0] if heroes else draw.one(_NAMES)
    meets = [] if heroes else [written(draw.say(TOLD["unnamed" if _SOMEBODY.search(first) else "beside"], **cast))]
    answer = " ".join([*meets, *_sentences(draw, plot, cast)])
    return Task("beginning", draw.say(TOLD["beginnings"], text=first), answer)


def grade(task: Task, answer: Answer) -> Grade:
    """Varied: seven tenths of the runs of four words, or more, are distinct; and the hero is the prompt's."""
    words = answer.text.split()
    varied = len(words) >= LEAST_WORDS and distinct_share(words) >= LEAST_DISTINCT
    keeps = [hero in answer.text for hero in _HERO.findall(task.prompt)[:1]]
    return {"distinct 4-grams ≥ 0.7": [varied], "ends": [answer.ended], "keeps its hero": keeps}
