"""How the organisations are kept open, with houses that do as a test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from postroom.control import orgs as module
from postroom.control.org import Organisation
from postroom.control.org_router import OrgRouter
from postroom.control.orgs import Orgs
from postroom.control.statefile import Announcement
from postroom.errors import Conflict, InvalidName, NotFound, PostroomError, Refused, StateUnwritable
from postroom.identity.jwt import Credential
from postroom.identity.trust import Trust
from postroom.protocol.alerts import Alert
from postroom.settings import Settings
from postroom.store.agents import Agent

pytestmark = pytest.mark.anyio
SAID = Announcement("http://x", 1, "key", "nats://x", 2, "", "1", "/s")
PATIENCE = 20.0


@dataclass
class House:
    """An open organisation."""

    org: str
    alerts: list[str] = field(default_factory=list)
    broke: asyncio.Event = field(default_factory=asyncio.Event)
    swept: int = 0

    @property
    def parts(self) -> Any:
        return SimpleNamespace(clerk=self)

    async def sweep(self) -> None:
        self.swept += 1

    @property
    def owner(self) -> Agent:
        return Agent("a" * 32, self.org, "me", "human", 0.0)

    async def go(self, announcement: Callable[[], Announcement]) -> None:
        assert announcement().me["nick"] == "me"

    async def alert(self, alert: Alert) -> None:
        self.alerts += [f"{alert.kind}: {alert.text}"] * bool(
            alert.text
        )  # without a text it is the end of one

    async def counts(self) -> dict[str, int]:
        return {"workers": 0}


@dataclass
class Street:
    """The organisations of a test, and what happens to them."""

    orgs: Orgs
    trust: Trust
    default: House
    settings: Settings
    faults: dict[str, list[Exception]]
    opened: list[str] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    open_houses: dict[str, House] = field(default_factory=dict)

    async def states(self) -> dict[str, str]:
        return {entry["name"]: entry["state"] for entry in await self.orgs.listed()}

    async def until(self, **wanted: str) -> None:
        async with asyncio.timeout(PATIENCE):
            # Nobody tells of it: a person looks again, too.
            while wanted.items() - (await self.states()).items():  # noqa: ASYNC110
                await asyncio.sleep(0.01)


@asynccontextmanager
async def street(folder: Path, *names: str, **faults: list[Exception]) -> AsyncGenerator[Street]:
    """With the organisations `names` from an earlier life; `faults` are why openings fail, one after another."""
    settings = Settings(state=folder)
    trust = Trust.load_or_create(settings.keys)
    for name in names:
        trust.add_org(name)
    default = House("default")
    made: Street

    async def open_house(mine: Settings, seen: Trust, stack: AsyncExitStack) -> House:
        made.opened.append(seen.org)
        assert mine.workers.is_dir()
        if made.faults.get(seen.org):
            raise made.faults[seen.org].pop(0)
        group = await stack.enter_async_context(asyncio.TaskGroup())
        house = made.open_houses[seen.org] = House(seen.org)

        async def crew() -> None:
            await house.broke.wait()
            raise StateUnwritable("its database is gone")

        task = group.create_task(crew())
        stack.callback(task.cancel)
        stack.callback(made.closed.append, seen.org)
        return house

    async def delete(_: Credential | None) -> None:
        trust.forgotten(trust.gone)

    orgs = Orgs(
        settings,
        trust,
        OrgRouter(frozenset()),
        cast("Organisation", default),
        cast("Any", open_house),
        delete,
        lambda: SAID,
    )
    made = Street(orgs, trust, default, settings, faults)
    async with AsyncExitStack() as stack:
        await orgs.open(stack)
        yield made


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY", module.RetryPolicy(base=0.01, cap=0.02))


async def test_all_are_open_when_the_start_is_over_and_closed_at_the_end(tmp_path: Path):
    async with street(tmp_path, "acme", "zeta") as made:
        assert await made.states() == {"default": "open", "acme": "open", "zeta": "open"}

    assert sorted(made.closed) == ["acme", "zeta"]


@pytest.mark.requirement("org-create-whole")
@pytest.mark.parametrize("fault", [StateUnwritable("no room"), KeyError("x"), TimeoutError("late")])
async def test_one_that_fails_to_open_is_told_once_and_tried_again(
    tmp_path: Path, fault: Exception
):
    async with street(tmp_path, "acme", "zeta", acme=[fault] * 3) as made:
        assert (await made.states())["zeta"] == "open"

        await made.until(acme="open")

        assert made.opened.count("acme") == 4
        assert len(made.default.alerts) == 1
        assert "org-failed: the organisation acme is not open" in made.default.alerts[0]


@pytest.mark.requirement("org-create-whole")
async def test_one_whose_part_dies_is_opened_again_and_the_others_do_not_notice(tmp_path: Path):
    async with street(tmp_path, "acme", "zeta") as made:
        made.open_houses["acme"].broke.set()
        del made.open_houses["acme"]
        async with asyncio.timeout(PATIENCE):
            while "acme" not in made.open_houses:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

        await made.until(acme="open", zeta="open")

        assert made.closed == ["acme"]
        assert "its database is gone" in made.default.alerts[0]


@pytest.mark.requirement("org-create-whole")
async def test_of_two_that_make_one_at_once_one_is_told_of_a_conflict(tmp_path: Path):
    async with street(tmp_path) as made:
        results = await asyncio.gather(
            made.orgs.create("acme"), made.orgs.create("acme"), return_exceptions=True
        )

        assert sorted(type(result).__name__ for result in results) == ["Conflict", "dict"]
        assert made.opened == ["acme"]


async def test_one_that_was_made_and_cannot_be_opened_says_why(tmp_path: Path):
    async with street(tmp_path, acme=[StateUnwritable("no room")]) as made:
        entry = await made.orgs.create("acme")

        assert (entry["name"], entry["state"], entry["detail"]) == ("acme", "failed", "no room")
        await made.until(acme="open")


@pytest.mark.parametrize("name", ["", "Acme", "../keys", ".removed", "a.b", "*", ">", "a" * 65])
async def test_a_name_that_could_lead_anywhere_else_makes_nothing(tmp_path: Path, name: str):
    async with street(tmp_path) as made:
        with pytest.raises(InvalidName):
            await made.orgs.create(name)

        assert made.trust.orgs == ("default",)
        with pytest.raises(InvalidName):
            made.settings.for_org(name)


async def test_there_are_no_more_than_the_streams_of_which_fit_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "MAX_ORGS", 2)
    async with street(tmp_path, "acme") as made:
        with pytest.raises(Refused):
            await made.orgs.create("zeta")


async def test_keys_that_cannot_be_kept_make_no_organisation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with street(tmp_path) as made:

        def full(*_: object) -> None:
            raise StateUnwritable("the disk is full")

        monkeypatch.setattr("postroom.identity.keyring.save", full)
        with pytest.raises(StateUnwritable):
            await made.orgs.create("acme")

        assert await made.states() == {"default": "open"}


@pytest.mark.requirement("org-create-whole")
async def test_one_that_was_removed_leaves_its_folder_aside_and_its_name_free(tmp_path: Path):
    async with street(tmp_path, "acme") as made:
        home = made.settings.for_org("acme").home
        (home / "mail").write_text("kept")

        kept = Path(await made.orgs.remove("acme"))

        assert made.closed == ["acme"]
        assert (kept / "mail").read_text() == "kept"
        assert not home.exists()
        assert made.trust.gone == ()
        assert made.default.swept == 1  # mail on its way to it ends
        with pytest.raises(NotFound):
            await made.orgs.remove("acme")
        await made.orgs.create("acme")
        assert not (home / "mail").exists()


@pytest.mark.requirement("org-create-whole")
async def test_what_a_kill_has_left_of_a_removed_one_goes_at_the_next_start(tmp_path: Path):
    trust = Trust.load_or_create(Settings(state=tmp_path).keys)
    trust.add_org("acme")
    trust.remove_org("acme")
    left = Settings(state=tmp_path).for_org("acme").home
    left.mkdir(parents=True)
    (left / "mail").touch()

    async with street(tmp_path) as made:
        assert made.trust.gone == ()
        await made.orgs.create("acme")

    assert not (left / "mail").exists()
    assert list((tmp_path / "orgs" / ".removed").glob("acme-*/mail"))


async def test_the_default_one_cannot_be_removed(tmp_path: Path):
    async with street(tmp_path) as made:
        with pytest.raises(Conflict):
            await made.orgs.remove("default")


async def test_one_whose_keys_cannot_be_removed_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with street(tmp_path, "acme") as made:

        def full(*_: object) -> None:
            raise StateUnwritable("the disk is full")

        with monkeypatch.context() as patched:
            patched.setattr("postroom.identity.keyring.save", full)
            with pytest.raises(StateUnwritable):
                await made.orgs.remove("acme")

        await made.until(acme="open")


async def test_why_one_does_not_answer_is_told(tmp_path: Path):
    async with street(tmp_path, "acme", acme=[PostroomError("broken")] * 1000) as made:
        assert isinstance(made.orgs.missing("nope"), NotFound)
        assert "broken" in made.orgs.missing("acme").message
