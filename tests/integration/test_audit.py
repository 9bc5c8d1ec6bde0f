"""The record of decisions: one entry for each, that cannot be forged or lost, in the admin's history and given out."""

from __future__ import annotations

import csv
import io
import json
from datetime import timedelta

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth import get_user_model
from django.contrib.contenttypes.models import ContentType
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agentcore import ApprovalPolicy, agent, canonical, runtime, tool
from agentcore.agents.registry import registry
from agentcore.approvals import export
from agentcore.exceptions import AgentError, Conflict, InvalidInput, PermissionDenied
from agentcore.models import (
    AgentContext,
    ApprovalDecision,
    ApprovalLink,
    SessionEvent,
    ToolApproval,
    ToolCall,
    ToolOverride,
)
from agentcore.testing import assert_invariants, calls, make_approval, make_session, make_user, run_turns
from agentcore.testing.agents import ledger
from tests.integration.api import DECIDE, client_of

pytestmark = pytest.mark.django_db

NAME = "audited"
FORMULAS = ["=1+1", "+1", "-1", "@sum", "\t=1", "\r=1", "\n=1", "＝1"]


@pytest.fixture(autouse=True)
def audited():
    ledger.clear()

    @agent(name=NAME, model="scripted:x")
    class Audited:
        @tool(description="Wire", requires_approval=True, approval=ApprovalPolicy(votes=2))
        def wire(self, amount: int) -> str:
            return f"wired {amount}"

        @tool(description="Write", requires_approval=True, approval=ApprovalPolicy(four_eyes=False))
        def write(self, text: str) -> str:
            return text

        @tool(description="Dismiss", requires_approval=True, sensitive=("pin",))
        def dismiss(self, name: str, pin: str) -> str:
            return name

        @dismiss.links
        def _(self, name):
            return get_user_model().objects.filter(username=name)

    yield Audited
    registry.unregister(NAME)


@pytest.fixture
def owner():
    return make_user("owner")


@pytest.fixture
def reviewer():
    return make_user("reviewer", permissions=(DECIDE,))


def ask(scripted, tool_name, arguments, *, user=None):
    scripted(
        lambda request: calls((tool_name, arguments)) if request.messages[-1].role == "user" else "Done.",
    )
    session = make_session(NAME, user=user)
    runtime.enqueue(session.session_id, "go", user=user)
    run_turns()
    return ToolApproval.objects.get(session=session)


class ByPython:
    channel = "python"

    def __init__(self, user):
        self.user = user

    def __call__(self, approval, verb, **fields):
        given = [fields.pop("result")] if "result" in fields else []
        try:
            getattr(runtime, verb)(approval.pk, self.user, *given, **fields)
        except AgentError as error:
            return error.code
        return "ok"


class ByApi:
    channel = "api"

    def __init__(self, user):
        self.client = client_of(user)

    def __call__(self, approval, verb, **fields):
        answer = self.client.post(f"/api/approvals/{approval.pk}/{verb}/", fields)
        return "ok" if answer.status_code == 200 else answer.json()["code"]


WAYS = pytest.mark.parametrize("way", [ByPython, ByApi])
ACTIONS = [
    ("approve", {"note": "fine"}, "fine"),
    ("approve", {"arguments": {"amount": 5, "to": "acme"}, "note": "less"}, "less"),
    ("reject", {"reason": "no"}, "no"),
    ("respond", {"result": {"done": "by hand"}, "note": "mine"}, "mine"),
]


@WAYS
@pytest.mark.parametrize(("verb", "fields", "note"), ACTIONS, ids=["approve", "edit", "reject", "respond"])
def test_adm_05_a_decision_leaves_one_entry_of_who_really_decided(way, verb, fields, note, owner, reviewer):
    approval = make_approval(user=owner)
    assert way(reviewer)(approval, verb, **fields) == "ok"
    [entry] = ApprovalDecision.objects.all()
    approval.refresh_from_db()
    assert (entry.verdict, entry.refusal, entry.note, entry.channel) == (verb, "", note, way.channel)
    assert (entry.actor, entry.actor_key, entry.actor_name) == (reviewer, str(reviewer.pk), "reviewer")
    assert entry.created_at == approval.decided_at
    assert entry.approval_version == approval.version
    edited = "arguments" in fields
    assert (entry.arguments_digest == approval.arguments_digest) is not edited
    if edited:
        assert (approval.arguments, approval.approved_arguments) == ({"amount": 10, "to": "acme"}, fields["arguments"])
    [event] = SessionEvent.objects.filter(type__in=["tool.approval.granted", "tool.approval.denied"])
    assert (event.data["by"], event.created_at) == ("reviewer", entry.created_at)


@WAYS
@pytest.mark.parametrize(
    ("permissions", "fields", "code"),
    [
        ((), {}, "permission_denied"),
        ((DECIDE,), {"version": 9}, "conflict"),
        ((DECIDE,), {"arguments": {"amount": -1, "to": "x"}}, "invalid_input"),
    ],
)
def test_adm_05_a_refused_attempt_leaves_one_entry_too(way, permissions, fields, code, owner):
    approval = make_approval(user=owner)
    person = make_user("person", permissions=permissions)
    assert way(person)(approval, "approve", **fields) in (code, "not_found" if not permissions else code)
    [entry] = ApprovalDecision.objects.all()
    assert (entry.verdict, entry.refusal, entry.actor, entry.channel) == ("approve", code, person, way.channel)
    assert (entry.counted_key, entry.arguments_digest) == (None, approval.arguments_digest)
    approval.refresh_from_db()
    assert approval.status == "pending"


def test_adm_05_what_the_system_does_is_an_entry_without_a_person(owner, clock):
    expired, cancelled = make_approval(user=owner), make_approval(user=owner)
    runtime.cancel(cancelled.session.session_id)
    clock.advance(timedelta(days=8))
    assert runtime.tick()["expired"] == 1
    entries = {entry.approval_id: entry for entry in ApprovalDecision.objects.all()}
    assert len(entries) == ApprovalDecision.objects.count() == 2
    for approval, verdict in ((expired, "expire"), (cancelled, "cancel")):
        entry = entries[approval.pk]
        assert (entry.verdict, entry.actor, entry.actor_key, entry.channel) == (verdict, None, "", "system")
        assert entry.arguments_digest == approval.arguments_digest
        approval.refresh_from_db()
        assert entry.created_at == approval.decided_at
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize("verb", ["approve", "reject", "respond"])
@pytest.mark.parametrize("forged", ["approved_by", "actor", "by", "channel", "user"])
def test_adm_05_who_decided_is_never_taken_from_the_body(verb, forged, owner, reviewer):
    approval = make_approval(user=owner)
    body = {forged: "boss", **({"result": 1} if verb == "respond" else {})}
    answer = client_of(reviewer).post(f"/api/approvals/{approval.pk}/{verb}/", body)
    assert (answer.status_code, answer.json()["details"]["errors"][0]["field"]) == (400, forged)
    many = {"decisions": [{"id": approval.pk, "verdict": verb, **body}]}
    assert client_of(reviewer).post("/api/approvals/decide/", many).status_code == 400
    assert not ApprovalDecision.objects.exists()
    with pytest.raises(TypeError):
        runtime.approve(approval.pk, reviewer, approved_by="boss")
    with pytest.raises(InvalidInput):
        runtime.approve(approval.pk, "boss")


@WAYS
@pytest.mark.parametrize("table", ["agentcore_approvaldecision", "django_admin_log"])
def test_adm_05_what_cannot_be_recorded_is_not_decided(way, table, owner, reviewer, scripted):
    approval = make_approval(user=owner)
    events = SessionEvent.objects.count()

    def disk_is_full(execute, sql, params, many, context):
        if sql.startswith("INSERT") and table in sql:
            raise OSError("disk full")
        return execute(sql, params, many, context)

    with connection.execute_wrapper(disk_is_full):
        if way is ByPython:
            with pytest.raises(OSError, match="disk full"):
                ByPython(reviewer)(approval, "approve")
        else:
            client = client_of(reviewer)
            client.raise_request_exception = False
            answer = client.post(f"/api/approvals/{approval.pk}/approve/", {})
            assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    approval.refresh_from_db()
    assert approval.status == "pending"
    assert (SessionEvent.objects.count(), ApprovalDecision.objects.count()) == (events, 0)
    assert run_turns() == 0
    assert ledger.entries == []
    assert_invariants()


def test_adm_06_a_decision_on_one_s_own_request_is_marked_and_nothing_bypasses_the_rules(scripted):
    chief = make_user("chief", is_superuser=True)
    strict, free = make_approval(user=chief), ask(scripted, "write", {"text": "x"}, user=chief)
    with pytest.raises(PermissionDenied):
        runtime.approve(strict.pk, chief)
    runtime.approve(free.pk, chief)
    marks = {entry["approval_id"]: (entry["refusal"], entry["is_own"]) for entry in everything()}
    assert marks == {strict.pk: ("permission_denied", False), free.pk: ("", True)}
    assert ApprovalDecision.objects.get(approval=free).is_own
    assert "their own request" in LogEntry.objects.get().change_message


def test_adm_06_a_rejection_of_one_s_own_request_is_marked_too(scripted):
    owner = make_user("owner", permissions=(DECIDE,))
    runtime.reject(ask(scripted, "write", {"text": "x"}, user=owner).pk, owner)
    assert [entry["is_own"] for entry in everything()] == [True]


def test_what_another_person_or_the_system_decided_is_nobody_s_own(scripted, owner, reviewer):
    runtime.approve(ask(scripted, "write", {"text": "x"}, user=owner).pk, reviewer)
    runtime.approve(ask(scripted, "write", {"text": "x"}).pk, reviewer)
    runtime.cancel(ask(scripted, "write", {"text": "x"}).session.session_id)
    assert [entry["is_own"] for entry in everything()] == [False, False, False]


def test_apr_22_five_rejections_are_no_failures_and_the_sixth_call_runs_at_once(scripted, owner, reviewer, settings):
    settings.AGENTCORE = {**settings.AGENTCORE, "CIRCUIT_BREAKER": {"failure_threshold": 3, "reset_timeout": 30}}
    provider = scripted([*(calls(("pay", {"amount": number, "to": "x"})) for number in range(1, 7)), "Paid at last."])
    session = make_session(user=owner)
    turn = runtime.enqueue(session.session_id, "pay", user=owner).turn
    for number in range(1, 6):
        run_turns()
        runtime.reject(ToolApproval.objects.pending().get().pk, reviewer, reason=f"no {number}")
    run_turns()
    runtime.approve(ToolApproval.objects.pending().get().pk, reviewer)
    assert run_turns() == 1
    assert ledger.entries == [("pay", 6, "x")]
    assert runtime.result(turn.execution_id).response == "Paid at last."
    asked = ToolCall.objects.order_by("pk").values_list("status", "attempts", flat=False)
    assert list(asked) == [*[("rejected", 0)] * 5, ("completed", 1)]
    kinds = list(SessionEvent.objects.values_list("type", flat=True))
    assert (kinds.count("tool.execution.failed"), kinds.count("tool.approval.denied")) == (0, 5)
    assert AgentContext.objects.get().takeovers == 0
    assert provider.call_count == 7
    assert_invariants()


def history():
    return list(LogEntry.objects.order_by("pk"))


@pytest.mark.parametrize(
    ("verb", "fields", "words"),
    [
        ("approve", {"note": "fine"}, "Approved: pay, approval {pk}, arguments {digest}. fine"),
        ("reject", {"reason": "not them"}, "Rejected: pay, approval {pk}, arguments {digest}. not them"),
        (
            "respond",
            {"result": {"api_key": "k-9"}},
            "Answered in the tool's place: pay, approval {pk}, arguments {digest}.",
        ),
        (
            "approve",
            {"arguments": {"amount": 5, "to": "acme"}},
            "Approved with changed arguments: pay, approval {pk}, arguments {digest}.",
        ),
    ],
)
def test_a_decision_is_copied_to_the_admins_history(verb, fields, words, owner, reviewer):
    approval = make_approval(user=owner)
    assert ByPython(reviewer)(approval, verb, **fields) == "ok"
    [copied], [entry] = history(), ApprovalDecision.objects.all()
    assert (copied.user, copied.action_flag, copied.action_time) == (reviewer, CHANGE, entry.created_at)
    assert copied.get_edited_object() == approval
    assert copied.object_repr == str(approval)
    assert copied.get_change_message() == words.format(pk=approval.pk, digest=entry.arguments_digest[:12])


def test_it_is_copied_to_each_row_the_request_is_about_and_holds_no_arguments(scripted, owner, reviewer):
    acme = make_user("acme")
    approval = ask(scripted, "dismiss", {"name": "acme", "pin": "1234-secret"}, user=owner)
    ApprovalLink.objects.create(approval=approval, model="gone.model", object_key="1", label="Gone")
    runtime.approve(approval.pk, reviewer)
    of_request, of_acme = history()
    assert of_request.object_id == str(approval.pk)
    assert (of_acme.content_type, of_acme.object_id) == (ContentType.objects.get_for_model(acme), str(acme.pk))
    assert of_acme.object_repr == "acme"
    assert of_acme.change_message == of_request.change_message
    assert "secret" not in of_acme.change_message


def test_each_vote_is_copied_and_a_refused_attempt_is_not(scripted, owner, reviewer):
    second = make_user("second", permissions=(DECIDE,))
    approval = ask(scripted, "wire", {"amount": 1}, user=owner)
    runtime.approve(approval.pk, reviewer)
    with pytest.raises(PermissionDenied):
        runtime.approve(approval.pk, owner)
    runtime.approve(approval.pk, reviewer)
    runtime.approve(approval.pk, second)
    with pytest.raises(Conflict):
        runtime.reject(approval.pk, second)
    assert [entry.user for entry in history()] == [reviewer, second]


def test_what_asks_how_a_call_ended_is_told_in_its_own_words(reviewer, scripted, owner):
    approval = make_approval(user=owner)
    ToolCall.objects.update(status="unknown", attempts=1, completed_at=None)
    ToolApproval.objects.update(kind="outcome")
    runtime.respond(approval.pk, reviewer, {"paid": 10})
    assert history()[0].change_message.startswith("Told how it ended: pay, approval ")


def test_without_the_admin_nothing_is_copied(owner, reviewer, settings):
    approval = make_approval(user=owner)
    settings.INSTALLED_APPS = [name for name in settings.INSTALLED_APPS if name != "django.contrib.admin"]
    assert runtime.approve(approval.pk, reviewer).status == "approved"
    with connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM django_admin_log")
        assert cursor.fetchone() == (0,)


def test_the_record_stays_when_the_person_is_deleted_and_the_copy_goes(owner, reviewer):
    approval = make_approval(user=owner)
    runtime.approve(approval.pk, reviewer, note="fine")
    key = str(reviewer.pk)
    reviewer.delete()
    assert history() == []
    [entry] = ApprovalDecision.objects.all()
    assert (entry.actor, entry.actor_key, entry.actor_name, entry.note) == (None, key, "reviewer", "fine")
    assert [row["actor_name"] for row in everything()] == ["reviewer"]


def everything():
    return list(export.rows(ApprovalDecision.objects.all()))


def test_a_row_of_the_export_tells_all_of_an_entry(owner, reviewer):
    approval = make_approval(user=owner)
    runtime.approve(approval.pk, reviewer, note="fine")
    [entry] = ApprovalDecision.objects.all()
    [row] = everything()
    assert tuple(row) == export.COLUMNS
    assert row == {
        "decision_id": entry.pk,
        "at": entry.created_at.isoformat().replace("+00:00", "Z"),
        "approval_id": approval.pk,
        "kind": "call",
        "tool": "pay",
        "agent": "testing-agent",
        "session_id": approval.session.session_id,
        "execution_id": str(approval.turn.execution_id),
        "call_id": approval.call.call_id,
        "version": 1,
        "status": "approved",
        "verdict": "approve",
        "refusal": "",
        "actor_name": "reviewer",
        "actor_key": str(reviewer.pk),
        "channel": "python",
        "note": "fine",
        "arguments_digest": approval.arguments_digest,
        "is_own": False,
        "permissions": DECIDE,
        "is_edit": False,
        "proposed_digest": approval.arguments_digest,
        "approved_digest": approval.arguments_digest,
    }


def test_adm_05_an_edit_is_told_by_digests_and_no_content(owner, reviewer):
    edited, rejected = make_approval(user=owner), make_approval(user=owner)
    runtime.approve(edited.pk, reviewer, arguments={"amount": 7, "to": "edited-name"})
    runtime.reject(rejected.pk, reviewer)
    first, second = everything()
    after = canonical.digest({"amount": 7, "to": "edited-name"})
    assert (first["is_edit"], first["proposed_digest"], first["approved_digest"]) == (
        True,
        edited.arguments_digest,
        after,
    )
    assert (second["is_edit"], second["proposed_digest"], second["approved_digest"]) == (
        False,
        rejected.arguments_digest,
        "",
    )
    assert "edited-name" not in "".join(export.as_csv(everything()))


def test_adm_05_of_several_votes_only_the_edit_is_told_as_one(scripted):
    people = [make_user(permissions=(DECIDE,)) for _ in range(2)]
    ToolOverride.objects.create(tool="pay", votes=2)
    approval = make_approval()
    runtime.approve(approval.pk, people[0], arguments={"amount": 7, "to": "x"})
    runtime.approve(approval.pk, people[1])
    assert [row["is_edit"] for row in everything()] == [True, False]
    assert [decision.is_edit for decision in ApprovalDecision.objects.all()] == [True, False]


def test_rows_come_oldest_first_in_chunks_of_one_query_each(owner, reviewer, monkeypatch):
    approval = make_approval(user=owner)
    now = approval.requested_at
    ApprovalDecision.objects.bulk_create(
        ApprovalDecision(
            approval=approval, approval_version=1, verdict="reject", refusal="conflict", channel="api", created_at=now
        )
        for _ in range(25)
    )
    monkeypatch.setattr(export, "CHUNK", 10)
    with CaptureQueriesContext(connection) as queries:
        found = [row["decision_id"] for row in export.rows(ApprovalDecision.objects.order_by("-pk"))]
    assert found == sorted(ApprovalDecision.objects.values_list("pk", flat=True))
    assert len(queries) == 4
    assert not [query for query in queries if 'arguments"' in query["sql"]]


def test_csv_is_safe_in_a_spreadsheet_and_json_is_one_array(owner, reviewer):
    texts = [*FORMULAS, 'plain, with "quotes"\nand lines', "1=1"]
    for text in texts:
        runtime.reject(make_approval(user=owner).pk, reviewer, reason=text)
    lines = list(csv.DictReader(io.StringIO("".join(export.as_csv(everything())), newline="")))
    assert [line["note"] for line in lines] == [*(f"'{text}" for text in FORMULAS), *texts[-2:]]
    assert {line["is_own"] for line in lines} == {"false"}
    assert json.loads("".join(export.as_json(everything()))) == everything()
    assert [row["note"] for row in everything()] == texts


def test_an_empty_record_is_a_header_and_an_empty_array():
    assert "".join(export.as_csv([])).splitlines() == [",".join(export.COLUMNS)]
    assert json.loads("".join(export.as_json([]))) == []


def test_text_is_given_out_piece_by_piece(owner, reviewer):
    def endless():
        runtime.reject(make_approval(user=owner).pk, reviewer)
        yield everything()[0]
        raise AssertionError("read ahead")

    for format_ in (export.as_csv, export.as_json):
        text = format_(endless())
        assert next(text)


def run(*arguments):
    out = io.StringIO()
    call_command("agentcore_audit", *arguments, stdout=out)
    return out.getvalue()


def test_the_command_writes_what_is_asked_for(owner, reviewer, clock, scripted):
    early = make_approval(user=owner)
    runtime.reject(early.pk, reviewer)
    middle = clock.now() + timedelta(hours=1)
    clock.advance(timedelta(hours=2))
    late = ask(scripted, "write", {"text": "x"}, user=owner)
    runtime.approve(late.pk, reviewer)

    def approvals(*arguments):
        return [row["approval_id"] for row in json.loads(run("--format", "json", *arguments))]

    assert run().splitlines()[0] == ",".join(export.COLUMNS)
    assert len(run().splitlines()) == 3
    assert approvals() == [early.pk, late.pk]
    assert approvals("--since", middle.isoformat()) == [late.pk]
    assert approvals("--until", middle.isoformat()) == [early.pk]
    assert approvals("--since", (clock.now() - timedelta(days=1)).date().isoformat()) == [early.pk, late.pk]
    assert approvals("--tool", "write") == [late.pk]
    assert approvals("--session", early.session.session_id) == [early.pk]


def test_the_command_writes_into_a_file(owner, reviewer, tmp_path):
    runtime.reject(make_approval(user=owner).pk, reviewer, reason="no — é 漢")
    path = tmp_path / "audit.csv"
    assert run("--output", str(path)) == ""
    assert path.read_bytes().decode() == run()
    assert "no — é 漢" in run()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--since", "yesterday"), "'yesterday' is no date or time in ISO 8601"),
        (("--since", "2026-02-01", "--until", "2026-01-01"), "--since must be before --until"),
        (("--tool", "nosuch"), "There is no request for a tool 'nosuch'"),
        (("--session", "nosuch"), "There is no session 'nosuch'"),
        (("--output", "/nosuch/folder/file"), "Cannot write /nosuch/folder/file: No such file or directory"),
        (("--format", "xml"), "invalid choice: 'xml'"),
    ],
)
def test_the_command_says_what_is_wrong(arguments, message):
    with pytest.raises(CommandError, match=message.replace("'", ".")):
        run(*arguments)
