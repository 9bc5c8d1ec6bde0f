"""What stands beside a request, what hides in it, and what came of it."""

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission

from agentcore import agent, runtime, tool
from agentcore.models import ToolApproval
from agentcore.testing import ScriptedProvider, calls, make_session, make_turn, make_user, run_turns
from tests.integration.review_pages import DECIDE, LIST, Reader, address, ask, ask_order, logged_in

pytestmark = pytest.mark.django_db(transaction=True)

# Right-to-left override, zero-width space, no-break space, and a picture that is joined of two.
HIDDEN = "pay \u202e01\u200b\u00a0EUR"
MARKED = "pay ⟨U+202E⟩01⟨U+200B⟩⟨U+00A0⟩EUR"
PICTURE = "\U0001f469\u200d\U0001f680"


@agent(name="linking-agent", description="Names what its calls are about", model="scripted:any")
class LinkingAgent:
    __test__ = False

    @tool(description="Lock somebody out", requires_approval=True, sensitive=("pin",))
    def lock(self, username: str, pin: str = "") -> dict:
        return {"locked": username, "token": "t-99"}

    @lock.links
    def _(self, username: str):
        return get_user_model().objects.filter(username=username).first()

    @tool(description="Always fails", requires_approval=True)
    def fail(self, n: int) -> int:
        raise ValueError(f"no {n}")


@pytest.fixture
def owner():
    return make_user("owner")


@pytest.fixture
def reviewer():
    return make_user("rita", permissions=(DECIDE,))


@pytest.fixture
def rita(reviewer):
    return logged_in(reviewer)


def ask_linked(owner, name="lock", *, content="", arguments=None):
    session = make_session("linking-agent", user=owner)
    turn = make_turn(session, "please", user=owner)
    wanted = {"username": "owner"} if arguments is None else arguments
    with ScriptedProvider([calls((name, wanted), content=content)]).installed():
        run_turns()
    return ToolApproval.objects.get(turn=turn)


def marks(response):
    return [attrs["title"] for attrs in Reader(response).all("mark")]


# What it is about


def test_a_row_is_named_only_to_whom_may_view_it_and_linked_only_for_staff(rita, reviewer, owner):
    approval = ask_linked(owner)
    page = f"/admin/auth/user/{owner.pk}/change/"

    def shown():
        reader = Reader(logged_in(get_user_model().objects.get(pk=reviewer.pk)).get(address(approval)))
        about = reader.text.partition("What it is about")[2].partition("Decided before")[0]
        return " ".join(about.split()), page in [link.get("href") for link in reader.all("a")]

    assert shown() == ("user (not for you to see)", False)
    reviewer.user_permissions.add(Permission.objects.get(codename="view_user"))
    assert shown() == ("user: owner", False)
    reviewer.is_staff = True
    reviewer.save()
    assert shown() == ("user: owner", True)


def test_what_the_agent_wrote_with_the_call_is_shown_beside_it(rita, owner):
    text = Reader(rita.get(address(ask_linked(owner, content="They asked me to.")))).text
    assert "What the agent wrote with it" in text
    assert "They asked me to." in text


def test_earlier_decisions_on_the_same_arguments_are_shown_with_who_and_why(rita, owner):
    sam = make_user("sam", permissions=(DECIDE,))
    first, second, other = ask("small", {"n": 1}, owner), ask("small", {"n": 1}, owner), ask("small", {"n": 2}, owner)
    runtime.reject(first.pk, sam, reason="too small")
    runtime.approve(other.pk, sam, note="other")
    reader = Reader(rita.get(address(second)))
    assert "This tool so far: 1 approved, 1 rejected, 0 answered." in reader.text
    before = reader.text.partition("With the same arguments")[2].partition("The conversation")[0]
    assert "sam" in before
    assert "too small" in before
    assert "other" not in before
    assert address(first) in [link.get("href") for link in reader.all("a")]


def test_earlier_decisions_of_what_one_may_not_see_are_left_out(rita, owner):
    boss = make_user("boss", is_superuser=True)
    first, second = ask("send", {"to": "x"}, owner), ask("send", {"to": "x"}, owner)
    runtime.reject(first.pk, boss, reason="seen by few")
    ToolApproval.objects.filter(pk=first.pk).update(permission="auth.change_group")
    assert "seen by few" not in Reader(rita.get(address(second))).text


def test_the_queue_leads_from_one_request_to_the_next(rita, owner):
    first, own, second, third = (ask("small", {"n": n}, user) for n, user in enumerate([owner, None, owner, owner]))
    links = {link["rel"]: link["href"] for link in Reader(rita.get(address(second))).all("a") if "rel" in link}
    assert links == {"prev": address(own), "next": address(third)}
    assert "prev" not in [link.get("rel") for link in Reader(rita.get(address(first))).all("a")]


# What hides


def test_hidden_characters_are_marked_wherever_text_is_shown(rita, owner):
    session = make_session("reviews-agent", user=owner, title=HIDDEN)
    turn = make_turn(session, HIDDEN, user=owner)
    with ScriptedProvider([calls(("send", {"to": HIDDEN, "options": {HIDDEN: 1}}), content=HIDDEN)]).installed():
        run_turns()
    approval = ToolApproval.objects.get(turn=turn)
    ToolApproval.objects.filter(pk=approval.pk).update(preview=HIDDEN, reason=HIDDEN)
    listed, shown = rita.get(LIST), rita.get(address(approval))
    assert Reader(listed).text.count(MARKED) == 2 + 1
    # Argument, name in it, preview, reason, session, message, what the agent said: twice.
    assert Reader(shown).text.count(MARKED) == 8
    assert set(marks(shown)) == {"Hidden character U+202E", "Hidden character U+200B", "Hidden character U+00A0"}
    assert "It holds characters that do not show." in Reader(listed).text
    assert "This request holds characters that do not show" in Reader(shown).text
    rejected = rita.post(address(approval, "reject"), {"version": 1, "reason": HIDDEN}, follow=True)
    assert Reader(rejected).text.count(MARKED) >= 8


def test_what_only_looks_odd_is_not_marked(rita, owner):
    approval = ask("send", {"to": f"שלום {PICTURE} café"}, owner)
    page = rita.get(address(approval))
    assert marks(page) == []
    assert "characters that do not show or" not in Reader(page).text


def test_a_text_of_nothing_but_joiners_is_shown_in_time(rita, owner):
    approval = ask("send", {"to": "acme", "body": "\u200d" * 20_000}, owner)
    assert len(marks(rita.get(address(approval)))) >= 20_000


def test_apr_33_a_long_value_is_wholly_there_and_its_length_is_told(rita, owner):
    body = "".join(f"line {number}\n" for number in range(5_000))
    reader = Reader(rita.get(address(ask("send", {"to": "acme", "body": body}, owner))))
    assert body in reader.text
    assert f"{len(body)} characters" in reader.text


# What came of it


def aftermath(client, approval):
    text = Reader(client.get(address(approval))).text
    return " ".join(text.partition("What came of it")[2].partition("Arguments")[0].split())


def test_a_request_that_waits_has_no_aftermath(rita, owner):
    assert "What came of it" not in Reader(rita.get(address(ask_linked(owner)))).text


def test_an_approved_call_is_queued_and_then_done_with_its_result_masked(rita, reviewer, owner):
    approval = ask_linked(owner, arguments={"username": "owner", "pin": "p-4711"})
    runtime.approve(approval.pk, reviewer)
    assert aftermath(rita, approval) == "Queued: a worker runs it next."
    with ScriptedProvider(["Done."]).installed():
        run_turns()
    told = aftermath(rita, approval)
    assert told.startswith("Done")
    assert '"locked": "owner"' in told
    assert "t-99" not in rita.get(address(approval)).content.decode()


def test_a_call_that_fails_is_told_with_its_error(rita, reviewer, owner):
    approval = ask_linked(owner, "fail", arguments={"n": 7})
    runtime.approve(approval.pk, reviewer)
    with ScriptedProvider(["Sorry."]).installed():
        run_turns()
    assert "It ran and failed; the agent was told the error." in aftermath(rita, approval)


def test_a_rejected_and_an_answered_call_are_told_not_to_have_run(rita, reviewer, owner):
    first, second = ask_linked(owner), ask_linked(owner)
    runtime.reject(first.pk, reviewer, reason="no")
    runtime.respond(second.pk, reviewer, "by hand")
    assert aftermath(rita, first) == "Not run: the agent was told that a person declined, and why."
    assert "Not run: the agent was told the result that was given." in aftermath(rita, second)


def test_apr_34_no_secret_is_in_any_part_of_the_page(rita, reviewer, owner):
    first, second = ask_order(owner), ask_order(owner)
    runtime.approve(first.pk, reviewer, note="fine")
    for page in (rita.get(address(first)), rita.get(address(second)), rita.get(LIST)):
        assert not [secret for secret in ("k-9", "p-1", "p-4711") if secret in page.content.decode()]
