"""A whole post room to attack: server, gateway, control plane, two victims with mail, and taps that hear everything."""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from postroom.bus.address import BusAddress
from postroom.control.http_listener import WorkerDialer
from postroom.gateway.credentials import Credentials, Refusals
from postroom.gateway.http.egress import EgressProxy
from postroom.gateway.http.session import ControlProxy
from postroom.gateway.nats.proxy import NatsProxy
from postroom.gateway.port import DoorDeadlines, DoorSpec, Rates
from postroom.gateway.server import Gateway
from postroom.gateway.stream_proxy import StreamProxy
from postroom.http.outbound import OutboundPolicy, client_context
from postroom.identity.tokens import digest, new_token
from postroom.protocol import subjects
from postroom.protocol.alerts import Alert
from postroom.protocol.ids import CONTROL_PLANE
from postroom.protocol.streams import AGENT_CONSUMER_STREAMS, STREAMS, agent_consumer
from tests.attack.cases import MARK
from tests.control.taskroom import Hand, TaskRoom, task_room
from tests.gateway.http.rig import Near
from tests.gateway.nats.rig import House, Kept, Raw, Worker
from tests.gateway.rig import soon
from tests.identity.stage import LOBBY

UNLIMITED = Rates(messages=0, bytes=0, stored_bytes=0, records=0, connections=0)
PROTOCOLS = ("nats", "http", "egress")


class Tap:
    """Hears everything in one account, and keeps what the attacker has said."""

    def __init__(self, raw: Raw) -> None:
        self.raw = raw

    async def heard(self) -> list[tuple[str, str]]:
        """Subject and reply of what came from the attacker since the last time."""
        found = []
        await self.raw.send(b"PING\r\n")
        while (line := await self.raw.line()) != b"PONG":
            fields = line.split(b" ")
            if fields[0] not in {b"MSG", b"HMSG"}:
                continue
            body = await soon(self.raw.reader.readexactly(int(fields[-1]) + 2))
            if MARK in body:
                reply = fields[3] if len(fields) == (5 if fields[0] == b"MSG" else 6) else b""
                found.append((fields[1].decode("latin-1"), reply.decode("latin-1")))
        return found


OWN_RECEIPT = f".receipts.{CONTROL_PLANE}"


@dataclass
class Target:
    """What the attacker stands before.

    Attributes:
        house: gateway and server, as the tests of the gateway see them.
        room: the control plane.
        me: the attacker's own door and credential.
        victim, other: agents that are none of its business.
        theirs: the door of the victim.
        task: of the other agent, done by the victim.
    """

    house: House
    room: TaskRoom
    me: Worker
    victim: Hand
    other: Hand
    theirs: Worker
    task: str
    taps: list[Tap] = field(default_factory=list)

    @property
    def audit(self) -> Kept:
        return self.house.audit

    async def heard(self) -> list[tuple[str, str]]:
        """What the attacker has got through, in either account."""
        return [each for tap in self.taps for each in await tap.heard()]

    async def state(self) -> dict[str, Any]:
        """All that is stored, by subject, and how far each consumer of the victims is."""
        js, found = self.room.rig.admin.jetstream, {}
        for spec in STREAMS:
            answer = await js.api(f"STREAM.INFO.{spec.name}", {"subjects_filter": ">"})
            # The control plane itself copies the audit log there, whenever it has something to tell.
            stored = {} if spec.name == "AUDIT" else answer["state"].get("subjects", {})
            # It says in its own time what became of a message of an earlier case.
            stored = {each: n for each, n in stored.items() if not each.endswith(OWN_RECEIPT)}
            found[spec.name] = (stored, answer["config"])
        for hand in (self.victim, self.other):
            for stream in AGENT_CONSUMER_STREAMS:
                info = await js.api(f"CONSUMER.INFO.{stream}.{hand.uid}")
                for moving in ("ts", "push_bound", "num_waiting"):
                    info.pop(moving, None)
                for place in ("delivered", "ack_floor"):
                    info[place].pop("last_active", None)
                found[f"{stream}.{hand.uid}"] = info
        return found

    async def near(self, protocol: str, token: str = "") -> Near:
        """An HTTP connection through the attacker's own door."""
        reader, writer = await asyncio.open_unix_connection(self.me.socket)
        self.house.stack.callback(writer.transport.abort)
        near = Near(reader, writer)
        await near.send(f"POSTROOM/1 {protocol} {token or self.me.token}\n".encode())
        return near

    async def strike(self, knocker: bytes, *, half: bool = True) -> bytes:
        """A connection to the attacker's door that says `knocker` and (`half`) ends its side; what came back."""
        reader, writer = await asyncio.open_unix_connection(self.me.socket)
        try:
            writer.write(knocker)
            if half:
                writer.write_eof()
            return await soon(reader.read())
        except ConnectionError:
            return b""
        finally:
            writer.transport.abort()


async def _admit(
    house: House, room: TaskRoom, hand: Hand, rates: Rates, egress: tuple[str, ...]
) -> Worker:
    """A door for an agent that the control plane knows."""
    token = new_token()
    await room.parts.database.write(lambda store: store.workers.set_token(hand.uid, digest(token)))
    room.site.router.admit(hand.uid, "default")
    socket = await house.gateway.open_door(
        DoorSpec(hand.uid, "default", digest(token), (LOBBY,), egress, (), rates)
    )
    credential = house.credential(hand.uid)
    return Worker(hand.uid, token, socket, credential)


async def _nowhere(_host: str, _port: int) -> list[str]:
    raise OSError(-2, "Name or service not known")


@asynccontextmanager
async def open_target(
    folder: Path,
    *,
    rates: Rates = UNLIMITED,
    violations: int = 1_000_000,
    policy: OutboundPolicy | None = None,
    egress: tuple[str, ...] = ("http://*.evil.test",),
    deadlines: DoorDeadlines | None = None,
) -> AsyncGenerator[Target]:
    """All of it, running; the attacker is not cut off unless `violations` says so."""
    async with AsyncExitStack() as stack:
        sockets = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="attack")))
        room = await stack.enter_async_context(task_room(folder))
        rig, audit, alerts = room.rig, Kept(), []

        async def note(org: str, alert: Alert) -> None:
            alerts.append((alert.kind, alert.text))

        deadlines = deadlines or DoorDeadlines(dial=10.0, flush=2.0)
        outward = EgressProxy(
            policy or OutboundPolicy((), _nowhere),
            Credentials(folder / "no-credentials"),
            client_context,
            Refusals(note),
        )
        proxies = {
            "nats": NatsProxy(lambda: BusAddress((rig.url,)), rig.trust.proxy_key.sign, deadlines),
            "http": StreamProxy(ControlProxy(WorkerDialer(room.site.router).dial)),
            "egress": StreamProxy(outward),
        }
        gateway = Gateway(
            sockets, proxies, audit, deadlines=deadlines, alert=note, violations=violations
        )
        stack.push_async_callback(gateway.close)
        house = House(rig, gateway, audit, stack, alerts)
        attacker, victim, other = [await room.worker(n) for n in ("mallory", "bob", "carol")]
        for hand in (attacker, victim, other):
            for stream in AGENT_CONSUMER_STREAMS:
                await rig.admin.ensure_consumer(agent_consumer(stream, hand.uid, (LOBBY,)))
        me, theirs = [await _admit(house, room, hand, rates, egress) for hand in (attacker, victim)]
        await other.bus.publish(subjects.inbox(victim.uid, other.uid), b"private", id="m1")
        await rig.core.publish(subjects.priority(victim.uid, CONTROL_PLANE), b"{}")
        await other.bus.publish(subjects.receipts(victim.uid, other.uid), b"{}")
        asked = await other.ask("list")
        assert asked == {"tasks": []}
        task = (await room.delegate("@bob", "secret work"))["id"]
        await victim.take(task)
        target = Target(house, room, me, victim, other, theirs, task)
        for credential in (rig.trust.core_credential(), rig.trust._unscoped(rig.trust._org.edge)):
            tap = await (await house.direct(credential)).connect()
            await tap.send(b"SUB > 1\r\n")
            target.taps.append(Tap(tap))
        await target.heard()
        await attacker.bus.close()  # from now on it comes through its door, as any worker
        yield target


def spoken(answer: bytes, uid: str) -> bytes:
    """An answer with the name of who it is about taken out."""
    for part in (uid, uid[:-1]):
        answer = re.sub(part.encode(), b"UID", answer, flags=re.IGNORECASE)
    return answer


def as_json(body: bytes) -> Any:
    """What an answer of the control plane says."""
    return json.loads(body)
