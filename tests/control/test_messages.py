"""Whole messages over the HTTP API, as several principals."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from sqlalchemy import update

from postroom.protocol.principal import Scope
from postroom.store.grants import GrantRow
from postroom.store.schema import agents
from tests.control.taskroom import TaskRoom, task_room
from tests.control.test_keys import person

pytestmark = pytest.mark.anyio

USUAL = (Scope.READ, Scope.SEND, Scope.TASK)
CONTENT = b"%PDF-1.7 of a kind"
URL = f"blob:sha256:{hashlib.sha256(CONTENT).hexdigest()}"
PDF = {"url": URL, "mediaType": "application/pdf", "filename": "report.pdf"}
HEADERS = {"Content-Type": "application/pdf"}


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as room:
        yield room


async def said(answer: Any, status: int = 200) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    return answer.json()


@pytest.mark.requirement("mail-content-whole")
async def test_a_file_reaches_the_person_that_a_message_names_and_nobody_else(shared: TaskRoom):
    async with (
        person(shared, "ann", *USUAL) as ann,
        person(shared, "ben", *USUAL) as ben,
        person(shared, "eve", *USUAL) as eve,
    ):
        await said(await ann.api.post("/v1/blobs", content=CONTENT, headers=HEADERS), 201)
        blob = f"/v1/blobs/{URL.rpartition(':')[2]}"
        assert (await ben.api.get(blob)).status_code == 404
        body = {"to": "@ben", "text": "as agreed", "parts": [PDF, {"data": [1]}]}
        sent = await said(
            await ann.api.post("/v1/messages", json=body | {"subject": "S", "thread": "t"}), 201
        )
        assert sent["parts"] == [{"text": "as agreed"}, PDF, {"data": [1]}]
        assert sent["files"] == [PDF | {"size": len(CONTENT)}]
        (got,) = (await said(await ben.api.get("/v1/inbox")))["messages"]
        assert (got["parts"], got["subject"], got["thread"]) == (sent["parts"], "S", "t")
        assert (await ben.api.get(blob)).content == CONTENT
        assert (await eve.api.get(blob)).status_code == 404
        refused = await eve.api.post("/v1/messages", json={"to": "@ben", "parts": [PDF]})
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid-input")
        assert "part 1 names a blob" in refused.json()["detail"]


@pytest.mark.requirement("mail-search-own")
async def test_a_search_finds_what_the_principal_has_sent_or_received(shared: TaskRoom):
    async with (
        person(shared, "ann", *USUAL) as ann,
        person(shared, "ben", *USUAL) as ben,
        person(shared, "eve", *USUAL) as eve,
    ):
        first = {"to": "@ben", "text": "the mountain", "thread": "secret-7"}
        mail = await said(await ann.api.post("/v1/messages", json=first), 201)
        reply = {"to": "@ann", "text": "which mountain?", "reply_to": mail["id"]}
        await said(await ben.api.post("/v1/messages", json=reply), 201)

        async def found(who: Any, **query: Any) -> list[str]:
            answer = await said(await who.get("/v1/messages", params=query))
            return [mail["text"] for mail in answer["messages"]]

        both = ["which mountain?", "the mountain"]
        for query in ({"thread": "secret-7"}, {"text": "MOUNTAIN"}, {"with": "@ben"}):
            assert await found(ann.api, **query) == both
            assert await found(shared.api, **query) == both
            assert await found(eve.api, **query) == []
        page = await said(await ann.api.get("/v1/messages", params={"limit": 1}))
        assert [mail["text"] for mail in page["messages"]] == both[:1]
        rest = {"limit": 1, "before": page["next"]}
        assert await found(ann.api, **rest) == both[1:]
        last = await said(await ann.api.get("/v1/messages", params={"limit": 3}))
        assert last["next"] is None


async def test_a_body_that_says_nothing_or_too_much_is_refused(shared: TaskRoom):
    for body in (
        {"to": "@ann"},
        {"to": "@ann", "text": " "},
        {"to": "@ann", "parts": [{"text": "x"}] * 65},
        {"to": "@ann", "parts": [{"text": "x", "url": "y"}]},
        {"to": "@ann", "text": "x", "subject": "two\nlines"},
        {"to": "@ann", "text": "x", "thread": "t" * 257},
    ):
        assert (await shared.api.post("/v1/messages", json=body)).status_code == 422, body


@pytest.mark.requirement("post-pair-limits")
async def test_who_writes_too_often_to_an_agent_by_grants_alone_is_told_when_to_come_again(
    shared: TaskRoom,
):
    async with person(shared, "ann", *USUAL) as ann, person(shared, "ben", *USUAL) as ben:
        only = update(agents).where(agents.c.uid == ben.uid).values(grants_only=True)
        await shared.parts.database.write(lambda store: store.session.run(only))
        grant = GrantRow("g1", ben.uid, ann.uid, "message", ben.uid, 1.0)
        await shared.parts.database.write(lambda store: store.grants.put(grant))
        body = {"to": "@ben", "text": "hello"}
        for _ in range(20):
            await said(await ann.api.post("/v1/messages", json=body), 201)
        late = await ann.api.post("/v1/messages", json=body)
        assert (late.status_code, late.json()["code"]) == (429, "too-many-requests")
        assert 1 <= int(late.headers["Retry-After"]) <= 3
        assert "instead of many" in late.json()["remedy"]
        large = await ann.api.post("/v1/messages", json=body | {"text": "x" * 300_000})
        assert large.status_code == 413
        assert len((await said(await ben.api.get("/v1/inbox")))["messages"]) == 20
