"""What a page showed of a request, sent along with its form: so that a refusal can say what changed since.

It is signed, holds no secret, and decides nothing: the version does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.core import signing

from agentcore.admin import differences
from agentcore.admin.differences import Change
from agentcore.tools.masking import mask

SALT = "agentcore.admin.seen"
MAX_SENT = 6_000


@dataclass(frozen=True, kw_only=True)
class Since:
    """What changed since a page was shown. `is_known` says whether that can be told; if it can and nothing
    that is shown differs, the arguments are the same, or only a secret differs (`is_hidden`)."""

    is_known: bool
    is_hidden: bool
    changes: list[Change]


def field(approval_id: int) -> str:
    """Return the name of the form's field."""
    return f"seen_{approval_id}"


def pack(approval: Any) -> str:
    """Return what is shown of the arguments, secrets masked, as a form sends it; "" when that is too much.

    The approval is read by `extent.with_small_arguments`.
    """
    if approval.small_arguments is None or approval.arguments_length > MAX_SENT:
        return ""
    shown = mask(approval.small_arguments, approval.call.sensitive)
    if len(json.dumps(shown)) > MAX_SENT:
        return ""
    return signing.dumps([approval.pk, approval.arguments_digest, shown], salt=SALT, compress=True)


def since(data: Mapping[str, str], approval: Any) -> Since:
    """Return what differs between what the page that sent `data` showed and what there is now."""
    try:
        pk, digest, before = signing.loads(data.get(field(approval.pk), ""), salt=SALT)
    except (signing.BadSignature, ValueError, TypeError):
        return Since(is_known=False, is_hidden=False, changes=[])
    if pk != approval.pk or approval.small_arguments is None:
        return Since(is_known=False, is_hidden=False, changes=[])
    sensitive = approval.call.sensitive
    changes = differences.between(before, mask(approval.small_arguments, sensitive), sensitive)
    return Since(is_known=True, is_hidden=not changes and digest != approval.arguments_digest, changes=changes)
