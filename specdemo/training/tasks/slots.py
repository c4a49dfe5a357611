"""The words that fill the slots of templates: closed lists by kind, and names made of syllables.

Every word of a list occurs in training; held-out tasks put them together anew.
"""

from __future__ import annotations

from specdemo.training.tasks.task import Draw, listed

_LISTS = {
    "name": "Anna Ben Carla David Emma Felix Grace Henry Ines Jack Kate Leo Maria Nina Oscar Paula Quinn Rosa Sam "
    "Tina Umar Vera Will Yara Zoe Adam Bella Carlos Dora Erik Fatima George Hana Ivan Julia Kim Lisa Mark "
    "Nora Omar Peter Rita Simon Tom Lucy Max Mia Paul Sara Tim Alice Bob Clara Diego Elena Frank Gina Hugo "
    "Iris Jonas",
    "city": "Oslo Paris Rome Madrid Berlin Vienna Prague Lisbon Dublin Athens London Tokyo Cairo Lima Boston "
    "Chicago Denver Dallas Seattle Toronto Sydney Delhi Seoul Havana Geneva Milan Porto Hamburg Bern Quito",
    "job": "teacher baker doctor driver farmer singer painter pilot nurse cook writer lawyer",
    "day": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "place": "park library market school museum station office garden beach cinema",
    "colour": "red blue green black white yellow brown pink grey purple",
    "animal": "cat dog horse rabbit hamster parrot goat duck sheep turtle",
    "month": "January February March April May June July August September October November December",
    "sport": "tennis football chess hockey golf rugby swimming rowing",
    "subject": "maths music history art physics biology English sport",
    "food": "soup pizza rice pasta salad fish bread cheese curry stew",
    "thing": "apple pear book pen coin card stamp egg ball cup cake flower shell stone button sticker marble "
    "cookie lemon pencil key toy ticket ring chair lamp plate spoon hat shirt",
}
SLOTS: dict[str, tuple[str, ...]] = {kind: listed(words) for kind, words in _LISTS.items()}
"""The words of every kind of slot."""
SLOTS["things"] = tuple(f"{thing}s" for thing in SLOTS["thing"])
SLOTS["number"] = tuple(map(str, range(2, 60)))
NAMES = SLOTS["name"]
SHE = frozenset(
    listed(
        "Anna Carla Emma Grace Ines Kate Maria Nina Paula Rosa Tina Vera Yara Zoe Bella Dora Fatima Hana Julia "
        "Lisa Nora Rita Lucy Mia Sara Alice Clara Elena Gina Iris"
    )
)
MADE_UP_SHARE = 0.2  # of names: whoever only knows the list's would not learn to copy any other
_BEGIN = listed("Ba Be Ca Da De Do Fa Fi Ga Ha Jo Ka Ke La Lo Ma Me Mo Na Ne Pa Pe Ra Ro Sa Se Ta Te Va Vi")
_MIDDLE = listed("la li lo ma mi na ni ra ri ro sa ta ti va vi")
_END = listed("n na ra s lla rro ko ne lin t x mar do")


def slot(draw: Draw, kind: str) -> str:
    """A word of a kind; a name is of the list, or made up."""
    if kind != "name" or draw.rng.random() >= MADE_UP_SHARE:
        return draw.one(SLOTS[kind])
    return draw.one(_BEGIN) + "".join(draw.some(_MIDDLE, draw.number(0, 1))) + draw.one(_END)


def filled(draw: Draw, template: str) -> str:
    """A template with a word in each of its slots, written ``{kind}``."""
    for kind in SLOTS:
        while f"{{{kind}}}" in template:
            template = template.replace(f"{{{kind}}}", slot(draw, kind), 1)
    return template
