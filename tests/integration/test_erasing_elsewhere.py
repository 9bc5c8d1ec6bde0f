"""Erasing a user's data reaches what agentcore keeps beside the rows of sessions."""

import pytest

from agentcore import knowledge, memory, runtime, state
from agentcore.knowledge import Content
from agentcore.models import Document, Memory, Vector
from agentcore.testing import calls, make_user
from tests.redis_database import own_redis_database

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner():
    return make_user("jane-doe")


@pytest.mark.parametrize("backend", ["buffer", "vector", "hybrid"])
def test_memories_and_their_vectors_go_with_their_user(scripted, settings, owner, backend):
    settings.AGENTCORE = {"MEMORY_BACKEND": backend}
    other = make_user("somebody-else")
    scripted(["Noted.", "Noted, too."])
    runtime.execute("testing-agent", "My cat is called Tom.", user=owner)
    runtime.execute("testing-agent", "My dog is called Rex.", user=other)
    assert Memory.objects.filter(user=owner).count() == 2
    report = runtime.erase(owner)
    assert report.counts["memories"] == 2
    assert set(Memory.objects.values_list("user", flat=True)) == {other.pk}
    vectors = {item for _, item in Vector.objects.values_list("collection", "item")}
    assert vectors == (set() if backend == "buffer" else set(Memory.objects.values_list("pk", flat=True)))


def test_hot_copies_go_with_their_turns(scripted, settings, owner):
    settings.AGENTCORE = {"STATE_BACKEND": "memory"}
    scripted([calls(("lookup", {"q": "a"})), "Found."])
    result = runtime.execute("testing-agent", "look", user=owner)
    assert "step:1" in state.current().read(result.execution_id)
    report = runtime.erase(owner)
    assert report.counts["hot copies"] == 1
    assert state.current().read(result.execution_id) == {}


def test_documents_stay_and_their_adders_name_goes(owner):
    hours = Content(title="Opening hours", text="Open from nine to five.", media_type="text/plain")
    knowledge.ingest(hours, source="hours.txt", by=owner)
    assert runtime.erase(owner).counts["names on documents"] == 1
    [kept] = Document.objects.values_list("title", "user", "user_key", "user_name")
    assert kept == ("Opening hours", None, "", "")


def test_a_store_that_is_away_leaves_the_erasure_unfinished(scripted, settings, owner):
    scripted(["Hello."])
    runtime.execute("testing-agent", "hi", user=owner)
    settings.AGENTCORE = {"STATE_BACKEND": "redis", "REDIS_URL": "redis://127.0.0.1:1/0"}
    report = runtime.erase(owner)
    assert not report.is_complete
    assert list(report.failed) == ["hot copies"]
    settings.AGENTCORE = {}
    assert runtime.erase(owner).is_complete


@pytest.mark.services("redis")
def test_copies_go_from_redis_too_when_the_backend_is_another_by_now(scripted, settings, owner):
    with own_redis_database() as url:
        settings.AGENTCORE = {"STATE_BACKEND": "redis", "REDIS_URL": url}
        scripted([calls(("lookup", {"q": "a"})), "Found."])
        result = runtime.execute("testing-agent", "look", user=owner)
        settings.AGENTCORE = {"REDIS_URL": url}
        assert runtime.erase(owner).counts["hot copies"] == 1
        settings.AGENTCORE = {"STATE_BACKEND": "redis", "REDIS_URL": url}
        assert state.current().read(result.execution_id) == {}


def test_what_is_kept_to_a_deleted_session_is_not_shown_and_is_erased_all_the_same(settings, make_session, owner):
    session = make_session(user=owner)
    kept = memory.current().remember(
        memory.Owner.of_session(session),
        [memory.Item(kind="fact", text="Likes tea.", only_here=True), memory.Item(kind="fact", text="Is called Jane.")],
        source=memory.Source(session_id=session.session_id),
    )
    assert len(kept) == 2
    runtime.delete(session.session_id)
    shown = Memory.objects.of(memory.Owner.of_user(owner)).values_list("text", flat=True)
    assert list(shown) == ["Is called Jane."]
    assert runtime.erase(owner).counts["memories"] == 2
