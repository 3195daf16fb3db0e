"""The task store in memory: what the SDK's does, with a bound."""

from __future__ import annotations

from typing import Any

import pytest
from a2a.server.context import ServerCallContext
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import ListTasksRequest, Task, TaskState, TaskStatus
from a2a.utils.errors import InvalidParamsError
from hypothesis import given
from hypothesis import strategies as st

from library.agents import chunks, waits
from library.handling.handlers import BY_US
from postroom_a2a.sdk.handling import MemoryTaskStore
from postroom_a2a.sdk.operations import Requester

pytestmark = pytest.mark.anyio

COMPLETED, WORKING = TaskState.TASK_STATE_COMPLETED, TaskState.TASK_STATE_WORKING
ALICE, BOB = (ServerCallContext(user=Requester(name)) for name in ("alice", "bob"))


def task(name: str, state: TaskState = COMPLETED, at: int | None = 1, context: str = "c") -> Task:
    status = TaskStatus(state=state)
    if at is not None:
        status.timestamp.FromSeconds(at)
    return Task(id=name, context_id=context, status=status)


async def test_the_task_that_ended_first_is_dropped_and_none_that_runs() -> None:
    store = MemoryTaskStore(limit=3)
    await store.save(task("runs", WORKING), ALICE)
    await store.save(task("later", WORKING), ALICE)
    await store.save(task("first"), BOB)
    await store.save(task("later"), ALICE)
    await store.save(task("last"), ALICE)

    assert await store.get("first", BOB) is None
    assert len(store) == 3
    for name in "uvw":
        await store.save(task(name, WORKING), BOB)
    assert [bool(await store.get(name, ALICE)) for name in ("runs", "later", "last")] == [
        True,
        False,
        False,
    ]
    assert len(store) == 4


async def test_a_handler_with_a_small_store_keeps_what_runs() -> None:
    async with BY_US(waits, task_store=MemoryTaskStore(limit=2)) as desk:
        running = await desk.send("write", return_immediately=True)
        await desk.agent.begun.wait()
        desk.agent.work = chunks
        done = [await desk.send("write") for _ in range(4)]

        assert (await desk.get(running.id)).id == running.id
        assert len(desk.handler._store) == 2
        assert (await desk.get(done[-1].id)).status.state == COMPLETED


async def test_each_owner_has_tasks_of_its_own() -> None:
    store = MemoryTaskStore()
    await store.save(task("t"), ALICE)

    assert await store.get("t", BOB) is None
    await store.delete("t", BOB)
    assert await store.get("t", ALICE) == task("t")
    await store.delete("t", ALICE)
    assert await store.get("t", ALICE) is None
    assert len(store) == 0


async def test_what_a_caller_is_given_is_its_own() -> None:
    async with BY_US(chunks) as desk:
        sent = await desk.send("write")
        streamed = (await desk.stream("write"))[0]
        whole = sent.SerializeToString()
        for mine in (sent, await desk.get(sent.id), streamed):
            mine.history.add(message_id="forged")
            mine.status.state = WORKING

        assert (await desk.get(sent.id)).SerializeToString() == whole
        assert (await desk.get(streamed.id)).status.state == COMPLETED


def test_a_limit_is_positive() -> None:
    with pytest.raises(ValueError, match="limit"):
        MemoryTaskStore(limit=0)


STATES = [WORKING, COMPLETED]
TASKS = st.lists(
    st.builds(
        task,
        st.sampled_from([f"t{number}" for number in range(12)]),
        st.sampled_from(STATES),
        st.one_of(st.none(), st.integers(1, 4)),
        st.sampled_from(["c", "d"]),
    ),
    max_size=20,
)
QUERIES = st.fixed_dictionaries(
    {"page_size": st.integers(1, 5)},
    optional={
        "context_id": st.sampled_from(["c", "d"]),
        "status": st.sampled_from(STATES),
        "status_timestamp_after": st.integers(1, 4).map(
            lambda at: task("t", at=at).status.timestamp
        ),
    },
)


@given(TASKS, QUERIES)
async def test_the_pages_of_a_list_are_those_of_the_sdks_store(
    tasks: list[Task], query: dict[str, Any]
) -> None:
    stores = (InMemoryTaskStore(), MemoryTaskStore())
    for each in tasks:
        for store in stores:
            await store.save(each, ALICE)
    token = ""
    while True:
        request = ListTasksRequest(page_token=token, **query)
        theirs, mine = [await store.list(request, ALICE) for store in stores]
        assert mine == theirs
        if not (token := theirs.next_page_token):
            break
    with pytest.raises(InvalidParamsError):
        await stores[1].list(ListTasksRequest(page_token="no page"), ALICE)
