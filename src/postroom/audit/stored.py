"""Records in the audit log for what agents without the gateway have sent, read from the streams.

The streams are read, and nothing is subscribed. A subscriber to a stored subject, or to `_I.>`, would change what
others see: a publisher would wait for a stream that is gone, and the server would hand us the messages of an agent
that has vanished (docs/security.md, The audit log).
"""

from __future__ import annotations

import asyncio

from postroom.audit import AuditLog
from postroom.audit.cursor import Cursor
from postroom.bus.port import BusAdmin, Message
from postroom.directory.agents import Directory
from postroom.errors import InvalidInput, NotFound
from postroom.observe.supervision import well
from postroom.protocol import subjects
from postroom.protocol.audit import OUT, SERVER, AuditRecord
from postroom.protocol.ids import CONTROL_PLANE, is_uid
from postroom_a2a.times import format_time

INTERVAL = 1.0
"""Seconds between two reads of the streams, while some agent is outside the gateway."""

IDLE = 5.0
"""Seconds between two checks for such an agent."""

_SENT = {
    "INBOX": lambda uid: subjects.inbox("*", uid),
    "TASKS": lambda uid: f"worker.{uid}.tasks.>",
    "RECEIPTS": lambda uid: subjects.receipts("*", uid),
    "OUTBOX": subjects.outbox,
    "FEED": lambda uid: subjects.feed("*", uid),
    "ALERTS": subjects.alerts,
}
"""Streams that an agent's credential may write to, with its subjects there; not its beats (PRESENCE)."""


class Outsiders:
    """The agents that connect to the bus without the gateway, so that it writes no lines of theirs.

    Not among them: workers, behind the gateway, and people, for whom the control plane acts.
    """

    def __init__(self, directory: Directory) -> None:
        self.uids: set[str] = set()
        self._directory = directory

    async def load(self) -> None:
        """Add those that have an address already."""
        agents = await self._directory.all()
        self.uids.update(agent.uid for agent in agents if agent.kind in ("external", "service"))

    async def includes(self, uid: str) -> bool:
        """Whether the agent that connected as `uid` is outside the gateway; if so it is remembered."""
        if uid in self.uids or not is_uid(uid) or uid == CONTROL_PLANE:
            return True
        try:
            kind = (await self._directory.get(uid)).kind
        except NotFound:
            kind = ""  # it has a credential, so it may send
        if kind == "worker":
            return False
        self.uids.add(uid)
        return True


class StoredRecords:
    """Writes a record for each message that an outsider has stored.

    Args:
        cursor: how far each stream was read.
    """

    def __init__(
        self, admin: BusAdmin, log: AuditLog, org: str, outsiders: Outsiders, cursor: Cursor
    ) -> None:
        self._admin = admin
        self._log = log
        self._org = org
        self._outsiders = outsiders
        self._cursor = cursor
        self._read = cursor.load()

    async def run(self) -> None:
        """Read until cancelled."""
        await self._begin()
        while True:
            if self._outsiders.uids:
                await self.look()
            well()
            await asyncio.sleep(INTERVAL if self._outsiders.uids else IDLE)

    async def _begin(self) -> None:
        for stream in _SENT:
            if stream not in self._read:
                self._read[stream] = await self._admin.last_sequence(stream)
        self._cursor.save(self._read)

    async def look(self) -> None:
        """Write what has come since the last look."""
        before = dict(self._read)
        uids = sorted(self._outsiders.uids)
        try:
            for stream, sent in _SENT.items():
                end = await self._admin.last_sequence(stream)
                after = self._read.get(stream, end)
                if after >= end:
                    self._read[stream] = end  # lower numbers: the stream was made anew
                    continue
                filters = tuple(sent(uid) for uid in uids)
                async for message in self._admin.replay(stream, after=after, subjects=filters):
                    await write_through(self._log, self._record(message))
                    self._read[stream] = message.sequence
                self._read[stream] = max(end, self._read[stream])
        finally:
            if self._read != before:
                self._cursor.save(self._read)

    def _record(self, message: Message) -> AuditRecord:
        try:
            said = subjects.parse(message.subject)
            sender, task = said.sender, said.rest[0] if said.kind == "tasks" else ""
        except InvalidInput:
            sender, task = "", ""
        headers = sum(len(name) + len(value) + 4 for name, value in message.metadata.items())
        return AuditRecord(
            at=format_time(message.timestamp),
            by=SERVER,
            org=self._org,
            worker=sender,
            protocol="nats",
            direction=OUT,
            verb="HPUB" if message.metadata else "PUB",
            subject=message.subject,
            size=headers + len(message.payload),
            message=message.id,
            task=task,
        )


async def write_through(log: AuditLog, record: AuditRecord) -> None:
    """Write `record` once the log can be written: what it reports has happened already."""
    while log.trouble is not None and not log.lossy:
        await asyncio.wait({log.turn()})
    log.write(record.encode())
