"""Requests about a call nobody knows the end of: what the page shows of it, and what its words say."""

import pytest

from agentcore import runtime
from agentcore.engine import loop
from agentcore.models import ToolApproval, ToolCall
from agentcore.states import ApprovalStatus
from agentcore.testing import ScriptedProvider, calls, make_session, make_user, run_turns
from agentcore.testing.makers import _make_unsent_turn
from agentcore.turns import calls as stored_calls
from agentcore.turns import steps
from tests.integration.review_pages import DECIDE, LIST, Reader, address, logged_in, status_of

pytestmark = pytest.mark.django_db(transaction=True)

BULK = "/reviews/decide/"


class Died(BaseException):
    """Stands for SIGKILL: nothing after it is written."""


@pytest.fixture
def owner():
    return make_user("owner")


@pytest.fixture
def rita():
    return make_user("rita", permissions=(DECIDE,))


@pytest.fixture
def doubt(monkeypatch, clock, owner):
    """Return the request about a call whose worker died, with what it returned too late."""

    def make(late=None, name="charge", sensitive=()):
        session = make_session(user=owner)
        turn = _make_unsent_turn(session, user=owner)
        with ScriptedProvider([calls((name, {"n": 5})), "done"]).installed("scripted"):
            with monkeypatch.context() as patch:
                patch.setattr(steps, "record_result", _die)
                with pytest.raises(Died):
                    loop.run(turn.execution_id)
            clock.advance(3_600)
            runtime.recover()
            run_turns()
        call = ToolCall.objects.get(turn=turn)
        if late is not None:
            stored_calls.record_late(call, late)
            ToolCall.objects.filter(pk=call.pk).update(sensitive=list(sensitive))
        return ToolApproval.objects.get(turn=turn)

    return make


def _die(*args, **kwargs):
    raise Died


def test_what_is_known_comes_first_with_the_attempts_and_the_late_result(doubt, rita):
    reader = Reader(logged_in(rita).get(address(doubt({"charged": 5}))))
    known = reader.text[reader.text.index("What is known") : reader.text.index("Arguments")]
    assert "Attempt 1 began, and nobody knows how it ended." in known
    assert "1 attempt so far." in known
    assert '"charged": 5' in known
    assert "What it would do" not in reader.text


def test_without_a_late_result_the_page_says_that_nothing_came_back(doubt, rita):
    assert "It has returned nothing so far." in Reader(logged_in(rita).get(address(doubt()))).text


def test_the_words_are_those_of_this_question(doubt, rita):
    approval = doubt({"charged": 5})
    page = logged_in(rita).get(address(approval))
    text = Reader(page).text
    for said in ("Run it again", "This is the result", "End the turn", "the turn fails with it"):
        assert said in text
    for wrong in ("Approve", "Reject", "Answer in its place"):
        assert wrong not in text
    assert 'data-confirm="Press Enter to run # again, Escape to go back."' in page.content.decode()


@pytest.mark.parametrize(
    ("late", "typed"),
    [
        ({"charged": 5}, '{\r\n  "charged": 5\r\n}'),
        ("paid", "paid"),
        ("null", '"null"'),
        ("{half", '"{half"'),
        ("one\ntwo", "one\r\ntwo"),
    ],
)
def test_the_late_result_is_offered_and_given_as_it_is(doubt, rita, late, typed):
    approval, client = doubt(late), logged_in(rita)
    sent = Reader(client.get(address(approval))).fields("respond")
    assert sent["result"] == typed
    assert client.post(address(approval, "respond"), sent).status_code == 302
    assert ToolApproval.objects.get().response == late


def test_a_late_result_with_a_secret_is_masked_and_not_offered(doubt, rita):
    approval, client = doubt({"pin": "p-4711", "ok": True}, sensitive=["pin"]), logged_in(rita)
    reader = Reader(client.get(address(approval)))
    assert '"pin": "********"' in reader.text
    assert reader.fields("respond")["result"] == ""
    assert "p-4711" not in reader.text + Reader(client.get(LIST)).text


@pytest.mark.parametrize(
    ("verdict", "data", "told"),
    [
        ("approve", {}, "It runs again."),
        ("respond", {"result": "paid"}, "The agent is told your result."),
        ("reject", {"reason": "twice"}, "The turn has ended."),
    ],
)
def test_what_a_person_is_told_after_deciding(doubt, rita, verdict, data, told):
    approval, client = doubt(), logged_in(rita)
    response = client.post(address(approval, verdict), {"version": approval.version, **data}, follow=True)
    text = Reader(response).text
    assert told in text
    assert "Find out whether it happened" not in text
    assert "What was known" in text


def test_the_list_shows_the_late_result_and_decides_nothing(doubt, rita):
    approval, client = doubt({"charged": 5}), logged_in(rita)
    reader = Reader(client.get(LIST))
    assert 'It returned too late: {"charged": 5}' in " ".join(reader.text.split())
    for verdict in ("approve", "reject"):
        assert address(approval, verdict) not in reader.forms()
        answer = client.post(BULK, {"chosen": f"{approval.pk}:{approval.version}", "verdict": verdict, "note": ""})
        assert "Decide it on its own page." in Reader(answer).text
    assert status_of(approval) == ApprovalStatus.PENDING


def test_the_api_tells_the_late_result_masked(doubt, rita):
    approval, client = doubt({"pin": "p-4711"}, sensitive=["pin"]), logged_in(rita)
    assert client.get(f"/api/approvals/{approval.pk}/").json()["late_result"] == {"pin": "********"}
    assert client.get("/api/approvals/").json()["results"][0]["late_result"] == {"pin": "********"}
