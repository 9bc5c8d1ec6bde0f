"""Turn the errors of Anthropic's SDK into ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from json import JSONDecodeError
from typing import Any

import anthropic
import httpx2

from agentcore.exceptions import ProviderAuthError, ProviderBadReply, ProviderError
from agentcore.providers import failures


@contextmanager
def translated(*, secrets: Sequence[str | None]) -> Iterator[None]:
    """Raise what goes wrong inside as a ProviderError; `secrets` are masked wherever they were echoed."""
    try:
        yield
    except (TimeoutError, anthropic.APITimeoutError, httpx2.TimeoutException) as error:
        raise failures.timed_out() from error
    except (anthropic.APIConnectionError, httpx2.RequestError) as error:
        # Not the whole address: it may carry a user name and password.
        raise failures.disconnected(error.request.url.netloc.decode()) from error
    except anthropic.APIStatusError as error:
        # The SDK's own message repeats the answer, and what was echoed in it.
        raise _from_answer(error, secrets=secrets) from None
    except anthropic.APIError as error:
        raise ProviderBadReply("The model API answered with something the SDK cannot read.") from error
    except anthropic.AnthropicError as error:
        raise ProviderAuthError(f"The SDK has no usable credentials ({type(error).__name__}).") from error
    except (JSONDecodeError, UnicodeDecodeError) as error:
        raise ProviderBadReply("The model API answered with something that is not JSON.") from error


def _from_answer(error: anthropic.APIStatusError, *, secrets: Sequence[str | None]) -> ProviderError:
    reason = _reason(error.body)
    # An error event in a stream that had begun well.
    if error.status_code < 400:
        return failures.of_stream(code=reason.get("type"))
    return failures.of_answer(
        status=error.status_code,
        code=reason.get("type"),
        text=reason.get("message"),
        headers=error.response.headers,
        secrets=secrets,
    )


def _reason(body: object) -> Mapping[str, Any]:
    if not isinstance(body, Mapping):
        return {"message": body}
    reason = body.get("error")
    return reason if isinstance(reason, Mapping) else {"message": reason or body.get("message")}
