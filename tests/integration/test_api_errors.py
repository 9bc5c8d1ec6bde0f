"""Every error has one shape, whoever raised it."""

import pytest
from django.core.exceptions import PermissionDenied as DjangoPermissionDenied
from django.http import Http404
from rest_framework.settings import api_settings
from rest_framework.test import APIClient
from rest_framework.throttling import BaseThrottle

import agentcore
from agentcore import exceptions
from agentcore.api.base import ApiView
from agentcore.api.sessions import SessionDetail
from agentcore.engine.runtime import AgentRuntime
from agentcore.models import AgentSession
from agentcore.testing import TESTING_AGENT, make_session, make_turn, make_user
from agentcore.tools import json_text
from tests.integration.api import client_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner():
    return make_user("owner")


@pytest.fixture
def client(owner):
    return client_of(owner)


def assert_error(answer, status, code):
    assert answer.status_code == status, answer.content
    assert list(answer.json()) == ["code", "message", "details"]
    assert answer.json()["code"] == code
    assert isinstance(answer.json()["message"], str)
    assert isinstance(answer.json()["details"], dict)


def test_who_is_not_logged_in_is_told_how_to(client):
    answer = APIClient().get("/api/sessions/")
    assert_error(answer, 401, "not_authenticated")
    assert answer["WWW-Authenticate"] == "Token"
    assert_error(APIClient(headers={"Authorization": "Token nonsense"}).get("/api/sessions/"), 401, "not_authenticated")


def test_without_a_challenge_who_is_not_logged_in_gets_403(monkeypatch):
    monkeypatch.setattr(ApiView, "authentication_classes", list(reversed(api_settings.DEFAULT_AUTHENTICATION_CLASSES)))
    assert_error(APIClient().get("/api/sessions/"), 403, "not_authenticated")


def test_what_is_no_json_is_invalid_input(client):
    for body in ("{", "", "[1,]", '{"a": NaN}', "\x80", '{"a": ' + "9" * 5000 + "}"):
        answer = client.post("/api/sessions/", body, content_type="application/json")
        assert_error(answer, 400, "invalid_input")


@pytest.mark.parametrize("depth", [29, 2_000, 200_000])
def test_json_nested_too_deep_is_invalid_input(client, owner, depth):
    session = make_session(user=owner)
    nested = '{"metadata": {"a": ' + "[" * depth + "]" * depth + "}}"
    answer = client.patch(f"/api/sessions/{session.session_id}/", nested, content_type="application/json")
    assert_error(answer, 400, "invalid_input")


def test_json_as_deep_as_allowed_is_stored_on_every_database(client, owner):
    session, levels = make_session(user=owner), json_text.MAX_DEPTH - 1
    nested = {"metadata": {"a": eval("[" * levels + "]" * levels)}}
    answer = client.patch(f"/api/sessions/{session.session_id}/", nested)
    assert answer.json()["metadata"] == nested["metadata"]


def test_a_body_that_is_no_object_is_invalid_input(client):
    for body in ([], "text", 5, None, True):
        answer = client.post("/api/sessions/", body, format="json")
        assert_error(answer, 400, "invalid_input")


def test_a_body_over_django_s_limit_is_too_large(client, settings):
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000
    answer = client.post("/api/sessions/", {"agent": TESTING_AGENT, "title": "x" * 1000})
    assert_error(answer, 413, "too_large")


def test_another_content_type_is_415(client):
    answer = client.post("/api/sessions/", {"agent": TESTING_AGENT}, format="multipart")
    assert_error(answer, 415, "unsupported_media_type")
    assert not AgentSession.objects.exists()


def test_a_method_that_does_not_exist_is_405_and_the_allowed_ones_are_named(client):
    answer = client.delete("/api/sessions/")
    assert_error(answer, 405, "method_not_allowed")
    assert {"GET", "POST"} <= set(answer["Allow"].split(", "))


def test_a_format_nobody_renders_is_406_or_404(client):
    assert_error(client.get("/api/sessions/", HTTP_ACCEPT="image/png"), 406, "not_acceptable")
    assert_error(client.get("/api/sessions/?format=png"), 404, "not_found")


def test_a_throttled_request_says_when_to_come_again(client, monkeypatch):
    class Never(BaseThrottle):
        def allow_request(self, request, view):
            return False

        def wait(self):
            return 12.3

    monkeypatch.setattr(ApiView, "throttle_classes", [Never])
    answer = client.get("/api/sessions/")
    assert_error(answer, 429, "rate_limited")
    assert answer["Retry-After"] == "13"


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (exceptions.InvalidInput("x"), 400, "invalid_input"),
        (exceptions.NotAuthenticated("x"), 401, "not_authenticated"),
        (exceptions.PermissionDenied("x"), 403, "permission_denied"),
        (exceptions.NotFound("x"), 404, "not_found"),
        (exceptions.Conflict("x", a=1), 409, "conflict"),
        (exceptions.TooLarge("x"), 413, "too_large"),
        (exceptions.RateLimited("x", retry_after=2.2), 429, "rate_limited"),
        (exceptions.DriverUnavailable("x"), 503, "driver_unavailable"),
        (exceptions.Unavailable("x"), 503, "unavailable"),
        (Http404("secret"), 404, "not_found"),
        (DjangoPermissionDenied("secret"), 403, "permission_denied"),
        (exceptions.Conflict("a\ud83d", key="\ud83d"), 409, "conflict"),
    ],
)
def test_an_error_of_the_core_or_of_django_has_its_status(client, monkeypatch, error, status, code):
    def fail(*_args, **_kwargs):
        raise error

    monkeypatch.setattr(SessionDetail, "get", fail)
    answer = client.get("/api/sessions/s/")
    assert_error(answer, status, code)
    assert b"secret" not in answer.content
    if code == "rate_limited":
        assert answer["Retry-After"] == "3"


@pytest.mark.parametrize("error", [ZeroDivisionError("secret"), exceptions.AgentError("secret")])
def test_an_error_nobody_foresaw_is_logged_and_tells_nothing(client, owner, monkeypatch, caplog, error):
    def fail(*_args, **_kwargs):
        raise error

    monkeypatch.setattr(AgentRuntime, "enqueue", fail)
    make_session(user=owner, session_id="s")
    client.raise_request_exception = False
    answer = client.post("/api/sessions/s/turns/", {"message": "x"})
    assert_error(answer, 500, "internal")
    assert b"secret" not in answer.content
    [record] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert record.name == "django.request"
    assert record.exc_info[1] is error


def test_a_test_client_meets_an_unforeseen_error_as_it_does_everywhere_in_django(client, owner, monkeypatch):
    monkeypatch.setattr(AgentRuntime, "enqueue", lambda *_args, **_kwargs: 1 / 0)
    make_session(user=owner, session_id="s")
    with pytest.raises(ZeroDivisionError):
        client.post("/api/sessions/s/turns/", {"message": "x"})


def test_errors_look_the_same_whatever_handler_the_project_has(client, settings):
    settings.REST_FRAMEWORK = {**settings.REST_FRAMEWORK, "EXCEPTION_HANDLER": "builtins.len"}
    assert_error(client.get("/api/sessions/none/"), 404, "not_found")


def test_answers_are_kept_out_of_caches_and_frames(client, owner):
    turn = make_turn(user=owner)
    for path in ("/api/sessions/", f"/api/turns/{turn.execution_id}/", "/api/health/", "/api/turns/none/"):
        answer = client.get(path)
        assert (answer["Cache-Control"], answer["X-Frame-Options"]) == ("no-store", "DENY")


def test_the_browsable_pages_work_where_the_project_has_them(client, owner):
    turn = make_turn(user=owner)
    for path in (
        "/api/agents/",
        "/api/sessions/",
        f"/api/sessions/{turn.session.session_id}/",
        f"/api/sessions/{turn.session.session_id}/turns/",
        f"/api/turns/{turn.execution_id}/resume/",
        "/api/approvals/",
        "/api/approvals/decide/",
        "/api/approvals/1/approve/",
    ):
        answer = client.get(path, HTTP_ACCEPT="text/html")
        assert answer.status_code in (200, 404, 405)
        assert answer["Content-Type"].startswith("text/html")


def test_the_runtime_the_api_calls_is_the_project_s():
    assert isinstance(agentcore.runtime, AgentRuntime)
