"""The sessions that people have open in their own terminals: each is an agent of the kind `external`.

A session has one key, which its owner's client registers it for; that has no more scopes than the owner's key, and
never `operate` or `admin`. Who registers a session again, by the key that its client knows it by, resumes it: the same
agent, with another API key in the place of the former one. What is known of sessions is in memory, too.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from postroom.directory.agents import rename
from postroom.directory.iam import LocalIAM, NewKey
from postroom.directory.outside import OutsideAgents
from postroom.directory.presence import PAUSE, Callers
from postroom.errors import Conflict, Forbidden, NameTaken, NotFound, Refused
from postroom.protocol import shapes
from postroom.protocol.limits import MAX_SESSIONS
from postroom.protocol.principal import KEY, Principal, Scope
from postroom.protocol.sessions import KEPT_FOR, SessionStanding, kept_from, nicks_of
from postroom.store.agents import Agent, Party
from postroom.store.database import Database, Store
from postroom.store.sessions import SessionRow
from postroom_a2a.times import format_time

EXPIRY_INTERVAL = 600.0
"""Seconds between two looks for sessions that are over."""

GRACE = 300.0
"""Seconds after a start in which none ends: those that are open have time to come back."""


class _Known(Exception):
    """Another call has registered the same session first."""


@dataclass(frozen=True, slots=True)
class Registration:
    """What a client says of a session; the fields are those of a `SessionRow`. `nick` is the name it wants."""

    client: str
    key: str
    nick: str = ""
    folder: str = ""
    project: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class Registered:
    """A session that was registered, and its new key; `resumed`: it was known before."""

    session: SessionRow
    key: NewKey
    resumed: bool = False


class Sessions:
    """Registers sessions, notes how they stand, and ends them.

    Args:
        changed: called with a session and what has become of it (`projection.changes.Change.state`).
    """

    def __init__(
        self,
        database: Database,
        outside: OutsideAgents,
        iam: LocalIAM,
        callers: Callers,
        changed: Callable[[SessionRow, str], None] = lambda _session, _what: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._outside = outside
        self._iam = iam
        self._callers = callers
        self._changed = changed
        self._clock = clock
        self._known: dict[str, SessionRow] = {}
        self._opened_at = 0.0

    async def open(self) -> None:
        """Read them."""
        found = await self._database.read(lambda store: store.sessions.all())
        self._known = {session.uid: session for session in found}
        self._opened_at = self._clock()

    def of(self, uid: str) -> SessionRow | None:
        """The session that the agent `uid` is; None for any other agent."""
        return self._known.get(uid)

    @property
    def uids(self) -> list[str]:
        """Of the agents that sessions are."""
        return list(self._known)

    def seen_by(self, me: Principal) -> list[SessionRow]:
        """The sessions of `me`, in the order of their uids; all of them for who operates."""
        known = sorted(self._known.values(), key=lambda session: session.uid)
        return [session for session in known if sees(me, session)]

    def owned(self, owner: str) -> list[SessionRow]:
        """The sessions of a person."""
        return [session for session in self._known.values() if session.owner == owner]

    def get(self, me: Principal, uid: str) -> SessionRow:
        """The session that the agent `uid` is. Raises NotFound where there is none, or not for `me`."""
        session = self._known.get(uid)
        if session is None or not sees(me, session):
            raise NotFound("there is no such session", remedy="postroom agents lists all agents")
        return session

    async def shown(self, sessions: Collection[SessionRow]) -> list[shapes.Session]:
        """Shapes of the API."""
        if not sessions:
            return []
        uids = {uid for each in sessions for uid in (each.uid, each.owner)}
        parties = await self._database.point(lambda store: store.agents.parties(uids))
        there = self._callers.there
        return [_shown(each, parties, online=there(each.uid)) for each in sessions]

    def told(self, agent: Party) -> str:
        """What the sender of a message to an agent is told, "" for nothing; of other agents that is nothing."""
        kept = self._kept_from(agent.uid)
        return f"@{agent.nick} {kept[0]}: it gets this {kept[1]}" if kept else ""

    def blocker(self, uid: str) -> str:
        """Why a session does not take its tasks by itself, "" where it does, and for other agents."""
        kept = self._kept_from(uid)
        return kept[0] if kept else ""

    def blocked(self) -> list[str]:
        """The uids of the sessions that do not get their mail by themselves."""
        return [uid for uid in self._known if self._kept_from(uid)]

    def kept(self, settled: float) -> list[str]:
        """The uids of the sessions that do not get their mail by themselves, or did not until `settled` seconds ago."""
        since = self._clock() - settled
        known = self._known.values()
        return [each.uid for each in known if each.state_at > since or self._kept_from(each.uid)]

    def _kept_from(self, uid: str) -> tuple[str, str] | None:
        session = self._known.get(uid)
        if session is None:
            return None
        there = self._callers.there(uid)
        return kept_from(session.client, SessionStanding(session.state), connected=there)

    # ── registering ─────────────────────────────────────────────────────────────────────────────────────

    async def register(self, me: Principal, said: Registration) -> Registered:
        """Give a session an address and a key, or resume one that is known.

        Raises:
            Forbidden: `me` is no person with a key.
            Refused: they have as many sessions as one person may have.
        """
        if me.kind != "human" or me.method != KEY:
            raise Forbidden("sessions are registered by the person in whose terminal they are")
        while True:
            done = await self._resume(me, said)
            if done is None:
                try:
                    done = await self._add(me, said)
                except _Known:
                    continue
                self._put(done.session, "added")
            return done

    async def _resume(self, me: Principal, said: Registration) -> Registered | None:
        now = self._clock()

        def resume(store: Store) -> tuple[SessionRow, NewKey, list[str]] | None:
            known = store.sessions.known_as(me.uid, said.client, said.key)
            if known is None:
                return None
            key, ended = self._iam.session_key(store, me, known.uid)
            session = _told_of(known, said, now)
            store.sessions.change(session)
            return session, key, list(ended)

        found = await self._database.write(resume)
        if found is None:
            return None
        session, key, ended = found
        self._iam.cut(ended)
        self._put(session)
        return Registered(session, key, resumed=True)

    async def _add(self, me: Principal, said: Registration) -> Registered:
        made: list[Registered] = []
        left: list[Agent] = []

        def also(store: Store, agent: Agent) -> None:
            if store.sessions.known_as(me.uid, said.client, said.key) is not None:
                raise _Known
            if store.sessions.count(me.uid) >= MAX_SESSIONS:
                raise Refused(
                    f"@{me.nick} has {MAX_SESSIONS} sessions, the most that one person may have",
                    remedy="end some: postroom agents remove @NICK",
                )
            new = SessionRow(
                uid=agent.uid,
                owner=me.uid,
                client=said.client,
                key=said.key,
                folder=said.folder,
                project=said.project,
                version=said.version,
                state=SessionStanding.IDLE.value,
                state_at=agent.created_at,
                heard_at=agent.created_at,
            )
            store.sessions.add(new)
            key, _ = self._iam.session_key(store, me, agent.uid)
            made[:] = [Registered(new, key)]

        card = {"description": f"A session of @{me.nick} in {said.client}."}
        for nick in nicks_of(said.nick, said.client, _endings()):

            def first(store: Store, nick: str = nick) -> None:
                left[:] = _given_away(store, me, said, nick)

            try:
                await self._outside.add(nick, "external", card, first=first, also=also)
            except NameTaken:
                continue
            for former in left:
                await self._outside.renamed(former)
                self._tell_renamed(former.uid)
            return made[0]
        raise Refused("no free name was found for this session", remedy="name it otherwise")

    # ── what becomes of them ────────────────────────────────────────────────────────────────────────────

    async def note(
        self, session: SessionRow, *, state: str = "", key: str = "", folder: str = ""
    ) -> SessionRow:
        """Note what is new of a session, and that it was heard.

        Raises:
            Conflict: another session of its owner has that key.
            NotFound: it has ended.
        """
        now = self._clock()
        given = {"state": state, "key": key, "folder": folder}
        changed = {name: value for name, value in given.items() if value}
        same = all(getattr(session, name) == value for name, value in changed.items())
        if same and now - session.heard_at < PAUSE:
            return session

        def store_it(store: Store) -> SessionRow:
            found = store.sessions.get(session.uid)
            if found is None:
                raise NotFound("that session has ended")
            since = found.state_at if state in ("", found.state) else now
            new = replace(found, **changed, state_at=since, heard_at=now)
            known = store.sessions.known_as(new.owner, new.client, new.key)
            if known is not None and known.uid != new.uid:
                raise Conflict(f"another session of {new.client} has that key")
            store.sessions.change(new)
            return new

        new = await self._database.write(store_it)
        self._put(new)
        return new

    async def rename(self, agent: Agent, nick: str) -> Agent:
        """Give an agent that Postroom does not run another nick. Raises InvalidName, NameTaken."""
        renamed = await self._outside.rename(agent, nick)
        self._tell_renamed(agent.uid)
        return renamed

    def _tell_renamed(self, uid: str) -> None:
        if (session := self._known.get(uid)) is not None:
            self._changed(session, "renamed")

    async def end(self, uid: str) -> None:
        """End a session: its address and its keys are gone for ever. The caller sweeps what waits for it."""
        with suppress(NotFound):  # another call was first
            await self._iam.withdraw(uid)
        await self.forget(uid)

    async def forget(self, uid: str) -> None:
        """Drop what is known of an agent whose address is gone, where it was a session or had some."""
        for session in [one for one in self._known.values() if uid in (one.uid, one.owner)]:
            del self._known[session.uid]
            await self._outside.forget(session.uid)
            self._changed(session, "ended")

    async def expire(self) -> int:
        """End the sessions that were not heard for `KEPT_FOR` seconds, and have not called; returns their number."""
        now = self._clock()
        if now - self._opened_at < GRACE:
            return 0
        silent = [session.uid for session in self._known.values() if self._is_silent(session, now)]
        for uid in silent:
            await self.end(uid)
        return len(silent)

    def _is_silent(self, session: SessionRow, now: float) -> bool:
        # Who follows the mail of its sessions speaks for those that are open.
        called = self._callers.seen_at(session.uid) or 0.0
        return now - max(session.heard_at, called) >= KEPT_FOR

    def _put(self, session: SessionRow, what: str = "") -> None:
        before = self._known.get(session.uid)
        self._known[session.uid] = session
        if what or before is None or before.state != session.state:
            self._changed(session, what)


def sees(me: Principal, session: SessionRow) -> bool:
    """Whether `me` may know all of a session: its owner, itself, and who operates."""
    return me.allows(Scope.OPERATE) or commands(me, session)


def commands(me: Principal, session: SessionRow) -> bool:
    """Whether `me` may speak for a session: its owner, and itself."""
    return me.method == KEY and me.uid in (session.owner, session.uid)


def _given_away(store: Store, me: Principal, said: Registration, nick: str) -> list[Agent]:
    """The session that gave `nick` away to a new one of `me`, under the nick that it has now; empty where none did.

    It does where its client has ended and nobody waits for it: otherwise each new session of a repository would have
    another name for a week. A name that somebody has given by hand is none that a new session asks for.
    """
    agent = store.agents.agent_by_nick(me.org, nick)
    former = store.sessions.get(agent.uid) if agent is not None else None
    if agent is None or former is None or former.owner != me.uid:
        return []
    place = said.project or said.folder
    if former.state != SessionStanding.GONE.value or not place:
        return []
    if place != (former.project or former.folder) or _is_waited_for(store, agent.uid):
        return []
    for ending in _endings():
        with suppress(NameTaken):
            return [rename(store, agent, f"{nick}-{ending}")]
    return []


def _is_waited_for(store: Store, uid: str) -> bool:
    """Whether an agent has unread mail, or a task."""
    tasks = (store.tasks.open_tasks(uid, limit=1, taken=taken) for taken in (True, False))
    return bool(store.messages.inbox(uid, unread=True, limit=1)) or any(tasks)


def _shown(session: SessionRow, parties: Mapping[str, Party], *, online: bool) -> shapes.Session:
    return {
        "uid": session.uid,
        "nick": parties[session.uid].nick,
        "owner": parties[session.owner].as_json(),
        "client": session.client,
        "key": session.key,
        "folder": session.folder,
        "project": session.project,
        "version": session.version,
        "state": session.state,
        "state_at": format_time(session.state_at),
        "heard_at": format_time(session.heard_at),
        "online": online,
    }


def _told_of(known: SessionRow, said: Registration, now: float) -> SessionRow:
    state = SessionStanding.IDLE.value
    return replace(
        known,
        folder=said.folder or known.folder,
        project=said.project or known.project,
        version=said.version or known.version,
        state=state,
        state_at=known.state_at if known.state == state else now,
        heard_at=now,
    )


def _endings() -> Iterator[str]:
    for _ in range(5):
        yield secrets.token_hex(2)
