"""Embed by a server that speaks OpenAI's `/v1/embeddings` (extra `agentcore[openai]`)."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from agentcore.conf import settings
from agentcore.exceptions import ConfigurationError, EmbedderFailed
from agentcore.vectors.base import Embedder

if TYPE_CHECKING:
    import openai

BATCH = 128
TIMEOUT_SECONDS = 30.0
# The keys of the provider's entry that concern the server; the others are about chat completions.
KEYS = ("organization", "project", "default_headers", "default_query")


class OpenAIEmbedder(Embedder):
    """Asks the server of an entry of PROVIDERS: `EMBEDDER = "openai:text-embedding-3-small"` is provider and model.

    A key in the environment is sent to OpenAI alone, never to an entry's own `base_url`.
    """

    def __init__(self, provider: str, model: str) -> None:
        if importlib.util.find_spec("openai") is None:
            raise ConfigurationError(
                f"The embedder '{provider}:{model}' needs the package openai: pip install 'agentcore[openai]'."
            )
        self.id = f"{provider}:{model}"
        self._model = model
        self._entry = _entry(provider)

    def compute(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector per text; raise EmbedderFailed when the server does not give them."""
        return [
            values
            for start in range(0, len(texts), BATCH)
            for values in self._ask([text or " " for text in texts[start : start + BATCH]])
        ]

    def close(self) -> None:
        """Close the connections."""
        if "_client" in vars(self):
            self._client.close()

    def _ask(self, texts: list[str]) -> list[list[float]]:
        import openai

        try:
            answer = self._client.embeddings.create(model=self._model, input=texts, encoding_format="float")
        except openai.APIStatusError as error:
            # What the server says may hold the key, or the text.
            raise self._failed(f"was refused with HTTP status {error.status_code}") from error
        except openai.OpenAIError as error:
            raise self._failed(f"did not answer ({type(error).__name__})") from error
        found = sorted(answer.data, key=lambda entry: entry.index)
        if len(found) != len(texts):
            raise self._failed(f"gave {len(found)} vectors for {len(texts)} texts")
        return [entry.embedding for entry in found]

    def _failed(self, what: str) -> EmbedderFailed:
        return EmbedderFailed(f"The embedder {self.id!r} {what}.", embedder=self.id)

    @cached_property
    def _client(self) -> openai.OpenAI:
        import openai

        base_url, key = self._entry.get("base_url"), self._entry.get("api_key")
        return openai.OpenAI(
            base_url=base_url,
            api_key="none" if key is None and base_url is not None else key,
            timeout=self._entry.get("timeout") or TIMEOUT_SECONDS,
            max_retries=2,
            **{name: self._entry[name] for name in KEYS if name in self._entry},
        )


def _entry(provider: str) -> Mapping[str, Any]:
    entries = settings.PROVIDERS
    entry = entries.get(provider, {} if provider == "openai" else None)
    if not isinstance(entry, Mapping) or entry.get("class", provider) != "openai":
        usable = ["openai", *(name for name in entries if _is_openai(name, entries[name]) and name != "openai")]
        allowed = ", ".join(repr(name) for name in usable)
        raise ConfigurationError(
            f"AGENTCORE['EMBEDDER'] names the provider {provider!r}; it must be one of the class 'openai': {allowed}."
        )
    return entry


def _is_openai(name: str, entry: Any) -> bool:
    return isinstance(entry, Mapping) and entry.get("class", name) == "openai"
