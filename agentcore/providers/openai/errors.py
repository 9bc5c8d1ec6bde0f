"""Turn the errors of OpenAI's SDK into ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from json import JSONDecodeError

import httpx2
import openai

from agentcore.exceptions import ProviderBadReply
from agentcore.providers import failures


@contextmanager
def translated(*, secret: str) -> Iterator[None]:
    """Raise what goes wrong inside as a ProviderError; `secret` is masked wherever it was echoed."""
    try:
        yield
    # While a stream is read, the SDK's older releases let the errors of its HTTP client through.
    except (TimeoutError, openai.APITimeoutError, httpx2.TimeoutException) as error:
        raise failures.timed_out() from error
    except (openai.APIConnectionError, httpx2.RequestError) as error:
        # Not the whole address: it may carry a user name and password.
        raise failures.disconnected(error.request.url.netloc.decode()) from error
    except openai.APIStatusError as error:
        # The SDK's own message repeats the answer, and with it a part of a wrong key.
        raise failures.of_answer(
            status=error.status_code,
            code=error.code,
            text=_text(error.body),
            headers=error.response.headers,
            secrets=[secret],
        ) from None
    except openai.APIError as error:
        raise failures.of_stream(code=error.code) from None
    except (JSONDecodeError, UnicodeDecodeError) as error:
        raise ProviderBadReply("The model API answered with something that is not JSON.") from error


def _text(body: object) -> object:
    return body.get("message") if isinstance(body, Mapping) else body
