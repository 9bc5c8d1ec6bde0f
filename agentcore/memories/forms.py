"""The forms of the page: what a memory says, and what to look for."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from agentcore.memory import MemoryKind
from agentcore.memory.store import MAX_TEXT


class LookForm(forms.Form):
    """What to look for, and of which kind."""

    q = forms.CharField(label=_("Search"), required=False, max_length=MAX_TEXT)
    kind = forms.ChoiceField(label=_("Kind"), required=False, choices=[("", _("any")), *MemoryKind.choices])
    before = forms.IntegerField(required=False, min_value=1, max_value=2**63 - 1)


class CorrectForm(forms.Form):
    """What the memory is to say."""

    text = forms.CharField(
        label=_("What it says"), max_length=MAX_TEXT, strip=True, widget=forms.Textarea(attrs={"rows": 4})
    )

    def clean_text(self) -> Any:
        """Return the text with plain line feeds: browsers send CRLF."""
        return self.cleaned_data["text"].replace("\r\n", "\n")
