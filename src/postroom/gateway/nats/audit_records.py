"""Audit records of NATS frames: the records of one received piece in one write.

The JSON is written by hand and equals `AuditRecord.encode`; the parts that stay the same are made once.
"""

from __future__ import annotations

import json

from postroom.gateway.connection import Cause, GatewayConnection
from postroom.gateway.nats.rights import quoted
from postroom.protocol.audit import GATEWAY, PLUMBING
from postroom.protocol.limits import MAX_SUBJECT
from postroom_a2a.times import format_time

MAX_ID = 128

VERBS = (b"CONNECT", b"PUB", b"HPUB", b"SUB", b"UNSUB", b"MSG", b"HMSG")

_ALLOWED = b',"verdict":"allowed"'
_END = b"}\n"
_ID = b"\r\nNats-Msg-Id:"


class NatsRecords:
    """The records of one direction of a connection."""

    def __init__(self, conn: GatewayConnection, direction: str) -> None:
        self._conn = conn
        fixed = {
            "by": GATEWAY,
            "org": conn.spec.org,
            "worker": conn.spec.uid,
            "connection": conn.connection,
            "protocol": conn.protocol,
            "direction": direction,
        }
        always = json.dumps(fixed, separators=(",", ":"))[1:-1].encode()
        self._heads = {
            verb: b'%b,"verb":"%b","subject":"' % (always, verb) for verb in (b"", *VERBS)
        }
        self._always = always
        self._second, self._minute = -1, b""
        self._at = b""
        self._now = 0.0
        self.lines: list[bytes] = []

    def begin(self) -> None:
        """Start a piece: its records carry this moment."""
        self._now = self._conn.clock()
        self._at = b""

    def _begun(self) -> bytes:
        """How the piece's records begin; made for the first of them, since most pieces have none."""
        if not self._at:
            now = self._now
            second = int(now)
            if second != self._second:
                self._second, self._minute = second, format_time(second)[:-4].encode()
            self._at = b'{"at":"%b%03dZ",' % (self._minute, int((now - second) * 1000))
        return self._at

    def allowed(self, verb: bytes, said: bytes, size: int, extra: bytes = b"") -> None:
        """Note a frame that will pass.

        Args:
            said: subject, as it stands in JSON.
            size: bytes of headers and payload.
            extra: further fields, as JSON that begins with a comma.
        """
        # Joined at the end of the piece: that is quicker than building a line here.
        self.lines += (
            self._at or self._begun(),
            self._heads[verb],
            said,
            b'","size":%d' % size,
            _ALLOWED,
            extra,
            _END,
        )

    def plumbing(self, kind: str, size: int) -> None:
        """Count a plumbing frame that will pass, after the line that covers it."""
        plumbing = self._conn.plumbing
        if not plumbing.covered(self._now, size):
            said = self._conn.record(verb=PLUMBING, **plumbing.line(self._now))
            self.lines.append(said.encode())
        plumbing.count(kind, size)

    def denied(self, verb: bytes, subject: bytes, size: int, reason: str) -> None:
        """Note a frame that will not pass, and why."""
        self.lines.append(
            b'%b%b%b","size":%d,"verdict":"denied","reason":"%b"}\n'
            % (
                self._begun(),
                self._heads[verb],
                quoted(subject[:MAX_SUBJECT]),
                size,
                quoted(reason.encode()),
            )
        )

    def reported(self, verb: bytes, text: bytes) -> None:
        """Note an error that the server reports, or that the server ends the connection."""
        verdict = b"denied" if b"Violation" in text else b"allowed"
        self.lines.append(
            b'%b%b,"verb":"%b","verdict":"%b","reason":"%b"}\n'
            % (self._begun(), self._always, verb, verdict, quoted(text[:MAX_SUBJECT]))
        )

    def write(self) -> None:
        """Write the notes; only then may the piece pass."""
        if self.lines:
            lines = b"".join(self.lines)
            self.lines.clear()
            self._conn.audit.write(lines)


def message_id(data: bytes, start: int, header: int) -> bytes:
    """The `Nats-Msg-Id` in the header block at `start`; b"" if it has none, or not yet."""
    stop = start + header
    at = data.find(_ID, start, stop)
    if at < 0:
        return b""
    at += len(_ID)
    return data[at : data.find(b"\r\n", at, stop)].strip()[:MAX_ID]


def cause_fields(cause: Cause) -> bytes:
    """The fields of an audit record for the worker's open task and message; b"" without any."""
    message, task, exact = cause.now()
    if not (message or task):
        return b""
    said = b',"cause_message":"%b"' % quoted(message.encode()) if message else b""
    said += b',"cause_task":"%b"' % quoted(task.encode()) if task else b""
    return said + b',"cause_exact":true' if exact else said


def message_field(found: bytes) -> bytes:
    """The field of an audit record for a message id."""
    return b',"message":"%b"' % quoted(found) if found else b""
