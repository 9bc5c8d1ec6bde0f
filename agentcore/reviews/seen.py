"""What a page showed, sent along with a decision: so that a refusal can say what changed since.

It is signed, holds no secret, and decides nothing: the version does. Long values are told by their digest.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from django.core import signing

from agentcore import canonical
from agentcore.models import ToolApproval
from agentcore.reviews import differences, reading
from agentcore.reviews.differences import Change
from agentcore.tools import masking

SALT = "agentcore.reviews.seen"
MAX_VALUE = 1_000
MAX_ALL = 6_000
MAX_NAMES = 100
MAX_SENT = 20_000


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What was shown: values by name, and digests of the values that were too long to send along."""

    fingerprint: str
    digest: str
    values: dict[str, Any]
    digests: dict[str, str]

    def is_same(self, name: str, value: Any) -> bool:
        """Say whether `value`, secrets masked, is what was shown under this name."""
        if name in self.values:
            return canonical.dumps(self.values[name]) == canonical.dumps(value)
        return self.digests.get(name) == canonical.digest(value)


def pack(approval: ToolApproval) -> str:
    """Return what is shown of the request's arguments now, as a form sends it along; "" when that is too much."""
    shown = masking.mask(approval.arguments, approval.call.sensitive)
    if not isinstance(shown, dict) or len(shown) > MAX_NAMES:
        return ""
    values, digests, room = {}, {}, MAX_ALL
    for name, value in shown.items():
        size = len(json.dumps([name, value]))
        if size <= min(MAX_VALUE, room):
            values[name], room = value, room - size
        else:
            digests[name] = canonical.digest(value)
    content = [approval.pk, approval.fingerprint, approval.arguments_digest, values, digests]
    sent = signing.dumps(content, salt=SALT, compress=True)
    return sent if len(sent) <= MAX_SENT else ""


def unpack(sent: str, approval: ToolApproval) -> Seen | None:
    """Return what a form says was shown of this request; None when it does not say, or says it of another."""
    try:
        number, fingerprint, digest, values, digests = signing.loads(sent, salt=SALT)
    except (signing.BadSignature, ValueError, TypeError):
        return None
    if number != approval.pk:
        return None
    return Seen(fingerprint=fingerprint, digest=digest, values=values, digests=digests)


def changes_since(seen: Seen, approval: ToolApproval) -> list[Change]:
    """Return what differs between what was seen and what the request holds now."""
    now = masking.mask(approval.arguments, approval.call.sensitive)
    found = differences.between(seen.values, {name: now[name] for name in now if name not in seen.digests})
    for name in seen.digests:
        if name not in now:
            found.append(Change(name=name, kind=differences.REMOVED, old=None, new=None))
        elif not seen.is_same(name, now[name]):
            new = reading.whole(name, now[name])
            found.append(Change(name=name, kind=differences.CHANGED, old=None, new=new))
    return found
