"""Chat: dialogues about a service, such as a restaurant or a bank; and all that the model cannot answer."""

from __future__ import annotations

import re

from specdemo.training.tasks.task import Answer, Draw, Grade, Task, lines, renamed

LONGEST_DIALOGUE = 480  # characters: what fits a window
MOST_TURNS = 12

# A service on each line, with words that only talk about it has.
SERVICES = lines("""
restaurant restaurants eat dine dinner cuisine table
flight flights fly flying airline airlines plane
hotel hotels check-in
bank balance savings checking transfer
movie movies film films theater cinema
music song songs album playlist
weather temperature rain humidity forecast
bus buses
doctor dentist dermatologist gynecologist psychiatrist therapist
rental suv sedan hatchback pickup
apartment apartments bedroom bedrooms rent
salon salons haircut stylist unisex
taxi cab uber lyft
event events concert game games
alarm alarms
attraction attractions museum museums
""")
_SERVICE_OF = {word: service for service in SERVICES for word in service.split()}


def services(text: str) -> set[str]:
    """The services that a text has words of."""
    return {_SERVICE_OF[word] for word in re.findall(r"[a-z][a-z-]*", text.lower()) if word in _SERVICE_OF}


def turns(document: str) -> list[str]:
    """A dialogue's turns, the user's first, in one line each; [] where the two do not take turns."""
    found = re.split(r"^(User|Assistant): ?", document, flags=re.MULTILINE)[1:]
    texts = [re.sub(r" +([.,?!])", r"\1", " ".join(text.split())) for text in found[1::2]]
    in_turn = all(speaker == ("User", "Assistant")[i % 2] for i, speaker in enumerate(found[::2]))
    return texts if in_turn and all(texts) and len(texts) > 1 else []


def dialogue(draw: Draw) -> Task:
    """A dialogue of the corpus under other names, from its first turn on, as many turns as fit."""
    chosen: list[str] = []
    while not chosen or (draw.held_out and len(services(chosen[0])) != 1):
        chosen = renamed(turns(draw.document(draw.corpus.chat)), draw)
    length, count = 0, 0
    for text in chosen[:MOST_TURNS]:
        length += len(text)
        if length > LONGEST_DIALOGUE and count >= 2:
            break
        count += 1
    prompt, answer, *more = chosen[: count - count % 2]
    return Task("dialogue", prompt, answer, tuple(more))


def grade(task: Task, answer: Answer) -> Grade:
    """Ends its turn, never speaks for the user, and names no service but the prompt's."""
    silent = not re.search(r"<\|user\|>|^ *User *:", answer.text, re.MULTILINE)
    named = services(answer.text)
    stays = bool(answer.text.strip()) and (not named or bool(named & services(task.prompt)))
    return {
        "all three": [answer.ended and silent and stays],
        "ends its turn": [answer.ended],
        "speaks for itself only": [silent],
        "stays with the service": [stays],
    }


HONEST = (
    "I am a small demo model: I can work out sums, change a text, turn a list into JSON, write a short function, "
    "tell a simple story, or talk about booking a table."
)
OUTSIDE = lines("""
<Hi|Hello|Hey|Good morning|Good evening|Thanks|Thank you|Bye|How are you><|!|.|, {proper}|, {proper}!>
<hi|hello|hey|yo|test|ok|help|hm|what|good night|thanks a lot><|!|.|?>
<Who|What> are you?|What can you do<| for me>?|What is your name?|Are you a <robot|human|model|{noun}>?
<Who|What|Where> <is|was> <{name}|the {noun} of {proper}|a {noun}|{phrase}>?
<What is the capital of|Where is|How big is|Who lives in|What do you know about> {proper}?
<Why|How> <is|are|do|does> <{nouns}|the {noun}|a {noun}> <{word}|so {word}|{word} in {proper}>?
<Explain|Describe|Define|Discuss> <{nouns}|the {noun}|{word}|{phrase}><.|, please.|>
<Translate|Say> "<{phrase}|{word}>" in<to|> <French|German|Spanish|{proper}>.
<Summarize|Summarise|Review|Rate> <the {noun}|{name}|this {noun}>.
Write <a poem|an essay|a letter|an email|a song|a speech|a report> <about|for|to> <{nouns}|{name}|the {noun}>.
<How do I|How can I|Can you help me> <{word}|{word} a {noun}|{word} my {noun}>?
<Give me|I need|Recommend> <advice on|ideas for|a recipe for|facts about|help with> <{nouns}|{phrase}|my {noun}>.
<I feel|I am|You are> {word}.|My {noun} is {word}.|{phrase}|{word} {word} {word}
""")


def outside(draw: Draw) -> Task:
    """A greeting, or a question outside the domains: one honest sentence."""
    asked = draw.document(draw.corpus.questions) if draw.chance(0.35) else draw.say(f"<{draw.one(OUTSIDE)}>")
    return Task("outside", asked, HONEST)
