"""Take a user's name off the documents that they added; what documents say is the project's own."""

from __future__ import annotations

from agentcore import erasers
from agentcore.erasers import Owner
from agentcore.models import Document


def erase(owner: Owner) -> int:
    """Forget that the owner added documents; return how many there were."""
    added = Document.objects.filter(user_key=owner.key).values_list("pk", "user_key")
    # MariaDB takes other text for the same.
    mine = [pk for pk, key in added if key == owner.key]
    return int(Document.objects.filter(pk__in=mine).update(user=None, user_key="", user_name=""))


erasers.register("names on documents", erase)
