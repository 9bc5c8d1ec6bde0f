"""The page of one's memories: it works without JavaScript, and what is another's does not exist."""

import json
import re

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from agentcore.exceptions import EmbedderFailed
from agentcore.memory import Item, Owner, Source, current
from agentcore.models import Memory, Vector
from agentcore.testing import make_user
from agentcore.vectors.exact import ExactIndex
from agentcore.vectors.hashing import HashingEmbedder

pytestmark = pytest.mark.django_db

LIST = "/memory/"
BAD = "</textarea><script>alert(1)</script>\u202e'\""


@pytest.fixture
def owner():
    return make_user("ada")


@pytest.fixture
def client(owner):
    client = Client()
    client.force_login(owner)
    return client


def know(user, *texts, kind="fact", **data):
    items = [Item(kind=kind, text=text, data=data) for text in texts]
    return [kept.id for kept in current().remember(Owner.of_user(user), items, source=Source())]


def body(answer):
    return answer.content.decode()


def every_page(pk):
    return [LIST, f"{LIST}{pk}/", f"{LIST}erase/", f"{LIST}?q=x", f"{LIST}999999/"]


def test_one_sees_ones_own_and_nothing_of_anothers(client, owner):
    know(owner, "I like tea.")
    [theirs] = know(make_user(), "top secret")
    assert "I like tea." in body(client.get(LIST))
    assert "top secret" not in body(client.get(LIST))
    for address in (f"{LIST}?q=top+secret", f"{LIST}export/"):
        assert "top secret" not in body(client.get(address)).replace('value="top secret"', "")
    absent = client.get(f"{LIST}999999/")
    for answer in (
        client.get(f"{LIST}{theirs}/"),
        client.post(f"{LIST}{theirs}/correct/", {"text": "mine now"}),
        client.post(f"{LIST}{theirs}/delete/"),
    ):
        assert answer.status_code == absent.status_code == 404
        assert "top secret" not in body(answer)
    assert Memory.objects.get(pk=theirs).text == "top secret"


def test_who_is_not_logged_in_is_sent_to_log_in(owner):
    [pk] = know(owner, "tea")
    for address in (LIST, f"{LIST}{pk}/", f"{LIST}export/", f"{LIST}erase/"):
        answer = Client().get(address)
        assert answer.status_code == 302
        assert answer.url == f"/accounts/login/?next={address}"
    for address in (f"{LIST}{pk}/correct/", f"{LIST}{pk}/delete/", f"{LIST}erase/"):
        assert Client().post(address, {"text": "x"}).url == f"/accounts/login/?next={LIST}"
    assert Memory.objects.get().text == "tea"


def test_a_memory_is_corrected_and_deleted_by_forms(client, owner):
    [pk] = know(owner, "The user lives in Paris.")
    assert "The user lives in Paris." in body(client.get(f"{LIST}{pk}/"))
    told = client.post(f"{LIST}{pk}/correct/", {"text": "The user lives\r\nin Rome."}, follow=True)
    assert "It is corrected." in body(told)
    assert Memory.objects.get().text == "The user lives\nin Rome."
    told = client.post(f"{LIST}{pk}/delete/", follow=True)
    assert "It is deleted." in body(told)
    assert "Nothing is remembered of you." in body(told)
    assert not Memory.objects.exists()


def test_a_bad_correction_says_why_and_keeps_what_was_written(client, owner):
    pk, _ = know(owner, "tea", "coffee")
    for text, status in (("", 400), ("COFFEE", 409), ("x" * 4001, 400)):
        answer = client.post(f"{LIST}{pk}/correct/", {"text": text})
        assert answer.status_code == status
        assert 'role="alert"' in body(answer)
        assert text[:50] in body(answer)
    assert Memory.objects.get(pk=pk).text == "tea"


def test_all_is_erased_after_a_question(client, owner):
    know(owner, "tea", "coffee")
    know(make_user(), "theirs")
    asked = client.get(f"{LIST}erase/")
    assert "2 memories are deleted for good." in body(asked)
    assert Memory.objects.count() == 3
    assert "2 memories are erased." in body(client.post(f"{LIST}erase/", follow=True))
    assert Memory.objects.get().text == "theirs"


def test_all_is_taken_along_as_a_file(client, owner):
    know(owner, "tea é")
    answer = client.get(f"{LIST}export/")
    assert answer["Content-Disposition"] == 'attachment; filename="memories.json"'
    told = json.loads(answer.content)
    assert (told["user"], [row["text"] for row in told["memories"]]) == ("ada", ["tea é"])


def test_what_changes_something_takes_post_with_the_token_only(owner):
    [pk] = know(owner, "tea")
    client = Client(enforce_csrf_checks=True)
    client.force_login(owner)
    for address in (f"{LIST}{pk}/correct/", f"{LIST}{pk}/delete/", f"{LIST}erase/"):
        assert client.post(address, {"text": "x"}).status_code == 403
    for address in (f"{LIST}{pk}/correct/", f"{LIST}{pk}/delete/"):
        assert client.get(address).url == LIST
        assert client.put(address).status_code in (403, 405)
    assert Memory.objects.get().text == "tea"
    page = body(client.get(f"{LIST}{pk}/"))
    token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page)[1]
    client.post(f"{LIST}{pk}/delete/", {"csrfmiddlewaretoken": token})
    assert not Memory.objects.exists()


def test_the_pages_hold_no_script_no_style_and_are_neither_framed_nor_cached(client, owner):
    [pk] = know(owner, BAD)
    for address in every_page(pk):
        answer = client.get(address)
        assert "<script" not in body(answer)
        assert "<style" not in body(answer)
        assert " style=" not in body(answer)
        assert not re.search(r"\son\w+=", body(answer))
        assert answer["X-Frame-Options"] == "DENY"
        assert "no-store" in answer["Cache-Control"]
        assert "default-src 'self'" in answer["Content-Security-Policy"]


def test_what_hides_in_a_memory_is_marked(client, owner):
    know(owner, "plain", "safe\u202egnp.exe")
    assert 'class="hidden-character"' in body(client.get(LIST))
    # A field shows no marks: the page of one has them below it.
    plain, hiding = (body(client.get(f"{LIST}{memory.pk}/")) for memory in Memory.objects.order_by("pk"))
    assert 'class="hidden-character"' in hiding.partition("data-part")[2]
    assert "hidden-character" not in plain


def test_one_searches_filters_and_turns_pages(client, owner):
    know(owner, *(f"fact number {number}" for number in range(60)))
    know(owner, "said something", kind="conversation", role="user")
    first = body(client.get(LIST))
    assert first.count("memory__about") == 50
    onwards = re.search(r'rel="next" href="([^"]+)"', first)[1].replace("&amp;", "&")
    assert body(client.get(LIST + onwards)).count("memory__about") == 11
    assert body(client.get(f"{LIST}?kind=conversation")).count("memory__about") == 1
    assert "fact number" in body(client.get(f"{LIST}?q=number"))
    for query in ("?kind=none", "?before=x", "?before=99999999999999999999", "?q=%00", "?kind=%00"):
        assert client.get(LIST + query).status_code == 200


@pytest.mark.parametrize("name", ["buffer", "vector", "hybrid"])
def test_a_search_for_a_kind_finds_it_behind_any_number_of_others(client, owner, settings, name):
    settings.AGENTCORE = {"MEMORY_BACKEND": name}
    know(owner, "The order of the user is 12345.")
    know(owner, *(f"order order order {number}" for number in range(60)), kind="conversation", role="user")
    page = body(client.get(f"{LIST}?q=order&kind=fact"))
    assert page.count("memory__about") == 1
    assert "The order of the user is 12345." in page
    assert body(client.get(f"{LIST}?q=order")).count("memory__about") == 50


def test_a_search_for_words_that_nothing_has_says_so(client, owner):
    know(owner, "The user likes tea.", "The car is grey.")
    page = body(client.get(f"{LIST}?q=zebra"))
    assert "Nothing of that is remembered." in page
    assert "memory__about" not in page
    assert body(client.get(f"{LIST}?q=TEA+user")).count("memory__about") == 1


def test_a_search_that_cannot_be_made_says_so(client, owner, settings, monkeypatch):
    settings.AGENTCORE = {"MEMORY_BACKEND": "vector"}
    know(owner, "tea")

    def fail(self, texts):
        raise EmbedderFailed("away")

    monkeypatch.setattr(HashingEmbedder, "embed", fail)
    answer = client.get(f"{LIST}?q=tea")
    assert answer.status_code == 503
    assert "cannot be searched just now" in body(answer)


def test_without_the_index_nothing_is_done_by_halves_and_the_page_says_so(client, owner, settings, monkeypatch):
    settings.AGENTCORE = {"MEMORY_BACKEND": "vector"}
    [pk] = know(owner, "tea")

    def fail(self, *args, **options):
        raise ConnectionError("secret-host:6333")

    for verb in ("put", "remove", "search"):
        monkeypatch.setattr(ExactIndex, verb, fail)
    one = f"{LIST}{pk}/"
    for answer, said in (
        (client.get(f"{LIST}?q=tea"), "cannot be searched just now"),
        (client.post(f"{one}correct/", {"text": "coffee"}), "The index ExactIndex failed"),
        (client.post(f"{one}delete/"), "cannot be deleted just now"),
        (client.post(f"{LIST}erase/"), "cannot be erased just now"),
    ):
        assert answer.status_code == 503
        assert said in body(answer)
        assert 'role="alert"' in body(answer)
        assert "secret-host" not in body(answer)
    assert Memory.objects.get().text == "tea"
    assert Vector.objects.get().item == pk
    assert not LogEntry.objects.exists()


def test_a_memory_that_is_deleted_while_it_is_corrected_is_missing(client, owner, settings, monkeypatch):
    [pk] = know(owner, "tea")
    monkeypatch.setattr(ExactIndex, "remove", lambda self, *args: Memory.objects.all().delete())
    assert client.post(f"{LIST}{pk}/correct/", {"text": "coffee"}).status_code == 404
