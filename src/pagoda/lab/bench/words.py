"""Text for benchmarks, made from Pagoda's own word lists: the same seed, the same text.

Only `Random.random` is used, whose sequence Python promises to keep between versions.
"""

from __future__ import annotations

import math
import random

_NOUNS = (
    "lantern", "harbour", "orchard", "bridge", "ledger", "kettle", "valley", "tower",
    "market", "ferry", "garden", "workshop", "library", "mill", "quarry", "station",
    "island", "archive", "bakery", "canal", "courtyard", "meadow", "observatory", "pier",
)  # fmt: skip
_TRADES = (
    "keeper", "carpenter", "pilot", "teacher", "clerk", "miller", "gardener", "surveyor",
    "baker", "weaver", "smith", "nurse", "mason", "printer", "sailor", "farmer",
)  # fmt: skip
_ADJECTIVES = (
    "quiet", "narrow", "bright", "wooden", "distant", "early", "careful", "heavy",
    "northern", "painted", "rainy", "steep", "warm", "ancient", "plain", "crowded",
)  # fmt: skip
_VERBS = (
    "repaired", "described", "measured", "crossed", "opened", "visited", "counted", "guarded",
    "sketched", "cleaned", "followed", "rented", "lit", "sold", "moved", "remembered",
)  # fmt: skip
_PLACES = ("beside", "behind", "above", "near", "under", "beyond", "inside", "opposite")
_SEASONS = ("In spring", "That summer", "In autumn", "All winter", "One morning", "By evening")
_QUESTIONS = (
    "What do you know about the {noun}, and who took care of it?",
    "Summarise in two sentences what happened near the {noun}.",
    "Who {verb} the {adjective} {noun}, and why might that matter?",
    "Describe the {noun} to somebody who has never seen it.",
    "Which of the people would you ask about the {adjective} {noun}?",
)


class Words:
    """A stream of sentences; `name` tells apart the streams of one seed."""

    def __init__(self, *, seed: int, name: str) -> None:
        self._random = random.Random(f"{seed}/{name}")  # noqa: S311  (no secret is made here)

    def _pick(self, words: tuple[str, ...]) -> str:
        return words[int(self._random.random() * len(words))]

    def _sentence(self) -> str:
        return (
            f"{self._pick(_SEASONS)} the {self._pick(_TRADES)} {self._pick(_VERBS)} the "
            f"{self._pick(_ADJECTIVES)} {self._pick(_NOUNS)} {self._pick(_PLACES)} the "
            f"{self._pick(_NOUNS)}."
        )

    def document(self, words: int) -> str:
        """Numbered paragraphs of `words` words in all, or a sentence more; "" for 0."""
        paragraphs: list[str] = []
        have = 0
        while have < words:
            sentences = [f"Note {len(paragraphs) + 1}."]
            while have < words and len(sentences) < 6:
                sentences.append(self._sentence())
                have += len(sentences[-1].split())
            paragraphs.append(" ".join(sentences))
        return "\n\n".join(paragraphs)

    def question(self) -> str:
        """One question that mentions the document's words."""
        return self._pick(_QUESTIONS).format(
            noun=self._pick(_NOUNS), verb=self._pick(_VERBS), adjective=self._pick(_ADJECTIVES)
        )

    def exponential_s(self, mean_s: float) -> float:
        """A waiting time, in seconds, of a memoryless process; 0 for a mean of 0."""
        return -mean_s * math.log(1.0 - self._random.random())
