"""Who else looks at a request, and what a page is told of it over its socket."""

import json

import pytest

from agentcore import runtime
from agentcore.approvals import shown
from agentcore.events import push
from agentcore.models import ToolApproval
from agentcore.sockets import doorbell, feed, presence, viewing
from agentcore.testing import ScriptedProvider, make_user, run_turns
from tests.integration.review_pages import DECIDE, ask
from tests.integration.test_sockets import APPROVALS, closing, frames, in_thread, opened, socket
from tests.settings import REDIS_URL

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Tell and look more often than in earnest, and forget that a layer of the test before failed."""
    monkeypatch.setattr(presence, "TELL_SECONDS", 0.2)
    monkeypatch.setattr(presence, "GONE_SECONDS", 1.0)
    monkeypatch.setattr(viewing, "POLL_SECONDS", 0.2)
    monkeypatch.setattr(doorbell, "PAUSE_SECONDS", 0.1)
    monkeypatch.setattr(push._pusher, "_paused_until", 0.0)


@pytest.fixture
def people():
    return [make_user(name, permissions=(DECIDE,)) for name in ("rita", "sam")]


@pytest.fixture
def approval():
    return ask("send", {"to": "acme"}, make_user("owner"))


def looking_at(approval_id, user):
    return opened(socket(f"{APPROVALS}?viewing={approval_id}", user=user))


def is_looking(*names):
    return lambda frame: frame["kind"] == "looking" and frame["names"] == list(names)


async def hears_of_nobody(client):
    """Return whether only the snapshot comes, for as long as it takes others to be heard of."""
    found = []
    while not await client.receive_nothing(0.6):
        found.append((await client.receive_json_from(1))["kind"])
    return found in (["snapshot"], [])


async def test_two_reviewers_hear_of_each_other_and_of_the_leaving(people, approval):
    rita, sam = people
    async with looking_at(approval.pk, rita) as first:
        async with looking_at(approval.pk, sam) as second:
            await frames(first, until=is_looking("sam"))
            [*_, told] = await frames(second, until=is_looking("rita"))
            assert told == {"kind": "looking", "id": approval.pk, "names": ["rita"]}
        await frames(first, until=is_looking())


async def test_who_vanishes_without_a_word_is_gone_after_a_while(people, approval, monkeypatch):
    rita, sam = people
    async with looking_at(approval.pk, rita) as first:
        async with looking_at(approval.pk, sam):
            await frames(first, until=is_looking("sam"))

            async def say_nothing(self, what, *, asks=False):
                return

            monkeypatch.setattr(presence.Presence, "_say", say_nothing)
        await frames(first, until=is_looking())


async def test_two_windows_of_one_person_are_one(people, approval):
    rita, _ = people
    async with looking_at(approval.pk, rita) as first, looking_at(approval.pk, rita):
        assert await hears_of_nobody(first)


async def test_who_looks_at_another_request_is_not_told(people, approval):
    rita, sam = people
    other = await in_thread(ask, "send", {"to": "other"})
    async with looking_at(approval.pk, rita) as first, looking_at(other.pk, sam), opened(socket(APPROVALS, user=sam)):
        assert await hears_of_nobody(first)


@pytest.mark.parametrize("wanted", ["another team's", "absent", "999999999999999999999", "x", "", "-1"])
async def test_apr_25_a_request_that_one_may_not_see_tells_nothing_and_hears_nothing(people, wanted):
    rita, _ = people
    teams = await in_thread(ask, "audit", {"team": "red"})
    boss = await in_thread(make_user, "boss", is_superuser=True)
    number = {"another team's": teams.pk, "absent": teams.pk + 1}.get(wanted, wanted)
    async with looking_at(number, rita) as outsider, looking_at(teams.pk, boss) as insider:
        assert await hears_of_nobody(outsider)
        assert await hears_of_nobody(insider)


async def test_without_a_layer_nothing_is_said_and_the_rest_goes_on(people, approval, settings):
    settings.CHANNEL_LAYERS = {}
    rita, sam = people
    async with looking_at(approval.pk, rita) as first, looking_at(approval.pk, sam):
        assert await hears_of_nobody(first)
        await in_thread(runtime.approve, approval.pk, sam)
        [*_, told] = await frames(first, until=lambda frame: frame["kind"] == "outcome")
        assert told == {"kind": "outcome", "id": approval.pk}


async def test_with_a_broken_layer_nothing_is_said_and_the_socket_stays(people, approval, settings):
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": "tests.integration.test_sockets.RaisingLayer"}}
    rita, _ = people
    async with looking_at(approval.pk, rita) as client:
        assert await hears_of_nobody(client)


@pytest.mark.services("redis")
async def test_over_redis_too(people, approval, settings):
    hosts = [{"address": REDIS_URL, "socket_timeout": 15}]
    config = {"hosts": hosts, "prefix": "agentcore-presence"}
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": "channels_redis.core.RedisChannelLayer", "CONFIG": config}}
    rita, sam = people
    async with looking_at(approval.pk, rita) as first:
        async with looking_at(approval.pk, sam):
            await frames(first, until=is_looking("sam"))
        await frames(first, until=is_looking())


async def test_presence_stores_nothing(people, approval):
    rita, sam = people
    before = await in_thread(lambda: ToolApproval.objects.values().get(pk=approval.pk))
    async with looking_at(approval.pk, rita) as first, looking_at(approval.pk, sam):
        await frames(first, until=is_looking("sam"))
    assert await in_thread(lambda: ToolApproval.objects.values().get(pk=approval.pk)) == before


async def test_what_comes_of_a_request_is_told_as_it_happens(people, approval):
    rita, sam = people
    async with looking_at(approval.pk, rita) as client:
        await frames(client, until=lambda frame: frame["kind"] == "snapshot")
        await in_thread(runtime.approve, approval.pk, sam)
        await frames(client, until=lambda frame: frame["kind"] == "outcome")

        def work():
            with ScriptedProvider(["Sent."]).installed():
                run_turns()

        await in_thread(work)
        await frames(client, until=lambda frame: frame["kind"] == "outcome")


async def test_who_lost_the_right_is_told_no_more(people, approval, monkeypatch):
    monkeypatch.setattr(feed, "CHECK_SECONDS", 0.2)
    monkeypatch.setattr("agentcore.consumers.ApprovalsConsumer.poll_seconds", 0.2)
    rita, sam = people
    async with looking_at(approval.pk, rita) as first, looking_at(approval.pk, sam) as second:
        await frames(first, until=is_looking("sam"))
        await in_thread(sam.user_permissions.clear)
        assert await closing(second) == 4403
        await frames(first, until=is_looking())


def test_apr_33_the_frame_of_a_huge_request_is_small(settings):
    settings.AGENTCORE = {**settings.AGENTCORE, "MAX_ARGUMENT_BYTES": 4 * 2**20}
    approval = ask("send", {"to": "acme", "body": "x" * 2 * 2**20})
    frame = shown.approval_as_frame(shown.with_parts(ToolApproval.objects.filter(pk=approval.pk)).get())
    assert len(json.dumps(frame)) < 64_000
    assert frame["cut"] == ["arguments"]
    assert frame["arguments"]["bytes"] > 2 * 2**20
    # The API goes on to give all of it.
    assert shown.approval_as_dict(approval)["arguments"]["body"] == approval.arguments["body"]


def test_a_frame_stays_small_whatever_its_parts_are(people):
    rita, _ = people
    approval = ask("send", {"to": "é" * 3_000})
    ToolApproval.objects.filter(pk=approval.pk).update(preview="漢" * 20_000)
    runtime.approve(approval.pk, rita, note="漢" * 10_000)
    frame = shown.approval_as_frame(shown.with_parts(ToolApproval.objects.filter(pk=approval.pk)).get())
    assert len(json.dumps(frame)) < 64_000
    assert frame["cut"] == ["arguments", "approved_arguments", "preview"]
