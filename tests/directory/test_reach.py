"""Who reaches whom: inside an organisation, over its border, by grants of agents and of their owners."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from uuid import uuid4

import pytest
from sqlalchemy import update

from postroom.directory.grants import Decisions, GrantScope, reach
from postroom.errors import NotLetIn, UnknownRecipient
from postroom.store.agents import Agent
from postroom.store.database import Database, Store
from postroom.store.grants import Admission, GrantRow
from postroom.store.migrate import migrate
from postroom.store.schema import agents
from postroom.store.sqlite import SQLitePlace

pytestmark = pytest.mark.anyio

ANNA = Agent("a" * 32, "home", "anna", "human", 1.0)
ALICE = Agent("b" * 32, "home", "alice", "external", 1.0)
CARL = Agent("c" * 32, "home", "carl", "external", 1.0)
DORA = Agent("d" * 32, "acme", "dora", "human", 1.0)
BOB = Agent("e" * 32, "acme", "bob", "external", 1.0)
NOW = 100.0


@pytest.fixture
async def home() -> AsyncGenerator[tuple[Database, Database]]:
    """Anna owns Alice; in the other organisation Dora owns Bob."""
    name = uuid4().hex
    async with AsyncExitStack() as stack:
        opened = []
        for org in ("home", "acme"):
            place = SQLitePlace(None, org=org, installation=name)
            database = await stack.enter_async_context(Database(place))
            await migrate(database)
            opened.append(database)
        home, acme = opened
        for database, who in ((home, (ANNA, ALICE, CARL)), (acme, (DORA, BOB))):
            for agent in who:
                await database.write(
                    lambda store, agent=agent: store.agents.add_agent(agent, agent.nick, b"")
                )
        await home.write(lambda store: own(store, ALICE, ANNA))
        await acme.write(lambda store: own(store, BOB, DORA))
        yield home, acme


def own(store: Store, agent: Agent, owner: Agent) -> None:
    store.session.run(update(agents).where(agents.c.uid == agent.uid).values(owner=owner.uid))


def change(store: Store, agent: Agent, **values: object) -> None:
    store.session.run(update(agents).where(agents.c.uid == agent.uid).values(**values))


def let_in(store: Store, granter: Agent, grantee: Agent, **more: object) -> None:
    given = {"scopes": "message", "made_by": granter.uid, "made_at": 1.0} | more
    store.grants.put(GrantRow(uuid4().hex, granter.uid, grantee.uid, **given))  # ty: ignore[invalid-argument-type]


async def reached(database: Database, sender: Agent, ref: str, scope: str = "message") -> str:
    def find(store: Store) -> str:
        found = reach(store, sender.org, sender.uid, ref, GrantScope(scope), NOW)
        return found.agent.nick

    return await database.read(find)


async def test_inside_an_organisation_everybody_reaches_everybody(
    home: tuple[Database, Database],
) -> None:
    assert await reached(home[0], ALICE, "@carl") == "carl"
    assert await reached(home[0], ALICE, CARL.uid) == "carl"
    assert await reached(home[0], ALICE, "@carl.home") == "carl"
    with pytest.raises(UnknownRecipient):
        await reached(home[0], ALICE, "@nobody")


@pytest.mark.parametrize(
    "ref",
    ["@bob.acme", BOB.uid, "@nobody.acme", "f" * 32, "@bob.nowhere", "@carl.x.y", "@.acme"],
)
async def test_over_the_border_who_has_no_grant_learns_nothing(
    home: tuple[Database, Database], ref: str
) -> None:
    with pytest.raises(NotLetIn) as refused:
        await reached(home[0], ALICE, ref)

    assert refused.value.message.replace(ref, "REF") == (
        "'REF' cannot be reached: there is no such agent, or it has not let you in"
    )


@pytest.mark.parametrize(
    "granter, grantee", [(BOB, ALICE), (DORA, ALICE), (BOB, ANNA), (DORA, ANNA)]
)
async def test_a_grant_of_an_owner_covers_what_they_own_on_both_sides(
    home: tuple[Database, Database], granter: Agent, grantee: Agent
) -> None:
    here, acme = home
    await acme.write(lambda store: let_in(store, granter, grantee))

    assert await reached(here, ALICE, "@bob.acme") == "bob"
    with pytest.raises(NotLetIn):
        await reached(here, CARL, "@bob.acme")


@pytest.mark.parametrize(
    "ended",
    [{"scopes": "card task"}, {"expires_at": NOW}, {"revoked_at": 1.0}, {"scopes": ""}],
)
async def test_an_ended_grant_or_one_of_another_scope_lets_nobody_in(
    home: tuple[Database, Database], ended: dict[str, object]
) -> None:
    here, acme = home
    await acme.write(lambda store: let_in(store, BOB, ALICE, **ended))

    with pytest.raises(NotLetIn):
        await reached(here, ALICE, "@bob.acme")


async def test_grants_only_of_an_agent_or_its_organisation_asks_for_grants_inside_too(
    home: tuple[Database, Database],
) -> None:
    here, _ = home
    await here.write(lambda store: change(store, ALICE, grants_only=True))

    with pytest.raises(NotLetIn):
        await reached(here, CARL, "@alice")
    assert await reached(here, ANNA, "@alice") == "alice"  # her own

    await here.write(lambda store: let_in(store, ALICE, CARL))
    assert await reached(here, CARL, "@alice") == "alice"

    await here.write(lambda store: store.grants.admit(Admission("invite", grants_only=True)))
    with pytest.raises(NotLetIn):
        await reached(here, ALICE, "@carl")


async def test_a_stranger_reaches_whom_a_grant_names_and_hears_of_nobody_else(
    home: tuple[Database, Database],
) -> None:
    here, _ = home
    await here.write(lambda store: change(store, CARL, joined="open"))

    for ref in ("@alice", "@nobody"):
        with pytest.raises(NotLetIn):
            await reached(here, CARL, ref)

    await here.write(lambda store: let_in(store, ALICE, CARL))
    assert await reached(here, CARL, "@alice") == "alice"


async def test_the_same_is_asked_of_the_database_whoever_is_named(
    home: tuple[Database, Database],
) -> None:
    here, acme = home
    await acme.write(lambda store: let_in(store, BOB, CARL))

    async def asked(ref: str) -> list[str]:
        said: list[str] = []

        def find(store: Store) -> None:
            before = store.session.driver

            class Driver:
                def execute(self, sql: str, values: object = ()) -> object:
                    said.append(sql)
                    return before.execute(sql, values)  # ty: ignore[invalid-argument-type]

            store.session.driver = Driver()  # ty: ignore[invalid-assignment]
            try:
                with pytest.raises(NotLetIn):
                    reach(store, "home", ALICE.uid, ref, GrantScope.MESSAGE, NOW)
            finally:
                store.session.driver = before

        await here.read(find)
        return said

    assert await asked("@bob.acme") == await asked("@nobody.acme") == await asked("@bob.nowhere")
    assert await asked(BOB.uid) == await asked("f" * 32)


async def test_a_name_of_another_organisation_is_shown_where_a_grant_ties_it_to_ours(
    home: tuple[Database, Database],
) -> None:
    here, acme = home

    async def names(database: Database, *uids: str) -> list[str]:
        found = await database.read(lambda store: store.agents.parties(uids))
        return [found[uid].nick for uid in uids]

    assert await names(here, BOB.uid, DORA.uid) == ["", ""]

    await acme.write(lambda store: let_in(store, DORA, ALICE, revoked_at=1.0))

    assert await names(here, BOB.uid, DORA.uid) == ["bob.acme", "dora.acme"]
    assert await names(acme, ALICE.uid, CARL.uid) == ["alice.home", ""]


async def test_who_takes_a_grant_back_waits_for_what_was_being_taken() -> None:
    decisions = Decisions()
    order: list[str] = []
    stored = asyncio.Event()

    async def take() -> None:
        with decisions.taking():
            await stored.wait()
            order.append("stored")

    async def revoke() -> None:
        await decisions.settled()
        order.append("revoked")

    async with asyncio.TaskGroup() as group:
        group.create_task(take())
        await asyncio.sleep(0)
        group.create_task(revoke())
        await asyncio.sleep(0)
        stored.set()

    assert order == ["stored", "revoked"]
    await decisions.settled()  # nothing is under way
