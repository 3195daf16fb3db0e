"""Who has an address, and under which name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from postroom.directory.agents import Directory
from postroom.errors import InvalidInput, InvalidName, NameTaken, NotFound, UnknownRecipient
from postroom.store.agents import Agent
from postroom.store.database import Database, Store
from postroom.store.migrate import migrate

pytestmark = pytest.mark.anyio


@pytest.fixture
async def directory(tmp_path: Path) -> AsyncIterator[Directory]:
    async with Database(tmp_path / "projection.db") as database:
        await migrate(database)
        yield Directory(database)


@pytest.mark.parametrize("form", ["@{nick}", "{nick}", "{uid}"])
async def test_an_agent_is_found_by_nick_and_by_uid(directory: Directory, form: str):
    bob = await directory.register("bob", "worker")
    assert await directory.resolve(form.format(nick=bob.nick, uid=bob.uid)) == bob


@pytest.mark.requirement("directory-name-unique")
@pytest.mark.parametrize("second", ["bob1", "b0b1", "bobl", "bob-1"])
async def test_a_name_that_can_be_taken_for_another_is_refused(directory: Directory, second: str):
    await directory.register("bob1", "worker")
    with pytest.raises(NameTaken):
        await directory.register(second, "worker")


@pytest.mark.requirement("directory-name-unique")
async def test_of_many_who_want_one_name_at_once_one_gets_it(directory: Directory):
    tried = (directory.register("bob", "worker") for _ in range(8))
    outcomes = await asyncio.gather(*tried, return_exceptions=True)
    assert sum(isinstance(outcome, NameTaken) for outcome in outcomes) == 7
    assert len(await directory.all()) == 1


@pytest.mark.requirement("directory-name-unique")
@pytest.mark.parametrize("nick", ["system", "0perator", "Bob", "a b", "", "a" * 32])
async def test_a_name_of_people_or_system_or_like_a_uid_is_refused(directory: Directory, nick: str):
    with pytest.raises(InvalidName):
        await directory.register(nick, "worker")


async def test_a_kind_that_there_is_not_is_refused(directory: Directory):
    with pytest.raises(InvalidInput):
        await directory.register("bob", "robot")


@pytest.mark.requirement("directory-name-unique")
async def test_a_retired_agent_is_not_found_its_name_is_free_and_its_uid_is_not(
    directory: Directory,
):
    old = await directory.register("bob", "worker")
    await directory.retire(old.uid)
    for ref in ("@bob", old.uid):
        with pytest.raises(UnknownRecipient):
            await directory.resolve(ref)
    new = await directory.register("bob", "worker")
    assert (await directory.resolve("@bob")).uid == new.uid
    with pytest.raises(NameTaken):
        await directory.register("robert", "worker", uid=old.uid)
    assert (await directory.get(old.uid)).retired
    assert [agent.uid for agent in await directory.all()] == [new.uid]


async def test_retiring_twice_is_not_found(directory: Directory):
    bob = await directory.register("bob", "worker")
    await directory.retire(bob.uid)
    with pytest.raises(NotFound):
        await directory.retire(bob.uid)


async def test_each_agent_has_a_secret_of_its_own_that_stays(directory: Directory):
    bob, eve = [await directory.register(nick, "worker") for nick in ("bob", "eve")]
    secret = await directory.message_secret(bob.uid)
    assert len(secret) == 32
    assert secret != await directory.message_secret(eve.uid)
    assert secret == await directory.message_secret(bob.uid)


async def test_memberships_are_replaced_as_a_whole(directory: Directory):
    bob = await directory.register("bob", "worker", projects=["main"])
    assert await directory.projects(bob.uid) == ("main",)
    await directory.set_projects(bob.uid, ["b", "a"])
    assert await directory.projects(bob.uid) == ("a", "b")
    with pytest.raises(InvalidName):
        await directory.set_projects(bob.uid, ["*"])


@pytest.mark.requirement("worker-spawn-all-or-nothing")
async def test_what_belongs_to_an_agent_is_stored_with_it_or_neither_is(directory: Directory):
    def fail(_connection: Store, _agent: Agent) -> None:
        raise NotFound("as good as a kill")

    with pytest.raises(NotFound):
        await directory.register("bob", "worker", also=fail)
    assert await directory.all() == []
