"""Embed by WordLlama: a small model of word meanings, in this process and offline (extra `agentcore[embeddings]`)."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from agentcore.exceptions import ConfigurationError
from agentcore.vectors.base import Embedder


class WordLlamaEmbedder(Embedder):
    """Finds texts of like meaning, English first. The weights come with the package: nothing is fetched."""

    id = "wordllama:l2_supercat:256"

    def __init__(self) -> None:
        if importlib.util.find_spec("wordllama") is None:
            raise ConfigurationError(
                "The embedder 'wordllama' needs the package wordllama: pip install 'agentcore[embeddings]'."
            )
        self._lock = threading.Lock()

    def compute(self, texts: Sequence[str]) -> Any:
        """Return a vector per text."""
        # The tokenizer's padding is kept in the object: two threads must not use it at once.
        with self._lock:
            return self._model.embed(list(texts))

    # Any: the package carries no types.
    @cached_property
    def _model(self) -> Any:
        import wordllama

        # Without the folder it looks beside the weights that the package brings, and then on the network.
        return wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)
