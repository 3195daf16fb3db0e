"""Sessions on disk: a restart, an end in the middle, time that passes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from postroom.directory import sessions as module
from postroom.directory.agents import Directory
from postroom.directory.iam import LocalIAM
from postroom.directory.outside import OutsideAgents
from postroom.directory.presence import Callers
from postroom.directory.sessions import Registration, Sessions
from postroom.errors import Forbidden, NotFound, Refused, Unauthorized
from postroom.identity.tokens import OperatorKey
from postroom.protocol.principal import ALL_SCOPES, DOOR, KEY, USUAL_SCOPES, Principal
from postroom.protocol.sessions import KEPT_FOR
from postroom.store.agents import Agent
from postroom.store.database import Database
from postroom.store.migrate import migrate

pytestmark = pytest.mark.anyio

DAY = 86400.0
ONE = Registration("claude", "one", "app", "/srv/app")


class Room:
    """A directory with the person @ana, and a clock that the test sets."""

    def __init__(self, database: Database, owner: Agent) -> None:
        self.database, self.owner = database, owner
        self.directory = Directory(database, clock=lambda: self.now)
        self.now = 1_000_000.0
        self.cut: list[str] = []
        self.told: list[tuple[str, str]] = []

    async def started(self) -> Sessions:
        """The parts as a start of the post room opens them."""
        callers = Callers(self.database, self.directory, clock=lambda: self.now)
        await callers.open()
        self.outside = OutsideAgents(self.database, self.directory, callers, clock=lambda: self.now)
        await self.outside.open()
        key = OperatorKey(Path(), "the key")
        self.iam = LocalIAM(
            self.database,
            self.directory,
            key,
            self.owner,
            cut=self.cut.append,
            clock=lambda: self.now,
        )
        self.callers = callers
        made = Sessions(
            self.database,
            self.outside,
            self.iam,
            callers,
            lambda session, what: self.told.append((session.uid, what)),
            clock=lambda: self.now,
        )
        await made.open()
        return made

    def me(self, **changes: object) -> Principal:
        fields = {"scopes": ALL_SCOPES, "method": KEY, "key_id": "operator", **changes}
        who = self.owner
        return Principal(who.uid, who.org, who.nick, who.kind, **fields)  # ty: ignore[invalid-argument-type]


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    async with Database(tmp_path / "projection.db") as database:
        await migrate(database)
        owner = await Directory(database).register("ana", "human")
        yield Room(database, owner)


@pytest.mark.requirement("session-is-agent")
async def test_a_restart_keeps_sessions_and_their_keys(room: Room):
    first = await (await room.started()).register(room.me(), ONE)
    again = await room.started()
    assert again.of(first.session.uid) == first.session
    assert (await room.iam.resolve(first.key.secret)).uid == first.session.uid
    resumed = await again.register(room.me(), ONE)
    assert (resumed.session.uid, resumed.resumed) == (first.session.uid, True)
    assert room.cut == [first.key.key.id]
    with pytest.raises(Unauthorized):
        await room.iam.resolve(first.key.secret)


@pytest.mark.requirement("session-ends-unheard")
async def test_a_session_that_calls_or_whose_mail_is_followed_is_heard(room: Room):
    sessions = await room.started()
    silent = await sessions.register(room.me(), ONE)
    calls = await sessions.register(room.me(), Registration("claude", "two", "app"))
    room.now += KEPT_FOR - 1
    assert await sessions.expire() == 0
    room.callers.called(calls.session.uid)
    await room.callers.flush()
    room.now += 1
    assert await sessions.expire() == 1
    assert sessions.of(silent.session.uid) is None
    assert room.told[-1] == (silent.session.uid, "ended")
    sessions = await room.started()
    room.now += KEPT_FOR - 2
    assert await sessions.expire() == 0
    room.now += 1
    sessions = await room.started()
    assert await sessions.expire() == 0  # just started: who is there has no time to come back
    room.now += module.GRACE
    assert await sessions.expire() == 1
    assert sessions.seen_by(room.me()) == []


@pytest.mark.requirement("session-mail-told")
async def test_whose_mail_waits_by_itself_is_who_is_gone_away_or_not_woken_and_has_just_come_back(
    room: Room,
):
    sessions = await room.started()
    made = {}
    for client in ("claude", "codex", "gemini"):
        said = Registration(client, "one", client)
        made[client] = (await sessions.register(room.me(), said)).session
        room.callers.called(made[client].uid)
    names = {session.uid: client for client, session in made.items()}

    def kept() -> set[str]:
        return {names[uid] for uid in sessions.kept(300.0)}

    assert kept() == {"claude", "codex", "gemini"}  # they have just begun
    room.now += 301
    for session in made.values():
        room.callers.called(session.uid)
    assert kept() == {"gemini"}
    await sessions.note(made["claude"], state="gone")
    room.now += 301
    assert kept() == {"claude", "codex", "gemini"}  # nobody speaks for @codex
    await sessions.note(made["claude"], state="idle")
    for session in made.values():
        room.callers.called(session.uid)
    assert kept() == {"claude", "gemini"}
    room.now += 299
    for session in made.values():
        room.callers.called(session.uid)
    assert kept() == {"claude", "gemini"}
    room.now += 2
    assert kept() == {"gemini"}


@pytest.mark.requirement("session-owner-alone")
async def test_nobody_registers_sessions_by_a_key_that_ends_meanwhile_or_that_is_no_persons(
    room: Room,
):
    sessions = await room.started()
    with pytest.raises(Unauthorized):
        await sessions.register(room.me(key_id="gone"), ONE)
    for changes in ({"method": DOOR}, {"scopes": USUAL_SCOPES, "method": DOOR}):
        with pytest.raises(Forbidden):
            await sessions.register(room.me(**changes), ONE)
    assert sessions.seen_by(room.me()) == []
    assert [agent.nick for agent in await room.directory.all()] == ["ana"]


async def test_a_person_has_so_many_sessions_and_no_more(
    room: Room, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "MAX_SESSIONS", 2)
    sessions = await room.started()
    for key in ("one", "two", "one"):
        made = await sessions.register(room.me(), Registration("claude", key, "app"))
    with pytest.raises(Refused, match="2 sessions"):
        await sessions.register(room.me(), Registration("claude", "three", "app"))
    await sessions.end(made.session.uid)
    await sessions.register(room.me(), Registration("claude", "three", "app"))


@pytest.mark.requirement("session-owner-alone")
async def test_a_person_who_is_removed_takes_the_sessions_along_in_one_step(room: Room):
    sessions = await room.started()
    eve = await room.directory.register("eve", "human")
    me = room.me()
    hers = Principal(eve.uid, eve.org, eve.nick, eve.kind, USUAL_SCOPES, KEY, "operator")
    app = await sessions.register(hers, ONE)
    await room.iam.retire(me, eve.uid)
    # What follows in memory was cut off here: the next start knows of no session.
    with pytest.raises(Unauthorized):
        await room.iam.resolve(app.key.secret)
    assert (await room.directory.get(app.session.uid)).retired
    assert (await room.started()).seen_by(me) == []


async def test_what_two_note_at_once_is_all_kept(room: Room):
    sessions = await room.started()
    session = (await sessions.register(room.me(), ONE)).session
    await asyncio.gather(
        sessions.note(session, state="busy"),
        sessions.note(session, key="two"),
        sessions.note(session, folder="/srv/web"),
    )
    noted = sessions.of(session.uid)
    assert noted is not None
    assert (noted.state, noted.key, noted.folder) == ("busy", "two", "/srv/web")
    await sessions.end(session.uid)
    with pytest.raises(NotFound):
        await sessions.note(noted, state="idle")
