"""Embed by the words and letters of a text alone: no model, no download, the same numbers on every machine."""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from agentcore.vectors.base import Embedder, Values

DIMENSION = 256
WORD = re.compile(r"\w+")
# Words of so few letters are mostly those that every text has.
SHORT = 3
SHORT_WEIGHT = 0.2
GRAMS = (3, 4)
CACHED_WORDS = 20_000


class HashingEmbedder(Embedder):
    """Finds texts that share words or parts of words. It knows no synonyms: for tests, and for a start."""

    id = f"hashing:{DIMENSION}"

    def compute(self, texts: Sequence[str]) -> Values:
        """Return a vector per text: each word and each part of one adds to, or takes from, one of its numbers."""
        values = np.zeros((len(texts), DIMENSION), dtype=np.float32)
        for row, text in zip(values, texts, strict=True):
            for word in WORD.findall(unicodedata.normalize("NFKC", text).casefold()):
                places, weights = _features(word)
                np.add.at(row, places, weights)
        return np.sign(values) * np.sqrt(np.abs(values))


@lru_cache(maxsize=CACHED_WORDS)
def _features(word: str) -> tuple[NDArray[np.intp], Values]:
    """Return where a word and its parts go, and what each adds there."""
    grams = list(_grams(word))
    weight = SHORT_WEIGHT if len(word) <= SHORT and not word.isdigit() else 1.0
    parts = [(f"w:{word}", weight), *((f"g:{gram}", weight / len(grams)) for gram in grams)]
    hashes = [zlib.crc32(part.encode("utf-8", "replace")) for part, _ in parts]
    places = np.array([number % DIMENSION for number in hashes], dtype=np.intp)
    signs = [1.0 if number >> 16 & 1 else -1.0 for number in hashes]
    weights = np.array([sign * each for sign, (_, each) in zip(signs, parts, strict=True)], dtype=np.float32)
    return places, weights


def _grams(word: str) -> Iterator[str]:
    padded = f" {word} "
    for size in GRAMS:
        for start in range(len(padded) - size + 1):
            yield padded[start : start + size]
