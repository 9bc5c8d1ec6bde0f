"""The demonstration's chat: what it shows of a turn, and that plain forms are enough."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from django.contrib import admin
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import include, path

from agentcore import TurnState, agent, knowledge, runtime, tool
from agentcore.exceptions import ProviderOverloaded
from agentcore.knowledge import Content
from agentcore.models import AgentContext, AgentSession, UserQuestion
from agentcore.testing import TESTING_AGENT, calls, make_approval, make_session, make_turn, make_user, stream
from agentcore.testing.agents import ledger
from agentcore.tools import ask_user
from project.chat import CALL_WORDS, TURN_WORDS, VERDICT_WORDS

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]

ROOT = Path(__file__).resolve().parents[2]
DECIDE = "agentcore.decide_toolapproval"

urlpatterns = [
    path("", include("project.chat")),
    path("reviews/", include("agentcore.reviews.urls")),
    path("memory/", include("agentcore.memories.urls")),
    path("admin/", admin.site.urls),
    path("accounts/", include("django.contrib.auth.urls")),
]


@agent(name="chat-staff-agent", description="Only for those who may", model="scripted:any", permission="auth.view_user")
class StaffAgent:
    __test__ = False

    @tool(description="Say it", idempotent=True, sensitive=("pin",))
    def speak(self, word: str, pin: str = "") -> dict[str, str]:
        return {"said": word, "api_key": "k-9"}


@agent(name="chat-asking-agent", description="Asks back", model="scripted:any", tools=(ask_user,))
class AskingAgent:
    __test__ = False


@pytest.fixture(autouse=True)
def _site(settings):
    settings.TEMPLATES = [{**settings.TEMPLATES[0], "DIRS": [ROOT / "templates"]}]
    ledger.clear()


@pytest.fixture
def user():
    return make_user("cora")


@pytest.fixture
def cora(user):
    return logged_in(user)


@pytest.fixture
def reviewer():
    return make_user("rita", permissions=(DECIDE,))


def logged_in(user, **options):
    client = Client(**options)
    client.force_login(user)
    return client


def send(client, message="hello", **data):
    return client.post("/", {"message": message, "agent": TESTING_AGENT, **data})


def shown(client, session):
    return Reader(client.get(f"/?session={session.session_id}"))


class Reader(HTMLParser):
    """What a browser would make of a page. Templates for the script are left out of the text, as browsers do."""

    def __init__(self, response):
        super().__init__(convert_charrefs=True)
        self.response, self.elements, self.text, self._in_template = response, [], "", False
        self.feed(response.content.decode())

    def handle_starttag(self, tag, attrs):
        self._in_template = self._in_template or tag == "template"
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        self._in_template = self._in_template and tag != "template"

    def handle_data(self, data):
        self.text += "" if self._in_template else data

    def all(self, tag):
        return [attrs for name, attrs in self.elements if name == tag]

    def value(self, name):
        return next(field["value"] for field in self.all("input") if field["name"] == name)

    @property
    def root(self):
        return next(attrs for attrs in self.all("div") if "data-chat" in attrs)

    @property
    def links(self):
        return [link["href"] for link in self.all("a")]


def test_a_stranger_logs_in_and_out_again(client):
    make_user("cora", password="a long one")
    assert client.get("/")["Location"] == "/accounts/login/?next=/"
    login = Reader(client.get("/accounts/login/?next=/"))
    assert "Log in" in login.text
    assert "cora" not in login.text
    wrong = client.post("/accounts/login/", {"username": "cora", "password": "no", "next": "/"})
    assert "correct username and password" in Reader(wrong).text
    right = client.post("/accounts/login/", {"username": "cora", "password": "a long one", "next": "/"})
    assert right["Location"] == "/"
    assert "/accounts/logout/" in [form["action"] for form in Reader(client.get("/")).all("form")]
    assert client.get("/accounts/logout/").status_code == 405


def test_a_message_begins_a_session_and_its_page_shows_how_it_stands(cora, user, scripted, run_turns):
    scripted(["Hello, Cora."])
    response = send(cora, "hello  there")
    session = AgentSession.objects.get(user=user)
    assert (response.status_code, response["Location"]) == (302, f"/?session={session.session_id}")
    assert session.title == "hello there"
    before = shown(cora, session)
    assert "hello  there" in before.text
    assert TURN_WORDS[TurnState.QUEUED] in before.text
    run_turns()
    after = shown(cora, session)
    assert "Hello, Cora." in after.text
    assert after.text.count("Hello, Cora.") == 1
    assert after.root["data-after"] == str(AgentSession.objects.get().last_sequence)


def test_the_form_sent_twice_begins_one_session_with_one_turn(cora):
    form = Reader(cora.get("/"))
    data = {"session": form.value("session"), "key": form.value("key")}
    assert send(cora, **data)["Location"] == send(cora, **data)["Location"]
    assert (AgentSession.objects.count(), AgentContext.objects.count()) == (1, 1)


def test_a_turn_that_waits_says_so_and_what_for(cora, user, reviewer, scripted, run_turns):
    approval = make_approval(user=user)
    waiting = shown(cora, approval.session)
    assert "waiting for approval" in waiting.text
    assert "pay" in waiting.text
    # Not in one piece: PostgreSQL keeps the keys of an object in an order of its own.
    assert "amount: 10" in waiting.text
    assert 'to: "acme"' in waiting.text
    assert f"/reviews/{approval.pk}/" not in waiting.links
    runtime.approve(approval.pk, reviewer, note="checked")
    scripted(["Paid."])
    run_turns()
    done = shown(cora, approval.session)
    assert "approved by rita: checked" in done.text
    assert "done in 0.0 s" in done.text
    assert "paid: 10" in done.text
    assert "Paid." in done.text
    assert "waiting for approval" not in done.text


def test_a_declined_call_shows_by_whom_and_why(cora, user, reviewer, scripted, run_turns):
    approval = make_approval(user=user)
    runtime.reject(approval.pk, reviewer, reason="too much")
    scripted(["I may not."])
    run_turns()
    assert "declined by rita: too much" in shown(cora, approval.session).text


def test_a_failed_turn_shows_why(cora, user, scripted, run_turns):
    session = make_session(user=user)
    make_turn(session, user=user)
    scripted([RuntimeError("secret")])
    run_turns()
    page = shown(cora, session)
    assert "Failed: " in page.text
    assert "secret" not in page.text


def test_a_refused_message_is_kept_with_the_reason(cora, user):
    session = make_session(user=user)
    make_turn(session, user=user)
    response = send(cora, "another one", session=session.session_id)
    page = Reader(response)
    assert response.status_code == 409
    assert "has an active turn" in page.text
    assert "another one" in page.text
    assert AgentContext.objects.count() == 1


@pytest.mark.parametrize(
    ("data", "status"), [({"message": "  "}, 400), ({"agent": "nobody"}, 404), ({"key": "x" * 256}, 400)]
)
def test_a_message_that_cannot_be_sent_leaves_nothing_behind(cora, data, status):
    assert send(cora, **data).status_code == status
    assert not AgentSession.objects.exists()


def test_another_ones_session_does_not_exist(cora):
    session = make_session(user=make_user("somebody"))
    make_turn(session, "private", user=session.user)
    assert cora.get(f"/?session={session.session_id}").status_code == 404
    assert cora.post("/cancel/", {"session": session.session_id}).status_code == 404
    refused = send(cora, session=session.session_id)
    assert refused.status_code == 409
    assert "private" not in Reader(refused).text
    assert AgentContext.objects.count() == 1
    assert session.session_id not in Reader(cora.get("/")).text


@pytest.mark.parametrize("session", ["nonsense", "%00", "s-1%00", "ü"])
def test_a_session_that_is_none_is_told_on_the_page(cora, session):
    response = cora.get(f"/?session={session}")
    assert response.status_code == 404
    assert "There is no such conversation." in Reader(response).text
    assert "data-chat" in Reader(response).root


@pytest.mark.parametrize("field", ["session", "agent", "key", "message"])
def test_a_nul_in_a_form_is_no_error_of_the_server(cora, field):
    assert send(cora, **{field: "x\0"}).status_code in (400, 404)
    assert cora.post("/cancel/", {"session": "x\0"}).status_code == 404
    assert not AgentSession.objects.exists()


def test_a_session_without_a_title_is_called_by_its_first_words_or_its_id(cora, user):
    empty, talked = make_session(user=user), make_session(user=user)
    make_turn(talked, "where is  my parcel?" + "!" * 60, user=user)
    page = shown(cora, talked)
    # In the title, the list and the heading; the message itself has its two spaces.
    assert page.text.count("where is my parcel?!") == 3
    assert empty.session_id in page.text
    assert "Untitled" not in page.text
    assert empty.session_id in shown(cora, empty).text


def test_an_agent_is_offered_to_those_who_may_use_it(cora):
    def agents(client):
        return [option["value"] for option in Reader(client.get("/")).all("option")]

    assert TESTING_AGENT in agents(cora)
    assert "chat-staff-agent" not in agents(cora)
    assert "chat-staff-agent" in agents(logged_in(make_user(permissions=("auth.view_user",))))
    assert send(cora, agent="chat-staff-agent").status_code == 404


def test_a_question_is_shown_and_answered_by_the_same_form(cora, user, scripted, run_turns):
    scripted([calls(("ask_user", {"question": "Which <b>colour</b>?"})), "Blue it is."])
    session = make_session("chat-asking-agent", user=user)
    turn = make_turn(session, "paint it", user=user)
    run_turns()
    asked = shown(cora, session)
    assert "Which <b>colour</b>?" in asked.text
    assert TURN_WORDS[TurnState.WAITING_FOR_INPUT] in asked.text
    assert asked.value("answers") == str(turn.execution_id)
    assert not any("disabled" in button for button in asked.all("button") if "data-send" in button)
    form = {name: asked.value(name) for name in ("session", "key", "answers")}
    # Sent twice, it is one answer.
    assert [send(cora, "blue", **form).status_code for _ in range(2)] == [302, 302]
    run_turns()
    done = shown(cora, session)
    assert done.text.index("Which") < done.text.index("blue") < done.text.index("Blue it is.")
    assert done.value("answers") == ""
    assert "ask_user" not in done.text
    assert send(cora, "again", **form | {"key": "other"}).status_code == 409
    assert UserQuestion.objects.get().answered_by == "cora"


def test_nobody_answers_a_question_of_another_ones_conversation(cora, scripted, run_turns):
    scripted([calls(("ask_user", {"question": "Which?"}))])
    theirs = make_session("chat-asking-agent", user=make_user("somebody"))
    turn = make_turn(theirs, user=theirs.user)
    run_turns()
    for session in (theirs.session_id, "s-new"):
        assert send(cora, session=session, answers=str(turn.execution_id)).status_code in (404, 409)
    assert send(cora, answers="x\0").status_code == 404
    assert UserQuestion.objects.get().answer is None


def test_an_answer_that_broke_off_is_shown_as_such(cora, user, scripted, run_turns, settings):
    settings.AGENTCORE = {**settings.AGENTCORE, "RETRY": {"attempts": 1}}
    scripted([stream("The answer is 4", ProviderOverloaded("busy"))])
    session = make_session(user=user)
    make_turn(session, user=user)
    run_turns()
    text = shown(cora, session).text
    assert "The answer is 4 (broken off)" in text
    assert "Failed: The model did not answer: busy" in text


def test_cancel_ends_a_turn_that_waits(cora, user):
    approval = make_approval(user=user)
    assert "/cancel/" in [form["action"] for form in shown(cora, approval.session).all("form") if "hidden" not in form]
    response = cora.post("/cancel/", {"session": approval.session.session_id}, follow=True)
    assert response.redirect_chain == [(f"/?session={approval.session.session_id}", 302)]
    assert TURN_WORDS[TurnState.CANCELLED] in Reader(response).text
    again = cora.post("/cancel/", {"session": approval.session.session_id})
    assert again.status_code == 409
    assert "no active turn" in Reader(again).text


def test_reviewers_find_the_way_to_requests_and_staff_to_the_admin(cora, reviewer):
    reviewer.is_staff = True
    reviewer.save()
    approval = make_approval(user=make_user("somebody"))
    own = make_approval(user=reviewer)
    rita = logged_in(reviewer)
    page = shown(rita, own.session)
    assert f"/reviews/{own.pk}/" in page.links
    assert {"/reviews/", "/admin/"} <= set(page.links)
    assert re.search(r"Reviews\s*1", page.text)
    assert not {"/reviews/", "/admin/"} & set(Reader(cora.get("/")).links)
    assert "/admin/" in Reader(rita.get(f"/reviews/{approval.pk}/")).links


def test_what_was_written_stays_text(cora, user, scripted, run_turns):
    attack = '</p></textarea><script>alert(1)</script><img src=x onerror="alert(2)">'
    session = make_session(user=user, title=attack)
    scripted([calls(("lookup", {"q": attack}), content=attack), attack])
    make_turn(session, attack, user=user)
    run_turns()
    page = shown(cora, session)
    assert all(set(attrs) == {"src", "defer"} for attrs in page.all("script"))
    assert not page.all("img")
    assert page.text.count(attack) >= 4
    assert not [name for _, attrs in page.elements for name in attrs if name.startswith("on") or name == "style"]


def test_secrets_are_masked(user, scripted, run_turns):
    user = make_user(permissions=("auth.view_user",))
    session = make_session("chat-staff-agent", user=user)
    scripted([calls(("speak", {"word": "hi", "pin": "p-4711"})), "Said."])
    make_turn(session, user=user)
    run_turns()
    page = shown(logged_in(user), session)
    assert 'word: "hi"' in page.text
    assert 'pin: "********"' in page.text
    assert not [secret for secret in ("p-4711", "k-9") if secret in page.response.content.decode()]


def test_a_post_without_a_token_is_refused(user):
    client = logged_in(user, enforce_csrf_checks=True)
    assert send(client).status_code == 403
    assert client.post("/cancel/", {"session": "x"}).status_code == 403
    assert not AgentSession.objects.exists()


def test_the_page_makes_the_same_queries_for_one_turn_and_for_many(cora, user, scripted, run_turns):
    session = make_session(user=user)

    def talk(times):
        for _ in range(times):
            scripted([calls(("lookup", {"q": "a"})), "Found."])
            make_turn(session, user=user)
            run_turns()

    talk(1)
    few = count_queries(cora, session)
    talk(4)
    assert count_queries(cora, session) == few <= 15


def count_queries(client, session):
    with CaptureQueriesContext(connection) as captured:
        assert client.get(f"/?session={session.session_id}").status_code == 200
    return len(captured)


def test_the_script_says_what_the_page_says(cora):
    words = json.loads(Reader(cora.get("/")).root["data-words"])
    assert words["turn"] == TURN_WORDS
    assert set(words["turn"]) == set(TurnState.values)
    assert (words["logged_out"], words["log_in_page"]) == ("You are logged out.", "/accounts/login/")
    assert (words["call"], words["verdict"]) == (CALL_WORDS, VERDICT_WORDS)


def test_the_sources_that_were_looked_at_stand_below_the_answer(cora, user, scripted, run_turns):
    content = Content(text="# Refunds\n\nA refund takes <b>five</b> days.", media_type="text/markdown", title="<Terms>")
    knowledge.ingest(content, source="terms.md")
    scripted(["Five days.", "Hello."])
    result = runtime.execute(TESTING_AGENT, "How long does a refund take?", user=user, enable_rag=True)
    runtime.execute(TESTING_AGENT, "Hello", session_id=result.session_id, user=user)
    page = cora.get(f"/?session={result.session_id}").content.decode()
    assert page.count('<li class="plain">&lt;Terms&gt; › Refunds (terms.md)</li>') == 1
    assert "<b>five</b>" not in page
