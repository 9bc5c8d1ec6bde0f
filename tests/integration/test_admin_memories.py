"""Memories in the admin: staff read them, masked, and change none; the history tells what owners did."""

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model

from agentcore import runtime
from agentcore.memory import Item, Owner, Source, current, keeping
from agentcore.memory.extraction import entity
from agentcore.models import ContextEntry, Memory
from agentcore.testing import make_user
from agentcore.testing.agents import TESTING_AGENT
from tests.integration.admin_pages import Page, list_url, page_url, staff

pytestmark = pytest.mark.django_db

SECRET = "hunter2"


@pytest.fixture
def owner():
    return Owner.of_user(make_user("ada"))


def know(owner, *items):
    return [kept.id for kept in current().remember(owner, list(items), source=Source())]


def test_staff_see_who_what_and_when_with_secrets_masked(owner):
    know(
        owner,
        Item(kind="fact", text=f"The password of the user is {SECRET}."),
        Item(kind="entity", text="account 7", data={"name": "7", "type": "account", "attributes": {"api_key": SECRET}}),
        Item(kind="working_memory", text="a token", data={"key": "db_token", "value": SECRET}),
        Item(kind="fact", text=f"Her PIN is {SECRET}."),
        Item(kind="conversation", text="Pay with 4111 1111 1111 1111, please.", data={"role": "user"}),
        Item(
            kind="event",
            text="wrote it down",
            data={"note": f"the passcode is {SECRET}", "to": ["DE02120300000000202051"]},
        ),
        Item(kind="fact", text="The user likes tea."),
    )
    client = staff("agentcore.view_memory")
    pages = [client.get(list_url(Memory)), *(client.get(page_url(row)) for row in Memory.objects.all())]
    text = " ".join(Page(page).text for page in pages)
    assert "The user likes tea." in text
    assert "ada" in text
    assert "********" in text
    for secret in (SECRET, "4111", "DE0212"):
        assert all(secret not in page.content.decode() for page in pages)
    assert client.get(f"{list_url(Memory)}?q=ada").context["cl"].result_count == 7
    # What memories say cannot be searched for.
    assert client.get(f"{list_url(Memory)}?q=tea").context["cl"].result_count == 0


SECRETS = {
    "a key": Item(kind="working_memory", text=f"wm {SECRET}", data={"key": "pin", "value": SECRET}),
    "a key in humps": Item(kind="working_memory", text=f"wm {SECRET}", data={"key": "userPin", "value": SECRET}),
    "a type": entity("PIN", "secret", {"value": SECRET}),
    "a name": entity("my password", "thing", {"is": SECRET}),
    "an attribute": Item(
        kind="entity",
        text=f"the router opens with {SECRET}",
        data={"name": "router", "type": "thing", "attributes": {"password": SECRET}},
    ),
    "a part": Item(kind="fact", text=f"it is {SECRET}", data={"about": ["x", {"what": "the passcode", "is": SECRET}]}),
    "the text": Item(kind="event", text="Told her PIN.", data={"value": SECRET}),
}


@pytest.mark.parametrize("item", SECRETS.values(), ids=SECRETS)
def test_a_memory_of_which_one_part_names_a_secret_is_masked_in_text_and_data(owner, item, scripted):
    [told] = know(owner, item)
    client = staff("agentcore.view_memory", "agentcore.view_contextentry")
    scripted(["Noted."])
    runtime.execute(TESTING_AGENT, "What is it?", user=get_user_model().objects.get(pk=owner.user_id))
    [entry] = ContextEntry.objects.all()
    one = page_url(Memory.objects.get(pk=told))
    for address in (list_url(Memory), f"{list_url(Memory)}?q=ada", one, page_url(entry)):
        page = client.get(address).content.decode()
        assert "********" in page
        assert SECRET not in page


def test_a_turns_working_memory_is_masked_where_its_key_names_a_secret(scripted):
    scripted(["Noted."])
    runtime.execute(TESTING_AGENT, "Hello.", initial_context={"pin": SECRET, "basket": "3 apples"})
    client = staff("agentcore.view_contextentry")
    pages = {entry.key: client.get(page_url(entry)).content.decode() for entry in ContextEntry.objects.all()}
    assert SECRET not in pages["pin"]
    assert "3 apples" in pages["basket"]


@pytest.mark.parametrize(
    "query",
    [
        {"text__startswith": "my password is h"},
        {"text__startswith": "my password is x"},
        {"data__icontains": SECRET},
        {"data__key": "db_token"},
        {"digest__startswith": "a"},
        {"history__text__contains": SECRET},
        {"session__metadata__icontains": "a"},
        {"user__password__startswith": "a"},
    ],
)
def test_an_address_cannot_ask_what_is_masked(owner, query):
    know(owner, Item(kind="fact", text=f"my password is {SECRET}"))
    assert staff("agentcore.view_memory").get(list_url(Memory), query).status_code == 400


def test_an_address_asks_what_the_filters_offer(owner):
    know(owner, Item(kind="fact", text="tea"), Item(kind="working_memory", text="x", data={"key": "a"}))
    client = staff("agentcore.view_memory")
    for query, count in (
        ({"kind__exact": "fact"}, 1),
        ({"kind__in": "fact,event"}, 1),
        ({"seen_at__gte": "2000-01-01 00:00:00+00:00"}, 2),
        ({"corrected_at__isempty": "1"}, 2),
        ({"agent__isnull": "True"}, 2),
        ({"session__isnull": "True"}, 2),
    ):
        page = client.get(list_url(Memory), query)
        assert (page.status_code, page.context["cl"].result_count) == (200, count), query


def test_staff_change_and_delete_nothing(owner):
    know(owner, Item(kind="fact", text="The user likes tea."))
    client = staff(*(f"agentcore.{verb}_memory" for verb in ("view", "add", "change", "delete")))
    row = Memory.objects.get()
    assert client.post(page_url(row), {"text": "The user likes coffee."}).status_code == 403
    assert client.post(page_url(row, "delete"), {"post": "yes"}).status_code == 403
    assert Memory.objects.get().text == "The user likes tea."


def test_the_history_tells_that_an_owner_corrected_and_deleted_and_not_what(owner):
    first, second = know(owner, Item(kind="fact", text="tea"), Item(kind="fact", text="coffee"))
    keeping.correct(keeping.get(owner, first), text="green tea")
    history = staff("agentcore.view_memory").get(page_url(Memory.objects.get(pk=first), "history"))
    assert "Corrected by its owner." in Page(history).text
    keeping.delete(keeping.get(owner, first))
    keeping.erase(owner)
    entries = list(LogEntry.objects.order_by("pk").values_list("object_id", "user__username", "change_message"))
    assert entries == [
        (str(first), "ada", "Corrected by its owner."),
        (str(first), "ada", "Deleted by its owner."),
        (str(second), "ada", "Erased by its owner, with all of theirs."),
    ]
    assert "tea" not in str(list(LogEntry.objects.values()))
