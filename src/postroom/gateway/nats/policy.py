"""The policy for a worker's frames: rights, rates, and their records."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from postroom.errors import PostroomError, ProtocolViolation, Unauthorized
from postroom.gateway.connection import BEAT, LARGEST, GatewayConnection
from postroom.gateway.nats.audit_records import NatsRecords, cause_fields, message_field, message_id
from postroom.gateway.nats.greeting import rewritten_connect
from postroom.gateway.nats.headers import Headers
from postroom.gateway.nats.rights import Rights, quoted
from postroom.gateway.nats.stream import UNKNOWN
from postroom.identity.minting import AGENT_SUBSCRIPTIONS
from postroom.lines.frames import attempt

NO_RIGHT = "Permissions Violation"
"""Begins the words of the NATS protocol for what a client may not do."""

MAX_SHOWN = 256
"""Bytes of a subject that an error repeats."""

SEARCHED = 32
"""Wildcard subscriptions that are searched for the one that takes an answer."""

FLOOD = "more than passes in a second: it is slowed down"
OVER_HOUR = "more stored bytes than one worker may add in an hour"

NOT_LET_IN = "there is no such agent, or it has not let you in"

LetsIn = Callable[[str, str, str], bool]
"""Whether, by the word of an organisation, an agent (uid) takes what another one (uid) sends unasked."""

EMPTY = "an empty record"
"""Delivered to another agent, it would end that agent's pull: the server takes an empty message as the end of a
stream of answers (nats-server, service imports between accounts).
"""

_UNSHOWN = re.compile(rb"[^!-~]|['\"]")
_PRINTABLE = re.compile(rb"[!-~]+").fullmatch
_ANY_ACK = b"$JS.ACK."
_ACK = _ANY_ACK + b"INBOX."


class ClientPolicy:
    """The handler of a client's frames.

    Args:
        journal: takes the records of the piece that is being read.
        nonce: of the server's INFO.
        lets_in: whether an agent takes what this worker sends unasked.

    Attributes:
        answers: lines for the client since `begin`.
        offences: violations since `begin`.
    """

    def __init__(
        self,
        rights: Rights,
        journal: NatsRecords,
        conn: GatewayConnection,
        nonce: str,
        sign: Callable[[bytes], bytes],
        lets_in: LetsIn = lambda _org, _to, _sender: True,
    ) -> None:
        self._lets_in = lets_in
        self.journal = journal
        self.answers: list[bytes] = []
        self.offences: list[str] = []
        self._rights = rights
        self._headers = Headers(f"worker.{conn.spec.uid}.tasks.".encode())
        self._conn = conn
        self._nonce = nonce
        self._sign = sign
        self._why = ""
        self._interests: dict[bytes, bytes] = {}
        self._mailboxes: dict[bytes, bytes] = {}

    def begin(self) -> None:
        """Start the next piece."""
        if self.answers:
            self.answers = []
        if self.offences:
            self.offences = []
        self.journal.begin()

    def connect(self, options: bytes) -> bytes:
        """As `ClientHandler.connect`."""
        try:
            line = rewritten_connect(
                options, own=self._conn.spec.uid, nonce=self._nonce, sign=self._sign
            )
        except PostroomError as error:
            self._why = error.message
            text = "Authorization Violation" if isinstance(error, Unauthorized) else UNKNOWN
            raise ProtocolViolation(text) from error
        self.journal.allowed(b"CONNECT", b"", 0)
        return line

    def publish(
        self, subject: bytes, reply: bytes, header: int, size: int, data: bytes, start: int
    ) -> bool:
        """As `ClientHandler.publish`."""
        verb = b"HPUB" if header else b"PUB"
        right = self._rights.publish(subject)
        if right is None:
            return self._deny(verb, subject, size, "Permissions Violation for Publish to")
        if reply and not self._rights.answered_at(reply):
            return self._deny(
                verb, reply, size, "Permissions Violation for Publish with Reply of", subject
            )
        extra, found = right.extra, b""
        if header:
            if why := self._headers.refusal(data, start, header, task=bool(right.task)):
                return self._deny_record(verb, subject, size, why)
            if found := message_id(data, start, header):
                extra += message_field(found)
        if right.to and not self._reaches(right.to, found):
            return self._not_let_in(verb, subject, reply, size, stored=right.stored)
        if right.stored:
            if not size:
                return self._deny_record(verb, subject, size, EMPTY)
            if not self._conn.rate_limit.store(size):
                return self._refuse(verb, subject, reply, size, 429, OVER_HOUR)
            if right.state:
                self._conn.cause.task_changed(right.task, right.state)
            else:
                extra += cause_fields(self._conn.cause)
        elif subject.startswith(_ANY_ACK):
            if size <= LARGEST and data[start : start + 4] == b"+WPI":
                self.journal.plumbing(BEAT, size)
                return True
            if subject.startswith(_ACK):
                self._conn.cause.settled(b"".join(subject.split(b".")[5:6]).decode("ascii"))
        if right.plumbing and size <= LARGEST:
            self.journal.plumbing(right.plumbing, size)
            return True
        self.journal.allowed(verb, right.said or subject, size, extra)
        return True

    def subscribe(self, subject: bytes, queue: bytes, sid: bytes) -> bool:
        """As `ClientHandler.subscribe`."""
        if queue and not _PRINTABLE(queue):
            raise ProtocolViolation(UNKNOWN)
        if not self._rights.subscribe(subject, queue):
            return self._deny(b"SUB", subject, 0, "Permissions Violation for Subscription to")
        if sid not in self._interests:
            if len(self._interests) >= AGENT_SUBSCRIPTIONS:
                return self._deny(b"SUB", subject, 0, "maximum subscriptions exceeded")
            self._interests[sid] = subject
            self._mailboxes.setdefault(subject, sid)
        self.journal.allowed(b"SUB", quoted(subject), 0)
        return True

    def unsubscribe(self, sid: bytes, most: int) -> bool:  # noqa: ARG002 (of the port)
        """As `ClientHandler.unsubscribe`. The server bounds their number."""
        subject = self._interests.pop(sid, b"")
        if subject and self._mailboxes.get(subject) == sid:
            del self._mailboxes[subject]
        self.journal.allowed(b"UNSUB", quoted(subject), 0)
        return True

    def broken(self, text: str) -> None:
        """The stream is broken: nothing more can be read."""
        self.journal.denied(b"", b"", 0, self._why or text)
        self.answers.append(b"-ERR '%b'\r\n" % text.encode())
        self.offences.append(self._why or text)

    def flooded(self) -> None:
        """Warn of a lasting flood. The gateway slows it down and counts no violation: much traffic breaks no rule."""
        self.journal.denied(b"", b"", 0, FLOOD)

    def _deny(self, verb: bytes, shown: bytes, size: int, why: str, subject: bytes = b"") -> bool:
        if not _PRINTABLE(shown):  # the server ends a field at a tab, CR or LF
            raise ProtocolViolation(UNKNOWN)
        self.journal.denied(
            verb, subject or shown, size, why.removesuffix(" to").removesuffix(" of")
        )
        shown = _UNSHOWN.sub(b"?", shown[:MAX_SHOWN])
        self.answers.append(b"-ERR '%b \"%b\"'\r\n" % (why.encode(), shown))
        said = shown.decode("ascii")
        if not why.startswith(NO_RIGHT):
            said = f"{why} {said}"
        elif subject:
            said = f"it named an address for the answer that is not its own, {said}"
        else:
            said = attempt(verb.decode(), said, self._conn.spec.uid, _brief)
        self.offences.append(said)
        return False

    def _deny_record(self, verb: bytes, subject: bytes, size: int, why: str) -> bool:
        self.journal.denied(verb, subject, size, why)
        shown = _UNSHOWN.sub(b"?", subject[:MAX_SHOWN])
        self.answers.append(
            b"-ERR 'Permissions Violation for Publish to \"%b\": %b'\r\n" % (shown, why.encode())
        )
        self.offences.append(f"{why} in a publish to {shown.decode('ascii')}")
        return False

    def _reaches(self, to: str, message: bytes) -> bool:
        own = self._conn.spec.uid
        if to == own or self._lets_in(self._conn.spec.org, to, own):
            return True
        return self._conn.cause.may_answer(to, message.decode("ascii", "replace"))

    def _not_let_in(
        self, verb: bytes, subject: bytes, reply: bytes, size: int, *, stored: bool
    ) -> bool:
        if stored:
            return self._refuse(verb, subject, reply, size, 403, NOT_LET_IN)
        self.journal.denied(verb, subject, size, NOT_LET_IN)
        if reply and (sid := self._mailbox(reply)):  # as where nobody listens
            self.answers.append(b"HMSG %b %b 16 16\r\nNATS/1.0 503\r\n\r\n\r\n" % (reply, sid))
        return False

    def _refuse(
        self, verb: bytes, subject: bytes, reply: bytes, size: int, code: int, why: str
    ) -> bool:
        self.journal.denied(verb, subject, size, why)
        sid = self._mailbox(reply) if reply else b""
        if sid:
            error = {"code": code, "err_code": 0, "description": why}
            body = json.dumps({"error": error}, separators=(",", ":")).encode()
            self.answers.append(b"MSG %b %b %d\r\n%b\r\n" % (reply, sid, len(body), body))
        else:
            self.answers.append(
                b"-ERR 'Permissions Violation for Publish to \"%b\": %b'\r\n"
                % (_UNSHOWN.sub(b"?", subject), why.encode())
            )
        return False

    def _mailbox(self, reply: bytes) -> bytes:
        """The subscription that takes an answer on `reply`."""
        if sid := self._mailboxes.get(reply):
            return sid
        tokens = reply.split(b".")
        searched = 0
        for subject, sid in self._mailboxes.items():
            if b"*" in subject or subject.endswith(b">"):
                searched += 1
                if _matches(subject.split(b"."), tokens):
                    return sid
                if searched >= SEARCHED:
                    break
        return b""


def _brief(uid: str) -> str:
    return uid[:8]


def _matches(pattern: list[bytes], tokens: list[bytes]) -> bool:
    for index, wanted in enumerate(pattern):
        if wanted == b">":
            return len(tokens) > index
        if index >= len(tokens) or wanted not in {b"*", tokens[index]}:
            return False
    return len(pattern) == len(tokens)
