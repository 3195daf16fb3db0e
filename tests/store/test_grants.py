"""Grants, requests and owners as rows, on every database."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest

from postroom.directory.grants import closed
from postroom.store.agents import Agent
from postroom.store.database import Database, Store
from postroom.store.grants import Admission, GrantRequestRow, GrantRow
from postroom.store.ports import Place

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("store-contract-kept")]

CHLOE = Agent("a" * 32, "default", "chloe", "human", 1.0)
BOB = Agent("b" * 32, "default", "bob", "external", 1.0)
ECHO = Agent("e" * 32, "default", "echo", "worker", 1.0)
THOMAS, NOBODY = "c" * 32, "d" * 32


@pytest.fixture
async def database(place: Place) -> AsyncGenerator[Database]:
    async with Database(place) as opened:

        def fill(store: Store) -> None:
            for agent in (CHLOE, BOB, ECHO):
                store.agents.add_agent(agent, agent.nick, b"")
            store.grants.give_to(BOB.uid, CHLOE.uid, 1.0)

        await opened.write(fill)
        yield opened


def grant(name: str, granter: Agent, grantee: str, **more: object) -> GrantRow:
    row = GrantRow(name * 32, granter.uid, grantee, "message", CHLOE.uid, 2.0)
    return replace(row, **more)


async def kept(database: Database) -> dict[str, bool]:
    rows = await database.read(lambda store: store.grants.of())
    return {row.id[0]: row.revoked_at is None for row in rows}


async def test_there_is_one_grant_a_pair_and_one_for_what_was_called_the_same(database: Database):
    for row in (
        grant("1", BOB, THOMAS),
        grant("2", BOB, THOMAS, scopes="message task"),
        grant("3", BOB, NOBODY, called="ann.acme"),
        grant("4", BOB, "f" * 32, called="ann.acme"),
        grant("5", CHLOE, NOBODY, called="ann.acme"),
    ):
        await database.write(lambda store, row=row: store.grants.put(row))

    assert await kept(database) == {"2": True, "4": True, "5": True}
    assert await database.write(lambda store: store.grants.revoke("2" * 32, 3.0))
    assert not await database.write(lambda store: store.grants.revoke("2" * 32, 4.0))
    (ended,) = await database.read(lambda store: store.grants.to([THOMAS]))
    assert (ended.revoked_at, ended.covers("task", 3.0)) == (3.0, False)


async def test_a_request_is_answered_once_and_another_takes_its_place(database: Database):
    for name in "12":
        row = GrantRequestRow(name * 32, BOB.uid, THOMAS, "message", "tea", 2.0)
        await database.write(lambda store, row=row: store.grants.ask(row))

    answered = [
        await database.write(
            lambda store, state=state: store.grants.answer("2" * 32, state, CHLOE.uid, 3.0)
        )
        for state in ("denied", "allowed")
    ]

    assert answered == [True, False]
    (row,) = await database.read(lambda store: store.grants.asked([BOB.uid]))
    assert (row.id, row.state, row.answered_by) == ("2" * 32, "denied", CHLOE.uid)
    await database.write(lambda store: store.grants.withdraw("2" * 32))
    assert await database.read(lambda store: store.grants.asked()) == []


async def test_what_a_person_gave_for_an_agent_ends_when_it_is_somebody_elses(database: Database):
    assert await database.read(lambda store: store.grants.owned(CHLOE.uid)) == [BOB.uid]
    for row in (grant("1", BOB, THOMAS), grant("2", CHLOE, THOMAS), grant("3", ECHO, BOB.uid)):
        await database.write(lambda store, row=row: store.grants.put(row))

    assert await database.write(lambda store: store.grants.give_to(BOB.uid, "", 3.0)) == CHLOE.uid
    assert await kept(database) == {"1": False, "2": True, "3": True}
    await database.write(lambda store: store.grants.retired(BOB.uid, 4.0))
    assert await kept(database) == {"2": True, "3": False}
    await database.write(lambda store: store.grants.retired(CHLOE.uid, 4.0))
    assert await kept(database) == {"3": False}


async def test_who_is_reached_by_grants_alone_is_known_with_whom_it_takes(database: Database):
    assert (await database.read(lambda store: closed(store, "default"))).let_in == {}
    await database.write(lambda store: store.grants.reached_by_grants_alone(BOB.uid, only=True))
    for row in (
        grant("1", CHLOE, ECHO.uid, expires_at=9.0),
        grant("2", BOB, THOMAS, scopes="card"),
    ):
        await database.write(lambda store, row=row: store.grants.put(row))

    known = await database.read(lambda store: closed(store, "default"))

    assert known.takes(BOB.uid, CHLOE.uid, 5.0)  # its owner
    assert [known.takes(BOB.uid, ECHO.uid, now) for now in (5.0, 9.0)] == [True, False]
    assert not known.takes(BOB.uid, THOMAS, 5.0)
    assert known.takes(ECHO.uid, THOMAS, 5.0)
    await database.write(lambda store: store.grants.admit(Admission("closed", grants_only=True)))
    everybody = await database.read(lambda store: closed(store, "default"))
    assert not everybody.takes(ECHO.uid, THOMAS, 5.0)
