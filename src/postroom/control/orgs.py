"""All organisations of a post room: opened at its start, made and removed while it runs.

The default one is the post room's own and ends with it. A task keeps each other one open: a failure ends that one
alone, raises an alert in the default one, and is followed by another try. An organisation exists from the moment its
keys are on disk, so that a kill at any point leaves a whole one or none.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from postroom.control.org_router import OrgRouter
from postroom.control.statefile import Announcement
from postroom.errors import (
    Conflict,
    EnvironmentFault,
    NotFound,
    PostroomError,
    Refused,
    RequestTimeout,
    StateUnwritable,
    leaves,
)
from postroom.identity.jwt import Credential
from postroom.identity.trust import Trust
from postroom.observe import get_logger
from postroom.protocol import shapes
from postroom.protocol.alerts import Alert
from postroom.protocol.ids import check_name
from postroom.protocol.limits import MAX_ORGS
from postroom.settings import DEFAULT_ORG, Settings
from postroom.store.agents import Agent
from postroom.store.database import Database
from postroom.store.place import set_aside
from postroom_a2a.retry import RetryPolicy

if TYPE_CHECKING:
    from postroom.control.parts import Parts

log = get_logger(__name__)

AT_ONCE = 4
"""Organisations that open at the same time."""

OPEN_TIMEOUT = 90.0
"""Seconds that a start, or the maker of an organisation, waits until it is open; the opening goes on after that."""

RETRY = RetryPolicy(base=1.0, cap=60.0)
"""Pauses before a failed organisation is opened again."""

FAILED = "org-failed"
"""Kind of the alert that an organisation is not open; it ends when that is open, or removed."""

REMOVED = ".removed"
"""Folder for the folders of removed organisations; no organisation can have this name."""


class Opened(Protocol):
    """An open organisation, which is a `control.org.Organisation`: that imports the API, which imports this module."""

    @property
    def parts(self) -> Parts:
        """Its parts."""

    @property
    def owner(self) -> Agent:
        """The operator, as an agent of it."""

    async def go(self, announcement: Callable[[], Announcement]) -> None:
        """Open its API."""

    async def alert(self, alert: Alert) -> None:
        """Raise an alert in it."""

    async def counts(self) -> shapes.OrgCounts:
        """Numbers of its workers and messages."""


Opener = Callable[[Settings, Trust, AsyncExitStack], Awaitable[Opened]]
"""Opens an organisation; the stack closes it."""

Deleter = Callable[[Credential | None], Awaitable[None]]
"""Deletes the accounts of removed organisations (`Trust.gone`); with a credential first the log behind it."""


@dataclass(slots=True)
class _Entry:
    """An organisation that is kept open.

    Attributes:
        org: None while it is not open.
        fault: why it is not, "" before the first try.
        tried: set once its first opening has ended, well or not.
    """

    name: str
    org: Opened | None = None
    fault: str = ""
    tried: asyncio.Event = field(default_factory=asyncio.Event)
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    @property
    def state(self) -> str:
        """`open`, `opening` or `failed`."""
        if self.org is not None:
            return "open"
        return "failed" if self.fault else "opening"


class Orgs:
    """Opens, makes and removes the organisations.

    Args:
        trust: keys, seen from the default organisation.
        open_org: opens another one.
        announcement: returns the present content of the default one's `server.json`.
    """

    def __init__(
        self,
        settings: Settings,
        trust: Trust,
        router: OrgRouter,
        default: Opened,
        open_org: Opener,
        delete_accounts: Deleter,
        announcement: Callable[[], Announcement],
    ) -> None:
        self._settings = settings
        self._trust = trust
        self._router = router
        self._open_org = open_org
        self._delete_accounts = delete_accounts
        self._announcement = announcement
        self._default = default
        self._entries: dict[str, _Entry] = {}
        self._group = asyncio.TaskGroup()
        self._opening = asyncio.Semaphore(AT_ONCE)
        self._changing = asyncio.Lock()

    async def open(self, stack: AsyncExitStack) -> None:
        """Open all organisations; one that fails is reported and tried again. `stack` closes them."""
        await stack.enter_async_context(self._group)
        stack.callback(self._end)
        await self._clean_up()
        entries = [self._begin(name) for name in self._trust.orgs if name != DEFAULT_ORG]
        if entries:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(OPEN_TIMEOUT):
                    await asyncio.gather(*(entry.tried.wait() for entry in entries))

    async def listed(self) -> list[shapes.Org]:
        """Every organisation, the default one first; shape in docs/api.md, Org."""
        default = _Entry(DEFAULT_ORG, self._default)
        return [await _described(entry) for entry in (default, *self._entries.values())]

    def opened(self) -> list[Parts]:
        """The parts of each organisation that is open, the default one first."""
        entries = [entry.org for entry in self._entries.values()]
        return [org.parts for org in (self._default, *entries) if org is not None]

    def parts(self, name: str) -> Parts:
        """The parts of an organisation.

        Raises:
            NotFound, EnvironmentFault: there is none of that name, or it is not open.
        """
        if name == DEFAULT_ORG:
            return self._default.parts
        entry = self._entries.get(name)
        if entry is None or entry.org is None:
            raise self.missing(name)
        return entry.org.parts

    def databases(self) -> dict[str, Database]:
        """The databases of the organisations beside the default one.

        Raises:
            EnvironmentFault: one is not open.
        """
        found = {}
        for name, entry in self._entries.items():
            if entry.org is None:
                raise self.missing(name)
            found[name] = entry.org.parts.database
        return found

    async def create(self, name: str) -> shapes.Org:
        """Make an organisation; returns its entry of `listed` once it is open, or its first try has failed.

        Raises:
            InvalidName: it cannot have that name.
            Conflict: it exists.
            Refused: there are too many.
            StateUnwritable: it was not made.
        """
        check_name(name, "organisation")
        async with self._changing:
            if name in self._trust.orgs:
                raise Conflict(
                    f"the organisation {name!r} exists already",
                    remedy=f"postroom --org {name} status",
                )
            if len(self._trust.orgs) >= MAX_ORGS:
                raise Refused(
                    f"this post room has {MAX_ORGS} organisations, the most that it can have"
                )
            # A folder without keys is left from an earlier organisation of this name.
            await asyncio.to_thread(_set_aside, self._settings.for_org(name))
            self._trust.add_org(name)
            entry = self._begin(name)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(OPEN_TIMEOUT):
                await entry.tried.wait()
        # A failed opening is not an error: the organisation exists, and to make it again would be a conflict.
        return await _described(entry)

    async def remove(self, name: str) -> str:
        """End an organisation for ever, with its workers, accounts and keys; returns where its folder is kept.

        Raises:
            Conflict: it is the default one, which stays.
            StateUnwritable: it still exists, and was opened again.
            RequestTimeout: its workers do not end.
        """
        if name == DEFAULT_ORG:
            raise Conflict(
                "the default organisation is the post room itself", remedy="postroom down"
            )
        async with self._changing:
            entry = self._entries.get(name)
            if entry is None or entry.task is None:
                raise self.missing(name)
            await self._default.alert(Alert(FAILED, "", about=name))
            entry.ending.set()
            _, running = await asyncio.wait([entry.task], timeout=OPEN_TIMEOUT)
            if running:
                raise RequestTimeout(f"the workers of the organisation {name!r} do not end")
            del self._entries[name]
            try:
                core = self._trust.of(name).core_credential()
                self._trust.remove_org(name)
            except PostroomError:
                self._begin(name)
                raise
            # From here on it does not exist; the next start repeats what fails now.
            await self._clean_up(core)
            kept = await asyncio.to_thread(_set_aside, self._settings.for_org(name))
        for parts in self.opened():
            try:
                await parts.clerk.sweep()  # what was on its way to it is dead
            except PostroomError as error:
                log.warning("mail to a removed organisation ends at the next start: %s", error)
        log.warning("the organisation %s was removed", name)
        return kept

    def missing(self, name: str) -> PostroomError:
        """The error for the API of `name`, which does not answer."""
        entry = self._entries.get(name)
        if entry is None:
            return NotFound(
                f"there is no organisation {name!r}",
                remedy="postroom org list, or: postroom org create NAME",
            )
        why = f": {entry.fault}" if entry.fault else " yet"
        return EnvironmentFault(
            f"the organisation {name!r} is not open{why}", remedy="it is tried again by itself"
        )

    # Inner parts.

    async def _clean_up(self, core: Credential | None = None) -> None:
        if not self._trust.gone:
            return
        try:
            await self._delete_accounts(core)
        except (PostroomError, OSError, TimeoutError) as error:
            log.error("cannot delete the accounts of removed organisations: %s", error)

    def _begin(self, name: str) -> _Entry:
        entry = _Entry(name)
        self._entries[name] = entry
        entry.task = self._group.create_task(self._keep(entry), name=f"org {name}")
        return entry

    def _end(self) -> None:
        for entry in self._entries.values():
            entry.ending.set()

    async def _keep(self, entry: _Entry) -> None:
        """Keep it open until it is to end."""
        failures = 0
        while not entry.ending.is_set():
            try:
                await self._live(entry)
            except Exception as failure:  # noqa: BLE001 (no failure may end the others)
                failures = 1 if entry.org is not None else failures + 1
                entry.org = None
                await self._failed(entry, failure)
            entry.tried.set()
            if not entry.ending.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(entry.ending.wait(), RETRY.delay(failures))

    async def _live(self, entry: _Entry) -> None:
        settings = self._settings.for_org(entry.name)
        async with AsyncExitStack() as stack:
            async with self._opening:
                await asyncio.to_thread(_make_folders, settings)
                org = await self._open_org(settings, self._trust.of(entry.name), stack)
                stack.callback(self._router.close, entry.name)
                me = {"uid": org.owner.uid, "nick": org.owner.nick}
                await org.go(lambda: replace(self._announcement(), me=me))
            entry.org, entry.fault = org, ""
            entry.tried.set()
            await self._default.alert(Alert(FAILED, "", about=entry.name))
            log.info("the organisation %s is open", entry.name)
            await entry.ending.wait()
        entry.org = None

    async def _failed(self, entry: _Entry, failure: Exception) -> None:
        fault = _fault(failure)
        log.error("the organisation %s is not open", entry.name, exc_info=failure)
        if fault != entry.fault:  # otherwise it was reported before
            entry.fault = fault
            text = f"the organisation {entry.name} is not open: {fault}"
            await self._default.alert(Alert(FAILED, text, about=entry.name))


async def _described(entry: _Entry) -> shapes.Org:
    org = entry.org
    return {
        "name": entry.name,
        "state": entry.state,
        "detail": entry.fault,
        "me": {"uid": org.owner.uid, "nick": org.owner.nick} if org else None,
        "counts": await org.counts() if org else {},
    }


def _fault(failure: Exception) -> str:
    errors = list(leaves(failure))
    for error in errors:
        if isinstance(error, PostroomError):
            return str(error)
    return f"unexpected {type(errors[0]).__name__}: {errors[0]}"


def _make_folders(settings: Settings) -> None:
    try:
        for folder in (settings.orgs, settings.home, settings.workers):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            folder.chmod(0o700)
    except OSError as error:
        raise StateUnwritable(f"cannot write {settings.home}: {error.strerror}") from error


def _set_aside(settings: Settings) -> str:
    """Move the folder and the rows of a removed organisation away; returns the folder's new path, "" if there was
    none.
    """
    set_aside(settings)
    aside = settings.orgs / REMOVED / f"{settings.org}-{time.time_ns()}"
    try:
        if not settings.home.exists():
            return ""
        aside.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        settings.home.rename(aside)
    except OSError as error:
        raise StateUnwritable(f"cannot move {settings.home}: {error.strerror}") from error
    return str(aside)
