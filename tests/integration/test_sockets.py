"""The sockets over real rows and real threads: what comes, in which order, for whom, and when it ends.

Named after the acceptance cases EVT where there is one.
"""

import asyncio
import threading
import time
from contextlib import asynccontextmanager

import pytest
from channels.layers import BaseChannelLayer, channel_layers
from channels.routing import URLRouter
from channels.testing import WebsocketCommunicator
from django.conf import settings
from django.contrib.auth.models import Permission
from django.db import OperationalError, connection, connections
from django.test import Client
from rest_framework.authtoken.models import Token

from agentcore import runtime
from agentcore.approvals import shown
from agentcore.consumers import ApprovalsConsumer, SessionConsumer
from agentcore.events import log, push
from agentcore.models import AgentSession, ToolApproval
from agentcore.routing import websocket_urlpatterns
from agentcore.sockets import doorbell, feed, queries
from agentcore.testing import TESTING_AGENT, calls, make_user
from agentcore.turns import sessions
from tests.settings import REDIS_URL

pytestmark = pytest.mark.django_db(transaction=True)

DECIDE = "agentcore.decide_toolapproval"
OWN_ORIGIN = "http://testserver"
APPROVALS = "/ws/agentcore/approvals/"

application = URLRouter(websocket_urlpatterns)


def address(session, after=None):
    return f"/ws/agentcore/sessions/{session.session_id}/" + ("" if after is None else f"?after={after}")


def cookie(user):
    client = Client()
    client.force_login(user)
    return client.cookies[settings.SESSION_COOKIE_NAME].value


async def socket(path, *, user=None, origin=OWN_ORIGIN, token=None, subprotocols=None, host="testserver", extra=()):
    """A client as a browser is one: with the host, the page's origin, and the cookie of a user who is logged in."""
    headers = [(b"host", host.encode()), *extra]
    if origin is not None:
        headers.append((b"origin", origin.encode()))
    if user is not None:
        headers.append((b"cookie", f"{settings.SESSION_COOKIE_NAME}={await in_thread(cookie, user)}".encode()))
    if token is not None:
        headers.append((b"authorization", f"Token {token}".encode()))
    return WebsocketCommunicator(application, path, headers=headers, subprotocols=subprotocols)


@asynccontextmanager
async def opened(connecting):
    client = await connecting
    is_accepted, subprotocol = await client.connect(timeout=10)
    assert is_accepted
    client.subprotocol = subprotocol
    try:
        yield client
    finally:
        await client.disconnect(timeout=10)


async def close_code(connecting):
    """Connect, and return the code with which the socket is closed; what it sends before must be nothing."""
    async with opened(connecting) as client:
        message = await client.receive_output(timeout=10)
        assert message["type"] == "websocket.close"
        return message["code"]


async def frames(client, *, until, timeout=20):
    """Return the frames up to the first one that `until` accepts, with it."""
    found = []
    async with asyncio.timeout(timeout):
        while not found or not until(found[-1]):
            found.append(await client.receive_json_from(timeout=timeout))
    return found


async def closing(client, *, timeout=10):
    """Return the code with which an open socket is closed, whatever it sends before."""
    async with asyncio.timeout(timeout):
        while True:
            message = await client.receive_output(timeout=timeout)
            if message["type"] == "websocket.close":
                return message["code"]


def is_ready(frame):
    return frame["kind"] == "ready"


def reaches(sequence):
    return lambda frame: frame.get("sequence") == sequence and frame["kind"] == "event"


def sequences(found):
    return [frame["sequence"] for frame in found if frame["kind"] == "event"]


def write(session, count=1, *, pause=0.0, hold=0.0):
    """Write events, each in a transaction of its own that is held open for a while."""
    for number in range(count):
        with log.writing(session.pk) as journal:
            journal.append("note", number=number)
            time.sleep(hold)
        time.sleep(pause)


def in_thread(function, *args, **kwargs):
    """Run in a real thread with a connection of its own, as another process would."""

    def work():
        try:
            return function(*args, **kwargs)
        finally:
            connections.close_all()

    return asyncio.to_thread(work)


@pytest.fixture(autouse=True)
def _push_again(monkeypatch):
    """Forget that a layer of the test before failed: pushes pause after that."""
    monkeypatch.setattr(push._pusher, "_paused_until", 0.0)


@pytest.fixture
def owner():
    return make_user("owner")


@pytest.fixture
def reviewer():
    return make_user("reviewer", permissions=(DECIDE,))


@pytest.fixture
def session(owner):
    return runtime.create_session(TESTING_AGENT, user=owner)


@pytest.fixture
def quick(monkeypatch):
    """Poll, and look at the rights, all the time."""
    monkeypatch.setattr(SessionConsumer, "poll_seconds", 0.05)
    monkeypatch.setattr(ApprovalsConsumer, "poll_seconds", 0.05)
    monkeypatch.setattr(feed, "CHECK_SECONDS", 0.0)


@pytest.fixture
def use_layer(settings):
    """Put another channel layer in place of the tests' own; None takes it away."""

    def use(backend, **config):
        layers = {} if backend is None else {"default": {"BACKEND": backend, "CONFIG": config}}
        settings.CHANNEL_LAYERS = layers

    return use


class RaisingLayer(BaseChannelLayer):
    """As when Redis is gone."""

    async def new_channel(self, prefix="specific"):
        return f"{prefix}.test!1"

    async def group_add(self, group, channel):
        raise ConnectionError("nobody there")

    group_discard = group_send = group_add


class DeafLayer(RaisingLayer):
    """As redis-py 8 is to a quiet socket: each read times out."""

    async def group_add(self, group, channel):
        pass

    group_discard = group_send = group_add

    async def receive(self, channel):
        await asyncio.sleep(0.01)
        raise TimeoutError


class HangingLayer(RaisingLayer):
    """As behind a firewall that drops everything."""

    async def group_add(self, group, channel):
        await asyncio.sleep(3600)

    group_discard = group_send = receive = group_add


# Order and completeness


async def test_the_replay_is_what_follows_after_then_ready_then_live(owner, session):
    await in_thread(write, session, 4)
    async with opened(socket(address(session, after=2), user=owner)) as client:
        found = await frames(client, until=is_ready)
        assert sequences(found) == [3, 4, 5]
        assert found[-1] == {"kind": "ready", "sequence": 5}
        await in_thread(write, session)
        [event] = await frames(client, until=reaches(6))
    [stored] = await in_thread(log.read, session, after=5)
    assert event == {"kind": "event", **stored.as_dict()}


async def test_a_pushed_event_that_is_the_next_one_costs_no_query(owner, session, monkeypatch):
    monkeypatch.setattr(SessionConsumer, "poll_seconds", 60)
    async with opened(socket(address(session), user=owner)) as client:
        await frames(client, until=is_ready)
        monkeypatch.setattr(queries.Queries, "run", None)
        await in_thread(write, session, 3)
        assert sequences(await frames(client, until=reaches(4))) == [2, 3, 4]


async def test_an_empty_replay_is_ready_at_once(owner, session):
    async with opened(socket(address(session, after=1), user=owner)) as client:
        assert await frames(client, until=is_ready) == [{"kind": "ready", "sequence": 1}]


async def test_a_long_replay_comes_in_pages_and_whole(owner, session):
    await in_thread(write, session, 250)
    async with opened(socket(address(session), user=owner)) as client:
        assert sequences(await frames(client, until=is_ready)) == list(range(1, 252))


async def test_evt_01_what_happens_during_a_disconnect_comes_after_the_reconnect(owner, session):
    await in_thread(write, session, 2)
    async with opened(socket(address(session), user=owner)) as client:
        seen = sequences(await frames(client, until=is_ready))
    assert seen == [1, 2, 3]
    await in_thread(write, session, 4)
    meanwhile = asyncio.ensure_future(in_thread(write, session))
    async with opened(socket(address(session, after=seen[-1]), user=owner)) as client:
        seen += sequences(await frames(client, until=reaches(8)))
    await meanwhile
    assert seen == list(range(1, 9))


async def test_evt_02_replay_and_live_neither_overlap_nor_leave_a_hole(owner, session):
    count, clients = 150, 50
    key = await in_thread(cookie, owner)
    headers = [(b"cookie", f"{settings.SESSION_COOKIE_NAME}={key}".encode())]

    async def follow(delay):
        await asyncio.sleep(delay)
        async with opened(socket(address(session, after=0), extra=headers)) as client:
            return sequences(await frames(client, until=reaches(count + 1), timeout=60))

    writing = asyncio.ensure_future(in_thread(write, session, count, pause=0.001))
    seen = await asyncio.gather(*(follow(number * 0.01) for number in range(clients)))
    await writing
    assert [found for found in seen if found != list(range(1, count + 2))] == []


@pytest.mark.parametrize("is_live", [True, False], ids=["pushed", "only polled"])
async def test_evt_04_several_writers_and_none_is_missed(owner, session, quick, use_layer, is_live):
    if not is_live:
        use_layer(None)
    async with opened(socket(address(session), user=owner)) as client:
        writers = [in_thread(write, session, 40) for _ in range(3)]
        writing = asyncio.gather(*writers, in_thread(write, session, 2, hold=0.2))
        seen = sequences(await frames(client, until=reaches(123), timeout=60))
        await writing
    assert seen == list(range(1, 124))


async def test_evt_19_the_order_inside_a_turn(owner, reviewer, session, scripted, run_turns):
    scripted(
        [
            calls(("lookup", {"q": "a"}), ("pay", {"amount": 10, "to": "acme"}), content="I look and pay."),
            "Paid.",
        ]
    )

    def turn():
        execution = runtime.enqueue(session.session_id, "pay", user=owner).turn.execution_id
        run_turns()
        runtime.approve(runtime.pending_approvals(reviewer).get().pk, reviewer)
        run_turns()
        return str(execution)

    async with opened(socket(address(session, after=1), user=owner)) as client:
        running = asyncio.ensure_future(in_thread(turn))
        found = await frames(client, until=lambda frame: frame.get("type") == "turn.completed")
        execution = await running
        # What was remembered comes after the end, and nothing after that.
        found += await frames(client, until=lambda frame: frame.get("type") == "agent.memory.updated")
        assert await client.receive_nothing(0.2)
    events = [frame for frame in found if frame["kind"] == "event"]
    assert [event["sequence"] for event in events] == list(range(2, len(events) + 2))
    assert {event["execution_id"] for event in events} == {execution}
    types = [event["type"] for event in events]
    assert types[-2:] == ["turn.completed", "agent.memory.updated"]
    assert types.count("turn.running") == types.count("turn.completed") == 1
    assert types.index("tool.approval.requested") < types.index("turn.waiting") < types.index("tool.approval.granted")
    for began, ends in (
        ("agent.step.started", {"agent.step.completed", "agent.step.failed"}),
        ("tool.execution.started", {"tool.execution.completed", "tool.execution.failed"}),
    ):
        assert types.count(began) == sum(types.count(end) for end in ends) == 2
        for name, count in ((began, 0), *((end, 1) for end in ends)):
            for place in [place for place, type in enumerate(types) if type == name]:
                opened_before = types[:place].count(began)
                ended_before = sum(types[:place].count(end) for end in ends)
                assert opened_before - ended_before == count


# The channel layer


@pytest.mark.parametrize(
    "backend", [None, *(f"{__name__}.{kind}" for kind in ("RaisingLayer", "DeafLayer", "HangingLayer"))]
)
async def test_evt_16_whatever_the_layer_does_the_log_arrives(owner, session, quick, use_layer, backend, monkeypatch):
    monkeypatch.setattr(doorbell, "LAYER_SECONDS", 0.1)
    monkeypatch.setattr(doorbell, "PAUSE_SECONDS", 0.1)
    use_layer(backend)
    async with opened(socket(address(session), user=owner)) as client:
        await frames(client, until=is_ready)
        await in_thread(write, session, 4)
        assert sequences(await frames(client, until=reaches(5))) == [2, 3, 4, 5]
        await asyncio.sleep(0.3)
        await in_thread(write, session)
        assert sequences(await frames(client, until=reaches(6))) == [6]


async def test_evt_16_a_failed_layer_is_joined_again(owner, session, use_layer, monkeypatch):
    monkeypatch.setattr(SessionConsumer, "poll_seconds", 60)
    monkeypatch.setattr(doorbell, "PAUSE_SECONDS", 0.1)
    working = channel_layers["default"]
    use_layer(f"{__name__}.RaisingLayer")
    async with opened(socket(address(session), user=owner)) as client:
        await frames(client, until=is_ready)
        channel_layers.set("default", working)
        async with asyncio.timeout(10):
            while not any("agentcore.session" in group for group in working.groups):
                await asyncio.sleep(0.02)
        await in_thread(write, session)
        assert sequences(await frames(client, until=reaches(2))) == [2]


async def test_leaving_leaves_nothing_in_the_layer(owner, session):
    layer = channel_layers["default"]
    before = len(layer._loops)
    async with opened(socket(address(session), user=owner)) as client:
        await frames(client, until=is_ready)
        assert len(layer._loops) == before + 1
    assert len(layer._loops) == before
    assert not any("agentcore.session" in group for group in layer.groups)


@pytest.mark.services("redis")
async def test_evt_16_redis_forgets_the_group_and_an_idle_socket_lives(owner, session, use_layer):
    redis = pytest.importorskip("redis")
    prefix = f"agentcore-test-{session.session_id}"
    # No socket_timeout: redis-py 8 gives up a quiet read after 5 seconds.
    use_layer("channels_redis.core.RedisChannelLayer", hosts=[REDIS_URL], prefix=prefix)
    async with opened(socket(address(session), user=owner)) as client:
        await frames(client, until=is_ready)
        await asyncio.sleep(6)
        store = redis.Redis.from_url(REDIS_URL)
        store.delete(*(store.keys(f"{prefix}*") or ["none"]))
        store.close()
        await in_thread(write, session, 3)
        assert sequences(await frames(client, until=reaches(4))) == [2, 3, 4]


# Who


async def test_evt_10_nobody_else_sees_a_session(owner, reviewer, session):
    stranger = await in_thread(make_user, "stranger")
    assert await close_code(socket(address(session))) == 4401
    for user in (stranger, reviewer):
        assert await close_code(socket(address(session), user=user)) == 4404
        assert await close_code(socket("/ws/agentcore/sessions/absent/", user=user)) == 4404
        assert await close_code(socket("/ws/agentcore/sessions/%00/", user=user)) == 4404


async def test_evt_10_a_deactivated_user_is_not_logged_in(owner, session):
    key = await in_thread(cookie, owner)
    token = await in_thread(Token.objects.create, user=owner)
    owner.is_active = False
    await in_thread(owner.save)
    headers = [(b"cookie", f"{settings.SESSION_COOKIE_NAME}={key}".encode())]
    assert await close_code(socket(address(session), extra=headers)) == 4401
    assert await close_code(socket(address(session), token=token.key)) == 4401


async def test_evt_10_frames_of_the_client_are_ignored(owner, session):
    stranger = await in_thread(make_user, "stranger")
    own = await in_thread(runtime.create_session, TESTING_AGENT, user=stranger)
    async with opened(socket(address(own), user=stranger)) as client:
        await frames(client, until=is_ready)
        for order in ("subscribe", "cursor", "cancel", "approve"):
            await client.send_json_to({"kind": order, "type": order, "session_id": session.session_id, "after": 0})
        await client.send_to(bytes_data=b"\x00")
        await in_thread(write, session)
        assert await client.receive_nothing(0.3)
        await in_thread(write, own)
        assert sequences(await frames(client, until=reaches(2))) == [2]


async def test_a_frame_too_large_to_be_meant_well_closes(owner, session):
    async with opened(socket(address(session), user=owner)) as client:
        await frames(client, until=is_ready)
        await client.send_to(text_data="x" * 70_000)
        assert await closing(client) == 4413


async def test_who_may_view_all_sessions_sees_this_one(session):
    viewer = await in_thread(make_user, "viewer", permissions=("agentcore.view_agentsession",))
    async with opened(socket(address(session), user=viewer)) as client:
        assert sequences(await frames(client, until=is_ready)) == [1]


async def test_a_token_logs_in_without_an_origin(owner, session):
    token = await in_thread(Token.objects.create, user=owner)
    async with opened(socket(address(session), token=token.key, origin=None)) as client:
        assert sequences(await frames(client, until=is_ready)) == [1]


async def test_a_token_in_a_subprotocol_is_answered_with_it(owner, session):
    token = await in_thread(Token.objects.create, user=owner)
    name = f"agentcore.token.{token.key}"
    connecting = socket(address(session), origin="https://elsewhere.example", subprotocols=["other", name])
    async with opened(connecting) as client:
        assert client.subprotocol == name
        assert sequences(await frames(client, until=is_ready)) == [1]


async def test_a_wrong_token_is_not_helped_by_a_cookie(owner, session):
    assert await close_code(socket(address(session), user=owner, token="0" * 40)) == 4401
    assert await close_code(socket(address(session), user=owner, subprotocols=["agentcore.token."])) == 4401


async def test_a_user_given_by_the_projects_own_middleware_is_taken(owner, session):
    client = await socket(address(session))
    client.scope["user"] = owner

    async def given():
        return client

    async with opened(given()):
        assert sequences(await frames(client, until=is_ready)) == [1]


@pytest.mark.parametrize("after", ["-1", "2", "x", "", "1.0", "+1", "٢", "99999999999999999999"])
async def test_a_bad_after_is_told(owner, session, after):
    assert await close_code(socket(address(session, after=after), user=owner)) == 4400


# From where


@pytest.mark.parametrize(
    ("origin", "host", "is_allowed"),
    [
        ("https://evil.example", "good.example", False),
        ("null", "good.example", False),
        ("https://good.example.evil.com", "good.example", False),
        ("https://good.example:8443", "good.example", False),
        (None, "good.example", True),
        ("", "good.example", False),
        ("https://user@good.example", "good.example", False),
        ("https://evil.example/@good.example", "good.example", False),
        ("wss://good.example", "good.example", False),
        ("https://good.example", "good.example", True),
        ("https://GOOD.example", "good.example:443", True),
        ("http://good.example:8000", "good.example:8000", True),
        ("http://good.example", "good.example:8000", False),
        # Names that lead here, but that are not ours: the host must be allowed too.
        ("https://rebound.example", "rebound.example", False),
        ("http://[::1]:8000", "[::1]:8000", True),
    ],
)
async def test_evt_11_only_our_own_origin_may_use_the_cookie(owner, session, settings, origin, host, is_allowed):
    settings.ALLOWED_HOSTS = ["good.example", "[::1]"]
    await assert_origin(session, owner, is_allowed, origin=origin, host=host)


@pytest.mark.parametrize(
    ("origin", "is_allowed"),
    [("https://shop.example", True), ("https://a.parts.example", True), ("http://shop.example", False)],
)
async def test_evt_11_trusted_origins_count_too(owner, session, settings, origin, is_allowed):
    settings.CSRF_TRUSTED_ORIGINS = ["https://shop.example", "https://*.parts.example"]
    await assert_origin(session, owner, is_allowed, origin=origin)


@pytest.mark.parametrize(("scheme", "is_allowed"), [("https", True), ("http", False)])
async def test_evt_11_behind_a_proxy_the_scheme_must_be_ours_too(owner, session, settings, scheme, is_allowed):
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    told = [(b"x-forwarded-proto", b"https")]
    await assert_origin(session, owner, is_allowed, origin=f"{scheme}://testserver", extra=told)


async def test_evt_11_two_origins_are_none(owner, session):
    await assert_origin(session, owner, False, extra=[(b"origin", OWN_ORIGIN.encode())])


async def test_without_a_log_in_and_an_origin_the_log_in_is_what_is_missing(session):
    assert await close_code(socket(address(session), origin=None)) == 4401
    assert await close_code(socket(APPROVALS, origin=None)) == 4401


async def test_a_foreign_origin_is_told_also_to_whom_is_not_logged_in(session):
    assert await close_code(socket(address(session), origin="https://evil.example")) == 4403


async def assert_origin(session, user, is_allowed, **fields):
    async with opened(socket(address(session), user=user, **fields)) as client:
        message = await client.receive_output(timeout=10)
    if is_allowed:
        assert message["type"] == "websocket.send"
    else:
        assert message == {"type": "websocket.close", "code": 4403}


# Until when


def log_out(user):
    client = Client()
    client.cookies[settings.SESSION_COOKIE_NAME] = user.session_key
    client.logout()


def change_password(user):
    user.set_password("another")
    user.save()


def deactivate(user):
    user.is_active = False
    user.save()


def delete_session(user):
    sessions.delete(AgentSession.objects.get(user=user))


@pytest.mark.parametrize(
    ("deed", "code"), [(log_out, 4401), (change_password, 4401), (deactivate, 4401), (delete_session, 4404)]
)
async def test_a_socket_ends_with_its_reason_to_be(owner, session, quick, deed, code):
    owner.session_key = await in_thread(cookie, owner)
    headers = [(b"cookie", f"{settings.SESSION_COOKIE_NAME}={owner.session_key}".encode())]
    async with opened(socket(address(session), extra=headers)) as client:
        await frames(client, until=is_ready)
        await asyncio.sleep(0.2)
        await in_thread(deed, owner)
        assert await closing(client) == code


async def test_a_deleted_token_ends_the_socket(owner, session, quick):
    token = await in_thread(Token.objects.create, user=owner)
    async with opened(socket(address(session), token=token.key)) as client:
        await frames(client, until=is_ready)
        await in_thread(token.delete)
        assert await closing(client) == 4401


async def test_a_lost_right_ends_the_socket(session, quick):
    viewer = await in_thread(make_user, "viewer", permissions=("agentcore.view_agentsession",))
    async with opened(socket(address(session), user=viewer)) as client:
        await frames(client, until=is_ready)
        await in_thread(viewer.user_permissions.clear)
        assert await closing(client) == 4404


async def test_the_rights_are_looked_at_again_within_the_time_promised(owner, session, monkeypatch, clock):
    monkeypatch.setattr(SessionConsumer, "poll_seconds", 0.05)
    async with opened(socket(address(session), user=owner)) as client:
        await frames(client, until=is_ready)
        await in_thread(deactivate, owner)
        assert await client.receive_nothing(0.3)
        clock.advance(21)
        assert await closing(client) == 4401


async def test_evt_13_a_client_that_does_not_read_is_closed(owner, session, monkeypatch):
    monkeypatch.setattr(feed, "SLOW_SECONDS", 0.2)
    await in_thread(write, session, 50)
    client = await socket(address(session), user=owner)
    # A server that holds up `send` while its buffer is full.
    client._output_queue = asyncio.Queue(maxsize=5)

    async def given():
        return client

    async with opened(given()):
        await asyncio.sleep(0.5)
        assert await closing(client) == 4408


# Queries


@pytest.mark.services("server")
async def test_evt_14_connections_are_bounded_and_idle_sockets_hold_none(owner, session):
    key = await in_thread(cookie, owner)
    headers = [(b"cookie", f"{settings.SESSION_COOKIE_NAME}={key}".encode())]

    async def follow():
        async with opened(socket(address(session), extra=headers)) as client:
            await frames(client, until=is_ready)
            await asyncio.sleep(1)

    async def count_until(done):
        counted = []
        while not done.is_set():
            counted.append(await in_thread(connection_count))
        return counted

    before = await in_thread(connection_count)
    done = asyncio.Event()
    counting = asyncio.create_task(count_until(done))
    await asyncio.gather(*(follow() for _ in range(40)))
    done.set()
    # Twice: a server may still be closing the connection that a thread used before.
    assert max(await counting) - before <= 2 * queries.THREADS
    async with asyncio.timeout(10):
        while await in_thread(connection_count) > before:
            await asyncio.sleep(0.05)


def connection_count():
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        else:
            cursor.execute("SELECT count(*) FROM information_schema.processlist WHERE db = database()")
        return cursor.fetchone()[0]


async def test_evt_15_a_slow_query_holds_up_no_other_socket(owner, session, monkeypatch):
    began, may_end = threading.Event(), threading.Event()
    read = log.read

    def slow(session, **fields):
        if session.session_id == "slow":
            began.set()
            may_end.wait(10)
        return read(session, **fields)

    monkeypatch.setattr(log, "read", slow)
    slow_one = await in_thread(runtime.create_session, TESTING_AGENT, session_id="slow", user=owner)
    async with opened(socket(address(slow_one), user=owner)) as waiting:
        await asyncio.to_thread(began.wait, 10)
        async with opened(socket(address(session), user=owner)) as client:
            assert sequences(await frames(client, until=is_ready, timeout=5)) == [1]
        may_end.set()
        assert sequences(await frames(waiting, until=is_ready)) == [1]


async def test_a_database_that_fails_for_a_moment_is_asked_again(owner, session, monkeypatch):
    read, failures = log.read, [OperationalError("locked"), OperationalError("gone")]

    def failing(*args, **fields):
        if failures:
            raise failures.pop()
        return read(*args, **fields)

    monkeypatch.setattr(log, "read", failing)
    async with opened(socket(address(session), user=owner)) as client:
        assert sequences(await frames(client, until=is_ready)) == [1]


async def test_a_socket_that_fails_is_closed_and_the_failure_logged(owner, session, monkeypatch, caplog):
    def failing(*args, **fields):
        raise ZeroDivisionError

    monkeypatch.setattr(log, "read", failing)
    assert await close_code(socket(address(session), user=owner)) == 4500
    assert "A socket failed" in caplog.text


# Approvals


def is_approval(frame):
    return frame["kind"] == "approval"


async def test_the_approvals_of_a_reviewer_come_as_a_snapshot_then_as_they_change(owner, reviewer, make_approval):
    first = await in_thread(make_approval, user=owner)
    async with opened(socket(APPROVALS, user=reviewer)) as client:
        assert await client.receive_json_from(5) == {"kind": "snapshot", "pending": 1, "newest": first.pk}
        second = await in_thread(make_approval, user=owner)
        [frame] = await frames(client, until=is_approval)
        assert (frame["approval"]["id"], frame["approval"]["status"]) == (second.pk, "pending")
        await in_thread(runtime.reject, first.pk, reviewer, reason="no")
        [frame] = await frames(client, until=is_approval)
        assert (frame["approval"]["id"], frame["approval"]["status"]) == (first.pk, "rejected")
        assert [item["by"] for item in frame["approval"]["decisions"]] == ["reviewer"]
        assert await client.receive_nothing(0.2)


async def test_an_approval_looks_as_the_api_shows_it(owner, reviewer, make_approval):
    async with opened(socket(APPROVALS, user=reviewer)) as client:
        assert await client.receive_json_from(5) == {"kind": "snapshot", "pending": 0, "newest": None}
        approval = await in_thread(make_approval, user=owner)
        [frame] = await frames(client, until=is_approval)
        await in_thread(runtime.approve, approval.pk, reviewer, note="fine")
        [decided] = await frames(client, until=is_approval)

    def answer():
        browser = Client()
        browser.force_login(reviewer)
        return browser.get(f"/api/approvals/{approval.pk}/").json()

    assert decided["approval"] == await in_thread(answer)
    assert frame["approval"] == {
        **decided["approval"],
        "status": "pending",
        "decisions": [],
        "decided_at": None,
        "votes": {"needed": 1, "approve": 0},
        "approved_arguments": None,
    }


async def test_without_pushes_approvals_are_polled(owner, reviewer, make_approval, quick, use_layer):
    use_layer(None)
    async with opened(socket(APPROVALS, user=reviewer)) as client:
        await client.receive_json_from(5)
        approval = await in_thread(make_approval, user=owner)
        [frame] = await frames(client, until=is_approval)
        assert frame["approval"]["id"] == approval.pk
        await in_thread(runtime.approve, approval.pk, reviewer)
        [frame] = await frames(client, until=is_approval)
        assert frame["approval"]["status"] == "approved"
        assert await client.receive_nothing(0.3)


async def test_nobody_is_shown_what_they_may_not_decide(owner, reviewer, make_approval):
    permission = await in_thread(Permission.objects.get, codename="decide_toolapproval")
    await in_thread(owner.user_permissions.add, permission)
    before = await in_thread(make_approval, user=owner)
    async with opened(socket(APPROVALS, user=owner)) as own, opened(socket(APPROVALS, user=reviewer)) as other:
        assert await own.receive_json_from(5) == {"kind": "snapshot", "pending": 0, "newest": None}
        assert await other.receive_json_from(5) == {"kind": "snapshot", "pending": 1, "newest": before.pk}
        await in_thread(make_approval, user=owner)
        await frames(other, until=is_approval)
        assert await own.receive_nothing(0.2)


async def test_approvals_of_deleted_sessions_are_not_shown(owner, reviewer, make_approval, quick):
    approval = await in_thread(make_approval, user=owner)
    await in_thread(runtime.reject, approval.pk, reviewer)
    async with opened(socket(APPROVALS, user=reviewer)) as client:
        assert (await client.receive_json_from(5))["pending"] == 0
        await in_thread(AgentSession.objects.update, deleted_at=approval.requested_at)
        await in_thread(ToolApproval.objects.update, updated_at=approval.requested_at)
        assert await client.receive_nothing(0.2)


async def test_who_may_decide_nothing_is_refused(owner):
    assert await close_code(socket(APPROVALS, user=owner)) == 4403
    assert await close_code(socket(APPROVALS)) == 4401
    assert await close_code(socket(APPROVALS, user=owner, origin="null")) == 4403


async def test_a_lost_right_to_decide_ends_the_socket(reviewer, quick):
    async with opened(socket(APPROVALS, user=reviewer)) as client:
        await client.receive_json_from(5)
        await in_thread(reviewer.user_permissions.clear)
        assert await closing(client) == 4403


def test_secrets_are_masked_in_what_is_shown(owner, make_approval):
    approval = make_approval(user=owner)
    approval.arguments = approval.approved_arguments = {"password": "hunter2", "list": [{"token": "x"}]}
    seen = shown.approval_as_dict(approval)
    assert seen["arguments"] == {"password": "********", "list": [{"token": "********"}]}
    assert seen["approved_arguments"] == seen["arguments"]


def test_showing_many_approvals_takes_a_fixed_number_of_queries(owner, make_approval, django_assert_num_queries):
    for _ in range(3):
        make_approval(user=owner)
    with django_assert_num_queries(2):
        assert len([shown.approval_as_dict(item) for item in shown.with_parts(ToolApproval.objects.all())]) == 3
