"""Records in the audit log for connections that the gateway did not make, from the events of nats-server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from postroom.audit import AuditLog
from postroom.audit.stored import Outsiders, write_through
from postroom.bus.port import Message, MessageBusProvider, Subscription
from postroom.errors import PostroomError
from postroom.identity import jwt
from postroom.identity.trust import Trust
from postroom.observe import get_logger
from postroom.protocol.audit import ALLOWED, DENIED, SERVER, AuditRecord
from postroom.protocol.ids import is_uid
from postroom_a2a.text import one_line
from postroom_a2a.times import format_time, parse_time

NO_PROXY = "Proxy Required"
"""The server's reason where a worker's credential comes without the gateway."""

log = get_logger(__name__)


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
