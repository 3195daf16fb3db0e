"""The sessions that `postroom connect run` knows: which one speaks, its address at the post room, and its mail.

A session is known by its client's id of it; for most clients by that id in one process, since a conversation may be
open in two terminals: the second one gets an address of its own. `/clear` gives a process another id; the address goes
with it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from functools import partial

from postroom.client.http import AsyncClient
from postroom.client.stream import Event as FeedEvent
from postroom.connect import processes
from postroom.connect.dialects import DIALECTS, Said
from postroom.connect.journal import Journal, Record
from postroom.connect.mailbox import Mailbox
from postroom.connect.places import Settings
from postroom.connect.projects import nick_of, project_of
from postroom.connect.session import Session, rules_of
from postroom.errors import (
    CallerError,
    Conflict,
    Forbidden,
    InvalidInput,
    NotFound,
    NotRunning,
    PostroomError,
    Unauthorized,
)
from postroom.observe import get_logger
from postroom.observe.supervision import Supervisor, failing, guarded, well
from postroom.protocol.shapes import NewSession
from postroom_a2a.retry import RetryPolicy

log = get_logger(__name__)

AGAIN = RetryPolicy(base=0.5, cap=30.0)
"""The pauses before a session is registered again that could not be."""

SELDOM = 60.0
"""Seconds before the next attempt where the post room has refused: somebody has to do something first."""

ENDED = (Unauthorized, NotFound, Forbidden)
"""A session that the post room knows nothing of: it was ended, or has been gone for too long."""

SUBAGENTS = 256
"""Calls of tools by subagents that are remembered."""


class Registry:
    """All sessions of one person on this machine.

    Attributes:
        place: the post room, in words.
        connected: its feed is open.
        error: why it is not.
        registering: sessions that have no address yet, by client and key.
    """

    def __init__(self, settings: Settings, journal: Journal, news: Callable[[], None]) -> None:
        self._settings = settings
        self._journal = journal
        self.news = news
        self._find = settings.place()
        self._sessions: dict[str, Session] = {}
        self.registering: dict[tuple[str, str], asyncio.Task[Session | None]] = {}
        self._own: set[str] = set()
        self._some = asyncio.Event()
        self._person: AsyncClient | None = None
        self.place = "/".join(
            filter(None, (settings.login or settings.state or "local", settings.org))
        )
        self.connected = False
        self.error = ""
        self.background: Supervisor | None = None

    # ── which sessions there are ────────────────────────────────────────────────────────────────────────

    def all(self) -> list[Session]:
        """All sessions at this post room, those that have ended, too."""
        return list(self._sessions.values())

    @property
    def living(self) -> list[Session]:
        """Those that are open."""
        return [each for each in self.all() if each.record.alive]

    def revive(self) -> None:
        """Take up what the journal has: what was on its way to a hook when the process was killed is said again."""
        for record, box in self._journal.sessions():
            if record.place == self.place:
                session = self._put(record, box)
                box.lost([each.mail["id"] for each in box.letters.values() if not each.taken])
                if record.alive and session.living:
                    self._watch(session)
                elif record.alive:
                    session.gone()

    def _put(self, record: Record, box: Mailbox) -> Session:
        session = Session(record, box, self._journal, self._find, self._settings.org, self.news)
        box.rules = rules_of(session, self._settings, lambda: self._own)
        self._own.add(record.uid)
        self._sessions[record.uid] = session
        self._some.set()
        return session

    def _watch(self, session: Session) -> None:
        session.forget_process()
        if session.record.pid:
            session.forget_process = processes.when_gone(
                session.record.pid, partial(self._gone, session)
            )

    def _gone(self, session: Session) -> None:
        with guarded(f"the end of @{session.record.nick}"):
            session.gone()

    async def close(self) -> None:
        """Close all connections."""
        for task in self.registering.values():
            task.cancel()
        for session in self.all():
            session.forget_process()
            await session.close()
        if self._person is not None:
            await self._person.close()

    # ── who speaks ──────────────────────────────────────────────────────────────────────────────────────

    def note_subagent(self, found: Said) -> None:
        """A subagent calls tools: what those read is not read by the session."""
        for session in self.all():
            if (session.record.client, session.record.session) == (found.client, found.session):
                session.subagents |= dict.fromkeys(found.own_tools)
                while len(session.subagents) > SUBAGENTS:
                    session.subagents.pop(next(iter(session.subagents)))

    def of_call(self, client: str, pid: int, session: str) -> Session | None:
        """The session that calls a tool of Postroom's, as far as the call says which it is."""
        found = [each for each in self.living if each.record.client == client]
        named = [each for each in found if each.record.session == session]
        here = [each for each in found if each.record.pid == pid]
        if client in DIALECTS and not DIALECTS[client].by_process:
            return named[0] if named else None
        both = [each for each in named if each in here]
        # After `/clear` the server of a client still names the conversation before.
        for some in (both, here, named):
            if len(some) == 1:
                return some[0]
        return None

    async def session_of(self, found: Said, pid: int, waits: float) -> Session | None:
        """The session that a hook speaks of, registered if it is new; None while it has no address.

        Args:
            waits: seconds to wait for the address.
        """
        session = self.known(found, pid)
        if session is not None:
            self._refresh(session, found, pid)
            return session
        if not self._settings.headless and processes.headless(found.client, pid):
            return None
        key = self._key(found, pid)
        task = self.registering.get((found.client, key))
        if task is None:
            if self.background is None:
                return None
            task = self.background.group.create_task(
                self._registered(found, pid, key), name=f"registering {found.client}"
            )
            self.registering[found.client, key] = task
            task.add_done_callback(lambda _: self.registering.pop((found.client, key), None))
        if waits:
            await asyncio.wait({task}, timeout=waits)
        return task.result() if task.done() and not task.cancelled() else None

    def known(self, found: Said, pid: int) -> Session | None:
        """The session as it is, was before it was resumed, or was before `/clear`."""
        same = [
            each
            for each in self.all()
            if (each.record.client, each.record.session) == (found.client, found.session)
        ]
        if not self._by_process(found.client):
            return same[0] if same else None
        here = [each for each in same if each.record.pid == pid]
        if here:
            return here[0]
        # Where its process has ended, it is the one that is resumed.
        ended = [each for each in same if not (each.record.alive and each.living)]
        if ended:
            return min(ended, key=lambda each: "#" in each.record.key)
        before = [
            each for each in self.all() if each.record.pid == pid and self._same_client(each, found)
        ]
        if found.source == "clear" and before and not same:
            return max(before, key=lambda each: each.heard_at)
        return None

    def _same_client(self, session: Session, found: Said) -> bool:
        return session.record.client == found.client and session.living

    def _by_process(self, client: str) -> bool:
        return client not in DIALECTS or DIALECTS[client].by_process

    def _key(self, found: Said, pid: int) -> str:
        """What the post room knows a new session by."""
        taken = self._by_process(found.client) and any(
            each.record.client == found.client
            and each.record.session == found.session
            and each.record.alive
            for each in self.all()
        )
        return f"{found.session}#{pid}-{processes.began(pid)}" if taken else found.session

    def _refresh(self, session: Session, found: Said, pid: int) -> None:
        """Keep in mind where the session is now."""
        record = session.record
        changed = (record.pid, record.session) != (pid, found.session) or not record.alive
        record.transcript = found.transcript or record.transcript
        if not changed:
            return
        record.pid, record.began, record.alive = pid, processes.began(pid), True
        if record.session != found.session:
            record.session = record.key = found.session
            session.rename_key = True
        session.told = ""
        for other in self.all():
            # Another conversation in the same process has been left.
            if other is not session and other.record.pid == pid and self._by_process(found.client):
                other.gone()
        session.save()
        self._watch(session)

    # ── the post room ───────────────────────────────────────────────────────────────────────────────────

    def person(self) -> AsyncClient:
        """Calls with the person's key: to register, and for the feed. Raises what finding the post room raises."""
        if self._person is None:
            self._person = AsyncClient.on(self._find, self._settings.org)
        return self._person

    async def _registered(self, found: Said, pid: int, key: str) -> Session | None:
        """Register a session, however long the post room is away; None where its process has ended."""
        for attempt in range(1, 1 << 20):
            if pid and not processes.alive(pid):
                return None
            try:
                return await self._register(found, pid, key)
            except PostroomError as error:
                self.error = str(error)
                log.warning("a session of %s has no address yet: %s", found.client, error)
                pause = SELDOM if isinstance(error, CallerError) else AGAIN.delay(attempt)
            await asyncio.sleep(pause)
        return None

    async def _register(self, found: Said, pid: int, key: str) -> Session:
        project = project_of(found.cwd)
        nick = nick_of(found.cwd, project)
        more = {"folder": found.cwd, "project": project}
        client = self.person()
        await self._tell_ended(project)
        try:
            made = await client.register_session(found.client, key, nick, **more)
        except (Conflict, InvalidInput):  # such a nick is for others
            made = await client.register_session(found.client, key, f"{nick}-session", **more)
        record = Record(
            made["uid"],
            found.client,
            key,
            found.session,
            made["nick"],
            place=self.place,
            folder=found.cwd,
            pid=pid,
            began=processes.began(pid),
            transcript=found.transcript,
        )
        session = self._sessions.get(record.uid) or self._put(record, Mailbox(record.nick))
        await session.close()
        self._adopt(session, made, record)
        if "#" in key:
            first = [each for each in self.living if each.record.key == found.session]
            session.twin = first[0].record.nick if first else ""
        session.save()
        await session.sync()
        self.news()
        return session

    async def _tell_ended(self, project: str) -> None:
        """Tell the post room which sessions of a project have ended: a new one gets the nick of such a one."""
        for session in self.all():
            untold = not session.record.alive and session.told != "gone"
            if untold and project_of(session.record.folder) == project:
                await self.tell(session)

    async def tell(self, session: Session) -> None:
        """Tell the post room what it does not know of a session.

        Raises:
            PostroomError: it cannot be told now.
        """
        try:
            await session.tell()
        except ENDED as error:
            log.info("@%s has been ended: %s", session.record.nick, error)
            await self._renew(session)
        except CallerError as error:
            log.warning("the post room does not hear of @%s: %s", session.record.nick, error)

    async def _renew(self, session: Session) -> None:
        """Give an open session its address again, or another one, with what is known of its mail."""
        record = session.record
        if not record.alive:
            return await self._forget(session)
        more = {"folder": record.folder, "project": project_of(record.folder)}
        made = await self.person().register_session(record.client, record.key, record.nick, **more)
        if made["uid"] != record.uid:
            await self._forget(session)
            session = self._put(record, Mailbox(record.nick))
        self._adopt(session, made, record)
        await session.close()
        session.save()
        await session.sync()
        return None

    def _adopt(self, session: Session, made: NewSession, record: Record) -> None:
        """The address and the key that the post room has given."""
        record = replace(
            record,
            uid=made["uid"],
            nick=made["nick"],
            secret=made["api_key"]["key"],
            owner=made["owner"]["uid"],
        )
        session.record, session.box.nick, session.told = record, record.nick, ""
        session.greeted = False
        self._sessions[record.uid] = session
        self._own.add(record.uid)
        session.box.rules = rules_of(session, self._settings, lambda: self._own)
        self._watch(session)

    async def _forget(self, session: Session) -> None:
        """It has no address any further; an open one gets another at its next event."""
        session.gone()
        session.forget_process()
        await session.close()
        self._journal.forget(session.record.uid)
        self._sessions.pop(session.record.uid, None)

    async def follow(self) -> None:
        """Read the feed of all sessions, for ever."""
        await self._some.wait()  # nothing is on the network while nobody is there
        self._own |= {each["uid"] for each in await self.person().sessions()}
        after = self._journal.after(self.place)
        stream = self.person().follow_sessions(after=int(after or 0), away=self._away)
        stream.connected = self._there
        async with aclosing(aiter(stream)) as events:
            async for event in events:
                well()
                await self._heard(event)
                if event.is_record:
                    self._journal.reached(self.place, event.id)

    def _there(self) -> None:
        self.connected, self.error = True, ""
        if self.background is not None:
            self.background.group.create_task(self._sync(), name="syncing")

    def _away(self, away: bool) -> None:
        self.connected = not away
        if away:
            self.error = "the connection to the post room was lost"
            failing(NotRunning(self.error))

    async def _sync(self) -> None:
        """What has become of the mail here while there was no connection."""
        for session in self.all():
            with guarded(f"the mail of @{session.record.nick}"), contextlib.suppress(*ENDED):
                if session.box.letters or session.record.alive:
                    await session.sync()
        self.news()

    async def _heard(self, event: FeedEvent) -> None:
        data = event.data
        if event.kind == "mail":
            session = self._sessions.get(data["to"]["uid"])
            if session is not None and await session.take(data):  # ty: ignore[invalid-argument-type]
                session.save()
                self.news()
        elif event.kind == "state":
            session = self._sessions.get(data["to"])
            if session is not None and data["state"] in ("seen", "answered", "dead"):
                session.box.over(data["id"])
                session.save()
        elif event.kind == "session":
            self._own.add(data["uid"])
            session = self._sessions.get(data["uid"])
            if session is None:
                return
            if data["what"] == "ended":
                await self._forget(session)
            elif data["nick"] != session.record.nick:
                session.record.nick = session.box.nick = data["nick"]
                session.greeted = False
                session.save()
