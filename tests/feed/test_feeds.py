"""The feeds of an organisation against the records themselves: whatever happens, and however often a reader leaves."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing, suppress
from functools import partial
from itertools import count, cycle
from typing import Any

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from postroom.control.ops.feeds import moment
from postroom.feed import events, everything, project, records
from postroom.feed.events import FeedEvent, FeedSource
from postroom.feed.everything import EventCursor, EverythingFeed
from postroom.feed.project import ProjectCursor, ProjectFeed
from postroom.feed.records import (
    ChatFeed,
    InboxFeed,
    TaskFeed,
    WorkerFeed,
    announcements,
    posts,
)
from postroom.projection.changes import Signal
from postroom.projection.tail import tail
from postroom.protocol.alerts import Alert
from postroom.protocol.principal import Principal
from postroom.tasks import operations
from postroom_a2a.task_state import TaskState
from tests.control.taskroom import SECONDS, Hand, TaskRoom, emptied, task_room

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("client-stream-resumes")]


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as room:
        yield room


class Reader:
    """Follows a feed, leaves after some events and comes back with the last id, as often as `visits` say."""

    def __init__(
        self,
        make: Callable[[], FeedSource[Any]],
        after: Any,
        visits: Iterable[int],
        parse: Callable[[str], Any] = int,
    ) -> None:
        self.came: list[FeedEvent] = []
        self._make, self._after, self._parse = make, after, parse
        self._visits = visits
        self._more = asyncio.Event()

    async def run(self) -> None:
        for most in self._visits:
            async with aclosing(tail(self._make(), self._after)) as found:
                async for event in found:
                    if event is Signal.QUIET or not self._took(event):
                        continue
                    if (most := most - 1) == 0:
                        break
                else:
                    return

    def _took(self, event: FeedEvent) -> bool:
        """Note what it is told; whether that is a record, and not how things are now."""
        if event.id != "":
            self._after = self._parse(str(event.id))
        if event.record is None or event.kind in {"open", "worker", "room", "trouble", "receipt"}:
            return False
        if event.kind == "alert" and event.record["kind"] != "worker-ended":
            return False  # what the post room raises by itself about an approval
        if event.kind == "approval" and event.record["state"] == "pending":
            return False  # not told to who comes back when it is settled
        self.came.append(event)
        self._more.set()
        return True

    def of(self, kind: str) -> list[Any]:
        return [key(event) for event in self.came if event.kind == kind]

    async def reached(self, kind: str, expected: list[Any]) -> None:
        """Compare once as many have come, or when no more do."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SECONDS):
                while len(self.of(kind)) < len(expected):
                    self._more.clear()
                    await self._more.wait()
        assert self.of(kind) == expected, [
            (e.kind, e.record) for e in self.came if key(e) not in expected
        ]


def key(event: FeedEvent) -> Any:
    """What tells one record of a kind from another."""
    record = event.record
    assert record is not None
    match event.kind:
        case "alert":
            return record["text"]
        case "update":
            return record["seq"]
        case "activity":
            return record["what"], record["approval"] or record["task"] or record["text"]
        case "approval":
            return record["id"], record["state"]
    return record["id"]


class Doings:
    """What happens in a room, one thing after the other, and what of it is told."""

    def __init__(self, room: TaskRoom, hand: Hand) -> None:
        self.told: dict[str, list[Any]] = defaultdict(list)
        self._room, self._hand = room, hand
        self._number, self._reported = count(1), 1

    async def mail(self) -> None:
        sent = await self._room.parts.office.send(self._hand.uid, "@maria", "hello")
        self.told["mail"].append(sent.id)

    async def post(self) -> None:
        posted = await self._room.parts.office.post(self._hand.uid, "blue", "to all")
        self.told["post"].append(posted.id)

    async def announce(self) -> None:
        said = await self._room.parts.outbox.announce(self._hand.uid, "news")
        self.told["announcement"].append(said.id)

    async def task(self) -> None:
        task = (await self._room.delegate(f"@{self._hand.agent.nick}", "do it"))["id"]
        parts = self._room.parts
        reader = Reader(
            lambda: TaskFeed(parts.changes, parts.tasks, parts.bus, task), 0, cycle([1])
        )
        reading = asyncio.create_task(reader.run())
        await self._hand.take(task)
        await self._hand.say(task, TaskState.WORKING)
        await self._hand.say(task, TaskState.COMPLETED, "done")
        rows = await parts.database.read(lambda store: store.tasks.events_of(task, 0, 100))
        await reader.reached("update", [row.seq for row in rows])
        await asyncio.wait_for(reading, SECONDS)  # it ends with the task
        self.told["task"].append(task)
        self.told["update"] += [row.seq for row in rows]
        self.told["activity"] += [("took", task), ("ended", task)]

    async def alert(self) -> None:
        text = f"alert {next(self._number)}"
        await self._room.parts.alerts.raise_alert(Alert("worker-ended", text, self._hand.uid, text))
        await self._room.folded("ALERTS")
        self.told["alert"].append(text)
        self.told["activity"].append(("failed", text))

    async def ask(self) -> None:
        request = f"{next(self._number):016x}"
        await self._report(_asked(request))
        answer = {"type": "control_response", "id": request, "decision": "denied"}
        path = f"/v1/workers/{self._hand.uid}/control"
        assert (await self._room.api.post(path, json=answer)).status_code == 200
        self.told["approval"].append((request, "denied"))
        self.told["activity"] += [("approval", request), ("decided", request)]

    async def policy(self) -> None:
        request = f"{next(self._number):016x}"
        settled = {"type": "control_response", "request": request, "decision": "allowed"}
        await self._report(_asked(request), settled | {"channel": "policy", "by": {"rule": "*"}})

    async def talk(self) -> None:
        await self._report({"type": "text", "text": "one"}, {"type": "text", "text": "two"})

    async def _report(self, *reported: dict[str, Any]) -> None:
        done = await self._room.parts.events.append(self._hand.uid, reported, "run", self._reported)
        self._reported = done.next
        await self._room.parts.fold.reached("EVENTS", done.at, SECONDS)


def _asked(request: str) -> dict[str, Any]:
    said = {"type": "control_request", "request": request, "kind": "tool", "tool": "Bash"}
    return {**said, "title": "", "input": {"command": "true"}}


DOINGS = ("mail", "post", "announce", "task", "alert", "ask", "policy", "talk")


async def followed(room: TaskRoom, before: list[str], doings: list[str], visits: list[int]) -> None:
    """Readers of every feed come and go while this is done; they come back to what was done `before`."""
    parts, me = room.parts, room.owner.uid
    hand = await room.worker("bob", projects=("blue",))
    principal = Principal(me, "default", "maria", "human", frozenset(), "key")
    first = Doings(room, hand)
    for doing in (first.mail, first.post, first.announce):
        await doing()  # a reader without a cursor would begin with the newest
    ends = {}
    for stream in ("INBOX", "FEED", "OUTBOX"):
        await room.folded(stream)
        ends[stream] = await parts.admin.last_sequence(stream)

    def everything_feed() -> EverythingFeed:
        look = partial(moment, parts, principal)
        return EverythingFeed(parts.changes, parts.database, me, parts.tasks.blocker, look)

    def project_feed() -> ProjectFeed:
        return ProjectFeed(parts.changes, parts.database, "blue")

    readers = {
        "all": Reader(
            everything_feed,
            (await everything_feed().open(None)).cursor,
            cycle(visits),
            EventCursor.parse,
        ),
        "project": Reader(
            project_feed,
            (await project_feed().open(None)).cursor,
            cycle(visits),
            ProjectCursor.parse,
        ),
        "inbox": Reader(
            lambda: InboxFeed(parts.changes, parts.inboxes, parts.callers, me),
            ends["INBOX"],
            cycle(visits),
        ),
        "chat": Reader(
            lambda: ChatFeed(parts.changes, parts.office, me, hand.uid),
            ends["INBOX"],
            cycle(visits),
        ),
        "posts": Reader(
            lambda: posts(parts.changes, parts.office, "blue"), ends["FEED"], cycle(visits)
        ),
        "outbox": Reader(
            lambda: announcements(parts.changes, parts.outbox, hand.uid),
            ends["OUTBOX"],
            cycle(visits),
        ),
        "worker": Reader(
            lambda: WorkerFeed(parts.changes, parts.events, hand.uid), 0, cycle(visits)
        ),
    }
    happened = Doings(room, hand)
    for doing in before:
        await getattr(happened, doing)()
    running = [asyncio.create_task(reader.run()) for reader in readers.values()]
    try:
        for doing in [*doings, *DOINGS]:  # at last one of each: what came twice has come by then
            await getattr(happened, doing)()
        told = happened.told
        for kind in ("mail", "task", "update", "post", "alert", "approval"):
            await readers["all"].reached(kind, told[kind])
        await readers["project"].reached("post", told["post"])
        await readers["project"].reached("activity", told["activity"])
        for name, kind in {
            "inbox": "mail",
            "posts": "post",
            "outbox": "announcement",
        }.items():
            await readers[name].reached(kind, told[kind])
        said = await parts.office.chat(me, hand.uid, limit=500)  # the requests of tasks are, too
        since = [mail.id for mail in said if mail.seq > ends["INBOX"]]
        await readers["chat"].reached("mail", since)
        rows = await parts.database.read(lambda store: store.events.past(hand.uid, 0, 500))
        for kind in {row.kind for row in rows}:
            await readers["worker"].reached(kind, [row.id for row in rows if row.kind == kind])
        assert [event.id for event in readers["worker"].came] == [row.id for row in rows]
    finally:
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    assert {type(each.exception()) for each in running if not each.cancelled()} <= {type(None)}


async def test_whatever_happens_each_reader_is_told_of_each_record_once_and_in_order(
    shared: TaskRoom, monkeypatch: pytest.MonkeyPatch
):
    loop = asyncio.get_running_loop()

    @settings(deadline=None, max_examples=12, phases=[Phase.explicit, Phase.generate])
    @given(
        before=st.lists(st.sampled_from(DOINGS), max_size=12),
        doings=st.lists(st.sampled_from(DOINGS), max_size=8),
        visits=st.lists(st.integers(1, 9), min_size=1, max_size=5),
        page=st.integers(2, 4),
    )
    @example(before=["mail", "task", "mail", "mail", "task"], doings=[], visits=[9], page=2)
    def told(before: list[str], doings: list[str], visits: list[int], page: int) -> None:
        async def one() -> None:
            for module in (events, everything, project, records, operations):
                monkeypatch.setattr(module, "PAGE", page)
            async with emptied(shared) as room:
                await followed(room, before, doings, visits)

        asyncio.run_coroutine_threadsafe(one(), loop).result()

    await asyncio.to_thread(told)


async def test_who_follows_an_empty_feed_gets_all_of_a_burst(
    shared: TaskRoom, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(records, "PAGE", 2)
    async with emptied(shared) as room:
        office = room.parts.office
        feed = posts(room.parts.changes, office, "green")
        page = await feed.open(0)
        made = [(await office.post(room.owner.uid, "green", "to all")).id for _ in range(5)]
        came: list[Any] = []
        while len(came) < 5 and (page := await feed.read(page.cursor)).records:
            came += [key(event) for event in page.records]
        assert came == made
