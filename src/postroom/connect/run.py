"""`postroom connect run`: one process per person and machine, between the clients' sessions and the post room.

It is begun by the first hook, and ends after the last session. Clients reach it at `run.sock`; a peer says in one line
what it is, and how many bytes follow:

    hook CLIENT EVENT PID BYTES      what a hook was told; the answer is what it prints
    wait CLIENT PID BYTES            a hook in the background, until there is something to wake its client with
    mcp CLIENT PID SESSION           then lines of MCP, both ways
    status                           how everything stands, as JSON

An answer is a line `0` or `2` and the text. A peer that has given the text to its client says so with one byte. Only
then the post room is told `delivered`; without it the text counts as perhaps shown, and is said again as a repetition.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from postroom import __version__
from postroom.connect import permissions, places, waking
from postroom.connect.dialects import DIALECTS, MOST, Said, answer, said
from postroom.connect.forwarding import Forwarding
from postroom.connect.journal import Journal
from postroom.connect.mailbox import Kind
from postroom.connect.registry import Registry
from postroom.connect.session import Session, Waiter
from postroom.errors import ProtocolViolation, StateUnwritable
from postroom.http.unix import bind_unix, peer_uid
from postroom.observe import get_logger
from postroom.observe.supervision import Supervisor, guarded, supervisor, well

log = get_logger(__name__)

LINGER = 60.0
"""Seconds after the last session, since the next one may be about to begin."""

TAKES = 3.0
"""Seconds in which a hook gives its text to its client."""

REGISTERS = 1.0
"""Seconds that the start of a session waits for its address, so that its model is told."""

LOOKS = 2.0
"""Seconds between two looks at a client that may have become idle without a word, while mail waits that wakes."""

WORDS = 512
"""Bytes of a peer's first line."""


class Run:
    """Serves the clients' sessions of one person.

    Args:
        linger: seconds without a session after which it ends.
    """

    def __init__(
        self, settings: places.Settings, journal: Journal, *, linger: float = LINGER
    ) -> None:
        self._linger = linger
        self._settings = settings
        self._journal = journal
        self.registry = Registry(settings, journal, self._news)
        self._forwarding = Forwarding(self.registry)
        self._owed = asyncio.Event()
        self._wakes = asyncio.Event()
        self._links = 0
        self._hooks: dict[str, tuple[str, float]] = {}

    async def serve(self, listener: asyncio.Server) -> None:
        """Serve until no session has been there for a while."""
        async with supervisor() as background:
            self.registry.background = background
            self._supervise(background)
            self.registry.revive()
            async with listener:
                await self._ended()
        await self.registry.close()

    def _supervise(self, background: Supervisor) -> None:
        background.supervise("feed", self.registry.follow)
        background.supervise("telling", self._tell)
        background.supervise("waking", self._wake)

    def _news(self) -> None:
        """Something is to be told, or may wake."""
        self._owed.set()
        self._wakes.set()

    async def _ended(self) -> None:
        while True:
            await asyncio.sleep(self._linger)
            if not (self._links or self.registry.living or self.registry.registering):
                return

    # ── background work ─────────────────────────────────────────────────────────────────────────────────

    async def _tell(self) -> None:
        """Tell the post room what it does not know, at each change and once in a while."""
        while True:
            self._owed.clear()
            for session in self.registry.all():
                await self.registry.tell(session)
            well()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(600.0):
                    await self._owed.wait()

    async def _wake(self) -> None:
        """Wake each idle session that has mail which wakes; ask clients again that say nothing when they are idle."""
        while True:
            self._wakes.clear()
            late = False
            for session in self.registry.living:
                late |= self._looked_at(session)
            well()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOKS if late else None):
                    await self._wakes.wait()

    def _looked_at(self, session: Session) -> bool:
        """Begin to wake a session if that is to be; whether it is to be looked at again."""
        box = session.box
        if not (box.nudged or box.woken or any(box.rules.wakes(each.mail) for each in box.waiting)):
            return False
        way = waking.way_of(session)
        if way is None:
            if session.record.client == "codex" and not box.busy:
                session.gone()  # its terminal was closed, and its senders are to know
            return False  # a hook that begins to wait says so
        idle = box.busy and waking.is_idle(session)
        if (idle or not box.busy) and not session.waking and self.registry.background:
            session.waking = True
            work = self._wake_one(session, way, is_idle=idle)
            self.registry.background.group.create_task(work, name=f"waking @{session.record.nick}")
        return True

    async def _wake_one(self, session: Session, way: waking.Way, *, is_idle: bool) -> None:
        try:
            with guarded(f"waking @{session.record.nick}"):
                if not way.carries:
                    return await self._nudge(session, way, is_idle=is_idle)
                async with session.lock:
                    offer = session.wake(way.how, is_idle=is_idle)
                    if offer is not None:
                        with guarded(f"waking @{session.record.nick} by {way.how}") as guard:
                            taken = await way.does(offer.text)
                        session.handed(offer, taken=guard.error is None and taken)
        finally:
            session.waking = False
        return None

    async def _nudge(self, session: Session, way: waking.Way, *, is_idle: bool) -> None:
        async with session.lock:
            names = {f"@{each.mail['from']['nick']}" for each in session.box.waiting}
            nudges = session.box.nudge(time.time(), is_idle=is_idle)
            session.save()
        if nudges:  # without the lock, since the turn may begin before its program ends
            await way.does(waking.NUDGE.format(names=", ".join(sorted(names)[:5])))

    # ── peers ───────────────────────────────────────────────────────────────────────────────────────────

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One peer, to its end."""
        self._links += 1
        try:
            with (
                guarded("a peer"),
                contextlib.suppress(ConnectionError, asyncio.IncompleteReadError),
            ):
                if peer_uid(writer.get_extra_info("socket").fileno()) == os.geteuid():
                    await self._talk(reader, writer)
        finally:
            self._links -= 1
            writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        match line[:WORDS].decode("ascii", "replace").split():
            case ["hook", client, event, pid, size]:
                await self._hook(
                    client, event, _number(pid), await _body(reader, size), reader, writer
                )
            case ["wait", client, pid, size]:
                await self._wait(client, _number(pid), await _body(reader, size), reader, writer)
            case ["mcp", client, pid, session]:
                session = "" if session == "-" else session
                await self._forwarding.serve(client, _number(pid), session, reader, writer)
            case ["status"]:
                writer.write(json.dumps(self.status()).encode())
                await writer.drain()
            case _:
                raise ProtocolViolation("a peer says nothing known")

    async def _hook(
        self,
        client: str,
        name: str,
        pid: int,
        body: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        found = said(client, name, body)
        if found is not None:
            self._hooks[client] = (name, time.time())
            if name == DIALECTS[client].asks:
                return await self._ask(found, pid, reader, writer)
            if known := self.registry.known(found, pid):
                permissions.heard(known, found)
        session = await self._session(found, pid) if found is not None else None
        if found is None or session is None or found.event is None:
            return await _answered(writer)
        session.heard = name
        async with session.lock:
            try:
                offer = session.on(found.event)
            except StateUnwritable as error:
                log.warning("%s", error)
                offer = None
            text = answer(client, name, offer.text, offer.shown) if offer else ""
            if offer is None or not text:
                await _answered(writer)
            else:
                session.handed(offer, taken=await _given(f"0\n{text}", reader, writer))
        self._news()
        return None

    async def _ask(
        self, found: Said, pid: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Ask elsewhere what a client asks its person."""
        session = self.registry.known(found, pid)
        if session is None or found.client not in self._settings.approvals:
            return await _answered(writer)
        text = await permissions.answer(session, found, reader.read(1))
        return await _written(f"0\n{text}", writer)

    async def _session(self, found: Said, pid: int) -> Session | None:
        """The session that a hook speaks of; None while it has no address, and for subagents."""
        if found.agent:
            self.registry.note_subagent(found)
            return None
        waits = REGISTERS if found.event and found.event.kind is Kind.START else 0.0
        return await self.registry.session_of(found, pid, waits)

    async def _wait(
        self,
        client: str,
        pid: int,
        body: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        found = said(client, "wait", body)
        if found is None or found.agent or client not in DIALECTS:
            return await _answered(writer)
        session = await self.registry.session_of(found, pid, 600.0)
        if session is None or not session.record.alive:
            return await _answered(writer)
        async with self._waiting(session) as waiter:
            gone = asyncio.ensure_future(reader.read(1))
            try:
                await asyncio.wait({waiter.text, gone}, return_when=asyncio.FIRST_COMPLETED)
                text = waiter.text.result() if waiter.text.done() else None
                if text is None:
                    return await _answered(writer)
                taken = False
                with contextlib.suppress(ConnectionError, TimeoutError):
                    async with asyncio.timeout(TAKES):
                        await _written(f"2\n{text}", writer)
                        taken = await gone == b"."
                waiter.taken.set_result(taken)
            finally:
                gone.cancel()
        return None

    @asynccontextmanager
    async def _waiting(self, session: Session) -> AsyncGenerator[Waiter]:
        """A new waiter in the place of the one before."""
        if session.waiter is not None:
            session.waiter.end()
        session.waiter = waiter = Waiter.made()
        self._wakes.set()
        try:
            yield waiter
        finally:
            if not waiter.taken.done():
                waiter.taken.set_result(False)
            if session.waiter is waiter:
                session.waiter = None

    def status(self) -> dict[str, object]:
        """How everything stands."""
        return {
            "version": __version__,
            "pid": os.getpid(),
            "post_room": self.registry.place,
            "connected": self.registry.connected,
            "error": self.registry.error,
            "hooks": {
                client: {"event": name, "at": at} for client, (name, at) in self._hooks.items()
            },
            "sessions": [
                {
                    "uid": each.record.uid,
                    "nick": each.record.nick,
                    "client": each.record.client,
                    "folder": each.record.folder,
                    "pid": each.record.pid,
                    "state": each.state,
                    "hook": each.heard,
                    "heard_at": each.heard_at,
                    "waiting": len(each.box.waiting),
                    "handed": sum(letter.held for letter in each.box.letters.values()),
                    "waiter": each.waiter is not None,
                }
                for each in self.registry.all()
            ],
        }


async def main(*, linger: float = LINGER) -> None:
    """Serve at the socket of the connect folder; the caller holds its lock.

    Raises:
        StateUnwritable: the folder cannot be written.
        EnvironmentFault: the settings are not as they have to be.
    """
    folder = places.folder()
    journal = Journal(folder / places.JOURNAL)
    run = Run(places.read_settings(), journal, linger=linger)
    path = folder / places.SOCKET
    try:
        listener = bind_unix(path)
    except OSError as error:
        raise StateUnwritable(f"cannot listen at {path}: {error.strerror}") from error
    (folder / places.BEGUN).unlink(missing_ok=True)
    server = await asyncio.start_unix_server(run.talk, sock=listener, backlog=128, limit=16 << 20)
    try:
        await run.serve(server)
    finally:
        path.unlink(missing_ok=True)
        journal.close()


def _number(word: str) -> int:
    return int(word) if word.isdecimal() and len(word) < 10 else 0


async def _body(reader: asyncio.StreamReader, size: str) -> bytes:
    number = _number(size)
    if number > MOST:
        raise ProtocolViolation("a hook says too much")
    return await reader.readexactly(number)


async def _answered(writer: asyncio.StreamWriter) -> None:
    """There is nothing to say."""
    await _written("0\n", writer)


async def _written(text: str, writer: asyncio.StreamWriter) -> None:
    writer.write(text.encode())
    await writer.drain()
    writer.write_eof()


async def _given(text: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Whether the peer has given the text to its client."""
    with contextlib.suppress(ConnectionError, TimeoutError):
        async with asyncio.timeout(TAKES):
            await _written(text, writer)
            return await reader.read(1) == b"."
    return False
