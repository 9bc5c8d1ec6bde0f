"""What a model provider is: the seam between the turn engine and a model API."""

from __future__ import annotations

from collections.abc import Iterator

from agentcore.messages import ModelDelta, ModelReply, ModelRequest


class ModelProvider:
    """Talks to one model API. Subclass it, or write any class with these methods.

    An instance is made once per process from its entry in AGENTCORE["PROVIDERS"]: the keys but `class`
    and `context_tokens` become keyword arguments. It is called from many threads at once.

    A failure is raised as agentcore.exceptions.ProviderError or a subclass, each request tried once:
    retries, breakers and waiting are wrapped round a provider, never built into it. The message of an
    error is shown to people and stored; it must hold no credentials.
    """

    def complete(self, request: ModelRequest) -> ModelReply:
        """Return the model's whole answer, within request.timeout seconds."""
        raise NotImplementedError

    def stream(self, request: ModelRequest) -> Iterator[ModelDelta | ModelReply]:
        """Yield the answer's text in pieces; the last item is the whole reply.

        An answer that breaks off raises instead of ending with a reply. A provider that cannot stream
        inherits this: the whole text as one piece.
        """
        reply = self.complete(request)
        if reply.content:
            yield ModelDelta(text=reply.content)
        yield reply

    def close(self) -> None:
        """Give back connections. Called when the settings change; the instance is not used after it."""
