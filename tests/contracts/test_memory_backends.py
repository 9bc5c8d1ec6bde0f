"""What every memory backend does alike: whose memories it finds, that each is kept once, and that they end."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from io import StringIO
from uuid import uuid4

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import AnonymousUser
from django.core.management import call_command
from django.db import connections

from agentcore.exceptions import Conflict, InvalidInput, NotFound
from agentcore.memory import (
    Item,
    MemoryKind,
    Owner,
    Recalled,
    Shown,
    Source,
    current,
    keeping,
    searching,
    store,
    vector,
    words,
)
from agentcore.memory.buffer import BufferMemory
from agentcore.memory.hybrid import HybridMemory
from agentcore.memory.vector import VectorMemory
from agentcore.models import Memory, Vector
from agentcore.testing import make_session, make_user
from agentcore.vectors import Embedder, reembedding
from agentcore.vectors.hashing import HashingEmbedder
from tests.contracts.memories import BACKENDS, NOWHERE, fact, said, session_owner, texts, user_owner

pytestmark = pytest.mark.django_db

PIN = "The PIN is 4711."


@pytest.fixture(params=sorted(BACKENDS))
def backend(request, settings):
    settings.AGENTCORE = {"MEMORY_BACKEND": request.param}
    return BACKENDS[request.param]()


# Whose it is


def test_mem_01_another_users_memories_never_appear(backend):
    mine, theirs = make_user("mine"), make_user("theirs")
    backend.remember(user_owner(theirs), [fact(PIN), said("PIN")], source=NOWHERE)
    backend.remember(user_owner(mine), [fact("The PIN is in the safe.")], source=NOWHERE)
    session = make_session(user=mine)
    for owner in (user_owner(mine), Owner.of_session(session)):
        assert texts(backend, owner, "PIN") == ["The PIN is in the safe."]
        assert texts(backend, owner, PIN) == ["The PIN is in the safe."]


def test_mem_01_what_two_users_say_in_the_same_words_is_two_memories(backend):
    mine, theirs = user_owner(), user_owner()
    for owner in (mine, theirs):
        backend.remember(owner, [fact(PIN)], source=NOWHERE)
    assert Memory.objects.count() == 2
    [found] = backend.recall(mine, "PIN", limit=5)
    assert found.id == Memory.objects.get(user_id=mine.user_id).pk


@pytest.mark.parametrize("nobody", [None, AnonymousUser()], ids=["none", "anonymous"])
def test_mem_01_who_is_nobody_finds_and_keeps_nothing(backend, nobody):
    backend.remember(user_owner(), [fact(PIN)], source=NOWHERE)
    backend.remember(session_owner(), [fact(PIN)], source=NOWHERE)
    owner = Owner.of_user(nobody)
    assert texts(backend, owner, "PIN") == []
    with pytest.raises(InvalidInput, match="a user or a session"):
        backend.remember(owner, [fact("mine")], source=NOWHERE)
    assert Memory.objects.count() == 2


def test_mem_01_a_session_without_a_user_has_its_own_and_nothing_else(backend):
    one, other, user = session_owner(), session_owner(), make_user()
    backend.remember(one, [fact(PIN)], source=NOWHERE)
    backend.remember(user_owner(user), [fact("The PIN of a user is 1.")], source=NOWHERE)
    assert texts(backend, one, "PIN") == [PIN]
    assert texts(backend, other, "PIN") == []
    assert texts(backend, session_owner(user), "PIN") == ["The PIN of a user is 1."]


def test_mem_01_a_session_whose_user_was_deleted_is_nobodys(backend):
    user = make_user()
    session = make_session(user=user)
    backend.remember(Owner.of_session(session), [fact(PIN), fact("PIN here", only_here=True)], source=NOWHERE)
    user.delete()
    session.refresh_from_db()
    assert texts(backend, Owner.of_session(session), "PIN") == []
    assert keeping.forget_over() == 2
    assert not Memory.objects.exists()


def test_what_is_kept_to_a_session_is_found_there_and_on_its_users_own_page(backend):
    user = make_user()
    here, there = session_owner(user), session_owner(user)
    note = Item(kind=MemoryKind.WORKING_MEMORY, text="basket: 3 apples", data={"key": "basket", "value": 3})
    backend.remember(here, [note, fact("PIN only here", only_here=True), fact("PIN everywhere")], source=NOWHERE)
    assert set(texts(backend, here, "PIN basket apples")) == {"basket: 3 apples", "PIN only here", "PIN everywhere"}
    assert texts(backend, there, "PIN basket apples") == ["PIN everywhere"]
    assert len(texts(backend, user_owner(user), "PIN basket apples")) == 3


def test_mem_03_a_users_one_memory_is_found_among_a_thousand_of_anothers(backend):
    many, one = user_owner(), user_owner()
    backend.remember(many, [fact(f"The parcel number {number} is late.") for number in range(1_000)], source=NOWHERE)
    backend.remember(one, [fact("The parcel is late.")], source=NOWHERE)
    assert texts(backend, one, "parcel late") == ["The parcel is late."]
    assert len(texts(backend, many, "parcel late")) == 5


# Each thing once


def test_mem_06_the_same_told_again_is_counted_and_stays_one_row(backend, clock):
    owner = user_owner()
    for number, text in enumerate(["I like tea.", "I  like tea.", "i LIKE tea."]):
        clock.advance(timedelta(hours=1))
        [kept] = backend.remember(owner, [fact(text)], source=Source(execution_id=uuid4(), session_id=f"s{number}"))
        assert kept.is_new is (number == 0)
    row = Memory.objects.get()
    assert (row.text, row.count, row.told_in) == ("I like tea.", 3, "s2")
    assert timedelta(hours=2) <= row.seen_at - row.created_at < timedelta(hours=2, minutes=1)
    assert texts(backend, owner, "tea") == ["I like tea."]


def test_mem_06_a_turn_that_is_remembered_twice_counts_once(backend):
    owner, source = user_owner(), Source(execution_id=uuid4(), session_id="s")
    for _ in range(2):
        backend.remember(owner, [said("hello"), said("Hi.", "assistant"), said("hello")], source=source)
    assert sorted(Memory.objects.values_list("text", "count")) == [("Hi.", 1), ("hello", 1)]


@pytest.mark.django_db(transaction=True)
def test_mem_06_ten_jobs_at_once_store_one_row(backend):
    owner = user_owner()

    def job(number):
        try:
            return backend.remember(owner, [fact(PIN), fact("other")], source=Source(execution_id=uuid4()))
        finally:
            connections.close_all()

    with ThreadPoolExecutor(10) as pool:
        kept = list(pool.map(job, range(10)))
    assert sum(item.is_new for items in kept for item in items) == 2
    assert sorted(Memory.objects.values_list("text", "count")) == [(PIN, 10), ("other", 10)]
    assert PIN in texts(backend, owner, PIN)


def test_what_is_told_later_of_a_thing_is_added_to_it(backend):
    owner = user_owner()
    for attributes in ({"state": "open", "city": "Rome"}, {"state": "sent"}):
        item = Item(
            kind=MemoryKind.ENTITY,
            text=f"order 77 ({attributes['state']})",
            data={"name": "77", "type": "order", "attributes": attributes},
        )
        backend.remember(owner, [item], source=Source(execution_id=uuid4()))
    [found] = backend.recall(owner, "order 77", limit=5)
    assert found.text == "order 77 (sent)"
    assert found.data == {"name": "77", "type": "order", "attributes": {"state": "sent", "city": "Rome"}}


def test_what_is_told_twice_of_a_thing_at_once_is_added_up(backend):
    owner = user_owner()
    backend.remember(
        owner, [order(state="open", city="Rome"), said("hello"), order(state="sent"), order()], source=NOWHERE
    )
    [found] = [item for item in backend.recall(owner, "order 77", limit=5) if item.kind == MemoryKind.ENTITY]
    assert found.data == {"name": "77", "type": "order", "attributes": {"state": "sent", "city": "Rome"}}
    assert Memory.objects.get(kind=MemoryKind.ENTITY).count == 1


def test_more_than_a_memory_holds_of_a_thing_leaves_what_was_told_last(backend):
    owner = user_owner()
    for attributes in ({"old": "x" * 9_000}, {"new": "y" * 9_000}):
        backend.remember(owner, [order(**attributes)], source=Source(execution_id=uuid4()))
    [found] = backend.recall(owner, "order 77", limit=5)
    assert found.data["attributes"] == {"new": "y" * 9_000}


def order(**attributes):
    return Item(kind=MemoryKind.ENTITY, text="order 77", data={"name": "77", "type": "order", "attributes": attributes})


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        (Item(kind="secret", text="x"), "it can be conversation, entity, fact, working_memory, event"),
        (fact("  "), "text is empty"),
        (fact("x", data={"n": float("nan")}), "data cannot be stored"),
        (fact("x", data={"n": "y" * 20_000}), "data is over"),
        (Item(kind="entity", text="x", data={"name": "x"}), "needs type"),
        (Item(kind="working_memory", text="x"), "needs key"),
        (Item(kind="entity", text="x", data={"name": "x", "type": "y", "attributes": [1]}), "attributes .* an object"),
        (Item(kind="entity", text="x", data={"name": "x", "type": "y", "attributes": "z"}), "attributes .* an object"),
        (Item(kind="conversation", text="x", data={"role": 5}), "role .* a text"),
    ],
)
def test_what_cannot_be_kept_is_refused_and_nothing_is_kept(backend, item, problem):
    with pytest.raises(InvalidInput, match=problem):
        backend.remember(user_owner(), [fact("fine"), item], source=NOWHERE)
    assert not Memory.objects.exists()


def test_text_of_any_kind_is_kept_and_what_is_too_long_is_cut(backend):
    owner = user_owner()
    backend.remember(owner, [fact("a\0b \ud800 '\"\\%s é 漢 😀"), fact("long " * 2_000)], source=NOWHERE)
    short, long = sorted(Memory.objects.values_list("text", flat=True), key=len)
    assert short == "a\ufffdb \ufffd '\"\\%s é 漢 😀"
    assert (len(long), long[-1]) == (4_000, "…")


# What is found


def test_no_more_is_found_than_was_asked_for_and_what_is_shown_already_is_left_out(backend):
    user = make_user()
    here = session_owner(user)
    told = Source(execution_id=uuid4(), session_id=here.session_id)
    backend.remember(here, [said(f"tea with lemon {number}") for number in range(200)], source=told)
    backend.remember(here, [fact("Tea is what they like.")], source=told)
    assert len(texts(backend, here, "tea", limit=3)) == 3
    shown = Shown(session_id=here.session_id, kinds=("conversation",))
    assert texts(backend, here, "tea", shown=shown) == ["Tea is what they like."]
    everything = Shown(session_id=here.session_id, kinds=("conversation", "fact"))
    assert texts(backend, here, "tea", shown=everything) == []


@pytest.mark.parametrize("query", ["", "   ", "\0", "%s '; DROP TABLE", "漢" * 9_000])
def test_any_text_can_be_asked_for(backend, query):
    owner = user_owner()
    backend.remember(owner, [fact("Tea is what they like.")], source=NOWHERE)
    assert len(texts(backend, owner, query)) <= 1


def test_what_has_expired_is_not_found_and_then_deleted(backend, settings, clock):
    settings.AGENTCORE = {**settings.AGENTCORE, "MEMORY": {"expires_in": {"fact": timedelta(days=1), "event": None}}}
    owner = user_owner()
    backend.remember(owner, [fact("tea")], source=NOWHERE)
    backend.remember(owner, [Item(kind="event", text="tea was bought"), said("tea")], source=NOWHERE)
    clock.advance(timedelta(days=2))
    assert set(texts(backend, owner, "tea")) == {"tea was bought", "tea"}
    assert keeping.forget_over() == 1
    clock.advance(timedelta(days=400))
    assert texts(backend, owner, "tea") == ["tea was bought"]
    assert keeping.forget_over() == 1
    backend.remember(owner, [fact("tea")], source=NOWHERE)
    assert len(texts(backend, owner, "tea")) == 2


def test_what_is_told_again_lasts_from_then_on(backend, settings, clock):
    settings.AGENTCORE = {**settings.AGENTCORE, "MEMORY": {"expires_in": {"fact": timedelta(days=2)}}}
    owner = user_owner()
    for _ in range(3):
        backend.remember(owner, [fact("tea")], source=Source(execution_id=uuid4()))
        clock.advance(timedelta(days=1))
    assert texts(backend, owner, "tea") == ["tea"]


# What a person who searches finds


class Recalling(BufferMemory):
    """A backend of a project's with a recall of its own that knows no kinds."""

    def recall(self, owner, query, *, limit, shown=None):
        rows = Memory.objects.of(owner).not_shown(shown).filter(text__contains=query).newest_first()
        return [Recalled.of(row) for row in rows[:limit]]


class Looking(Recalling):
    """One that looks otherwise for a person."""

    def look_up(self, owner, query, *, limit, kind=None):
        rows = Memory.objects.of(owner).of_kind(kind).filter(text=query)
        return [Recalled.of(row, 1.0) for row in rows[:limit]]


class Alone:
    """One that has no more than it must."""

    recall = Recalling.recall
    remember = BufferMemory.remember


def found_by(owner, query, limit=50, **options):
    return [memory.text for memory, _ in keeping.search(owner, query, limit=limit, **options)]


@pytest.fixture(params=[*sorted(BACKENDS), f"{__name__}.Recalling"])
def name(request, settings):
    settings.AGENTCORE = {"MEMORY_BACKEND": request.param}
    return request.param


def test_a_search_for_a_kind_looks_among_that_kind_alone_however_many_others_there_are(name, monkeypatch):
    monkeypatch.setattr(vector, "MOST", 20)
    backend, mine = current(), user_owner()
    backend.remember(user_owner(), [fact("The order of another is 77.")], source=NOWHERE)
    backend.remember(mine, [fact("The order of the user is 12345.")], source=NOWHERE)
    backend.remember(mine, [said(f"order order order {number}") for number in range(90)], source=NOWHERE)
    assert found_by(mine, "order", kind="fact") == ["The order of the user is 12345."]
    assert found_by(mine, "order", limit=1, kind="fact") == ["The order of the user is 12345."]
    assert len(found_by(mine, "order", kind="conversation")) == 50
    assert found_by(mine, "order", kind="event") == []
    assert len(found_by(mine, "order")) == 50


def test_a_search_for_a_kind_that_there_is_not_is_refused(name):
    with pytest.raises(InvalidInput, match="it can be conversation, entity, fact, working_memory, event"):
        found_by(user_owner(), "order", kind="secret")


def test_a_search_finds_ones_own_in_every_session_and_nothing_that_is_over(name, clock):
    user = make_user()
    current().remember(session_owner(user), [fact("tea here", only_here=True), fact("tea everywhere")], source=NOWHERE)
    current().remember(user_owner(user), [said("tea for now")], source=NOWHERE)
    current().remember(user_owner(), [fact("tea of another")], source=NOWHERE)
    clock.advance(timedelta(days=100))
    assert set(found_by(user_owner(user), "tea")) == {"tea here", "tea everywhere"}
    assert found_by(Owner(), "tea") == []
    assert found_by(user_owner(user), "  ") == []


@pytest.mark.parametrize("query", ["\0", "%", "_", "%s '; DROP TABLE", "漢" * 9_000])
def test_any_text_can_be_searched_for(backend, query):
    owner = user_owner()
    backend.remember(owner, [fact("Tea is what they like.")], source=NOWHERE)
    assert len(found_by(owner, query)) <= 1


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("tea", ["green TEA", "Tea with lemon"]),
        ("LEMON tea", ["Tea with lemon"]),
        ("äPFEL", ["Grüne Äpfel"]),
        ("strasse 50%", ["50% in der Straße"]),
        ("A\u0308pfel gru\u0308ne", ["Grüne Äpfel"]),
        ("pfel", ["Grüne Äpfel"]),
        ("apfel", []),
        ("5_%", []),
        ("tea zebra", []),
        ("zebra", []),
    ],
)
def test_without_vectors_a_search_finds_what_has_all_the_words_in_any_case_newest_first(settings, clock, query, found):
    settings.AGENTCORE = {"MEMORY_BACKEND": "buffer"}
    owner = user_owner()
    for text in ("Tea with lemon", "Grüne Äpfel", "50% in der Straße", "500 in the street", "green TEA"):
        current().remember(owner, [fact(text)], source=NOWHERE)
        clock.advance(timedelta(minutes=1))
    assert found_by(owner, query) == found
    # A turn is shown the newest all the same.
    assert texts(current(), owner, query, limit=1) == ["green TEA"]


def test_words_are_looked_for_page_by_page(settings, monkeypatch, clock):
    settings.AGENTCORE = {"MEMORY_BACKEND": "buffer"}
    monkeypatch.setattr(words, "PAGE", 2)
    owner = user_owner()
    for minute in range(3):
        told = [fact(f"{'tea' if number % 2 else 'coffee'} {minute}{number}") for number in range(5)]
        current().remember(owner, told, source=NOWHERE)
        clock.advance(timedelta(minutes=1))
    assert found_by(owner, "tea") == ["tea 23", "tea 21", "tea 13", "tea 11", "tea 03", "tea 01"]
    assert found_by(owner, "tea", limit=3) == ["tea 23", "tea 21", "tea 13"]


def test_what_is_near_and_what_has_the_words_are_found_together_and_the_words_without_the_embedder(
    settings, monkeypatch
):
    settings.AGENTCORE = {"MEMORY_BACKEND": "hybrid"}
    owner = user_owner()
    HybridMemory().remember(owner, [fact("The user likes green tea."), fact("The car is grey.")], source=NOWHERE)
    BufferMemory().remember(owner, [fact("Tea without a vector"), said("green tea, too")], source=NOWHERE)
    assert set(found_by(owner, "tea", kind="fact")) == {"The user likes green tea.", "Tea without a vector"}
    monkeypatch.setattr(HashingEmbedder, "compute", lambda self, texts: 1 / 0)
    assert found_by(owner, "green tea") == ["green tea, too", "The user likes green tea."]
    assert found_by(owner, "zebra") == []


def test_a_backend_of_the_projects_is_asked_by_its_own_recall_unless_it_looks_up(settings):
    owner = user_owner()
    BufferMemory().remember(owner, [fact("tea"), fact("green tea"), said("tea")], source=NOWHERE)
    for backend, found in ((Recalling(), ["tea", "green tea"]), (Alone(), ["tea", "green tea"]), (Looking(), ["tea"])):
        asked = searching.look_up(backend, owner, "tea", limit=5, kind="fact")
        assert sorted(item.text for item in asked) == sorted(found)
    settings.AGENTCORE = {"MEMORY_BACKEND": f"{__name__}.Looking"}
    assert [(memory.kind, score) for memory, score in keeping.search(owner, "tea", limit=5, kind="fact")] == [
        ("fact", 1.0)
    ]


# What an owner does with them


def test_a_memory_that_is_corrected_is_found_by_its_new_words(backend):
    owner = user_owner()
    [kept] = backend.remember(owner, [fact("The user lives in Paris.")], source=NOWHERE)
    corrected = keeping.correct(keeping.get(owner, kept.id), text="The user lives in Nairobi.")
    assert corrected.corrected_at is not None
    assert texts(backend, owner, "Nairobi") == ["The user lives in Nairobi."]
    # Told again as it was, it is another memory; as it is now, the same.
    backend.remember(owner, [fact("The user lives in Nairobi.")], source=NOWHERE)
    assert Memory.objects.count() == 1


def test_a_correction_leaves_what_another_changed_since_the_memory_was_read(backend):
    owner = user_owner()
    [kept] = backend.remember(owner, [fact("The user lives in Paris.")], source=NOWHERE)
    of_text, of_data = (keeping.get(owner, kept.id) for _ in range(2))
    keeping.correct(of_text, text="The user lives in Nairobi.")
    corrected = keeping.correct(of_data, data={"since": 2025})
    stored = Memory.objects.get()
    for memory in (corrected, stored):
        assert (memory.text, memory.data) == ("The user lives in Nairobi.", {"since": 2025})
    # It is the same as what is told in these words, so that it is not kept twice.
    backend.remember(owner, [fact("The user lives in Nairobi.")], source=NOWHERE)
    assert Memory.objects.count() == 1


def test_what_is_told_of_a_thing_does_not_change_what_was_corrected_to_be_another(backend, monkeypatch):
    owner = user_owner()
    about = {"name": "Ada", "type": "person"}
    [kept] = backend.remember(owner, [Item(kind="entity", text="Ada, a person", data=about)], source=NOWHERE)
    count = store._count

    def correct_first(again):
        if again:
            keeping.correct(keeping.get(owner, kept.id), text="Bea, a person", data={**about, "name": "Bea"})
        count(again)

    monkeypatch.setattr(store, "_count", correct_first)
    backend.remember(owner, [Item(kind="entity", text="Ada lives in Oslo.", data=about)], source=NOWHERE)
    memory = Memory.objects.get()
    assert (memory.text, memory.data["name"]) == ("Bea, a person", "Bea")


@pytest.mark.parametrize("verb", ["forget", "renew"])
def test_a_memory_that_is_deleted_while_it_is_corrected_is_absent_and_leaves_nothing(backend, monkeypatch, verb):
    owner = user_owner()
    [kept] = backend.remember(owner, [fact("The user lives in Paris.")], source=NOWHERE)
    memory, work = keeping.get(owner, kept.id), getattr(type(backend), verb)
    is_first = iter([True])

    def delete_first(self, told):
        if next(is_first, False):
            keeping.delete(Memory.objects.get())
        work(self, told)

    monkeypatch.setattr(type(backend), verb, delete_first)
    with pytest.raises(NotFound, match="no such memory"):
        keeping.correct(memory, text="The user lives in Nairobi.")
    assert not Memory.objects.exists()
    assert vectors_kept() == 0
    assert [entry.action_flag for entry in LogEntry.objects.order_by("pk")].count(CHANGE) == (verb == "renew")


def test_of_two_corrections_at_once_the_one_that_holds_is_found_by_its_meaning(settings, monkeypatch):
    settings.AGENTCORE = {"MEMORY_BACKEND": "vector"}
    owner, backend = user_owner(), VectorMemory()
    [kept] = backend.remember(owner, [fact("The user lives in Paris.")], source=NOWHERE)
    work, is_first = VectorMemory.renew, iter([True])

    def correct_meanwhile(self, memory):
        if next(is_first, False):
            keeping.correct(keeping.get(owner, kept.id), text="The user lives in Oslo.")
        work(self, memory)

    monkeypatch.setattr(VectorMemory, "renew", correct_meanwhile)
    corrected = keeping.correct(keeping.get(owner, kept.id), text="The user lives in Nairobi.")
    assert corrected.text == Memory.objects.get().text == "The user lives in Oslo."
    [found] = backend.recall(owner, "The user lives in Oslo.", limit=1)
    assert found.score == pytest.approx(1.0)


def test_of_two_that_tell_a_thing_at_once_what_holds_is_found_by_its_meaning(settings, monkeypatch):
    settings.AGENTCORE = {"MEMORY_BACKEND": "vector"}
    owner, backend, work = user_owner(), VectorMemory(), HashingEmbedder.compute
    about = {"name": "Ada", "type": "person"}
    backend.remember(owner, [Item(kind="entity", text="Ada, a person", data=about)], source=NOWHERE)
    later = iter(["Ada lives in Oslo."])

    def tell_meanwhile(self, texts):
        for text in later:
            backend.remember(owner, [Item(kind="entity", text=text, data=about)], source=NOWHERE)
        return work(self, texts)

    monkeypatch.setattr(HashingEmbedder, "compute", tell_meanwhile)
    backend.remember(owner, [Item(kind="entity", text="Ada lives in Nairobi.", data=about)], source=NOWHERE)
    assert Memory.objects.get().text == "Ada lives in Oslo."
    [found] = backend.recall(owner, "Ada lives in Oslo.", limit=1)
    assert found.score == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["vector", "hybrid"])
def test_a_correction_without_the_embedder_is_kept_and_found_by_its_new_words_alone(
    name, settings, monkeypatch, caplog
):
    settings.AGENTCORE = {"MEMORY_BACKEND": name}
    owner = user_owner()
    kept, _ = BACKENDS[name]().remember(owner, [fact("The user lives in Paris."), fact("tea")], source=NOWHERE)
    with monkeypatch.context() as patch:
        patch.setattr(HashingEmbedder, "compute", lambda self, texts: 1 / 0)
        corrected = keeping.correct(keeping.get(owner, kept.id), text="The user lives in Nairobi.")
    assert corrected.text == Memory.objects.get(pk=kept.id).text == "The user lives in Nairobi."
    assert "agentcore_reembed" in caplog.text
    assert list(Vector.objects.exclude(item=kept.id).values_list("collection", flat=True)) == ["memory"]
    assert vectors_kept() == 1
    call_command("agentcore_reembed", "memory", stdout=StringIO(), stderr=StringIO())
    assert texts(BACKENDS[name](), owner, "Nairobi", limit=1) == ["The user lives in Nairobi."]


@pytest.mark.parametrize("name", ["vector", "hybrid"])
def test_a_search_over_all_looks_into_the_newest_sessions(name, settings, monkeypatch):
    settings.AGENTCORE = {"MEMORY_BACKEND": name}
    monkeypatch.setattr(vector, "MAX_SESSIONS", 2)
    user = make_user()
    for number in range(4):
        owner = session_owner(user)
        item = Item(kind="working_memory", text=f"colour number{number}", data={"key": "colour"})
        BACKENDS[name]().remember(owner, [item], source=NOWHERE)
    BACKENDS[name]().remember(Owner.of_user(user), [fact("colour of the car")], source=NOWHERE)
    found = VectorMemory().recall(Owner.of_user(user), "colour", limit=9)
    assert {item.text for item in found} == {"colour number2", "colour number3", "colour of the car"}


def test_a_memory_whose_correction_is_refused_is_found_as_before(backend):
    owner = user_owner()
    kept, _ = backend.remember(owner, [fact("The user lives in Paris."), fact("tea")], source=NOWHERE)
    before = vectors_kept()
    with pytest.raises(Conflict):
        keeping.correct(keeping.get(owner, kept.id), text="TEA")
    assert vectors_kept() == before
    assert "The user lives in Paris." in texts(backend, owner, "Paris")


def test_what_is_deleted_or_erased_is_gone_with_all_that_was_kept_beside_it(backend):
    mine, theirs = user_owner(), user_owner()
    for owner in (mine, theirs):
        backend.remember(owner, [fact("tea"), fact("coffee")], source=NOWHERE)
    keeping.delete(Memory.objects.get(user_id=mine.user_id, text="tea"))
    assert texts(backend, mine, "tea coffee") == ["coffee"]
    assert keeping.erase(mine) == 1
    assert texts(backend, mine, "coffee") == []
    assert len(texts(backend, theirs, "tea coffee")) == 2
    assert keeping.erase_of_user_key(theirs.user_key) == 2
    assert keeping.erase_of_user_key("") == 0
    assert vectors_kept() == 0


@pytest.mark.parametrize("moment", ["before the rows go", "after the rows went"])
def test_what_is_embedded_while_it_is_deleted_leaves_no_vector(
    settings, monkeypatch, django_capture_on_commit_callbacks, moment
):
    settings.AGENTCORE = {"MEMORY_BACKEND": "vector"}
    owner, work = user_owner(), keeping._delete_rows
    VectorMemory().remember(owner, [fact("tea")], source=NOWHERE)
    memory = Memory.objects.get()

    def renew_as_well(memories, message):
        if moment == "before the rows go":
            VectorMemory().renew(memory)
        work(memories, message)
        if moment == "after the rows went":
            VectorMemory().renew(memory)

    monkeypatch.setattr(keeping, "_delete_rows", renew_as_well)
    with django_capture_on_commit_callbacks(execute=True):
        keeping.erase(owner)
    assert vectors_kept() == 0


def test_vectors_of_what_is_gone_are_dropped_by_command_page_by_page(settings, monkeypatch):
    settings.AGENTCORE = {"MEMORY_BACKEND": "vector"}
    monkeypatch.setattr(reembedding, "PAGE", 2)
    owner = user_owner()
    told = [fact(f"tea number {number}") for number in range(9)]
    kept = [one.id for one in VectorMemory().remember(owner, told, source=NOWHERE)]
    gone = {kept[0], kept[3], kept[4], kept[5], kept[8]}
    # As a crash between the two would leave it.
    Memory.objects.filter(pk__in=gone).delete()
    out = StringIO()
    call_command("agentcore_reembed", "memory", stdout=out, stderr=StringIO())
    assert "5 vectors of what is gone were dropped." in out.getvalue()
    assert set(Vector.objects.values_list("item", flat=True)) == set(kept) - gone
    out = StringIO()
    call_command("agentcore_reembed", "memory", stdout=out, stderr=StringIO())
    assert "dropped" not in out.getvalue()


def vectors_kept() -> int:
    return Vector.objects.filter(collection="memory").count()


@pytest.mark.parametrize("name", ["vector", "hybrid"])
def test_mem_04_what_another_backend_or_embedder_left_is_kept_and_embedded_anew_by_command(name, settings):
    owner = user_owner()
    BACKENDS["buffer"]().remember(owner, [fact("The user likes tea."), fact("The car is grey.")], source=NOWHERE)
    settings.AGENTCORE = {"MEMORY_BACKEND": name}
    backend = BACKENDS[name]()
    newest = [] if name == "vector" else ["The car is grey."]
    assert texts(backend, owner, "likes tea", limit=1) == newest
    call_command("agentcore_reembed", "memory", stdout=StringIO(), stderr=StringIO())
    assert texts(backend, owner, "likes tea", limit=1) == ["The user likes tea."]
    settings.AGENTCORE = {"MEMORY_BACKEND": name, "EMBEDDER": f"{__name__}.Other"}
    assert texts(backend, owner, "likes tea", limit=1) == newest
    backend.remember(owner, [fact("The dog likes tea.")], source=NOWHERE)
    assert texts(backend, owner, "tea", limit=1) == ["The dog likes tea."]
    call_command("agentcore_reembed", "memory", stdout=StringIO(), stderr=StringIO())
    assert len(texts(backend, owner, "tea")) == 3
    assert Memory.objects.count() == 3


class Other(Embedder):
    """Another embedder, of another dimension."""

    id = "other"

    def compute(self, texts):
        return [[1.0, "tea" in text, len(text) / 1000, 0.1] for text in texts]
