"""A NATS connection through a door: two asyncio protocols, each with the other as its peer.

A piece that one side reads is checked, recorded and written to the other within one turn of the loop. A slow reader
stops the reading of the other side, so memory is bounded; then the server cuts it, as it would without the gateway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from postroom.bus.address import BusAddress
from postroom.errors import StateUnwritable
from postroom.gateway.connection import ANSWER, BEAT, LARGEST, GatewayConnection
from postroom.gateway.nats.audit_records import NatsRecords, message_field, message_id
from postroom.gateway.nats.client_stream import ClientStream
from postroom.gateway.nats.greeting import rewritten_info
from postroom.gateway.nats.policy import FLOOD, ClientPolicy, LetsIn
from postroom.gateway.nats.rights import Rights, quoted
from postroom.gateway.nats.server_stream import ServerStream
from postroom.gateway.nats.side import Side
from postroom.gateway.nats.upstream import dial
from postroom.gateway.port import DEADLINES, DoorDeadlines
from postroom.gateway.stream_proxy import cut
from postroom.protocol.audit import IN
from postroom_a2a.bounds import MAX_PAYLOAD
from postroom_a2a.nats.info import read_info

SMALL = 1024
"""Bytes of a piece that counts like a frame even if it completes none: sending byte by byte costs as much."""

ANSWERS = 64 * 1024
"""Bytes of the gateway's own answers that may wait for a client; beyond, it reads no more from the client."""


class NatsProxy:
    """The proxy of the protocol `nats`.

    Args:
        address: the bus's, asked for each connection.
        deadlines: for dialling and for the last bytes.
        lets_in: whether an agent takes what a worker sends unasked.
    """

    def __init__(
        self,
        address: Callable[[], BusAddress],
        sign: Callable[[bytes], bytes],
        deadlines: DoorDeadlines = DEADLINES,
        lets_in: LetsIn = lambda _org, _to, _sender: True,
    ) -> None:
        self._lets_in = lets_in
        self._address = address
        self._sign = sign
        self._deadlines = deadlines
        self._left = ""

    async def __call__(
        self, conn: GatewayConnection, transport: asyncio.Transport, first: bytes
    ) -> str:
        """Serve a connection to its end; returns how it ended.

        Args:
            transport: the sandbox's side, paused.
            first: what came after the preface.

        Raises:
            BusDisconnected: no server of the bus answers.
        """
        # Who leaves a server that is cut off from the others comes back at once, and must not get it again.
        upstream = await dial(self._address, self._deadlines.dial, last=self._left)
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        outward = WorkerSide(conn, transport, ended)
        inward = ServerSide(conn, upstream.transport, ended)
        outward.peer = outward.server = inward
        inward.peer = inward.client = outward
        try:
            outward.claims = ClientPolicy(
                Rights(conn.spec.uid, conn.spec.projects),
                NatsRecords(conn, "out"),
                conn,
                str(upstream.info.get("nonce", "")),
                self._sign,
                self._lets_in,
            )
            outward.open(upstream.info, first, alone=upstream.alone)
            inward.open(upstream.rest)
            reason = await ended
            self._left = upstream.place
            await self._part(outward, inward)
            return reason
        finally:
            cut(upstream.transport)
            outward.stop()

    async def _part(self, *sides: Side) -> None:
        """Let both sides take what is buffered, or cut them at the deadline."""
        for side in sides:
            side.transport.close()
        await asyncio.wait({side.lost for side in sides}, timeout=self._deadlines.flush)


class WorkerSide(Side):
    """The side of the worker."""

    claims: ClientPolicy
    server: ServerSide

    def __init__(
        self, conn: GatewayConnection, transport: asyncio.Transport, ended: asyncio.Future[str]
    ) -> None:
        super().__init__(conn, transport, ended)
        self._later: asyncio.TimerHandle | None = None
        self._rest = b""
        self._waiting: list[bytes] = []
        self._owed = 0
        self._stuck = False

    @property
    def ahead(self) -> int:
        return self._stream.ahead

    def open(self, info: dict[str, object], first: bytes, *, alone: bool) -> None:
        """Greet, and begin to read with `first`."""
        self._stream = ClientStream(self.claims)
        self.informed(info)
        if self.transport.is_closing():
            return
        self.transport.write(rewritten_info(info, alone=alone))
        if first:
            self.data_received(first)
        self.release("start")

    def stop(self) -> None:
        """Cancel the timers."""
        if self._later is not None:
            self._later.cancel()

    def informed(self, info: dict[str, object]) -> None:
        """Take the size limit of messages from the server's INFO."""
        limit = info.get("max_payload")
        self._stream.max_payload = limit if isinstance(limit, int) else MAX_PAYLOAD

    def data_received(self, data: bytes) -> None:
        """Check, record and pass on a piece of the worker's."""
        if self._ended.done():
            return
        claims, stream = self.claims, self._stream
        if debt := self.conn.rate_limit.debt():  # made by another connection of this worker
            self._put_off(debt, data)
            return
        claims.begin()
        pieces = stream.feed(data)
        wait = self.conn.rate_limit.take(stream.frames or len(data) < SMALL, len(data))
        if wait and self.conn.rate_limit.flooded():
            claims.flooded()
            self.conn.warn(FLOOD)
        if stream.broken:
            claims.broken(stream.broken)
        try:
            claims.journal.write()
        except StateUnwritable as error:
            self.end(str(error))
            return
        self.pass_on(pieces)
        if claims.answers:
            self.put_in(claims.answers)
        for reason in claims.offences:
            self.conn.offend(reason)
        if stream.broken:
            self.end(stream.broken)
        elif wait or stream.more:
            self._put_off(wait)

    def _put_off(self, wait: float, rest: bytes = b"") -> None:
        """Read no more for `wait` seconds, or for a turn of the loop; then read `rest` first."""
        self._rest = rest
        self.hold("rate")
        self.stop()
        self._later = asyncio.get_running_loop().call_later(wait, self._go_on)

    def _go_on(self) -> None:
        rest, self._rest, self._later = self._rest, b"", None
        if rest or self._stream.more:
            self.data_received(rest)
        if self._later is None:
            self.release("rate")

    def put_in(self, lines: list[bytes]) -> None:
        """Write `lines` to the client at the end of a frame of the server."""
        self._waiting += lines
        self._owed += sum(map(len, lines))
        if not self.server.within:
            self.between()
        if self._owed > ANSWERS and (self._stuck or self._waiting):
            self.hold("answers")

    def between(self) -> None:
        """Called when the server's side is between two frames."""
        if self._waiting:
            if not self.transport.is_closing():
                self.transport.write(b"".join(self._waiting))
            self._waiting.clear()
        if not self._stuck:
            self._owed = 0
            if "answers" in self._holds:
                self.release("answers")

    def pause_writing(self) -> None:
        """Of asyncio."""
        self._stuck = True
        super().pause_writing()

    def resume_writing(self) -> None:
        """Of asyncio."""
        self._stuck = False
        super().resume_writing()
        if not self._waiting:
            self.between()

    def eof_received(self) -> bool:
        """Of asyncio: wait for the server, which ends its side when it sees this end."""
        upstream = self.peer.transport
        if self._ended.done() or not upstream.can_write_eof():
            self.end("the worker ended it")
            return self.half_open
        upstream.write_eof()
        self.stop()
        self._later = asyncio.get_running_loop().call_later(LAST, self.end, "the worker ended it")
        return self.half_open

    def connection_lost(self, exc: Exception | None) -> None:
        """Of asyncio."""
        super().connection_lost(exc)
        self.end("the worker ended it")


LAST = 1.0
"""Seconds that a server has to end its side after the worker has ended its own."""


class ServerSide(Side):
    """The side of the server."""

    client: WorkerSide

    def __init__(
        self, conn: GatewayConnection, transport: asyncio.Transport, ended: asyncio.Future[str]
    ) -> None:
        super().__init__(conn, transport, ended)
        self._journal = NatsRecords(conn, IN)
        self._stream = ServerStream(self)
        self._inbox = f"worker.{conn.spec.uid}.inbox.".encode()
        self._answers = f"_I.{conn.spec.uid}.js.".encode()
        self._acks = f"$JS.ACK.INBOX.{conn.spec.uid}.".encode()

    @property
    def ahead(self) -> int:
        return self._stream.ahead

    @property
    def within(self) -> bool:
        """Whether the bytes passed on so far end inside a message."""
        return self._stream.within

    def open(self, first: bytes) -> None:
        """Begin to read with `first`."""
        if first:
            self.data_received(first)
        self.release("start")

    def data_received(self, data: bytes) -> None:
        """Check, record and pass on a piece of the server's."""
        if self._ended.done():
            return
        self._journal.begin()
        pieces = self._stream.feed(data)
        try:
            self._journal.write()
        except StateUnwritable as error:
            self.end(str(error))
            return
        self.pass_on(pieces)
        if not self._stream.within:
            self.client.between()
        if self._stream.broken:
            self.end(f"the server's stream: {self._stream.broken}")

    def eof_received(self) -> bool:
        """Of asyncio."""
        self.end("the server ended it")
        return self.half_open

    def connection_lost(self, exc: Exception | None) -> None:
        """Of asyncio."""
        super().connection_lost(exc)
        self.end("the server ended it")

    # The frames of the server (`ServerHandler`).

    def inform(self, info: bytes) -> bytes:
        """INFO may come at any time."""
        said = read_info(info)
        self.client.informed(said)
        return rewritten_info(said)

    def message(
        self, subject: bytes, reply: bytes, header: int, size: int, data: bytes, start: int
    ) -> None:
        """A message for the worker."""
        if size <= LARGEST and subject.startswith((self._answers, b"system.discovery.")):
            beat = subject.startswith(b"s")
            self._journal.plumbing(BEAT if beat else ANSWER, size)
            return
        found = message_id(data, start, header) if header else b""
        if found and reply.startswith(self._acks) and subject.startswith(self._inbox):
            sequence = reply[len(self._acks) :].split(b".")[1:2]
            self.conn.cause.delivered(
                found.decode("utf-8", "replace"),
                b"".join(sequence).decode("utf-8", "replace"),
                subject[len(self._inbox) :].decode("utf-8", "replace"),
            )
        self._journal.allowed(
            b"HMSG" if header else b"MSG",
            quoted(subject[:512]),
            size,
            message_field(found) if found else b"",
        )

    def error(self, text: bytes) -> None:
        """Record an error that the server reports."""
        self._journal.reported(b"-ERR", text)
