"""Options that several commands have."""

from __future__ import annotations

import argparse

from agentcore.conf import MAX_DAYS


def days(text: str) -> float:
    """Return a number of days, parts of one included; raise for anything else and for what is no time at all."""
    try:
        value = float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of days.") from error
    if not 0 < value <= MAX_DAYS:
        raise argparse.ArgumentTypeError(f"{text!r} must be above 0 and at most {MAX_DAYS} days.")
    return value
