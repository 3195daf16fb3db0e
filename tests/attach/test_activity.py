"""What happens in a project beside its posts, read from what is stored."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from postroom.protocol.alerts import Alert
from postroom_a2a.task_state import TaskState
from tests.control.taskroom import SECONDS, Hand, TaskRoom, emptied, task_room
from tests.control.test_event_stream import listening

pytestmark = pytest.mark.anyio

REQUEST = "ab12cd34ab12cd34"


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as room:
        yield room


def events_of(project: str) -> str:
    return f"/v1/projects/{project}/events"


def asks(request: str, **more: Any) -> dict[str, Any]:
    said = {"type": "control_request", "request": request, "kind": "tool", "tool": "Bash"}
    return {**said, "title": "make test", "input": {"command": "make test"}, **more}


async def report(room: TaskRoom, hand: Hand, *events: dict[str, Any]) -> None:
    """As the sidecar reports; folded on return."""
    await report_more(room, hand, 1, *events)


async def fail(room: TaskRoom, hand: Hand) -> None:
    await room.parts.alerts.raise_alert(Alert("worker-ended", "it has ended", hand.uid))
    await room.folded("ALERTS")


async def work(room: TaskRoom, hand: Hand) -> str:
    """A task that is taken, asks, goes on and ends."""
    task = (await room.delegate(f"@{hand.agent.nick}", "fix it"))["id"]
    await hand.take(task)
    await hand.say(task, TaskState.WORKING)
    await hand.say(task, TaskState.INPUT_REQUIRED, "which branch?")
    await hand.say(task, TaskState.WORKING, "going on")
    await hand.say(task, TaskState.COMPLETED, "fixed")
    return task


async def post(room: TaskRoom, project: str, text: str) -> None:
    answer = await room.api.post(f"/v1/projects/{project}/posts", json={"text": text})
    assert answer.status_code == 201


def shown(event: dict[str, Any]) -> tuple[str, str]:
    if event["post"]:
        return "post", event["post"]["text"]
    return event["activity"]["what"], event["activity"]["text"]


ALL = [
    ("joined", ""),
    ("post", "hello"),
    ("took", "fix it"),
    ("asks", "which branch?"),
    ("ended", "fixed"),
    ("approval", "make test"),
    ("decided", "make test"),
    ("failed", "it has ended"),
    ("left", ""),
]


async def all_of_it(room: TaskRoom, project: str) -> None:
    bob = await room.worker("bob", projects=(project,))
    await post(room, project, "hello")
    await work(room, bob)
    await report(room, bob, asks(REQUEST))
    answered = await room.api.post(
        f"/v1/workers/{bob.uid}/control",
        json={"type": "control_response", "id": REQUEST, "decision": "allowed", "channel": "chat"},
    )
    assert answered.status_code == 200
    await fail(room, bob)
    await room.parts.workers.remove(bob.uid)


@pytest.mark.requirement("client-stream-resumes")
async def test_what_happened_in_a_project_is_read_from_what_is_stored(shared: TaskRoom):
    async with emptied(shared) as room:
        green = await room.worker("green", projects=("green",))
        await all_of_it(room, "blue")
        await work(room, green)  # of another project
        await fail(room, green)
        found = (await room.api.get(events_of("blue"))).json()
        assert [shown(event) for event in found["events"]] == ALL
        activity = [event["activity"] for event in found["events"] if event["activity"]]
        assert {one["worker"]["nick"] for one in activity} == {"bob"}
        by = {one["what"]: one["by"] and one["by"]["nick"] for one in activity}
        assert (by["took"], by["decided"], by["joined"]) == ("maria", "maria", None)
        newest = (await room.api.get(events_of("blue"), params={"limit": 2})).json()
        assert [shown(event) for event in newest["events"]] == ALL[-2:]
        assert newest["after"] == found["after"]


async def test_what_happened_earlier_is_read_page_by_page_each_thing_once(shared: TaskRoom):
    async with emptied(shared) as room:
        await all_of_it(room, "violet")
        policy = {"type": "control_response", "decision": "allowed", "channel": "policy"}
        bob = await room.worker("bob2", projects=("violet",))
        for number in range(5):  # read, and not shown
            request = f"ab12cd34ab12cd4{number}"
            by = {"request": request, "by": {"rule": "*"}}
            await report_more(room, bob, 2 * number + 1, asks(request), policy | by)
        pages: list[list[tuple[str, str]]] = []
        before: str | None = ""
        while before is not None:
            query = {"limit": 2, "before": before}
            page = (await room.api.get(events_of("violet"), params=query)).json()
            await post(room, "violet", "later")  # is in no earlier page
            pages.insert(0, [shown(event) for event in page["events"]])
            before = page["next"]
        assert [len(page) for page in pages[1:]] == [2] * (len(pages) - 1)
        assert [one for page in pages for one in page] == [*ALL, ("joined", "")]


async def report_more(room: TaskRoom, hand: Hand, first: int, *events: dict[str, Any]) -> None:
    done = await room.parts.events.append(hand.uid, events, "run", first)
    await room.parts.fold.reached("EVENTS", done.at, SECONDS)


@pytest.mark.requirement("client-stream-resumes")
async def test_who_follows_a_project_is_told_each_thing_once_and_goes_on_where_it_was(
    shared: TaskRoom,
):
    async with emptied(shared) as room:
        before = (await room.api.get(events_of("red"))).json()
        assert before["events"] == []
        async with listening(room, f"{events_of('red')}/stream?after={before['after']}") as told:
            await told.next("open")
            await all_of_it(room, "red")
            live = [await told.next("post", "activity") for _ in ALL]
        said = [
            ("post" if one["kind"] == "post" else one["record"]["what"], one["record"]["text"])
            for one in live
        ]
        assert sorted(said) == sorted(ALL)
        async with listening(room, f"{events_of('red')}/stream?after={told.after}") as again:
            await again.next("open")
            await post(room, "red", "later")
            assert (await again.next("post", "activity"))["record"]["text"] == "later"


@pytest.mark.requirement("client-stream-resumes")
async def test_what_a_template_decides_by_itself_is_not_told(shared: TaskRoom):
    async with emptied(shared) as room:
        bob = await room.worker("bob", projects=("black",))
        policy = {"type": "control_response", "request": REQUEST, "decision": "allowed"}
        await report(room, bob, asks(REQUEST), policy | {"channel": "policy", "by": {"rule": "*"}})
        found = (await room.api.get(events_of("black"))).json()
        assert [shown(event)[0] for event in found["events"]] == ["joined"]


@pytest.mark.requirement("client-stream-resumes")
async def test_plain_posts_are_what_they_were_and_nothing_is_written_for_what_happens(
    shared: TaskRoom,
):
    async with emptied(shared) as room:
        await all_of_it(room, "white")
        feed = await room.parts.admin.last_sequence("FEED")
        posts = (await room.api.get("/v1/projects/white/posts")).json()["posts"]
        assert [one["text"] for one in posts] == ["hello"]
        assert (await room.api.get(events_of("white"))).status_code == 200
        assert await room.parts.admin.last_sequence("FEED") == feed


async def test_a_cursor_of_another_form_is_refused(shared: TaskRoom):
    async with emptied(shared) as room:
        answer = await room.api.get(f"{events_of('grey')}/stream", params={"after": "1-2"})
        assert answer.json()["code"] == "invalid-input"
