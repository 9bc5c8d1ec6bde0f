"""Questions and answers over HTTP: who may answer, with what, and how often."""

import pytest

from agentcore import agent
from agentcore.agents.registry import registry
from agentcore.models import AgentContext, SessionEvent, UserQuestion
from agentcore.testing import assert_invariants, calls, make_session, make_turn, make_user, run_turns
from agentcore.tools import ask_user
from tests.integration.api import VIEW_ALL, client_of

pytestmark = pytest.mark.django_db

NAME = "api-asking-agent"
COLOUR = calls(("ask_user", {"question": "Which colour?"}))


@agent(name=NAME, model="scripted:any", tools=(ask_user,))
class AskingAgent:
    pass


registry.unregister(NAME)


@pytest.fixture
def owner():
    return make_user("owner")


@pytest.fixture
def turn(owner, scripted):
    registry.register(AskingAgent.__agentcore__)
    scripted([COLOUR, COLOUR, "Done."])
    turn = make_turn(make_session(NAME, user=owner), user=owner)
    run_turns()
    yield turn
    registry.unregister(NAME)


def path(turn):
    return f"/api/turns/{turn.execution_id}/"


def resume(user, turn, message="blue", key=None, **body):
    headers = {} if key is None else {"Idempotency-Key": key}
    return client_of(user).post(f"{path(turn)}resume/", {"message": message, **body}, headers=headers)


def test_a_turn_shows_its_question_and_an_answer_queues_it(owner, turn):
    shown = client_of(owner).get(path(turn)).json()
    assert (shown["state"], shown["question"], shown["completed_at"]) == ("waiting_for_input", "Which colour?", None)
    assert [step["action"] for step in shown["steps"]] == ["ask_user"]
    answer = resume(owner, turn)
    assert answer.status_code == 202
    assert (answer.json()["state"], answer.json()["question"]) == ("queued", None)
    assert SessionEvent.objects.get(type="agent.input.received").data["by"] == "owner"
    run_turns()
    shown = client_of(owner).get(path(turn)).json()
    assert (shown["question"], shown["steps"][0]["tool_calls"][0]["result"]) == ("Which colour?", "blue")
    assert resume(owner, turn, {"role": "user", "content": "red"}).status_code == 202
    run_turns()
    assert client_of(owner).get(path(turn)).json()["response"] == "Done."
    assert_invariants()


@pytest.mark.parametrize("way", ["header", "field"])
def test_the_same_key_answers_once(owner, turn, way):
    def send(message, key):
        return (
            resume(owner, turn, message, key) if way == "header" else resume(owner, turn, message, idempotency_key=key)
        )

    assert (send("blue", "k1").status_code, send("blue", "k1").status_code) == (202, 202)
    other = send("red", "k1")
    assert (other.status_code, other.json()["code"]) == (409, "conflict")
    run_turns()
    # It asks its second question now, which the copy does not answer.
    again = send("blue", "k1")
    assert (again.status_code, again.json()["state"]) == (202, "waiting_for_input")
    assert send("green", "k2").status_code == 202
    run_turns()
    assert send("blue", "k1").json()["state"] == "completed"
    assert send("blue", "k3").status_code == 409
    assert list(UserQuestion.objects.values_list("answer", flat=True)) == ["blue", "green"]


def test_only_who_may_change_the_session_answers(owner, turn):
    for user in (make_user(), make_user(permissions=("agentcore.decide_toolapproval",))):
        answer = resume(user, turn)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert resume(make_user(permissions=(VIEW_ALL,)), turn).status_code == 403
    assert AgentContext.objects.get().state == "waiting_for_input"
    assert resume(make_user(permissions=("agentcore.change_agentsession",)), turn).status_code == 202


def test_an_answer_that_is_none_is_refused_and_its_field_named(owner, turn, settings):
    settings.AGENTCORE = {**settings.AGENTCORE, "MAX_INPUT_BYTES": 100}
    for message, status in (("", 400), ("  ", 400), ("a\x00", 400), ("a" * 101, 413), ({"role": "tool"}, 400)):
        answer = resume(owner, turn, message)
        assert answer.status_code == status, message
        assert "message" in str(answer.json()["details"])
    assert AgentContext.objects.get().state == "waiting_for_input"


def test_a_waiting_turn_is_cancelled_at_once(owner, turn):
    answer = client_of(owner).post(f"/api/sessions/{turn.session.session_id}/cancel/")
    assert (answer.status_code, answer.json()["state"], answer.json()["question"]) == (202, "cancelled", None)
    assert resume(owner, turn).status_code == 409
    assert_invariants()
