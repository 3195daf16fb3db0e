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
