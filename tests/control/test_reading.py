"""Finding and reading over the HTTP API: tasks by their words, expiry, threads, marks of a reader."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from postroom.protocol.principal import Scope
from postroom_a2a.times import parse_time
from tests.control.taskroom import TaskRoom, task_room
from tests.control.test_keys import person

pytestmark = pytest.mark.anyio

USUAL = (Scope.READ, Scope.SEND, Scope.TASK)


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as room:
        yield room


async def got(api: Any, path: str, **query: Any) -> Any:
    answer = await api.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def sent(api: Any, to: str, text: str, **more: Any) -> Any:
    answer = await api.post("/v1/messages", json={"to": to, "text": text, **more})
    assert answer.status_code == 201, answer.text
    return answer.json()


@pytest.mark.requirement("mail-search-own")
async def test_a_task_is_found_by_the_words_of_its_request(shared: TaskRoom):
    async with person(shared, "ann", *USUAL) as ann, person(shared, "ben", *USUAL) as ben:
        await shared.worker("alice")
        for text in ("Mend the Parser", "mend the lexer", "write the parser's tests"):
            answer = await ann.api.post("/v1/tasks", json={"to": "@alice", "text": text})
            assert answer.status_code == 201
        await sent(ann.api, "@alice", "a message about the parser")

        async def found(who: Any, **query: Any) -> list[str]:
            return [task["text"] for task in (await got(who, "/v1/tasks", **query))["tasks"]]

        assert await found(ann.api, text="parser") == [
            "write the parser's tests",
            "Mend the Parser",
        ]
        assert await found(ann.api, text="PARSER mend") == ["Mend the Parser"]
        assert await found(ann.api, text="mend", worker="@alice", open=True, limit=1) == [
            "mend the lexer"
        ]
        assert await found(ann.api, text="mend", open=False) == []
        assert await found(ann.api, text="mend", requester="@ben") == []
        assert await found(ben.api, text="mend") == []
        assert (await ann.api.get("/v1/tasks", params={"text": "\0"})).status_code == 422


@pytest.mark.requirement("mail-expiry-shown")
async def test_sender_and_recipient_see_until_when_a_message_waits(shared: TaskRoom):
    async with person(shared, "ann", *USUAL) as ann, person(shared, "ben", *USUAL) as ben:
        mail = await sent(ann.api, "@ben", "quick", expires_in=600)
        assert 599 < parse_time(mail["expires_at"]) - parse_time(mail["sent_at"]) < 601
        assert (await sent(ann.api, "@ben", "slow"))["expires_at"] is None
        for api, path in (
            (ann.api, f"/v1/messages/{mail['id']}"),
            (ben.api, f"/v1/messages/{mail['id']}"),
        ):
            assert (await got(api, path))["expires_at"] == mail["expires_at"]
        listed = (await got(ben.api, "/v1/inbox"))["messages"]
        assert [one["expires_at"] for one in listed] == [mail["expires_at"], None]


@pytest.mark.requirement("mail-threads")
async def test_threads_are_listed_by_their_last_message_with_what_is_new_and_nobody_elses(
    shared: TaskRoom,
):
    async with (
        person(shared, "ann", *USUAL) as ann,
        person(shared, "ben", *USUAL) as ben,
        person(shared, "eve", *USUAL) as eve,
    ):
        first = await sent(ann.api, "@ben", "the plan", thread="plan", subject="May")
        await sent(ann.api, "@eve", "hello", thread="hello")
        await sent(ben.api, "@eve", "between us", thread="plan")
        await sent(ben.api, "@ann", "x" * 300, reply_to=first["id"])

        found = (await got(ann.api, "/v1/threads"))["threads"]
        assert [(each["id"], each["messages"], each["unread"]) for each in found] == [
            ("plan", 2, 1),
            ("hello", 1, 0),
        ]
        plan = found[0]
        assert [party["nick"] for party in plan["parties"]] == ["ben"]
        assert (plan["from"]["nick"], plan["text"], plan["subject"]) == ("ben", "x" * 200, "May")
        assert [each["id"] for each in (await got(eve.api, "/v1/threads"))["threads"]] == [
            "plan",
            "hello",
        ]
        page = await got(ann.api, "/v1/threads", limit=1)
        assert [each["id"] for each in page["threads"]] == ["plan"]
        rest = await got(ann.api, "/v1/threads", limit=1, before=page["next"])
        assert [each["id"] for each in rest["threads"]] == ["hello"]


@pytest.mark.requirement("mail-archive-kept")
async def test_what_is_put_away_leaves_the_inbox_and_nothing_else_and_nobody_learns_it(
    shared: TaskRoom,
):
    async with person(shared, "ann", *USUAL) as ann, person(shared, "ben", *USUAL) as ben:
        sents = [await sent(ann.api, "@ben", f"word {n}", thread="t") for n in range(3)]
        ids = [each["id"] for each in sents]

        async def inbox(**query: Any) -> list[str]:
            return [mail["id"] for mail in (await got(ben.api, "/v1/inbox", **query))["messages"]]

        async def archive(api: Any = ben.api, **body: Any) -> Any:
            answer = await api.post("/v1/inbox/archive", json=body)
            assert answer.status_code == 200, answer.text
            return answer.json()

        assert await archive(ids=[ids[0], "f" * 32]) == {"count": 1, "unknown": ["f" * 32]}
        assert await archive(ann.api, ids=ids) == {"count": 0, "unknown": ids}  # not to her
        assert await inbox() == ids[1:]
        assert await inbox(unread=True) == ids[1:]
        assert await inbox(archived=True) == ids[:1]
        assert await inbox(after=0, unread=True) == ids  # who asks for what is new is given it
        assert (await got(ann.api, f"/v1/messages/{ids[0]}"))["state"] == "accepted"
        found = (await got(ben.api, "/v1/messages", text="word", thread="t"))["messages"]
        assert [mail["id"] for mail in found] == ids[::-1]

        await ben.api.post(f"/v1/messages/{ids[1]}/seen")
        await ben.api.post("/v1/inbox/ack", json={"ids": [ids[1]], "state": "seen"})
        assert (await archive(read=True))["count"] == 1
        assert await inbox() == ids[2:]
        assert (await archive(ids=ids, archived=False))["count"] == 3
        assert await inbox() == ids
        for body in ({}, {"ids": ids, "read": True}, {"read": True, "archived": False}):
            assert (await ben.api.post("/v1/inbox/archive", json=body)).status_code == 422


@pytest.mark.requirement("mail-archive-kept")
async def test_each_reader_has_read_a_feed_up_to_a_mark_that_never_goes_back(shared: TaskRoom):
    async with person(shared, "ann", *USUAL) as ann, person(shared, "ben", *USUAL) as ben:
        posts = []
        for n in range(3):
            answer = await ann.api.post("/v1/projects/shop/posts", json={"text": f"post {n}"})
            posts.append(answer.json()["seq"])

        async def shop(api: Any) -> tuple[int, int]:
            feeds = {feed["project"]: feed for feed in (await got(api, "/v1/feeds"))["feeds"]}
            return feeds["shop"]["read"], feeds["shop"]["unread"]

        async def read(api: Any, **body: int) -> tuple[int, int]:
            answer = await api.post("/v1/projects/shop/read", json=body)
            assert answer.status_code == 200, answer.text
            return answer.json()["read"], answer.json()["unread"]

        assert (await shop(ann.api), await shop(ben.api)) == ((0, 0), (0, 3))
        assert await read(ben.api, seq=posts[1]) == (posts[1], 1)
        assert await read(ben.api, seq=posts[0]) == (posts[1], 1)
        assert await read(ben.api) == (posts[2], 0)
        assert await read(ben.api, seq=2**62) == (posts[2], 0)
        assert (await shop(ann.api), await shop(ben.api)) == ((0, 0), (posts[2], 0))
        assert (await ben.api.post("/v1/projects/UP/read", json={})).status_code == 422
