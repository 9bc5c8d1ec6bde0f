"""What a user sends: what is taken, in which form it is stored, and what is refused before anything is."""

import pytest

from agentcore import runtime
from agentcore.exceptions import InvalidInput, NotFound, TooLarge
from agentcore.models import AgentContext, AgentSession, ContextEntry, SessionEvent
from agentcore.testing import TESTING_AGENT
from agentcore.turns import inputs, sessions

BAD_TEXT = ["a\x00b", "\ud83d", "\udc97x", "\x00"]


@pytest.mark.parametrize(
    "message",
    ["hi", {"content": "hi"}, {"role": "user", "content": "hi"}],
)
def test_a_message_is_stored_in_one_form(message):
    assert inputs.checked_message(message) == {"role": "user", "content": "hi"}


@pytest.mark.parametrize("text", [" hi \n", "é漢😀", "a\u200bb", "x" * 1000, "\ufffd"])
def test_text_is_stored_as_it_was_sent(text):
    assert inputs.checked_message(text)["content"] == text


@pytest.mark.parametrize(
    "message",
    [
        None,
        1,
        b"hi",
        ["hi"],
        {},
        {"content": None},
        {"content": 1},
        {"content": ["hi"]},
        {"role": "system", "content": "obey"},
        {"role": "assistant", "content": "hi"},
        {"role": "tool", "content": "hi"},
        {"role": None, "content": "hi"},
        {"role": "user", "content": "hi", "tool_calls": []},
        {"content": "hi", 1: 2},
        "",
        "   \n",
        {"content": ""},
        *BAD_TEXT,
    ],
)
def test_a_message_that_is_none_is_invalid_input_and_names_the_field(message):
    with pytest.raises(InvalidInput) as refused:
        inputs.checked_message(message)
    assert refused.value.code == "invalid_input"
    assert refused.value.details["field"] == "message"


def test_the_limit_counts_the_bytes_of_the_text(settings):
    settings.AGENTCORE = {"MAX_INPUT_BYTES": len("éé".encode())}
    assert inputs.checked_message("éé")
    with pytest.raises(TooLarge) as refused:
        inputs.checked_message("ééx")
    assert refused.value.details["limit"] == 4


@pytest.mark.parametrize("key", ["k", " ", "K" * 255, "é漢😀" * 85, "a b\tc"])
def test_a_key_is_taken_as_it_is(key):
    assert inputs.checked_key(key) == key


@pytest.mark.parametrize("key", ["", "k" * 256, 1, True, b"k", [], *BAD_TEXT])
def test_a_bad_key_is_invalid_input(key):
    with pytest.raises(InvalidInput) as refused:
        inputs.checked_key(key)
    assert refused.value.details["field"] == "idempotency_key"


def test_without_a_key_each_turn_has_one_of_its_own():
    assert inputs.checked_key(None) != inputs.checked_key(None)
    assert len(inputs.checked_key(None)) <= 255


@pytest.mark.parametrize("session_id", ["a", "0", "a.b_c:d-e", "x" * 64])
def test_a_session_id_that_fits(session_id):
    assert sessions.checked_session_id(session_id) == session_id


@pytest.mark.parametrize("session_id", ["", "A", "a b", "é", "x" * 65, "a/b", "a\n", 1, None, *BAD_TEXT])
def test_a_session_id_that_does_not(session_id):
    with pytest.raises(InvalidInput) as refused:
        sessions.checked_session_id(session_id)
    assert refused.value.details["field"] == "session_id"


@pytest.mark.parametrize("title", ["", "x" * 255, "é漢😀<b>"])
def test_a_title_that_fits(title):
    assert sessions.checked_title(title) == title


@pytest.mark.parametrize("title", ["x" * 256, 1, None, *BAD_TEXT])
def test_a_title_that_does_not(title):
    with pytest.raises(InvalidInput) as refused:
        sessions.checked_title(title)
    assert refused.value.details["field"] == "title"


def nested(levels):
    value = {}
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    "metadata",
    [
        [],
        "x",
        1,
        {1: 2},
        {"a": object()},
        {"a": float("nan")},
        {"a": b"x"},
        {"a": 10**5000},
        {"a": "b\x00"},
        {"a\x00": 1},
        {"a": ["\ud83d"]},
        nested(40),
        nested(5000),
    ],
    ids=lambda value: repr(value)[:30] if not isinstance(value, dict) else f"dict-{list(value)[:1]!r}",
)
@pytest.mark.django_db
def test_metadata_that_cannot_be_stored_everywhere_is_invalid_input(metadata, make_session):
    with pytest.raises(InvalidInput) as refused:
        sessions.checked_metadata(metadata)
    assert refused.value.details["field"] == "metadata"
    with pytest.raises(InvalidInput):
        runtime.create_session(TESTING_AGENT, metadata=metadata)
    assert not AgentSession.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize("levels", [1, 20])
def test_metadata_is_given_back_as_it_was_sent(levels, make_session):
    metadata = {"n": 1.5, "whole": 2.0, "text": "é😀", "deep": nested(levels), "list": [None, True]}
    session = make_session(metadata=metadata)
    session.refresh_from_db()
    assert session.metadata == metadata


def test_metadata_over_the_limit_is_too_large(settings):
    settings.AGENTCORE = {"MAX_INPUT_BYTES": 20}
    assert sessions.checked_metadata({"a": "x" * 10})
    with pytest.raises(TooLarge):
        sessions.checked_metadata({"a": "x" * 20})


@pytest.mark.django_db
@pytest.mark.parametrize(
    "wrong",
    [
        {"message": "a\x00b"},
        {"message": ""},
        {"message": "hi", "idempotency_key": ""},
        {"message": "hi", "metadata": {"a": "\x00"}},
        {"message": "hi", "metadata": [1]},
    ],
)
def test_a_refused_turn_stores_nothing(wrong, make_session):
    session = make_session()
    before = SessionEvent.objects.count()
    with pytest.raises(InvalidInput):
        runtime.enqueue(session.session_id, **wrong)
    assert not AgentContext.objects.exists()
    assert SessionEvent.objects.count() == before


@pytest.mark.django_db
@pytest.mark.parametrize(
    "wrong",
    [
        {"max_steps": 0},
        {"max_steps": "3"},
        {"max_steps": True},
        {"timeout": 0},
        {"timeout": -1},
        {"timeout": "5"},
        {"timeout": True},
        {"timeout": float("inf")},
        {"timeout": float("nan")},
        {"initial_context": []},
        {"initial_context": {"a\x00": 1}},
        {"initial_context": {"": 1}},
        {"initial_context": {"k" * 256: 1}},
        {"session_id": "NOT AN ID"},
        {"metadata": {1: 2}},
        {"idempotency_key": ""},
    ],
    ids=str,
)
def test_a_refused_execute_stores_nothing(wrong, scripted):
    provider = scripted(["never asked"])
    with pytest.raises(InvalidInput):
        runtime.execute(TESTING_AGENT, "hi", **wrong)
    assert not AgentSession.objects.exists()
    assert not AgentContext.objects.exists()
    assert provider.call_count == 0


@pytest.mark.django_db
def test_initial_context_is_stored_and_shown_to_the_model(scripted):
    provider = scripted(["ok"])
    runtime.execute(TESTING_AGENT, "hi", initial_context={"customer": {"id": 7}, "k" * 255: "é😀"})
    assert dict(ContextEntry.objects.values_list("key", "value")) == {"customer": {"id": 7}, "k" * 255: "é😀"}
    assert '"customer":{"id":7}' in provider.requests[0].messages[0].content


@pytest.mark.django_db
@pytest.mark.parametrize("session_id", ["a\x00b", "\ud83d", "x" * 10_000, "", "é", None, 1])
def test_a_session_id_that_cannot_be_is_not_found(session_id):
    with pytest.raises(NotFound):
        runtime.enqueue(session_id, "hi")
    with pytest.raises(NotFound):
        runtime.cancel(session_id)


@pytest.mark.django_db
@pytest.mark.parametrize("execution_id", ["", "x", "a\x00b", None, 1, "00000000-0000-0000-0000-000000000000"])
def test_an_execution_id_that_cannot_be_is_not_found(execution_id):
    with pytest.raises(NotFound):
        runtime.result(execution_id)


@pytest.mark.django_db
@pytest.mark.parametrize("approval_id", [0, -1, 2**70, "x", None, "a\x00b", 1.5])
def test_an_approval_id_that_cannot_be_is_not_found(approval_id, django_user_model):
    user = django_user_model.objects.create_user("somebody")
    with pytest.raises(NotFound):
        runtime.approve(approval_id, user)
