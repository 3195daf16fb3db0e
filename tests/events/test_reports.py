"""Reports of events through a worker's door: in the log once, folded, and read again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from postroom.errors import StateUnwritable
from postroom.projection.following import Quota
from postroom.protocol.events import EventBatch, event_id
from postroom.protocol.limits import MAX_EVENTS
from postroom.protocol.streams import BY_NAME
from tests.control.taskroom import SECONDS, Hand, TaskRoom, door_of, emptied, task_room

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as room:
        yield room


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


def report(*events: dict[str, Any], run: str = "", first: int = 0) -> dict[str, Any]:
    return {"events": list(events)} | ({"run": run, "first": first} if run else {})


async def posted(door: httpx2.AsyncClient, worker: Hand, body: dict[str, Any]) -> httpx2.Response:
    return await door.post(f"/v1/workers/{worker.uid}/sdk-events", json=body)


async def folded(room: TaskRoom) -> None:
    last = await room.rig.admin.last_sequence("EVENTS")
    await room.parts.fold.reached("EVENTS", last, SECONDS)


async def told(room: TaskRoom, worker: Hand, **page: int) -> dict[str, Any]:
    await folded(room)
    answer = await room.api.get(f"/v1/workers/{worker.agent.nick}/sdk-events", params=page)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.requirement("events-folded-once")
async def test_a_report_is_one_record_and_its_repetition_brings_nothing_new(shared: TaskRoom):
    async with emptied(shared) as room:
        alice = await room.worker("alice")
        async with door_of(room, alice) as door:
            before = await room.rig.admin.last_sequence("EVENTS")
            first = await posted(door, alice, report(text("a"), text("b"), run="r1", first=1))
            again = await posted(door, alice, report(text("a"), text("b"), run="r1", first=1))
            await folded(room)
            once_more = await posted(door, alice, report(text("a"), text("b"), run="r1", first=1))
            longer = await posted(
                door, alice, report(text("a"), text("b"), text("c"), run="r1", first=1)
            )
            rest = await posted(door, alice, report(text("c"), run="r1", first=3))
        ids = [event_id(before + 1, 0), event_id(before + 1, 1)]
        third = event_id(before + 2, 0)
        assert first.status_code == again.status_code == 202
        assert first.json() == again.json() == {"stored": ids, "next": 3}
        assert once_more.json() == {"stored": ids, "next": 3}
        assert longer.json() == {"stored": [*ids, third], "next": 4}
        assert rest.json() == {"stored": [third], "next": 4}
        assert await room.rig.admin.last_sequence("EVENTS") == before + 2
        shown = await told(room, alice)
        assert [event["text"] for event in shown["events"]] == ["a", "b", "c"]
        assert [event["id"] for event in shown["events"]] == [*ids, third]
        assert {event["worker"] for event in shown["events"]} == {alice.uid}
        assert shown["next"] is None


@pytest.mark.requirement("events-folded-once")
async def test_who_begins_again_is_told_how_far_it_was_and_spends_no_share(
    shared: TaskRoom, monkeypatch: pytest.MonkeyPatch
):
    async with emptied(shared) as room:
        alice = await room.worker("alice")
        log = room.parts.events
        async with door_of(room, alice) as door:
            for number in range(1, 41):
                await posted(door, alice, report(text(str(number)), run="r1", first=number))
            await folded(room)
            last = await room.rig.admin.last_sequence("EVENTS")
            log._next.clear()  # as after a start
            monkeypatch.setattr(log, "_count", Quota(3, 600))
            for _ in range(5):
                body = report(*(text(str(n)) for n in range(1, 11)), run="r1", first=1)
                answer = await posted(door, alice, body)
                assert answer.status_code == 202, answer.text
                assert answer.json()["next"] == 41
            both = await posted(
                door, alice, report(*(text(str(n)) for n in range(39, 43)), run="r1", first=39)
            )
        assert both.json()["next"] == 43
        assert await room.rig.admin.last_sequence("EVENTS") == last + 1
        shown = await told(room, alice, limit=100)
        assert [event["text"] for event in shown["events"]] == [str(n) for n in range(1, 43)]


@pytest.mark.requirement("events-folded-once")
async def test_a_report_that_the_log_has_but_the_fold_has_not_spends_no_share(
    shared: TaskRoom, monkeypatch: pytest.MonkeyPatch
):
    async with emptied(shared) as room:
        alice = await room.worker("alice")
        log = room.parts.events
        monkeypatch.setattr(log, "_count", Quota(2, 600))
        async with door_of(room, alice) as door:
            for _ in range(4):
                answer = await posted(door, alice, report(text("a"), run="r1", first=1))
                assert answer.status_code == 202, answer.text


@pytest.mark.requirement("events-folded-once")
async def test_two_workers_may_use_the_same_run_and_numbers(shared: TaskRoom):
    async with emptied(shared) as room:
        alice, bob = await room.worker("alice"), await room.worker("bob")
        for worker in (alice, bob):
            async with door_of(room, worker) as door:
                body = report(text(worker.agent.nick), run="same", first=1)
                assert (await posted(door, worker, body)).json()["next"] == 2
        for worker in (alice, bob):
            (event,) = (await told(room, worker))["events"]
            assert event["text"] == worker.agent.nick


async def test_pages_lead_through_all_events(shared: TaskRoom):
    async with emptied(shared) as room:
        alice = await room.worker("alice")
        async with door_of(room, alice) as door:
            for first in (1, 4, 7):
                events = [text(str(first + at)) for at in range(3)]
                await posted(door, alice, report(*events, run="r", first=first))
        await folded(room)
        seen: list[str] = []
        after: int | None = 0
        while after is not None:
            page = await told(room, alice, after_id=after, limit=4)
            seen += [event["text"] for event in page["events"]]
            after = page["next"]
        assert seen == [str(at) for at in range(1, 10)]


async def test_what_an_agent_says_cannot_change_whose_event_it_is(shared: TaskRoom):
    async with emptied(shared) as room:
        alice = await room.worker("alice")
        lie = {
            "type": "control_request",
            "request": "a1" * 16,
            "id": 5,
            "worker": "f" * 32,
            "at": "never",
        }
        async with door_of(room, alice) as door:
            await posted(door, alice, report(lie, run="r", first=1))
        (event,) = (await told(room, alice))["events"]
        assert (event["worker"], event["request"]) == (alice.uid, "a1" * 16)
        assert event["id"] >= event_id(1, 0)
        assert event["at"] != "never"


@pytest.mark.requirement("approval-person-unforgeable")
async def test_nothing_that_a_worker_reports_names_a_person(shared: TaskRoom):
    async with emptied(shared) as room:
        alice = await room.worker("alice")
        by = {"uid": room.owner.uid, "nick": room.owner.nick, "rule": "Bash(make *)"}
        said = {"by": by, "channel": "cli", "request": "a1" * 16, "decision": "allowed"}
        kinds = ("control_response", "interrupt", "terminal", "text")
        lies = [{"type": kind, "state": "opened", **said} for kind in kinds]
        async with door_of(room, alice) as door:
            await posted(door, alice, report(*lies, run="r", first=1))
            await posted(door, alice, report(*lies))
            await posted(door, alice, report({**said, "by": 7, "channel": ["cli"]}))
            honest = {"type": "control_response", **said, "channel": "policy"}
            await posted(door, alice, report(honest, run="r", first=5))
        *forged, policy = (await told(room, alice))["events"]
        assert {event["type"] for event in forged} == {"control_response", "raw", "text"}
        assert {event["channel"] for event in forged} == {""}
        assert room.owner.nick not in str(forged)
        assert (policy["channel"], policy["by"]) == ("policy", {"rule": by["rule"]})


async def test_reports_that_are_too_many_or_not_numbered_are_refused_and_nothing_is_stored(
    shared: TaskRoom,
):
    async with emptied(shared) as room:
        alice = await room.worker("alice")
        before = await room.rig.admin.last_sequence("EVENTS")
        many = [text("x")] * (MAX_EVENTS + 1)
        large = [text("x" * 60_000)] * 10
        async with door_of(room, alice) as door:
            found = [
                (await posted(door, alice, body)).status_code
                for body in (
                    report(),
                    report(*many),
                    report(*large),
                    {"events": [text("x")], "run": "r"},
                    {"events": [text("x")], "first": 4},
                    {"events": [text("x")], "run": "a b", "first": 4},
                    {"events": ["x"]},
                )
            ]
        assert found == [422, 422, 413, 422, 422, 422, 422]
        assert await room.rig.admin.last_sequence("EVENTS") == before


@pytest.mark.requirement("attack-flood-slowed")
@pytest.mark.parametrize("share", ["_bytes", "_count"])
async def test_a_worker_that_floods_uses_up_its_own_share_alone(
    shared: TaskRoom, monkeypatch: pytest.MonkeyPatch, share: str
):
    async with emptied(shared) as room:
        alice, bob = await room.worker("alice"), await room.worker("bob")
        quota = Quota({"_bytes": 2000, "_count": 20}[share], 3600.0)
        monkeypatch.setattr(room.parts.events, share, quota)
        many = [text("x" * 80)] * 10
        async with door_of(room, alice) as door:
            found = [
                (await posted(door, alice, report(*many, run="r", first=1 + 10 * at))).status_code
                for at in range(4)
            ]
        async with door_of(room, bob) as door:
            others = await posted(door, bob, report(*many, run="r", first=1))
        body = {"type": "interrupt", "reason": "it floods"}
        person = await room.api.post("/v1/workers/alice/control", json=body)
        assert found in ([202, 202, 429, 429], [202, 429, 429, 429])
        assert (others.status_code, person.status_code) == (202, 200)


async def test_a_full_stream_and_a_full_disk_are_told_as_such(
    shared: TaskRoom, monkeypatch: pytest.MonkeyPatch
):
    async with emptied(shared) as room:
        alice = await room.worker("alice")
        admin = room.rig.admin

        def full() -> None:
            raise StateUnwritable("the disk is full")

        async with door_of(room, alice) as door:
            await admin.ensure_stream(replace(BY_NAME["EVENTS"], max_bytes=4096))
            try:
                refused = await posted(door, alice, report(text("x" * 5000), run="r", first=1))
            finally:
                await admin.ensure_stream(BY_NAME["EVENTS"])
            monkeypatch.setattr(room.parts.events, "_space", full)
            unwritable = await posted(door, alice, report(text("x"), run="r", first=1))
            monkeypatch.undo()
            taken = await posted(door, alice, report(text("x"), run="r", first=1))
        assert (refused.status_code, refused.json()["code"]) == (507, "stream-full")
        assert (unwritable.status_code, unwritable.json()["code"]) == (503, "state-unwritable")
        assert (taken.status_code, taken.json()["next"]) == (202, 2)


async def test_a_record_that_is_no_report_is_passed_over(shared: TaskRoom):
    async with emptied(shared) as room:
        alice = await room.worker("alice")
        subject = f"worker.{alice.uid}.events"
        await room.parts.bus.publish(subject, b'{"type": "wall", "report": null}')
        await room.parts.bus.publish(subject, EventBatch((text("a"),)).encode())
        (event,) = (await told(room, alice))["events"]
        assert event["text"] == "a"


async def test_only_who_operates_reads_events_and_a_worker_does_not(shared: TaskRoom):
    async with emptied(shared) as room:
        alice, bob = await room.worker("alice"), await room.worker("bob")
        path = f"/v1/workers/{alice.uid}/sdk-events"
        async with door_of(room, alice) as own, door_of(room, bob) as other:
            answers = await asyncio.gather(
                own.get(path), other.get(path), other.post(path, json=report(text("x")))
            )
        assert [answer.status_code for answer in answers] == [403, 403, 403]
        unknown = await room.api.get("/v1/workers/nobody/sdk-events")
        assert unknown.status_code == 404


@pytest.mark.requirement("coding-bounds-hold")
async def test_what_an_agent_used_is_counted_for_its_worker_and_for_its_own_task(shared: TaskRoom):
    async with emptied(shared) as room:
        alice, bob = await room.worker("alice"), await room.worker("bob")
        task = (await room.delegate("@alice", "one"))["id"]
        used = {"type": "usage", "input_tokens": 1000, "output_tokens": 20, "cost": 0.125}
        async with door_of(room, alice) as door:
            await posted(door, alice, report(used | {"task": task}, used, run="r", first=1))
        async with door_of(room, bob) as door:  # it names a task that is not its own
            await posted(door, bob, report(used | {"task": task}, run="r", first=1))
        await folded(room)

        of_task = (await room.get(f"/{task}"))["usage"]
        of_worker = (await room.api.get("/v1/workers/alice")).json()["usage"]
        listed = (await room.api.get("/v1/workers")).json()["workers"]
        assert of_task == {"input_tokens": 1000, "output_tokens": 20, "cost": 0.125}
        assert of_worker == {"input_tokens": 2000, "output_tokens": 40, "cost": 0.25}
        assert {each["nick"]: each["usage"]["input_tokens"] for each in listed} == {
            "alice": 2000,
            "bob": 1000,
        }
