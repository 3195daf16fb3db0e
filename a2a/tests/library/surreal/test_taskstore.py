"""Tasks of an SDK agent in SurrealDB, beside the SDK's own store, embedded and on a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from itertools import count
from pathlib import Path

import pytest
from a2a.server.cluster.task_store import ConcurrentTaskModificationError
from a2a.server.cluster.version import TaskVersion
from a2a.server.tasks.inmemory_task_store import InMemoryTaskStore
from a2a.utils.errors import InvalidParamsError

from a2a import types
from library.agents import asks
from library.front import message
from library.handling.handlers import Made, opener, ours, reference
from library.nats.test_taskstore import ANYBODY, ASKING, DONE, WORKING, caller, task
from library.surrealserver import SurrealServer, running_surreal
from postroom_a2a import SurrealTaskStore
from postroom_a2a.errors import Conflict, LostUpdate, RequestTimeout
from postroom_a2a.surreal import InUse, open_connection
from postroom_a2a.surreal.address import Address

pytestmark = pytest.mark.anyio

NUMBERS = count()


@pytest.fixture(scope="module")
def server() -> Generator[SurrealServer]:
    with running_surreal() as server:
        yield server


class Replicas:
    """Opens stores over one database."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._first: SurrealTaskStore | None = None
        self._opened: list[SurrealTaskStore] = []

    async def open(self) -> SurrealTaskStore:
        if "mem://" in self.url and self._first is not None:
            return SurrealTaskStore(self._first._rows)  # the engine is in this process alone
        self._first = await SurrealTaskStore.open(self.url, retry_for=0.0)
        self._opened.append(self._first)
        return self._first

    async def close(self) -> None:
        for store in self._opened:
            await store.close()


@pytest.fixture(params=["embedded", "server"])
async def replicas(
    request: pytest.FixtureRequest, server: SurrealServer
) -> AsyncGenerator[Replicas]:
    url = "surrealdb+mem://" if request.param == "embedded" else server.url(f"a{next(NUMBERS)}")
    made = Replicas(url)
    yield made
    await made.close()


async def test_a_task_is_read_listed_and_deleted_by_its_owner_alone(replicas: Replicas):
    store = await replicas.open()
    alice, bob = caller("alice@example.org"), caller("bob")
    odd = "id with é, * / and ." * 20
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


@pytest.mark.requirement("store-contract-kept")
async def test_of_two_writers_one_is_refused(replicas: Replicas):
    one, other = await replicas.open(), await replicas.open()
    await one.save(task("t"), ANYBODY)
    with pytest.raises(LostUpdate):
        await other.save(task("t"), ANYBODY)
    assert await other.get("t", ANYBODY)
    await other.save(task("t", context="other"), ANYBODY)
    with pytest.raises(LostUpdate):
        await one.save(task("t", context="one"), ANYBODY)
    stores = [await replicas.open() for _ in range(4)]
    outcomes = await asyncio.gather(
        *(store.save(task("new"), ANYBODY) for store in stores), return_exceptions=True
    )
    assert sum(outcome is None for outcome in outcomes) == 1


@pytest.mark.requirement("store-contract-kept")
async def test_nothing_is_written_over_a_task_that_has_ended(replicas: Replicas):
    one, other = await replicas.open(), await replicas.open()
    await one.save(task("t"), ANYBODY)
    assert await other.get("t", ANYBODY)
    await other.save(task("t", types.TaskState.TASK_STATE_CANCELED), ANYBODY)
    with pytest.raises(LostUpdate):
        await one.save(task("t", DONE), ANYBODY)
    for store in (one, other, await replicas.open()):
        ended = await store.get("t", ANYBODY)
        assert ended is not None
        with pytest.raises(Conflict):
            await store.save(task("t"), ANYBODY)
        await store.save(ended, ANYBODY)  # the same again is no change


async def test_lists_what_the_sdks_store_lists(replicas: Replicas):
    tasks = [
        task(
            f"t-{n:02}", (WORKING, DONE)[n % 2], at=1_700_000_000 + n // 3 * 10, context=f"c{n % 4}"
        )
        for n in range(23)
    ] + [task("untimed-1"), task("untimed-2", DONE), task("t"), task("t-1é", at=1_700_000_000)]
    since = types.ListTasksRequest(page_size=4)
    since.status_timestamp_after.FromSeconds(1_700_000_030)
    requests = [
        types.ListTasksRequest(),
        types.ListTasksRequest(page_size=1),
        types.ListTasksRequest(page_size=7),
        types.ListTasksRequest(page_size=27),
        types.ListTasksRequest(context_id="c1", page_size=2),
        types.ListTasksRequest(status=DONE, page_size=3),
        types.ListTasksRequest(context_id="nobody's"),
        since,
    ]
    store, theirs = await replicas.open(), InMemoryTaskStore()
    for each in tasks:
        await store.save(each, ANYBODY)
        await theirs.save(each, ANYBODY)
    for request in requests:
        while True:
            page = await store.list(request, ANYBODY)
            assert page == await theirs.list(request, ANYBODY)
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
    with pytest.raises(InvalidParamsError):
        await store.list(types.ListTasksRequest(page_token="nonsense"), ANYBODY)


async def test_a_page_stays_where_it_was_while_tasks_come(replicas: Replicas):
    store = await replicas.open()
    for n in range(6):
        await store.save(task(f"t-{n}", at=1_700_000_000 + n), ANYBODY)
    first = await store.list(types.ListTasksRequest(page_size=3), ANYBODY)
    await store.save(task("late", at=1_700_000_100), ANYBODY)
    request = types.ListTasksRequest(page_size=3, page_token=first.next_page_token)
    assert [one.id for one in (await store.list(request, ANYBODY)).tasks] == ["t-2", "t-1", "t-0"]


async def test_versions_are_checked_and_events_are_kept_with_their_task(replicas: Replicas):
    store = (await replicas.open()).versioned
    other = (await replicas.open()).versioned
    event = types.TaskStatusUpdateEvent(task_id="t", status=types.TaskStatus(state=WORKING))
    first = await store.save(task("t"), prev_version=TaskVersion.MISSING, context=ANYBODY)
    for late in (TaskVersion.MISSING, TaskVersion(7)):
        with pytest.raises(ConcurrentTaskModificationError):
            await other.save(task("t"), prev_version=late, context=ANYBODY)
    second = await other.save(task("t"), event=event, prev_version=first, context=ANYBODY)
    assert second.is_after(first)
    stored = await store.get("t", ANYBODY)
    assert stored is not None
    assert (stored.task, stored.version) == (task("t"), second)
    canceled = task("t", types.TaskState.TASK_STATE_CANCELED)
    third = await store.save(canceled, prev_version=first, context=ANYBODY)  # whatever its version
    assert third.is_after(second)
    for version in (third, second):
        with pytest.raises(ConcurrentTaskModificationError):
            await other.save(canceled, prev_version=version, context=ANYBODY)
    with pytest.raises(ConcurrentTaskModificationError):
        await other.save(task("none", canceled.status.state), prev_version=third, context=ANYBODY)
    assert [one.status_update for one in await other.events("t", ANYBODY)] == [event]
    await other.delete("t", ANYBODY)
    assert await store.get("t", ANYBODY) is None
    assert not await store.events("t", ANYBODY)


@pytest.mark.parametrize("opened", [opener(reference), opener(ours)], ids=["sdk", "ours"])
async def test_a_task_begun_at_one_replica_is_answered_at_the_next(
    replicas: Replicas, opened: Made
):
    async with (
        opened(asks, task_store=await replicas.open()) as one,
        opened(asks, task_store=await replicas.open()) as other,
    ):
        other.user = one.user
        begun = await one.send("question")
        assert begun.status.state == ASKING
        answer = message("answer")
        answer.task_id, answer.context_id = begun.id, begun.context_id
        ended = await other.send(answer)
        assert (ended.id, ended.status.state) == (begun.id, DONE)
        assert (await one.get(begun.id)).status.state == DONE


async def test_a_server_that_was_away_is_used_again(server: SurrealServer):
    store = await SurrealTaskStore.open(server.url(f"a{next(NUMBERS)}"), retry_for=0.0)
    try:
        await store.save(task("t"), ANYBODY)
        server.stop()
        with pytest.raises(RequestTimeout):
            await store.save(task("t", context="b"), ANYBODY)
        with pytest.raises(RequestTimeout):
            await store.get("t", ANYBODY)
        server.start()
        await store.save(task("t", DONE), ANYBODY)
        assert await store.get("t", ANYBODY) == task("t", DONE)
    finally:
        await store.close()


async def test_a_folder_is_open_in_one_store_at_a_time(tmp_path: Path):
    url = f"surrealdb+file://{tmp_path}/with a space"
    store = await SurrealTaskStore.open(url)
    await store.save(task("t"), ANYBODY)
    with pytest.raises(InUse, match="is open in the process with pid"):
        await SurrealTaskStore.open(url)
    await store.close()
    again = await SurrealTaskStore.open(url)
    assert await again.get("t", ANYBODY) == task("t")
    await again.close()


async def test_the_tables_of_a_post_room_are_left_alone(tmp_path: Path):
    connection = open_connection(Address.parse(f"surrealdb+file://{tmp_path}"), "a2a")
    connection.run(
        "DEFINE TABLE a2a_tasks SCHEMAFULL; DEFINE FIELD requested_seq ON a2a_tasks TYPE int"
    )
    connection.close()
    with pytest.raises(Conflict, match="the tasks of a post room"):
        await SurrealTaskStore.open(f"surrealdb+file://{tmp_path}")
