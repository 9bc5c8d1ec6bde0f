"""The forms that decide. `version` is the one the person saw: without it, or if that changed, nothing is decided."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from django import forms
from django.utils.translation import gettext_lazy as _

from agentcore.approvals.verdicts import MAX_NOTE, find_definition
from agentcore.models import ToolApproval
from agentcore.reviews import reading, seen, shapes
from agentcore.reviews.fields import ABSENT, ArgumentField, is_same_text
from agentcore.reviews.seen import Seen
from agentcore.tools import json_text, masking

# The token, and the page that the decision goes back to.
SENT_BESIDES = {"csrfmiddlewaretoken", "from"}
MAX_NAMES = 200
# Before the names of arguments, which may be any: none is taken for a field of the form's own.
PREFIX = "arguments."
MAX_FIELDS = 100


class TextField(forms.CharField):
    """Text of several lines. Browsers send CRLF; what a model is told word for word has plain line feeds."""

    def __init__(self, *, rows: int, **kwargs: Any) -> None:
        options = {"strip": False, **kwargs}
        super().__init__(widget=forms.Textarea(attrs={"rows": rows}), required=False, **options)

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value)
        return text.replace("\r\n", "\n") if isinstance(text, str) and text.strip() else ""


class StrictForm(forms.Form):
    """Takes its own fields and no others: what a decision does not understand, it does not pass over."""

    sent_besides = frozenset(SENT_BESIDES)

    def clean(self) -> dict[str, Any]:
        unknown = sorted(set(self.data) - set(self.fields) - self.sent_besides)
        if unknown:
            raise forms.ValidationError(
                _("There is no field %(names)s in this decision."), params={"names": ", ".join(unknown)[:MAX_NAMES]}
            )
        return self.cleaned_data


class DecisionForm(StrictForm):
    """A decision on one request. `seen` says what the page showed; it serves a refusal, and decides nothing."""

    version = forms.IntegerField(
        min_value=1,
        widget=forms.HiddenInput,
        error_messages={"required": _("The version you saw is missing, please look again.")},
    )
    seen = forms.CharField(required=False, max_length=seen.MAX_SENT, widget=forms.HiddenInput)

    def decision(self) -> dict[str, Any]:
        """Return what the decision is made with, once the form is valid."""
        return {name: value for name, value in self.cleaned_data.items() if name not in ("seen", "as_text")}


class ApproveForm(DecisionForm):
    note = TextField(label=_("Note (optional)"), rows=2, max_length=MAX_NOTE)


class JsonForm(DecisionForm):
    """Approves with other arguments: `arguments` is the JSON text of the whole object, secrets masked."""

    arguments = TextField(label=_("Arguments as JSON"), rows=8)
    note = TextField(label=_("Note (optional)"), rows=2, max_length=MAX_NOTE)

    def clean_arguments(self) -> Any:
        """Return the arguments."""
        text = self.cleaned_data["arguments"]
        if not text:
            raise forms.ValidationError(_("Give the arguments as a JSON object, or approve them as they are shown."))
        try:
            read = json_text.read(text)
        except ValueError as error:
            raise forms.ValidationError(
                _("The arguments are not valid JSON: %(problem)s."), params={"problem": error}
            ) from error
        if read is None:
            raise forms.ValidationError(_("The arguments must be an object; null is none."))
        return read


class EditForm(DecisionForm):
    """Approves with other arguments, each in a field of its own named `arguments.<name>`, by the tool's schema."""

    note = TextField(label=_("Note (optional)"), rows=2, max_length=MAX_NOTE)

    def __init__(self, approval: ToolApproval, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        note = self.fields.pop("note")
        for field in argument_fields(approval):
            self.fields[PREFIX + field.argument] = field
        self.fields["note"] = note

    def arguments(self) -> Iterator[forms.BoundField]:
        """Yield the fields of the arguments, for the page."""
        return (self[name] for name, field in self.fields.items() if isinstance(field, ArgumentField))

    @property
    def has_arguments(self) -> bool:
        return any(name.startswith(PREFIX) for name in self.fields)

    def decision(self) -> dict[str, Any]:
        given = {name: value for name, value in super().decision().items() if not name.startswith(PREFIX)}
        values = {name.removeprefix(PREFIX): self.cleaned_data[name] for name in self.fields if name.startswith(PREFIX)}
        return {**given, "arguments": {name: value for name, value in values.items() if value is not ABSENT}}

    def add_problems(self, problems: list[dict[str, str]]) -> None:
        """Show beside each field what the tool's own check says of it."""
        for problem in problems:
            path = problem["field"]
            fits = [name for name in self.fields if f"{PREFIX}{path}.".startswith(f"{name}.")]
            name = max(fits, key=len, default=None)
            inside = path.removeprefix((name or "").removeprefix(PREFIX)).lstrip(".")
            self.add_error(name, f"{inside}: {problem['message']}" if inside else problem["message"])


class RejectForm(DecisionForm):
    reason = TextField(label=_("Reason, told to the agent"), rows=2, max_length=MAX_NOTE)


class RespondForm(DecisionForm):
    """Answers in the tool's place. What reads as JSON is JSON, anything else is text.

    What begins like JSON and is none is refused, unless `as_text` says that text is meant.
    """

    as_text = forms.BooleanField(label=_("It is text, also if it looks like JSON"), required=False)
    result = TextField(label=_("Result, as JSON or plain text"), rows=4)
    note = TextField(label=_("Note (optional)"), rows=2, max_length=MAX_NOTE)

    def clean_result(self) -> Any:
        text = self.cleaned_data["result"]
        if not text.strip():
            raise forms.ValidationError(_("Give the result that the agent is told."))
        if self.cleaned_data.get("as_text"):
            return text
        try:
            return json.loads(text, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            if not text.lstrip().startswith(reading.JSON_STARTS):
                return text
            raise forms.ValidationError(
                _("This begins like JSON and is not valid JSON: %(problem)s. Correct it, or say that it is text."),
                params={"problem": error},
            ) from error


def argument_fields(approval: ToolApproval) -> list[ArgumentField]:
    """Return a field for each argument of the tool as it is deployed; none when its schema lists none, or too many."""
    definition = find_definition(approval)
    schema = definition.parameters if definition else {}
    properties, required = schema.get("properties") or {}, schema.get("required") or []
    stored = masking.mask(approval.arguments, approval.call.sensitive)
    if not isinstance(stored, dict) or len(properties) > MAX_FIELDS or set(stored) - set(properties):
        return []
    return [
        ArgumentField(
            name,
            stored.get(name, ABSENT),
            shapes.shape_of(part, schema.get("$defs") or {}),
            is_required=name in required,
            number=number,
        )
        for number, (name, part) in enumerate(properties.items())
    ]


def is_typed(data: Mapping[str, Any]) -> bool:
    """Say whether an edit was sent field by field."""
    return "arguments" not in data and any(name.startswith(PREFIX) for name in data)


def of_edit(data: Mapping[str, str]) -> dict[str, str]:
    """Return what belongs to an edit of what was sent from several forms at once."""
    return {name: data[name] for name in data if name.startswith(PREFIX) or name in ("version", "seen", "note")}


def keep_typed(form: EditForm, before: Seen | None) -> None:
    """Have a form that was refused show the request as it is now, with what the person had typed in its place.

    A field they had left as it was follows the request: or the next click would undo another person's edit.
    """
    data = dict(form.data.items())
    for name, field in form.fields.items():
        if isinstance(field, ArgumentField) and name in data and _was_left(field, data[name], before):
            data[name] = field.start
    form.data = data


def _was_left(field: ArgumentField, typed: str, before: Seen | None) -> bool:
    if before is None:
        return False
    if field.argument not in before.values:
        return before.is_same(field.argument, typed.replace("\r\n", "\n"))
    old = ArgumentField(field.argument, before.values[field.argument], field.shape, is_required=False, number=0)
    return is_same_text(typed, old.start)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
