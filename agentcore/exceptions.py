"""Every error agentcore raises.

AgentError                     what a caller is told: .code, .message, .details
├── InvalidInput               the request itself is wrong
├── NotAuthenticated, PermissionDenied
├── NotFound                   it does not exist, or not for this user
├── Conflict                   the state of things does not allow it now
├── TooLarge, RateLimited
├── DriverUnavailable, Unavailable
│   ├── EmbedderFailed         a text could not be turned into a vector
│   └── IndexFailed            vectors could not be kept, removed or searched
└── TurnFailure                why a turn ended badly; becomes the turn's `error`
ProviderError                  a model API did not answer as hoped
├── ProviderRateLimited, ProviderOverloaded, ProviderTimeout, ProviderConnectionError
├── ProviderUnavailable        its circuit breaker is open: nothing was sent
├── ProviderPostponed          it cannot be asked now, but later (understood by the loop)
├── ProviderBadRequest         ProviderContextTooLong is one of these
└── ProviderAuthError, ProviderBadReply
ToolError                      a tool tells the model what went wrong, in words for the model
ConfigurationError             a mistake in the project's code or settings
NotQueued                      another worker took the turn first (understood by the claim)
LeaseLost                      this worker no longer owns its turn (understood by the loop)
TurnCancelled                  somebody cancelled the turn in hand (understood by the loop)
"""

from __future__ import annotations

from typing import Any


class AgentError(Exception):
    """An error with a stable `code`, a `message` for people and `details` for programs."""

    code = "internal"

    def __init__(self, message: str = "", *, code: str | None = None, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details
        if code is not None:
            self.code = code

    def as_dict(self) -> dict[str, Any]:
        """Return the error in the shape that the API and a turn's `error` have."""
        return {"code": self.code, "message": self.message, "details": self.details}


class InvalidInput(AgentError):
    code = "invalid_input"


class NotAuthenticated(AgentError):
    code = "not_authenticated"


class PermissionDenied(AgentError):
    code = "permission_denied"


class NotFound(AgentError):
    code = "not_found"


class Conflict(AgentError):
    code = "conflict"


class TooLarge(AgentError):
    code = "too_large"


class RateLimited(AgentError):
    code = "rate_limited"


class DriverUnavailable(AgentError):
    code = "driver_unavailable"


class Unavailable(AgentError):
    code = "unavailable"


class EmbedderFailed(Unavailable):
    """An embedder gave no vectors, or none that can be used."""


class IndexFailed(Unavailable):
    """An index of vectors could not do what it was asked."""


class TurnFailure(AgentError):
    """Ends the turn in hand; `code` is one of the codes a turn's `error` may have."""

    code = "driver_error"


class ProviderError(Exception):
    """A model API failed. `retry_after` is in seconds, None when the API named no time."""

    retryable = False

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after = retry_after


class ProviderRateLimited(ProviderError):
    retryable = True


class ProviderOverloaded(ProviderError):
    retryable = True


class ProviderTimeout(ProviderError):
    retryable = True


class ProviderConnectionError(ProviderError):
    retryable = True


class ProviderUnavailable(ProviderError):
    """Nothing was sent: the circuit breaker of this model is open, and BREAKER_OPEN says "fail"."""

    retryable = True


class ProviderPostponed(ProviderError):
    """The model can be asked again in `retry_after` seconds, too long to wait for in place.

    `attempts` is how often it was asked for this reply so far.
    """

    retryable = True

    def __init__(self, message: str, *, retry_after: float, attempts: int) -> None:
        super().__init__(message, retry_after=retry_after)
        self.seconds = retry_after
        self.attempts = attempts


class ProviderBadRequest(ProviderError):
    """The API refused the request itself: sending it again cannot help."""


class ProviderContextTooLong(ProviderBadRequest):
    """The API refused the request because it holds more than the model can read."""


class ProviderAuthError(ProviderError):
    """The API refused the credentials."""


class ProviderBadReply(ProviderError):
    """The API answered with something that is no reply."""


class ToolError(Exception):
    """Raise it in a tool to tell the model, in these words, what went wrong.

    The text of any other exception stays in the log: it may hold secrets.
    """


class ConfigurationError(Exception):
    """A mistake in the project's code or settings; the message names it and what is allowed."""


class NotQueued(Exception):
    """The turn is not queued any more, or was claimed by another worker since it was read."""


class LeaseLost(Exception):
    """Another worker owns the turn now, or it ended: nothing more may be written or called."""


class TurnCancelled(Exception):
    """The turn in hand was cancelled: end it instead of going on."""
