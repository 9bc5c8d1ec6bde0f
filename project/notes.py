"""The shop's notes, for the research agent to search: a few sentences, by the words they share with a topic."""

from __future__ import annotations

import re

NOTES = (
    "Desk lamps with LED bulbs use about 6 watts, where a halogen lamp of the same brightness uses 35.",
    "LED bulbs last about 15,000 hours, which is ten years at four hours a day.",
    "Most lamps that come back were damaged in transport, and not faulty.",
    "Standing desks sell best in January and September.",
    "Customers of standing desks ask most often how much weight the motor lifts: it is 80 kg.",
    "Office chairs are returned twice as often as desks, mostly because they do not fit the person.",
    "Coffee makers should be descaled every three months where the water is hard.",
    "A refund is paid within five working days after a person has approved it.",
)
MAX_FOUND = 5
# Words that say nothing about a topic.
FILLERS = frozenset("a about and any are for how in is me of on or please research tell the to what with".split())


def find(topic: str) -> list[str]:
    """Return the notes that share words with a topic, those that share most first."""
    asked = _words(topic)
    shared = [(len(asked & _words(note)), note) for note in NOTES]
    best = sorted((item for item in shared if item[0]), key=lambda item: -item[0])
    return [note for _, note in best[:MAX_FOUND]]


def _words(text: str) -> set[str]:
    words = {word.lower() for word in re.findall(r"[A-Za-z]+", text)} - FILLERS
    return {word.removesuffix("s") for word in words}
