"""Closed lists of words, and names made of syllables.

Every word of a list occurs in training; held-out tasks put them together anew.
"""

from __future__ import annotations

import random


def listed(text: str) -> tuple[str, ...]:
    """The words of a text."""
    return tuple(text.split())


NAMES = listed(
    "Anna Ben Carla David Emma Felix Grace Henry Ines Jack Kate Leo Maria Nina Oscar Paula Quinn Rosa Sam Tina "
    "Umar Vera Will Yara Zoe Adam Bella Carlos Dora Erik Fatima George Hana Ivan Julia Kim Lisa Mark Nora Omar "
    "Peter Rita Simon Tom Lucy Max Mia Paul Sara Tim Alice Bob Clara Diego Elena Frank Gina Hugo Iris Jonas"
)
SHE = frozenset(
    listed(
        "Anna Carla Emma Grace Ines Kate Maria Nina Paula Rosa Tina Vera Yara Zoe Bella Dora Fatima Hana Julia "
        "Lisa Nora Rita Lucy Mia Sara Alice Clara Elena Gina Iris"
    )
)
CITIES = listed(
    "Oslo Paris Rome Madrid Berlin Vienna Prague Lisbon Dublin Athens London Tokyo Cairo Lima Boston Chicago "
    "Denver Dallas Seattle Toronto Sydney Delhi Seoul Havana Geneva Milan Porto Hamburg Bern Quito"
)
COLOURS = listed("red blue green black white yellow brown pink grey purple")
# One and several of a thing that can be counted.
THINGS = tuple(
    tuple(pair.split("/"))
    for pair in listed(
        "apple/apples pear/pears book/books pen/pens coin/coins card/cards stamp/stamps egg/eggs ball/balls "
        "cup/cups cake/cakes flower/flowers shell/shells stone/stones button/buttons sticker/stickers "
        "marble/marbles cookie/cookies lemon/lemons pencil/pencils key/keys toy/toys ticket/tickets ring/rings "
        "chair/chairs lamp/lamps plate/plates spoon/spoons hat/hats shirt/shirts"
    )
)
JOBS = listed("teacher baker doctor driver farmer singer painter pilot nurse cook writer lawyer")
ANIMALS = listed("cat dog horse rabbit hamster parrot goat duck sheep turtle")
DAYS = listed("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = listed("January February March April May June July August September October November December")
SPORTS = listed("tennis football chess hockey golf rugby swimming rowing")
FOODS = listed("soup pizza rice pasta salad fish bread cheese curry stew")
SUBJECTS = listed("maths music history art physics biology English sport")
PLACES = listed("park library market school museum station office garden beach cinema")
MADE_UP_SHARE = 0.2  # of names: whoever only knows the list's would not learn to copy any other

_BEGIN = listed("Ba Be Ca Da De Do Fa Fi Ga Ha Jo Ka Ke La Lo Ma Me Mo Na Ne Pa Pe Ra Ro Sa Se Ta Te Va Vi")
_MIDDLE = listed("la li lo ma mi na ni ra ri ro sa ta ti va vi")
_END = listed("n na ra s lla rro ko ne lin t x mar do")


def person(rng: random.Random) -> str:
    """A first name: of the list, or made up."""
    if rng.random() >= MADE_UP_SHARE:
        return rng.choice(NAMES)
    return rng.choice(_BEGIN) + "".join(rng.sample(_MIDDLE, rng.randint(0, 1))) + rng.choice(_END)
