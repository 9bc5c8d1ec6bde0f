"""One's own memories over HTTP: list, search, correct, delete, take along, erase."""

import pytest

from agentcore.exceptions import EmbedderFailed
from agentcore.memory import Item, Owner, Source, current
from agentcore.models import Memory, Vector
from agentcore.testing import make_session, make_user
from agentcore.vectors.exact import ExactIndex
from agentcore.vectors.hashing import HashingEmbedder
from tests.integration.api import VIEW_ALL, browser_of, client_of, queries_of, with_csrf

pytestmark = pytest.mark.django_db

FIELDS = [
    "id",
    "kind",
    "text",
    "data",
    "kept_to",
    "agent",
    "count",
    "execution_id",
    "told_in",
    "created_at",
    "updated_at",
    "told_at",
    "corrected_at",
    "expires_at",
]


@pytest.fixture
def owner():
    return make_user("owner")


@pytest.fixture
def client(owner):
    return client_of(owner)


def know(user, *texts, kind="fact", **data):
    items = [Item(kind=kind, text=text, data=data) for text in texts]
    return [kept.id for kept in current().remember(Owner.of_user(user), items, source=Source())]


def of(memory_id):
    return f"/api/memory/{memory_id}/"


def test_a_memory_is_shown_with_all_there_is_of_it(client, owner):
    session = make_session(user=owner)
    item = Item(kind="working_memory", text="basket: 3", data={"key": "basket", "value": 3})
    [kept] = current().remember(
        Owner.of_session(session), [item], source=Source(session_id="s-1", agent_pk=session.agent_id)
    )
    answer = client.get(of(kept.id))
    assert answer.status_code == 200
    assert list(answer.data) == FIELDS
    shown = answer.json()
    assert (shown["kind"], shown["text"], shown["data"]) == (
        "working_memory",
        "basket: 3",
        {"key": "basket", "value": 3},
    )
    assert (shown["kept_to"], shown["told_in"], shown["agent"]) == (session.session_id, "s-1", session.agent.name)
    assert (shown["count"], shown["execution_id"], shown["corrected_at"]) == (1, None, None)
    assert shown["expires_at"] > shown["told_at"]


def test_the_list_is_ones_own_newest_first_and_by_kind(client, owner):
    know(owner, "one", "two")
    know(owner, "said", kind="conversation", role="user")
    know(make_user(), "theirs")
    assert [row["text"] for row in client.get("/api/memory/").json()["results"]] == ["said", "two", "one"]
    assert [row["text"] for row in client.get("/api/memory/?kind=fact").json()["results"]] == ["two", "one"]
    assert client.get("/api/memory/?kind=secret").status_code == 400
    # Not even who may see all sessions sees another's memories.
    assert client_of(make_user(permissions=(VIEW_ALL,))).get("/api/memory/").json()["results"] == []


def test_the_list_takes_as_many_queries_for_many(client, owner):
    know(owner, "one")
    few = queries_of(lambda: client.get("/api/memory/"), rows=1)
    know(owner, *(f"fact {number}" for number in range(20)))
    assert queries_of(lambda: client.get("/api/memory/"), rows=21) == few


@pytest.mark.parametrize("name", ["buffer", "vector", "hybrid"])
def test_a_search_finds_ones_own_with_scores_best_first(client, owner, settings, name):
    settings.AGENTCORE = {"MEMORY_BACKEND": name}
    know(make_user(), "The user likes tea very much.")
    know(owner, "The user likes tea.", "The car is grey.")
    found = client.get("/api/memory/search/?q=TEA+user&limit=1").json()["results"]
    assert [row["text"] for row in found] == ["The user likes tea."]
    assert list(found[0]) == [*FIELDS, "score"]
    assert (found[0]["score"] is None) is (name == "buffer")


@pytest.mark.parametrize("name", ["buffer", "vector", "hybrid"])
def test_a_search_for_a_kind_finds_it_behind_any_number_of_others(client, owner, settings, name):
    settings.AGENTCORE = {"MEMORY_BACKEND": name}
    know(owner, "The order of the user is 12345.")
    know(owner, *(f"order order order {number}" for number in range(60)), kind="conversation", role="user")
    for limit in (1, 50):
        found = client.get(f"/api/memory/search/?q=order&kind=fact&limit={limit}").json()["results"]
        assert [row["text"] for row in found] == ["The order of the user is 12345."]
    assert client.get("/api/memory/search/?q=order&kind=event").json()["results"] == []
    assert len(client.get("/api/memory/search/?q=order&kind=&limit=50").json()["results"]) == 50


def test_a_search_for_words_that_nothing_has_finds_nothing(client, owner):
    know(owner, "The user likes tea.")
    assert client.get("/api/memory/search/?q=zebra").json()["results"] == []


@pytest.mark.parametrize(
    "query", ["", "q=", "q=%20", f"q={'x' * 4001}", "q=x&limit=0", "q=x&limit=51", "q=x&limit=y", "q=x&kind=y"]
)
def test_a_search_for_nothing_or_too_much_is_refused(client, query):
    answer = client.get(f"/api/memory/search/?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_input")


def test_a_search_without_its_embedder_is_unavailable(client, owner, settings, monkeypatch):
    settings.AGENTCORE = {"MEMORY_BACKEND": "vector"}
    know(owner, "tea")

    def fail(self, texts):
        raise EmbedderFailed("away")

    monkeypatch.setattr(HashingEmbedder, "embed", fail)
    answer = client.get("/api/memory/search/?q=tea")
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")


def test_without_the_index_nothing_is_done_by_halves(client, owner, settings, monkeypatch):
    settings.AGENTCORE = {"MEMORY_BACKEND": "vector"}
    [pk] = know(owner, "tea")

    def fail(self, *args, **options):
        raise ConnectionError("secret-host:6333")

    for verb in ("put", "remove", "search"):
        monkeypatch.setattr(ExactIndex, verb, fail)
    for answer in (
        client.get("/api/memory/search/?q=tea"),
        client.patch(of(pk), {"text": "coffee"}),
        client.delete(of(pk)),
        client.delete("/api/memory/"),
    ):
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        assert "secret-host" not in answer.content.decode()
    assert Memory.objects.get().text == "tea"
    assert Vector.objects.get().item == pk


def test_a_memory_that_is_deleted_while_it_is_corrected_does_not_exist(client, owner, monkeypatch):
    [pk] = know(owner, "tea")
    monkeypatch.setattr(ExactIndex, "remove", lambda self, *args: Memory.objects.all().delete())
    answer = client.patch(of(pk), {"text": "coffee"})
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_a_memory_is_corrected(client, owner):
    [pk] = know(owner, "The user lives in Paris.")
    answer = client.patch(of(pk), {"text": "  The user lives in Rome. ", "data": {"since": 2020}})
    assert answer.status_code == 200
    assert (answer.json()["text"], answer.json()["data"]) == ("The user lives in Rome.", {"since": 2020})
    assert answer.json()["corrected_at"] is not None
    assert client.get(of(pk)).json() == answer.json()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"text": ""}, 400),
        ({"text": " "}, 400),
        ({"text": 5}, 400),
        ({"text": "a\0b"}, 400),
        ({"text": "x" * 4001}, 413),
        ({"data": []}, 400),
        ({"data": {"x": "y" * 20_000}}, 400),
        ({"kind": "event"}, 400),
        ({"user": 1, "owner": 2}, 400),
        ({"text": "THE user   likes coffee."}, 409),
    ],
)
def test_a_bad_correction_changes_nothing(client, owner, body, status):
    pk, _ = know(owner, "The user likes tea.", "The user likes coffee.")
    before = client.get(of(pk)).json()
    answer = client.patch(of(pk), body)
    assert answer.status_code == status
    assert client.get(of(pk)).json() == before


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("entity", {"name": "7", "type": "order", "attributes": [1]}),
        ("entity", {"name": "7", "type": "order", "attributes": "red"}),
        ("entity", {"name": "7"}),
        ("conversation", {"role": 5}),
        ("conversation", {"role": None}),
    ],
)
def test_a_correction_that_its_kind_cannot_hold_changes_nothing(client, owner, kind, data):
    held = {"entity": {"name": "7", "type": "order"}, "conversation": {"role": "user"}}[kind]
    item = Item(kind=kind, text="order 7", data=held)
    [kept] = current().remember(Owner.of_user(owner), [item], source=Source())
    answer = client.patch(of(kept.id), {"data": data})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_input")
    assert client.get(of(kept.id)).json()["data"] == held


def test_a_memory_is_deleted_once(client, owner):
    [pk] = know(owner, "tea")
    assert client.delete(of(pk)).status_code == 204
    assert client.delete(of(pk)).status_code == 404
    assert not Memory.objects.exists()


@pytest.mark.parametrize("memory_id", ["0", "x", "-1", "9" * 30, "1.5", "%00", "²"])
def test_what_is_no_id_does_not_exist(client, memory_id):
    answer = client.get(of(memory_id))
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_all_is_taken_along_oldest_first(client, owner):
    know(owner, *(f"fact {number}" for number in range(3)))
    know(make_user(), "theirs")
    told = client.get("/api/memory/export/").json()
    assert told["user"] == "owner"
    assert told["exported_at"]
    assert [row["text"] for row in told["memories"]] == ["fact 0", "fact 1", "fact 2"]
    assert list(told["memories"][0]) == FIELDS


def test_all_is_erased_and_nothing_of_anothers(client, owner):
    know(owner, "one", "two")
    know(make_user(), "theirs")
    answer = client.delete("/api/memory/")
    assert (answer.status_code, answer.json()) == (200, {"erased": 2})
    assert client.delete("/api/memory/").json() == {"erased": 0}
    assert Memory.objects.get().text == "theirs"


def test_a_browser_erases_with_its_token_only(owner):
    know(owner, "one")
    browser = browser_of(owner)
    assert browser.delete("/api/memory/").status_code == 403
    assert Memory.objects.exists()
    assert browser.delete("/api/memory/", **with_csrf(browser)).status_code == 200
