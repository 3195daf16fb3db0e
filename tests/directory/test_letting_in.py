"""Grants and requests over time, and how many there may be."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

import pytest

from postroom.directory import letting_in
from postroom.directory.grants import Decisions
from postroom.directory.letting_in import Grants, Wanted
from postroom.errors import Refused
from postroom.protocol.principal import ALL_SCOPES, KEY, USUAL_SCOPES, Principal
from postroom.store.agents import Agent
from postroom.store.database import Database
from postroom.store.migrate import migrate

pytestmark = pytest.mark.anyio

WEEK = 7 * 86400.0
CHLOE = Principal("a" * 32, "default", "chloe", "human", ALL_SCOPES, KEY)
THOMAS = Principal("b" * 32, "default", "thomas", "external", USUAL_SCOPES, KEY)


@dataclass
class Desk:
    """The grants of an organisation, and its clock."""

    database: Database
    now: float = 1000.0
    grants: Grants = field(init=False)

    def __post_init__(self) -> None:
        self.grants = Grants(
            self.database, "default", Decisions(), lambda _: None, clock=lambda: self.now
        )

    async def asks(self, who: Principal = THOMAS) -> int:
        """How many requests wait when this one was made."""
        await self.grants.ask(who, CHLOE.uid, (), "tea")
        return len(await self.grants.requests(CHLOE))


@pytest.fixture
async def desk() -> AsyncGenerator[Desk]:
    async with Database() as database:
        await migrate(database)
        for who in (CHLOE, THOMAS):
            agent = Agent(who.uid, who.org, who.nick, who.kind, 1.0)
            await database.write(
                lambda store, agent=agent: store.agents.add_agent(agent, agent.nick, b"")
            )
        yield Desk(database)


@pytest.mark.requirement("grant-asked-answered-once")
async def test_who_was_denied_asks_again_after_a_week(desk: Desk) -> None:
    assert await desk.asks() == 1
    (request,) = await desk.grants.requests(CHLOE)
    await desk.grants.answer(CHLOE, request["id"], Wanted(), allow=False)

    desk.now += WEEK - 1.0
    assert await desk.asks() == 0
    desk.now += 1.0
    assert await desk.asks() == 1


@pytest.mark.requirement("grant-asked-answered-once")
async def test_an_agent_is_asked_by_so_many_and_no_more(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letting_in, "MAX_ASKED_OF", 1)
    other = Principal("c" * 32, "acme", "eve", "external", USUAL_SCOPES, KEY)

    assert [await desk.asks(), await desk.asks(other), await desk.asks()] == [1, 1, 1]


@pytest.mark.requirement("grant-given-listed")
async def test_an_agent_lets_in_so_many_and_those_that_ended_are_forgotten(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letting_in, "MAX_GRANTS", 2)

    async def allow(seconds: float | None) -> None:
        await desk.grants.allow(
            CHLOE, secrets.token_hex(16), Wanted((), seconds and desk.now + seconds)
        )

    await allow(None)
    await allow(5.0)
    with pytest.raises(Refused, match="let in 2"):
        await allow(None)
    for _ in range(5):
        desk.now += 10.0
        await allow(5.0)

    kept = await desk.grants.listed(CHLOE, ended=True)
    assert [one["state"] for one in kept] == ["valid", "expired", "expired", "valid"]
