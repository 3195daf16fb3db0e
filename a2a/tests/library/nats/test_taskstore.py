"""Tasks in a bucket, over a real server, beside the SDK's own store."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from a2a.server.context import ServerCallContext
from a2a.server.tasks import TaskUpdater
from a2a.server.tasks.inmemory_task_store import InMemoryTaskStore
from a2a.utils.errors import InvalidParamsError

from a2a import types
from library.agents import Agent, asks, chunks, text
from library.front import artifacts, message
from library.handling.handlers import BY_US, Made, opener, ours, reference, shown
from library.nats.durableagent import open_desk
from library.nats.streams import jetstream
from postroom_a2a.errors import (
    Conflict,
    LostUpdate,
    MessageTooLarge,
    ProtocolViolation,
    RequestTimeout,
)
from postroom_a2a.nats.kv import Bucket
from postroom_a2a.sdk.operations import Requester
from postroom_a2a.sdk.taskstore import KvTaskStore

pytestmark = pytest.mark.anyio

WORKING = types.TaskState.TASK_STATE_WORKING
ASKING = types.TaskState.TASK_STATE_INPUT_REQUIRED
DONE = types.TaskState.TASK_STATE_COMPLETED


def caller(name: str = "") -> ServerCallContext:
    return ServerCallContext(user=Requester(name)) if name else ServerCallContext()


ANYBODY = caller()


def task(
    name: str, state: types.TaskState = WORKING, *, at: int = 0, context: str = "c"
) -> types.Task:
    made = types.Task(id=name, context_id=context, status=types.TaskStatus(state=state))
    if at:
        made.status.timestamp.FromSeconds(at)
    return made


async def test_a_task_is_read_listed_and_deleted_by_its_owner_alone(tmp_path: Path):
    async with jetstream(tmp_path) as (js, _):
        store = await KvTaskStore.open(js)
        alice, bob = caller("alice@example.org"), caller("bob")
        odd = "id with é, * and ." * 20
        for name in ("t-1", odd):
            await store.save(task(name), alice)
            assert await store.get(name, alice) == task(name)
            assert await store.get(name, bob) is None
            await store.delete(name, bob)
        assert len((await store.list(types.ListTasksRequest(), alice)).tasks) == 2
        assert not (await store.list(types.ListTasksRequest(), bob)).tasks
        await store.delete(odd, alice)
        assert await store.get(odd, alice) is None
        await store.save(task(odd), alice)


@pytest.mark.requirement("core-sdk-client")
async def test_of_two_writers_one_is_refused(tmp_path: Path):
    async with jetstream(tmp_path) as (js, _):
        one, other = await KvTaskStore.open(js), await KvTaskStore.open(js)
        await one.save(task("t"), ANYBODY)
        with pytest.raises(LostUpdate):
            await other.save(task("t"), ANYBODY)
        assert await other.get("t", ANYBODY)
        await other.save(task("t", context="other"), ANYBODY)
        assert await one.get("t", ANYBODY)  # a look at it does not make a stale writer a fresh one
        with pytest.raises(LostUpdate):
            await one.save(task("t", context="one"), ANYBODY)
        stores = [await KvTaskStore.open(js) for _ in range(5)]
        outcomes = await asyncio.gather(
            *(store.save(task("new"), ANYBODY) for store in stores),
            return_exceptions=True,
        )
        assert sum(outcome is None for outcome in outcomes) == 1


async def test_a_task_that_waits_for_input_goes_on_in_another_replica(tmp_path: Path):
    async with jetstream(tmp_path) as (js, _):
        one, other = await KvTaskStore.open(js), await KvTaskStore.open(js)
        await one.save(task("t", ASKING), ANYBODY)
        for replica in (other, one, other):
            assert await replica.get("t", ANYBODY)
            await replica.save(task("t", WORKING), ANYBODY)
            await replica.save(task("t", ASKING), ANYBODY)


@pytest.mark.requirement("core-sdk-client")
async def test_nothing_is_written_over_a_task_that_has_ended(tmp_path: Path):
    async with jetstream(tmp_path) as (js, _):
        one, other = await KvTaskStore.open(js), await KvTaskStore.open(js)
        await one.save(task("t"), ANYBODY)
        assert await other.get("t", ANYBODY)
        await other.save(task("t", types.TaskState.TASK_STATE_CANCELED), ANYBODY)
        with pytest.raises(LostUpdate):
            await one.save(task("t", DONE), ANYBODY)
        for store in (one, other, await KvTaskStore.open(js)):
            ended = await store.get("t", ANYBODY)
            assert ended is not None
            with pytest.raises(Conflict):
                await store.save(task("t"), ANYBODY)
            await store.save(ended, ANYBODY)  # the same again is no change


async def test_an_ended_task_is_kept_for_a_time(tmp_path: Path):
    async with jetstream(tmp_path) as (js, _):
        store = await KvTaskStore.open(js, keep=100)
        bucket = await Bucket.open(js, "A2A_TASKS")
        await store.save(task("t"), ANYBODY)
        (entry,) = await bucket.entries()
        assert entry.ttl == 0
        await store.save(task("t", DONE), ANYBODY)
        (entry,) = await bucket.entries()
        assert entry.ttl == 100


async def test_lists_what_the_sdks_store_lists(tmp_path: Path):
    tasks = [
        task(
            f"t-{n:02}", (WORKING, DONE)[n % 2], at=1_700_000_000 + n // 3 * 10, context=f"c{n % 4}"
        )
        for n in range(23)
    ] + [task("untimed-1"), task("untimed-2", DONE)]
    since = types.ListTasksRequest(page_size=4)
    since.status_timestamp_after.FromSeconds(1_700_000_030)
    requests = [
        types.ListTasksRequest(),
        types.ListTasksRequest(page_size=1),
        types.ListTasksRequest(page_size=7),
        types.ListTasksRequest(page_size=25),
        types.ListTasksRequest(context_id="c1", page_size=2),
        types.ListTasksRequest(status=DONE, page_size=3),
        types.ListTasksRequest(context_id="nobody's"),
        since,
    ]
    async with jetstream(tmp_path) as (js, _):
        ours, theirs = await KvTaskStore.open(js), InMemoryTaskStore()
        for each in tasks:
            await ours.save(each, ANYBODY)
            await theirs.save(each, ANYBODY)
        for request in requests:
            while True:
                page = await ours.list(request, ANYBODY)
                assert page == await theirs.list(request, ANYBODY)
                if not page.next_page_token:
                    break
                request.page_token = page.next_page_token
        with pytest.raises(InvalidParamsError):
            await ours.list(types.ListTasksRequest(page_token="nonsense"), ANYBODY)


async def test_a_task_over_the_limit_of_the_server_is_refused_clearly(tmp_path: Path):
    async with jetstream(tmp_path) as (js, _):
        store = await KvTaskStore.open(js)
        large = task("large")
        large.artifacts.add(artifact_id="a", parts=[types.Part(raw=bytes(2_000_000))])
        with pytest.raises(MessageTooLarge, match="the task large is too large"):
            await store.save(large, ANYBODY)


async def test_what_is_no_task_is_left_out_of_lists(tmp_path: Path):
    async with jetstream(tmp_path) as (js, _):
        store = await KvTaskStore.open(js)
        await store.save(task("t"), ANYBODY)
        await (await Bucket.open(js, "A2A_TASKS")).put("=.bad", b"\xff")
        assert len((await store.list(types.ListTasksRequest(), ANYBODY)).tasks) == 1
        with pytest.raises(ProtocolViolation):
            await store.get("bad", ANYBODY)


@pytest.mark.parametrize("stored", [True, False])
async def test_a_save_goes_on_after_one_whose_end_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: bool
):
    async with jetstream(tmp_path) as (js, _):
        store = await KvTaskStore.open(js, retry_for=0.0)
        publish = js.publish
        for name, before in (("new", None), ("known", WORKING)):
            if before:
                await store.save(task(name, before, at=1), ANYBODY)

            async def losing(*args: Any, **options: Any) -> Any:
                if stored:
                    await publish(*args, **options)
                raise RequestTimeout("no answer came in time")

            monkeypatch.setattr(js, "publish", losing)
            with pytest.raises(RequestTimeout):
                await store.save(task(name, at=2), ANYBODY)
            monkeypatch.setattr(js, "publish", publish)
            await store.save(task(name, DONE), ANYBODY)
            assert await store.get(name, ANYBODY) == task(name, DONE)


@pytest.mark.requirement("task-kill-ends-once")
async def test_a_kill_of_nats_server_in_mid_task_loses_and_doubles_nothing(tmp_path: Path):
    async def work(agent: Agent, _: Any, __: Any, updater: TaskUpdater) -> None:
        for number in range(30):
            await updater.add_artifact(text(f"{number} "), artifact_id="a", append=number > 0)
            if number == 10:
                agent.begun.set()
        await updater.complete()

    async with open_desk(tmp_path) as desk:
        store = await KvTaskStore.open(await desk.jetstream())
        async with BY_US(work, task_store=store) as served:
            sent = asyncio.create_task(served.send("go"))
            await served.agent.begun.wait()
            await desk.server.restart(kill=True)
            done = await sent
            whole = {"a": "".join(f"{number} " for number in range(30))}
            assert artifacts(done) == artifacts(await served.get(done.id)) == whole
            assert served.agent.asked == ["go"]


async def test_a_failure_that_could_not_be_stored_is_stored_when_that_is_possible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with jetstream(tmp_path) as (js, _):
        store = await KvTaskStore.open(js, retry_for=0.0)
        async with opener(ours)(chunks, task_store=store) as desk:
            publish = js.publish
            saves = 0

            async def losing(*args: Any, **options: Any) -> Any:
                nonlocal saves
                saves += 1
                if saves in {2, 3}:  # an event, and the failure that follows from it
                    raise RequestTimeout("no answer came in time")
                return await publish(*args, **options)

            monkeypatch.setattr(js, "publish", losing)
            with pytest.raises(RequestTimeout):
                await desk.send("go")
            (kept,) = (await store.list(types.ListTasksRequest(), desk.context)).tasks
            assert kept.status.state != types.TaskState.TASK_STATE_FAILED
            handler = desk.handler
            settled = handler.at_work(kept.id)
            assert settled is not None
            await settled()
            assert (await desk.get(kept.id)).status.state == types.TaskState.TASK_STATE_FAILED
            assert handler.at_work(kept.id) is None


@pytest.mark.parametrize("opened", [opener(reference), opener(ours)], ids=["sdk", "ours"])
async def test_a_task_begun_at_one_replica_is_answered_at_the_next(tmp_path: Path, opened: Made):
    async with (
        jetstream(tmp_path) as (js, _),
        opened(asks, task_store=await KvTaskStore.open(js)) as one,
        opened(asks, task_store=await KvTaskStore.open(js)) as other,
    ):
        other.user = one.user
        begun = await one.send("question")
        assert begun.status.state == ASKING
        answer = message("answer")
        answer.task_id, answer.context_id = begun.id, begun.context_id
        ended = await other.send(answer)
        assert (ended.id, ended.status.state) == (begun.id, DONE)
        assert (await one.get(begun.id)).status.state == DONE


@pytest.mark.parametrize("opened", [opener(reference), opener(ours)], ids=["sdk", "ours"])
async def test_a_handler_stores_what_its_agent_makes(tmp_path: Path, opened: Made):
    async with jetstream(tmp_path) as (js, _):
        store = await KvTaskStore.open(js)
        async with opened(chunks, task_store=store) as desk:
            events = await desk.stream("go")
            (made,) = (await store.list(types.ListTasksRequest(), desk.context)).tasks
            assert made.status.state == DONE
            assert [part.text for part in made.artifacts[0].parts] == ["one", " two"]
            assert shown(events)[-1] == "completed"
