"""Pushes of changes that a test stores: none is missed, in order, by a schedule that outlives restarts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

import pytest

from postroom.errors import InvalidInput, NotFound, Refused
from postroom.http.outbound import OutboundPolicy
from postroom.protocol.limits import MAX_PUSH_CONFIGS
from postroom.protocol.principal import DOOR, USUAL_SCOPES, Principal
from postroom.push.configs import AgentPushes
from postroom.push.pusher import NO_KEY, NO_OWNER
from postroom.push.receivers import Receiver
from postroom.store.database import Database, Store
from postroom.store.keys import ApiKey
from postroom.store.ports import Place
from postroom.store.pruning import KINDS
from postroom_a2a.rpc import RpcError
from postroom_a2a.service import PushConfig
from tests.push.receivers import HANG, OK, answering, receiver
from tests.push.rig import KEY_OF_ALL, PAUSES, SECONDS, Tasks, tasks_in

pytestmark = pytest.mark.anyio


@pytest.fixture
async def tasks(place: Place) -> AsyncGenerator[Tasks]:
    async with Database(place) as database, tasks_in(database) as found:
        yield found


def at(*ports: int) -> tuple[str, ...]:
    return tuple(f"127.0.0.1:{port}" for port in ports)


@pytest.mark.requirement("pushes-not-lost")
async def test_each_change_goes_out_signed_in_order_and_says_what_is_stored(tasks: Tasks):
    async with receiver() as hook, tasks.pushing(*at(hook.port)):
        task = await tasks.task()
        await tasks.push_to(hook.url, task, token="said", scheme="Bearer", credentials="x y")
        await tasks.say(task, "working")
        await tasks.say(task, "first", "second", "completed")
        got = await hook.until(4)
        assert hook.what == ["working", "first", "second", "completed"]
        for each in got:
            assert each.verify(KEY_OF_ALL.secret(tasks.anna.uid)) == each.said
            assert each.headers["authorization"] == "Bearer x y"
            assert each.headers["x-a2a-notification-token"] == "said"
            assert each.headers["content-type"] == "application/a2a+json"
        assert got[-1].said["statusUpdate"]["taskId"] == task
        rows = await tasks.until(task, *4 * ["delivered"])
        assert [row.id for row in rows] == [each.id for each in got]
        assert {(row.attempts, row.status, row.next_at) for row in rows} == {(1, 204, None)}


@pytest.mark.requirement("pushes-not-lost")
async def test_a_change_that_was_stored_just_before_the_end_of_the_process_is_pushed_after_it(
    tasks: Tasks,
):
    async with receiver() as hook:
        async with tasks.pushing(*at(hook.port)):
            task = await tasks.task()
            await tasks.push_to(hook.url, task)
            await tasks.say(task, "working")
            await hook.until(1)
            await tasks.until(task, "delivered")
            await tasks.store(task, "made", "completed")  # committed, and nobody was told
        async with tasks.pushing(*at(hook.port)):
            await hook.until(3)
            assert hook.what == ["working", "made", "completed"]
            await tasks.until(task, *3 * ["delivered"])
        async with tasks.pushing(*at(hook.port)):
            another = await tasks.task()
            await tasks.push_to(hook.url, another)
            await tasks.say(another, "working")
            await hook.until(4)  # nothing of the first task came again


async def test_an_end_in_the_middle_of_an_attempt_repeats_it_under_the_same_id(tasks: Tasks):
    async with receiver(HANG, OK) as hook:
        async with tasks.pushing(*at(hook.port)):
            task = await tasks.task()
            await tasks.push_to(hook.url, task)
            await tasks.say(task, "completed")
            await hook.until(1)
        async with tasks.pushing(*at(hook.port)):
            first, second = await hook.until(2)
            assert (first.id, first.body) == (second.id, second.body)


@pytest.mark.requirement("pushes-not-lost")
async def test_a_failed_push_is_tried_again_at_its_instant_also_after_a_restart(tasks: Tasks):
    async with receiver(answering(503), answering(500), OK) as hook:
        async with tasks.pushing(*at(hook.port)):
            task = await tasks.task()
            await tasks.push_to(hook.url, task)
            await tasks.say(task, "working", "completed")
            await hook.until(1)
            await _tried(tasks, task, 1)
            # What comes behind it waits for it, what goes elsewhere does not.
            async with receiver() as other:
                tasks.pusher.sender._policy = _open(*at(hook.port, other.port))
                await tasks.push_to(other.url, task, id="other")
                await other.until(2)
            found = await tasks.pushes(task)
            failed = next(row for row in found if row.state == "pending")
            assert (failed.attempts, failed.status) == (1, 503)
            assert failed.next_at is not None
            assert 0 < failed.next_at - tasks.clock() <= PAUSES[0]
        tasks.later(PAUSES[0] - 30)
        async with tasks.pushing(*at(hook.port)):
            await tasks.push_to(hook.url, await tasks.task())  # it has begun, and does nothing
            assert len(hook.got) == 1
            tasks.later(31)
            await hook.until(2)
            await _tried(tasks, task, 2)
        async with tasks.pushing(*at(hook.port)):
            tasks.later(PAUSES[1] + 1)
            await hook.until(4)
        assert hook.what == ["working", "working", "working", "completed"]
        assert len({got.id for got in hook.got}) == 2


async def test_a_receiver_that_is_away_for_too_long_is_given_up_with_an_alert_and_by_hand_it_goes_on(
    tasks: Tasks,
):
    async with receiver(answering(500)) as hook, tasks.pushing(*at(hook.port)):
        task = await tasks.task()
        await tasks.push_to(hook.url, task)
        await tasks.say(task, "working", "completed")
        for number, pause in enumerate(PAUSES, 1):
            await hook.until(number)
            await tasks.until(task, "pending", "pending", attempts=number)
            tasks.later(pause + 1)
        first, second = await tasks.until(task, "given-up", "given-up")
        assert (first.attempts, first.reason) == (3, "it answered 500")
        assert second.attempts == 0
        (alert,) = await tasks.alerted(1)
        assert f"push of task {task[:8]} to 127.0.0.1 was given up after 3 attempts" in alert.text

        hook.answers = [OK]
        await _again(tasks, second.id)
        await tasks.until(task, "given-up", "delivered")
        assert hook.got[-1].id == second.id
        ended = (await tasks.alerted(2))[-1]
        assert (ended.about, ended.text) == (alert.about, "")
        (config,) = (await tasks.configs().list(task, "", limit=5, page="")).configs
        await tasks.configs().delete(task, config.id, "")
        assert [each.text for each in (await tasks.alerted(3))[1:]] == ["", ""]


async def test_a_receiver_that_refuses_one_push_gets_those_behind_it(tasks: Tasks):
    async with (
        receiver(answering(429), answering(413), OK) as hook,
        tasks.pushing(*at(hook.port)),
    ):
        task = await tasks.task()
        await tasks.push_to(hook.url, task)
        await tasks.say(task, "too large", "completed")
        await tasks.until(task, "pending", "pending", attempts=1)
        tasks.later(PAUSES[0] + 1)
        await tasks.until(task, "given-up", "delivered")
        assert hook.what == [*2 * ["too large"], "completed"]


async def test_a_receiver_that_wants_nothing_more_gets_nothing_more(tasks: Tasks):
    async with receiver(answering(410)) as hook, tasks.pushing(*at(hook.port)):
        task = await tasks.task()
        await tasks.push_to(hook.url, task)
        await tasks.say(task, "working", "completed")
        await tasks.until(task, "given-up", "given-up")
        assert len(hook.got) == 1


@pytest.mark.requirement("pushes-not-lost")
async def test_receivers_that_hang_delay_no_other_and_not_what_is_stored(tasks: Tasks):
    async with receiver(HANG) as dead, receiver() as hook, tasks.pushing(*at(dead.port, hook.port)):
        task = await tasks.task()
        for number in range(5):
            await tasks.push_to(f"{dead.url}/{number}", task)
        await tasks.push_to(hook.url, task)
        await tasks.say(task, "working", "made", "completed")
        await hook.until(3)
        await dead.until(5)
        assert {got.what for got in dead.got} == {"working"}


async def test_a_client_of_the_version_before_gets_the_whole_task(tasks: Tasks):
    async with receiver() as hook, tasks.pushing(*at(hook.port)):
        task = await tasks.task()
        await tasks.push_to(hook.url, task, version="0.3")
        await tasks.say(task, "made")
        await hook.until(1)
        await tasks.say(task, "completed")
        first, last = await hook.until(2)
        assert first.headers["content-type"] == "application/json"
        assert (first.said["kind"], first.said["id"]) == ("task", task)
        assert first.said["artifacts"][0]["parts"] == [{"kind": "text", "text": "made"}]
        assert last.said["status"]["state"] == "completed"


async def test_two_receivers_of_a_task_each_get_all_of_it_from_where_they_began(tasks: Tasks):
    async with receiver() as one, receiver() as two, tasks.pushing(*at(one.port, two.port)):
        task = await tasks.task()
        await tasks.push_to(one.url, task)
        await tasks.say(task, "working")
        await tasks.push_to(two.url, task, after=None)
        await tasks.say(task, "made", "completed")
        await one.until(3)
        await two.until(2)
        assert two.what == ["made", "completed"]


async def test_a_config_that_is_deleted_gets_nothing_more(tasks: Tasks):
    async with (
        receiver(answering(500)) as hook,
        receiver() as kept,
        tasks.pushing(*at(hook.port, kept.port)),
    ):
        task = await tasks.task()
        gone = await tasks.push_to(hook.url, task)
        await tasks.push_to(kept.url, task)
        await tasks.say(task, "working")
        await hook.until(1)
        await tasks.configs().delete(task, gone, "")
        await tasks.say(task, "completed")
        await kept.until(2)
        tasks.later(sum(PAUSES))
        await tasks.until(task, "delivered", "delivered")
        assert len(hook.got) == 1


async def test_a_repeated_config_takes_the_place_of_the_first_and_no_change_comes_twice(
    tasks: Tasks,
):
    async with receiver() as hook, tasks.pushing(*at(hook.port)):
        task = await tasks.task()
        first = await tasks.push_to(hook.url, task, token="old")
        await tasks.say(task, "working")
        await hook.until(1)
        assert await tasks.push_to(hook.url, task, token="new") == first
        await tasks.say(task, "completed")
        await hook.until(2)
        assert [got.headers["x-a2a-notification-token"] for got in hook.got] == ["old", "new"]
        assert hook.what == ["working", "completed"]


@pytest.mark.requirement("pushes-not-lost")
async def test_a_config_is_there_for_who_made_it_alone(tasks: Tasks):
    task = await tasks.task()
    async with receiver() as hook, tasks.pushing(*at(hook.port)):
        made = await tasks.push_to(hook.url, task)
        others = tasks.configs(tasks.bert)
        # Another's task looks absent, and so does another's config of a task that both may see.
        for call in (
            others.get(task, made, ""),
            others.list(task, "", limit=5, page=""),
            others.delete(task, made, ""),
            others.create(PushConfig(task, hook.url), ""),
            others.create(PushConfig("0" * 32, hook.url), ""),
        ):
            with pytest.raises(NotFound):
                await call
        doer = tasks.configs(tasks.worker)
        assert await doer.get(task, made, "") is None
        assert (await doer.list(task, "", limit=5, page="")).configs == []
        await doer.delete(task, made, "")
        assert await tasks.configs().get(task, made, "") is not None


async def test_configs_are_listed_in_pages_and_are_bounded(tasks: Tasks):
    task = await tasks.task()
    for number in range(MAX_PUSH_CONFIGS):
        await tasks.push_to(f"https://hooks.example/{number}", task, id=f"c{number}")
    with pytest.raises(Refused):
        await tasks.push_to("https://hooks.example/one-more", task)
    found, page = [], ""
    while True:
        part = await tasks.configs().list(task, "", limit=4, page=page)
        found += [config.id for config in part.configs]
        page = part.next_page
        if not page:
            break
    assert found == [f"c{number}" for number in range(MAX_PUSH_CONFIGS)]


async def test_the_door_of_a_worker_opens_no_other_way_out(tasks: Tasks):
    who = tasks.worker
    me = Principal(who.uid, who.org, who.nick, who.kind, USUAL_SCOPES, DOOR)
    pushes = AgentPushes(tasks.pusher, tasks.database, who, me)
    with pytest.raises(RpcError):
        await pushes.create(PushConfig(await tasks.task(), "https://hooks.example/"), "")
    with pytest.raises(InvalidInput):
        await tasks.push_to("http://169.254.169.254/latest", await tasks.task())


@pytest.mark.requirement("pushes-not-lost")
async def test_nothing_is_pushed_for_a_key_that_was_revoked_or_an_owner_that_has_gone(
    tasks: Tasks,
):
    def add(store: Store) -> None:
        store.keys.add(ApiKey("k1", tasks.anna.uid, "", "task", 0.0), "0" * 64)

    await tasks.database.write(add)
    async with receiver() as hook, tasks.pushing(*at(hook.port)):
        task = await tasks.task()
        await tasks.configs(key="k1").create(PushConfig(task, hook.url), "", after=0)
        await tasks.say(task, "working")
        await hook.until(1)
        await tasks.until(task, "delivered")
        await tasks.database.write(lambda store: store.keys.revoke("k1", tasks.clock()))
        await tasks.say(task, "completed")
        rows = await tasks.until(task, "delivered", "given-up")
        assert rows[1].reason == NO_KEY

        another = await tasks.task(tasks.bert)
        await tasks.configs(tasks.bert).create(PushConfig(another, hook.url), "", after=0)
        await tasks.database.write(lambda store: store.agents.retire_agent(tasks.bert.uid, 1.0))
        await tasks.say(another, "completed")
        (row,) = await tasks.until(another, "given-up")
        assert row.reason == NO_OWNER
        assert len(hook.got) == 1


async def test_a_task_that_is_given_up_takes_its_pushes_along(tasks: Tasks):
    async with receiver() as hook, tasks.pushing(*at(hook.port)):
        task = await tasks.task()
        await tasks.push_to(hook.url, task)
        await tasks.say(task, "completed")
        await tasks.until(task, "delivered")

        def prune(store: Store) -> Sequence[object]:
            session = store
            KINDS["tasks"].give_up(session, KINDS["tasks"].page(session, 0, 10))
            return store.pushes.of_task(task)

        assert await tasks.database.write(prune) == []
        assert await tasks.pushes(task) == []


async def _tried(tasks: Tasks, task: str, attempts: int) -> None:
    """Wait until so many attempts at a push are written down; its receiver hears of each before."""
    async with asyncio.timeout(SECONDS):
        while max(row.attempts for row in await tasks.pushes(task)) < attempts:  # noqa: ASYNC110 (rows have no event)
            await asyncio.sleep(0.01)


async def _again(tasks: Tasks, push: str) -> None:
    await tasks.database.write(lambda store: store.pushes.again(push, tasks.clock()))
    row = await tasks.database.read(lambda store: store.pushes.push(push))
    assert row is not None
    config = await tasks.database.read(lambda store: store.pushes.config(row.hook))
    assert config is not None
    tasks.pusher.wake(Receiver.of(config))


def _open(*places: str) -> OutboundPolicy:
    return OutboundPolicy.parse(places)
