"""Canary prompts: short texts with a question about their beginning, cut to a number of tokens.

The question asks for what the first sentences say, so that an answer leans on the oldest blocks:
a damaged one shows. Random words would not do, for models answer them with the same few tokens
whatever they have read.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import cycle, islice

_PROBES = 5
_FILL_MAX = 12  # tokens short of the target that are filled up with single short words
_FILLER = "then"
_PREFIX_WORDS = 5


@dataclass(frozen=True, slots=True)
class Topic:
    """A paragraph, and a question about its first sentence."""

    text: str
    question: str


TOPICS: tuple[Topic, ...] = (
    Topic(
        "Captain Orla Venn sailed the grey ship Heron out of Port Balmoor on the third of May with "
        "nine sailors, two goats and forty barrels of lamp oil. The wind came from the west all "
        "week, and the cook baked bread each morning before the watch was called. On the fifth "
        "night they saw a light on the water that none of the charts could name, and the mate "
        "wrote its bearing into the log with a careful hand.",
        "Question: What is the name of the captain, and what does her ship carry? Answer:",
    ),
    Topic(
        "The town library of Ashmere keeps its oldest map in a green drawer on the second floor, "
        "next to a brass globe. It was drawn in 1712 by Tobias Finch, a clockmaker who measured "
        "the valley with a chain of his own making. Visitors may look at it on Thursdays, wearing "
        "the cotton gloves that hang beside the door, and must tell the clerk which of the seven "
        "bridges they came to find.",
        "Question: Where does the library keep its oldest map, and who drew it? Answer:",
    ),
    Topic(
        "To make the soup of the mountain inn, Greta boils four potatoes, three leeks and a "
        "spoonful of caraway in two litres of water. When the potatoes fall apart she adds cream "
        "and a handful of sorrel from the garden. The old men at the long table say that it needs "
        "salt, and she answers each winter that the salt is in the cheese, which is served on a "
        "wooden board with dark bread and butter.",
        "Question: Which vegetables does Greta boil for the soup, and how many of each? Answer:",
    ),
    Topic(
        "The night train from Lisbon to Vienna has twelve blue carriages, and its guard, Mr "
        "Almeida, knows every passenger of the first three by name. At midnight he walks through "
        "the corridors with a lantern and counts the sleeping children. In the ninth carriage a "
        "violinist practises with a folded scarf under the strings so that nobody wakes, and the "
        "tea in the samovar is kept warm until the mountains.",
        "Question: What colour are the carriages of the night train, and who is its guard? Answer:",
    ),
    Topic(
        "Doctor Imani Reyes counts the storks of the river delta every spring from a wooden tower "
        "that her brother built. Last year there were 214 nests, and this year there are 231. She "
        "writes the numbers on a slate first, for paper gets wet in the reeds, and carries the "
        "slate home in the basket of her bicycle. The farmers ask her about rain, and she tells "
        "them what the birds seem to think of it.",
        "Question: Which birds does Doctor Reyes count, and from where? Answer:",
    ),
    Topic(
        "Beneath the opera house lies a workshop where Pavel repairs the wooden clouds, the tin "
        "thunder and a moon of painted silk. He is the fourth of his family to do so, and keeps "
        "the key on a red cord. Before each performance he oils the wheel that lifts the moon, "
        "because in the year of the great storm it stuck halfway and the singers had to wait in "
        "the dark for the length of a song.",
        "Question: What does Pavel repair in the workshop beneath the opera house? Answer:",
    ),
)
_PREFIX = (
    "amber apple april arrow basket beach bell birch bread bridge candle castle cedar cherry "
    "cloud copper corner cotton daisy eagle ember engine falcon feather field flute forest fox "
    "garden glass gold grape green harbor hazel honey island ivory jacket kite ladder lake lemon "
    "lily linen maple marble meadow mint moon mountain music night north ocean olive orange "
    "owl paper pearl pepper pilot pine planet plum pocket rain raven red river robin rose salt "
    "sand shadow silver snow south spring star stone storm summer sun table tiger tower train "
    "valley velvet violet water wheat willow wind winter wolf wood yellow"
).split()


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """The prompt of one topic: so many words of its text, `fill` short words, its question."""

    topic: int
    words: int
    fill: int = 0

    def text(self, prefix: str) -> str:
        """The prompt; `prefix` sets it apart from all others."""
        topics = [TOPICS[(self.topic + step) % len(TOPICS)] for step in range(len(TOPICS))]
        endless = cycle(word for topic in topics for word in topic.text.split())
        body = [*islice(endless, self.words), *[_FILLER] * self.fill]
        return f"{prefix}{' '.join(body)}\n{topics[0].question}"


@dataclass(frozen=True, slots=True)
class Fitted:
    """A canary and the tokens that the server counted in its prompt."""

    canary: Canary
    tokens: int


def unique_prefix(rng: random.Random) -> str:
    """The beginning of a prompt that no other prompt has, of ordinary words: nearly as many
    tokens each time."""
    return f"Note {' '.join(rng.choices(_PREFIX, k=_PREFIX_WORDS))}. "


def fit(measure: Callable[[Canary], int], *, topic: int, target: int) -> Fitted:
    """The canary whose prompt has `target` tokens, or the nearest that a few probes find.
    `measure` asks the server."""
    canary = Canary(topic=topic % len(TOPICS), words=max(1, target // 2))
    best: Fitted | None = None
    for _ in range(_PROBES):
        tokens = measure(canary)
        if best is None or abs(tokens - target) < abs(best.tokens - target):
            best = Fitted(canary, tokens)
        if tokens == target:
            break
        canary = _closer(canary, tokens, target)
    assert best is not None, "there was at least one probe"
    return best


def _closer(canary: Canary, tokens: int, target: int) -> Canary:
    """The next guess: fill up what is nearly long enough, else take or give words."""
    short = target - tokens
    if -canary.fill <= short <= _FILL_MAX - canary.fill and (canary.fill or short > 0):
        return replace(canary, fill=canary.fill + short)
    ratio = max(tokens / len(canary.text("").split()), 0.5)
    step = math.floor(short / ratio)  # rather too short: fillers end it exactly
    return replace(canary, words=max(1, canary.words + step), fill=0)


def probes_at_most() -> int:
    """How many requests one fit may make."""
    return _PROBES
