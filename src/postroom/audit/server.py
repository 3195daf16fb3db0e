"""Records in the audit log for agents without the gateway: their connections, and what they have sent.

Connections are known by the events of nats-server. What was sent is read from the streams, and nothing is subscribed. A
subscriber to a stored subject, or to `_I.>`, would change what others see: a publisher would wait for a stream that is
gone, and the server would hand us the messages of an agent that has vanished (docs/security.md, The audit log).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from postroom.audit import AuditLog
from postroom.audit.reading import Cursor
from postroom.bus.port import BusAdmin, Message, MessageBusProvider, Subscription
from postroom.directory.agents import Directory
from postroom.errors import InvalidInput, NotFound, PostroomError
from postroom.identity import jwt
from postroom.identity.trust import Trust
from postroom.observe import get_logger
from postroom.observe.supervision import well
from postroom.protocol import subjects
from postroom.protocol.audit import ALLOWED, DENIED, OUT, SERVER, AuditRecord
from postroom.protocol.ids import CONTROL_PLANE, is_uid
from postroom_a2a.text import one_line
from postroom_a2a.times import format_time, parse_time

log = get_logger(__name__)

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

NO_PROXY = "Proxy Required"
"""The server's reason where a worker's credential comes without the gateway."""


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


class Connections:
    """Writes a record for each connection that an agent opens, closes or is refused without the gateway.

    Args:
        system: connection to the system account.
    """

    def __init__(
        self, system: MessageBusProvider, sink: AuditLog, trust: Trust, outsiders: Outsiders
    ) -> None:
        self._system = system
        self._sink = sink
        self._trust = trust
        self._outsiders = outsiders
        self._subscriptions: list[Subscription] = []

    async def open(self) -> None:
        """Begin to listen."""
        for account in (self._trust.edge_account, self._trust.core_account):
            await self._listen(f"$SYS.ACCOUNT.{account}.CONNECT", "open")
            await self._listen(f"$SYS.ACCOUNT.{account}.DISCONNECT", "close")
        await self._listen("$SYS.SERVER.*.CLIENT.AUTH.ERR", "CONNECT")

    async def close(self) -> None:
        """Stop listening."""
        for subscription in self._subscriptions:
            await subscription.close()

    async def _listen(self, subject: str, verb: str) -> None:
        async def heard(message: Message) -> None:
            try:
                await self._heard(message, verb)
            except PostroomError as error:
                log.warning("cannot read an event of nats-server: %s", error)

        self._subscriptions.append(await self._system.subscribe(subject, heard))

    async def _heard(self, message: Message, verb: str) -> None:
        try:
            event = json.loads(message.payload)
            client = event["client"]
            claims = jwt.decode(client["jwt"])
        except (ValueError, KeyError, TypeError):
            return  # without a credential the event is about no agent
        if not self._trust.signs(str(claims["iss"])):
            return  # the credential is another organisation's
        uid, reason = str(claims.get("name", "")), one_line(str(event.get("reason", "")), 200)
        outside = await self._outsiders.includes(uid) if verb != "CONNECT" else False
        if outside or (verb == "CONNECT" and await self._refused_here(uid, reason)):
            record = self._record(event, verb, uid if is_uid(uid) else "", reason)
            await write_through(self._sink, record)

    async def _refused_here(self, uid: str, reason: str) -> bool:
        """Whether the gateway did not see the refusal."""
        return reason == NO_PROXY or await self._outsiders.includes(uid)

    def _record(self, event: Mapping[str, Any], verb: str, uid: str, reason: str) -> AuditRecord:
        client = event["client"]
        host = one_line(str(client.get("host", "")), 60)
        passed = sum(_number(event.get(way), "bytes") for way in ("sent", "received"))
        return AuditRecord(
            at=_at(event),
            by=SERVER,
            org=self._trust.org,
            worker=uid,
            connection=f"server-{_number(client, 'id')}",
            protocol="nats",
            verb=verb,
            size=passed if verb == "close" else 0,
            verdict=DENIED if verb == "CONNECT" else ALLOWED,
            reason=f"from {host}" if verb == "open" else reason,
        )


def _number(document: object, name: str) -> int:
    value = document.get(name) if isinstance(document, dict) else None
    return value if isinstance(value, int) else 0


def _at(event: Mapping[str, Any]) -> str:
    """The time of an event, from the server's nanoseconds."""
    text = str(event.get("timestamp", ""))
    head, _, fraction = text.removesuffix("Z").partition(".")
    return format_time(parse_time(f"{head}.{fraction[:6]:0<6}+00:00"))
