"""Requests that too few people may decide: told when they are asked for, and whenever that changes."""

from __future__ import annotations

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.backends import BaseBackend, ModelBackend
from django.contrib.auth.models import Group, Permission
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agentcore import ApprovalPolicy, agent, runtime, tool
from agentcore.agents.registry import registry
from agentcore.approvals import deciders, routing
from agentcore.models import SessionEvent, ToolApproval
from agentcore.testing import assert_invariants, calls, make_session, make_user, run_turns

pytestmark = pytest.mark.django_db

DECIDE = "agentcore.decide_toolapproval"
NAME = "routed"
UNROUTABLE = "tool.approval.unroutable"
HERE = "tests.integration.test_routing"
MODEL_BACKEND = "django.contrib.auth.backends.ModelBackend"


class Secretive(BaseBackend):
    """Grants by rules that nobody can list."""

    def has_perm(self, user_obj, perm, obj=None):
        return user_obj.get_username() == "insider"


class HalfSecretive(ModelBackend):
    """Grants more than the list it inherits tells."""

    def has_perm(self, user_obj, perm, obj=None):
        return user_obj.get_username() == "insider" or super().has_perm(user_obj, perm, obj)


class OnlyLogsIn(BaseBackend):
    """Grants nothing."""


class Listed(BaseBackend):
    """Grants everything to those whose name says so, and can list them."""

    def has_perm(self, user_obj, perm, obj=None):
        return user_obj.get_username().startswith("listed")

    def with_perm(self, perm, is_active=True, include_superusers=True, obj=None):
        return get_user_model().objects.filter(username__startswith="listed", is_active=is_active)


class Broken(Listed):
    def with_perm(self, perm, is_active=True, include_superusers=True, obj=None):
        return get_user_model().objects.extra(where=["no_such_column = 1"])


@pytest.fixture(autouse=True)
def routed():
    @agent(name=NAME, model="scripted:x")
    class Routed:
        @tool(description="Free")
        def note(self, text: str) -> str:
            return text

        @tool(description="Pay", requires_approval=True)
        def pay(self, amount: int) -> str:
            return f"paid {amount}"

        @tool(description="Grant", requires_approval=True, approval=ApprovalPolicy(permission="auth.view_group"))
        def grant(self, to: str) -> str:
            return to

        @tool(description="Wire", requires_approval=True, approval=ApprovalPolicy(votes=2))
        def wire(self, amount: int) -> str:
            return f"wired {amount}"

        @tool(description="Write", requires_approval=True, approval=ApprovalPolicy(four_eyes=False))
        def write(self, text: str) -> str:
            return text

    yield Routed
    registry.unregister(NAME)


ARGUMENTS = {"pay": {"amount": 1}, "grant": {"to": "x"}, "wire": {"amount": 1}, "write": {"text": "x"}}


def ask(scripted, tool_name="pay", *, user=None):
    """Return the request of a turn that asks for the tool once."""
    scripted(lambda request: calls((tool_name, ARGUMENTS[tool_name])) if request.messages[-1].role == "user" else "Ok.")
    session = make_session(NAME, user=user)
    runtime.enqueue(session.session_id, "go", user=user)
    run_turns()
    return ToolApproval.objects.get(session=session)


def told(approval):
    """Return the reasons that the log gives for the request being stuck."""
    events = SessionEvent.objects.filter(session_id=approval.session_id, type=UNROUTABLE).order_by("sequence")
    return [event.data["reason"] for event in events]


def is_stuck(approval):
    approval.refresh_from_db()
    return approval.is_unroutable


def test_a_request_that_nobody_may_decide_is_told_at_once(scripted, caplog):
    owner = make_user("owner")
    asked = ask(scripted, "grant", user=owner)
    assert is_stuck(asked)
    event = SessionEvent.objects.get(type=UNROUTABLE)
    assert event.turn_id == asked.turn.execution_id
    assert (event.data["approval_id"], event.data["tool"], event.data["by"]) == (asked.pk, "grant", "system")
    assert event.data["arguments"] == {"to": "x"}
    assert event.data["reason"] == (
        "Active users with agentcore.decide_toolapproval, auth.view_group: 1 needed, 0 found besides the requester."
    )
    [record] = [item for item in caplog.records if item.levelname == "ERROR"]
    assert record.getMessage() == "Too few active users may decide a request"
    assert (record.approval_id, record.execution_id) == (asked.pk, str(asked.turn.execution_id))
    assert_invariants()


def test_a_request_that_somebody_may_decide_is_not(scripted, caplog):
    make_user("reviewer", permissions=(DECIDE,))
    asked = ask(scripted, user=make_user("owner"))
    assert not is_stuck(asked)
    assert told(asked) == []
    assert not [item for item in caplog.records if item.levelname == "ERROR"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [({"is_superuser": True}, False), ({"is_superuser": True, "is_active": False}, True), ({"is_staff": True}, True)],
)
def test_superusers_count_while_they_are_active(scripted, fields, expected):
    make_user("chief", **fields)
    assert is_stuck(ask(scripted, "grant")) is expected


def test_every_permission_must_meet_in_one_person(scripted):
    make_user("one", permissions=(DECIDE,))
    make_user("other", permissions=("auth.view_group",))
    assert is_stuck(ask(scripted, "grant"))
    make_user("both", permissions=(DECIDE, "auth.view_group"))
    assert not is_stuck(ask(scripted, "grant"))


def test_the_permissions_of_groups_count(scripted):
    group = Group.objects.create(name="Reviewers")
    group.permissions.add(Permission.objects.get(codename="decide_toolapproval"))
    make_user("member").groups.add(group)
    assert not is_stuck(ask(scripted))


def test_who_is_not_active_does_not_count(scripted):
    make_user("gone", permissions=(DECIDE,), is_active=False)
    assert is_stuck(ask(scripted))


@pytest.mark.parametrize(("tool_name", "expected"), [("pay", True), ("write", False)])
def test_the_requester_counts_only_without_four_eyes(scripted, tool_name, expected):
    owner = make_user("owner", permissions=(DECIDE,))
    assert is_stuck(ask(scripted, tool_name, user=owner)) is expected


def test_the_only_reviewer_may_decide_what_is_anothers_and_what_is_nobodys(scripted):
    make_user("reviewer", permissions=(DECIDE,))
    assert not is_stuck(ask(scripted, user=make_user("owner")))
    assert not is_stuck(ask(scripted))


def test_two_votes_need_two_reviewers(scripted):
    make_user("one", permissions=(DECIDE,))
    asked = ask(scripted, "wire")
    assert told(asked) == ["Active users with agentcore.decide_toolapproval: 2 needed, 1 found."]
    make_user("two", permissions=(DECIDE,))
    assert not is_stuck(ask(scripted, "wire"))


def test_once_the_requester_is_deleted_nobody_may_decide(scripted):
    make_user("reviewer", permissions=(DECIDE,))
    make_user("second", permissions=(DECIDE,))
    owner = make_user("owner")
    asked, free = ask(scripted, user=owner), ask(scripted, "write", user=owner)
    owner.delete()
    assert runtime.tick()["unroutable"] == 1
    assert is_stuck(asked)
    assert not is_stuck(free)
    assert told(asked) == [
        "Active users with agentcore.decide_toolapproval: 1 needed, 0 found; "
        "its requester was deleted, so nobody is known to be somebody else."
    ]


def test_the_sweep_follows_who_comes_and_goes_and_tells_each_loss_once(scripted):
    reviewer = make_user("reviewer", permissions=(DECIDE,))
    asked = ask(scripted, user=make_user("owner"))
    before = asked.updated_at
    assert routing.look_again() == 0
    reviewer.is_active = False
    reviewer.save()
    assert routing.look_again() == 1
    assert routing.look_again() == 0
    assert is_stuck(asked)
    assert len(told(asked)) == 1
    make_user("new", permissions=(DECIDE,))
    assert routing.look_again() == 0
    assert not is_stuck(asked)
    assert asked.updated_at > before
    assert len(told(asked)) == 1
    get_user_model().objects.get(username="new").user_permissions.clear()
    assert routing.look_again() == 1
    assert len(told(asked)) == 2
    assert_invariants()


def test_a_vote_that_was_given_holds_when_its_author_may_not_decide_any_more(scripted):
    first, _second = (make_user(name, permissions=(DECIDE,)) for name in ("first", "second"))
    asked = ask(scripted, "wire", user=make_user("owner"))
    runtime.approve(asked.pk, first)
    first.is_active = False
    first.save()
    assert routing.look_again() == 0
    assert not is_stuck(asked)


def test_what_somebody_could_decide_after_all_is_not_marked_any_more(scripted):
    asked = ask(scripted)
    reviewer = make_user("reviewer", permissions=(DECIDE,))
    assert is_stuck(asked)
    assert not runtime.approve(asked.pk, reviewer).is_unroutable


def test_what_is_decided_is_not_looked_at(scripted):
    reviewer = make_user("reviewer", permissions=(DECIDE,))
    asked = ask(scripted)
    runtime.approve(asked.pk, reviewer)
    reviewer.delete()
    assert routing.look_again() == 0
    assert not is_stuck(asked)


@pytest.mark.parametrize("backend", ["Secretive", "HalfSecretive"])
def test_a_backend_that_cannot_list_its_people_means_that_it_is_not_known(scripted, settings, backend, caplog):
    settings.AUTHENTICATION_BACKENDS = [MODEL_BACKEND, f"{HERE}.{backend}"]
    asked = ask(scripted)
    assert not is_stuck(asked)
    assert routing.look_again() == 0
    assert not [item for item in caplog.records if item.levelname == "ERROR"]
    assert runtime.approve(asked.pk, make_user("insider")).status == "approved"


def test_what_is_not_known_any_more_is_not_marked_any_more(scripted, settings):
    asked = ask(scripted)
    assert is_stuck(asked)
    settings.AUTHENTICATION_BACKENDS = [MODEL_BACKEND, f"{HERE}.Secretive"]
    routing.look_again()
    assert not is_stuck(asked)


def test_a_backend_that_grants_nothing_hides_nothing(scripted, settings):
    settings.AUTHENTICATION_BACKENDS = [f"{HERE}.OnlyLogsIn", MODEL_BACKEND]
    assert is_stuck(ask(scripted))


def test_a_backend_of_the_project_that_lists_its_people_is_asked(scripted, settings):
    settings.AUTHENTICATION_BACKENDS = [MODEL_BACKEND, f"{HERE}.Listed"]
    assert is_stuck(ask(scripted, "wire"))
    make_user("listed")
    make_user("reviewer", permissions=(DECIDE,))
    assert not is_stuck(ask(scripted, "wire"))


def test_a_backend_whose_list_breaks_stops_no_turn(scripted, settings, caplog):
    settings.AUTHENTICATION_BACKENDS = [f"{HERE}.Broken"]
    asked = ask(scripted)
    assert asked.status == "pending"
    assert not is_stuck(asked)
    assert "A backend could not list who has a permission" in caplog.text


@pytest.mark.parametrize("permission", ["", "auth.view_group", "auth.view_group auth.view_permission", "no.such"])
def test_the_people_found_are_those_that_django_finds(permission):
    group = Group.objects.create(name="Group")
    group.permissions.add(Permission.objects.get(codename="view_group"), Permission.objects.get(codename="view_user"))
    for number, held in enumerate([(), (DECIDE,), (DECIDE, "auth.view_permission"), (DECIDE, "auth.view_group")]):
        make_user(f"single-{number}", permissions=held)
        make_user(f"member-{number}", permissions=held).groups.add(group)
        make_user(f"gone-{number}", permissions=held, is_active=False).groups.add(group)
    make_user("chief", is_superuser=True)
    users = get_user_model().objects.all()
    expected = {user.pk for user in users if user.is_active and user.has_perms([DECIDE, *permission.split()])}
    assert set(deciders.find(permission, limit=100)) == expected
    listed = [
        set(get_user_model().objects.with_perm(name, backend=MODEL_BACKEND)) for name in [DECIDE, *permission.split()]
    ]
    assert {user.pk for user in set.intersection(*listed)} == expected
    assert len(deciders.find(permission, limit=1)) == 1


def test_many_requests_cost_as_few_queries_as_one(scripted):
    reviewer = make_user("reviewer", permissions=(DECIDE,))
    ask(scripted, user=make_user())

    def sweep():
        with CaptureQueriesContext(
            connection,
        ) as queries:
            assert routing.look_again() == 0
        return len(queries)

    one = sweep()
    for _ in range(5):
        ask(scripted, user=make_user())
    assert sweep() == one
    assert reviewer.is_active


def test_a_turn_that_asks_nobody_looks_for_nobody(scripted):
    scripted(lambda request: calls(("note", {"text": "x"})) if request.messages[-1].role == "user" else "Done.")
    session = make_session(NAME)
    runtime.enqueue(session.session_id, "go")
    with CaptureQueriesContext(connection) as queries:
        run_turns()
    assert not [query for query in queries if "auth_permission" in query["sql"]]


@pytest.mark.parametrize("votes", [1, 2])
@pytest.mark.parametrize("people", [0, 1, 2, 3])
@pytest.mark.parametrize("four_eyes", [True, False])
@pytest.mark.parametrize("whose", ["nobody's", "theirs", "another's", "somebody deleted's"])
def test_a_new_request_is_judged_as_the_sweep_would(scripted, votes, people, four_eyes, whose):
    reviewers = [make_user(f"reviewer-{number}") for number in range(people)]
    requester = {"theirs": reviewers[0] if reviewers else None, "another's": make_user("another")}.get(whose)
    approval = ask(scripted)
    approval.votes_needed, approval.four_eyes, approval.requester = votes, four_eyes, requester
    approval.requester_key = str(requester.pk) if requester else "gone" if whose == "somebody deleted's" else ""
    approval.save()
    keys = [reviewer.pk for reviewer in reviewers]
    row = ToolApproval.objects.filter(pk=approval.pk)
    assert routing._is_stuck(approval, keys) == routing._stuck(row, votes, keys).exists()
