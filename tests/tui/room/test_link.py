"""How the screen keeps up with the post room."""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from library.nats.cuts import Way
from postroom.client.http import AsyncClient
from postroom.client.locate import ServerAddress
from postroom.tui.app import PostroomApp
from postroom.tui.link import PAUSE, Link
from postroom.view.needs import NeedKind
from postroom.view.room import Room
from tests import near
from tests.control.taskroom import KEY, TaskRoom
from tests.tui.conftest import app_on, screen_text, until, working

pytestmark = pytest.mark.anyio


def room_of(app: object) -> Room | None:
    assert isinstance(app, PostroomApp)
    return app.room


def kinds(app: object) -> list[NeedKind]:
    room = room_of(app)
    return [need.kind for need in room.needs] if room else []


@asynccontextmanager
async def way_to(room: TaskRoom, folder: Path) -> AsyncGenerator[Way]:
    """A way to the post room that `server.json` names while it is open."""
    async with Way(f"http://{room.site.host}").open() as way:
        url = way.url.replace("nats:", "http:")
        room.site.router._hosts |= {url.removeprefix("http://")}
        record = {"url": url, "pid": os.getpid(), "token": KEY}
        written = folder / "server.new"
        written.touch(0o600)
        written.write_text(json.dumps(record))
        written.rename(folder / "server.json")
        near.offer(folder)
        yield way


@asynccontextmanager
async def person_of(room: TaskRoom, nick: str) -> AsyncGenerator[tuple[AsyncClient, str]]:
    """Somebody who does not operate, by a key as `postroom login` keeps it; and the key's id."""
    made = (await room.api.post("/v1/people", json={"nick": nick})).json()
    address = ServerAddress(f"http://{room.site.host}", 0, made["key"]["key"])
    try:
        yield AsyncClient.on(lambda: address), made["key"]["id"]
    finally:
        await room.api.delete(f"/v1/people/{nick}")


@pytest.mark.requirement("screen-state-fresh")
async def test_what_an_agent_asks_is_in_the_next_state_of_the_screen(
    shared: TaskRoom, tmp_path: Path
):
    async with working(shared, tmp_path, "web") as coder, app_on(coder) as pilot:
        await until(pilot, lambda: room_of(pilot.app))
        assert kinds(pilot.app) == []
        await coder.asks()
        await until(pilot, lambda: kinds(pilot.app) == [NeedKind.APPROVAL])
        room = room_of(pilot.app)
        assert room is not None
        assert room.needs[0].who == "@coder"
        assert room.approval("ab12") is not None


@pytest.mark.requirement("screen-state-fresh")
async def test_what_is_settled_elsewhere_needs_nobody_any_more(shared: TaskRoom, tmp_path: Path):
    async with working(shared, tmp_path) as coder, app_on(coder) as pilot:
        await coder.asks()
        await until(pilot, lambda: kinds(pilot.app) == [NeedKind.APPROVAL])
        await coder.decide("denied")
        await until(pilot, lambda: kinds(pilot.app) == [])


async def test_messages_that_are_read_elsewhere_need_nobody_any_more(
    shared: TaskRoom, tmp_path: Path
):
    async with working(shared, tmp_path) as coder, app_on(coder) as pilot:
        await until(pilot, lambda: room_of(pilot.app))
        sent = await shared.parts.office.send(coder.uid, "@maria", "done")
        await until(pilot, lambda: kinds(pilot.app) == [NeedKind.MAIL])
        await shared.api.post(f"/v1/messages/{sent.id}/seen")
        await until(pilot, lambda: kinds(pilot.app) == [])


@pytest.mark.requirement("screen-state-fresh")
async def test_a_post_room_that_was_away_is_shown_with_what_happened_meanwhile(
    shared: TaskRoom, tmp_path: Path
):
    async with working(shared, tmp_path) as coder:
        async with way_to(shared, tmp_path) as way:
            screen = app_on(tmp_path)
            pilot = await screen.__aenter__()
            await until(pilot, lambda: "nothing needs you" in screen_text(pilot.app))
        del way  # it leads nowhere now
        try:
            await until(pilot, lambda: "the post room is down since" in screen_text(pilot.app))
            await coder.asks()
            async with way_to(shared, tmp_path):
                await until(pilot, lambda: "1 needs you" in screen_text(pilot.app))
                assert "is down" not in screen_text(pilot.app)
        finally:
            await screen.__aexit__(None, None, None)


async def test_who_does_not_operate_sees_agents_and_their_own_messages_and_is_told_so(
    shared: TaskRoom, tmp_path: Path
):
    async with (
        working(shared, tmp_path) as coder,
        person_of(shared, "ann") as (client, _),
        PostroomApp(client).run_test(size=(80, 24)) as pilot,
    ):
        await until(pilot, lambda: "workers: not shown" in screen_text(pilot.app))
        await shared.parts.office.send(coder.uid, "@ann", "for you alone")
        await until(pilot, lambda: "m @coder for you" in screen_text(pilot.app))
        assert kinds(pilot.app) == [NeedKind.MAIL]


async def test_a_key_that_is_refused_is_said_and_nothing_is_tried_again(
    shared: TaskRoom, tmp_path: Path
):
    async with (
        working(shared, tmp_path),
        person_of(shared, "ann") as (client, key),
        PostroomApp(client).run_test(size=(80, 24)) as pilot,
    ):
        await until(pilot, lambda: "workers: not shown" in screen_text(pilot.app))
        revoked = await shared.api.delete(f"/v1/keys/{key}")
        assert revoked.status_code == 200, revoked.text
        await until(pilot, lambda: "key" in screen_text(pilot.app).splitlines()[0])


async def test_the_state_is_fetched_at_most_twice_a_second_however_much_happens(
    shared: TaskRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    fetched: list[float] = []
    fetch = Link._fetch

    async def counted(self: Link) -> Room:
        fetched.append(time.monotonic())
        return await fetch(self)

    monkeypatch.setattr(Link, "_fetch", counted)
    monkeypatch.setattr("postroom.tui.link.PAUSE", PAUSE)
    async with working(shared, tmp_path) as coder, app_on(coder) as pilot:
        await until(pilot, lambda: room_of(pilot.app))
        for number in range(30):
            await shared.parts.office.post(coder.uid, f"p{number % 3}", "busy")
        await until(pilot, lambda: "#p2" in screen_text(pilot.app))
    pauses = [after - before for before, after in pairwise(fetched)]
    assert pauses
    assert min(pauses) >= PAUSE
