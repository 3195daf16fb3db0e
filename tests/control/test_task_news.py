"""What sessions in terminals are told of their tasks: as mail, each change once, whatever comes between."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import httpx2
import pytest

from postroom.errors import RequestTimeout
from postroom.mail.office import PostOffice
from postroom.protocol.priority import Input
from postroom_a2a.task_state import TaskState
from tests.control.taskroom import Hand, TaskRoom, task_room
from tests.control.test_sessions import House, Terminal, house_of

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("session-hands-over")]


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as room:
        yield room


@pytest.fixture
async def house(shared: TaskRoom) -> AsyncGenerator[House]:
    async with house_of(shared) as made:
        yield made


async def inbox(app: Terminal, **params: Any) -> list[dict[str, Any]]:
    """The messages to a session, at least one."""
    answer = await app.api.get("/v1/inbox", params={"wait": 20, **params}, timeout=30)
    return answer.json()["messages"]


async def delegated(app: Terminal, hand: Hand) -> str:
    """A task that a session has given, and its worker is at."""
    answer = await app.api.post("/v1/tasks", json={"to": hand.uid, "text": "choose"})
    task = answer.json()["id"]
    await begin(hand, task)
    return task


async def begin(hand: Hand, task: str) -> None:
    await hand.take(task)
    await hand.say(task, TaskState.WORKING)


async def tool(app: Terminal, name: str, **arguments: Any) -> str:
    """The text of the result of a tool."""
    params = {"name": name, "arguments": arguments}
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {"Authorization": app.api.headers["Authorization"], "Accept": "*/*"}
    async with httpx2.AsyncClient(headers=headers, base_url=app.api.base_url, timeout=30) as client:
        answer = await client.post("/mcp", json=request)
    return answer.json()["result"]["content"][0]["text"]


async def test_a_session_answers_what_its_worker_asks_by_a_reply_and_gets_the_end(house: House):
    app = await house.session(await house.person("ana"))
    hand = await house.room.worker("coder")
    task = await delegated(app, hand)
    await hand.say(task, TaskState.INPUT_REQUIRED, "a list or a map?")

    (asked,) = await inbox(app)
    assert (asked["from"]["nick"], asked["about"]) == ("coder", task)
    assert "a list or a map?" in asked["text"]
    await hand.listen()
    said = await tool(app, "a2a_reply", message=asked["id"], text="a map")
    assert said == f"Accepted: the answer for task {task}."
    by, heard = await hand.next()
    assert isinstance(heard, Input)
    assert (by, heard.message["parts"]) == (app.uid, [{"text": "a map"}])

    await hand.answered(task, heard.message)
    await hand.make(task, "{}", "shape")
    await hand.say(task, TaskState.COMPLETED, "chosen")
    (told,) = await inbox(app, after=asked["seq"])
    assert told["text"].splitlines() == [
        f"Task {task[:8]} is completed.",
        "chosen",
        "Result shape:",
        "{}",
    ]
    assert told["subject"] == f"task {task[:8]}: completed"


async def test_a_reply_to_news_of_a_task_that_asks_nothing_is_a_message(house: House):
    app = await house.session(await house.person("ana"))
    hand = await house.room.worker("coder")
    task = await delegated(app, hand)
    await hand.say(task, TaskState.COMPLETED, "chosen")
    (told,) = await inbox(app)

    assert "Accepted: message" in await tool(app, "a2a_reply", message=told["id"], text="thanks")


async def test_a_fault_on_the_way_loses_nothing_and_says_nothing_twice(
    house: House, monkeypatch: pytest.MonkeyPatch
):
    app = await house.session(await house.person("ana"))
    hand = await house.room.worker("coder")
    first = await delegated(app, hand)
    await hand.say(first, TaskState.COMPLETED, "one")
    (told,) = await inbox(app)
    send, faults = PostOffice.send, [RequestTimeout("late")]

    async def fails_once(*given: Any, **more: Any) -> Any:
        if faults and more.get("removed"):
            raise faults.pop()
        return await send(*given, **more)

    monkeypatch.setattr(PostOffice, "send", fails_once)
    second = await delegated(app, hand)
    await hand.say(second, TaskState.COMPLETED, "two")

    (again,) = await inbox(app, after=told["seq"])
    assert again["about"] == second
    assert not faults
    assert len((await app.api.get("/v1/inbox")).json()["messages"]) == 2


async def test_the_end_of_a_task_whose_worker_was_removed_is_told(house: House):
    app = await house.session(await house.person("ana"))
    hand = await house.room.worker("coder")
    task = await delegated(app, hand)
    await house.room.parts.workers.remove(hand.uid)
    await house.room.parts.sweep()

    (told,) = await inbox(app)
    assert (told["about"], told["from"]["uid"]) == (task, hand.uid)
    assert "was removed" in told["text"]


async def test_other_agents_are_told_nothing(house: House):
    made = (await house.room.api.post("/v1/agents", json={"nick": "script"})).json()
    hand = await house.room.worker("coder")
    view = await house.room.parts.tasks.delegate(made["uid"], hand.agent, "choose")
    await begin(hand, view.id)
    await hand.say(view.id, TaskState.COMPLETED, "one")
    app = await house.session(await house.person("ana"))
    task = await delegated(app, hand)
    await hand.say(task, TaskState.COMPLETED, "two")
    await inbox(app)

    found = await house.room.parts.inboxes.newest(made["uid"], unread=False, limit=10)
    await house.room.api.delete(f"/v1/agents/{made['uid']}")
    assert not found
