"""The envelope: what travels in the payload of INBOX, FEED and OUTBOX records (docs/architecture.md, Envelope).

Who sent it is not in it: the sender is the last token of the subject, which the server has checked.

    {"v": 1, "id": "…", "to": "<uid>" | "#<project>" | "*", "sent_at": "<RFC 3339>", "message": {A2A 1.0 Message},
     "expects_reply"?: true, "reply_to"?: "<message id>", "expires_at"?: "<RFC 3339>",
     "requeue_of"?: "<message id>", "response_subject"?: "worker.<sender>.priority.<answerer>",
     "request"?: {"method": "SendMessage", "skill"?: "…", "stream"?: true, "door"?: "…", "retry_of"?: "<task id>"}}

With `request` it is no plain message but asks for an A2A task.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from postroom.errors import InvalidInput, InvalidName, MessageTooLarge, ProtocolViolation
from postroom.protocol.ids import check_message_id
from postroom.protocol.limits import MAX_DEPTH, MAX_ENVELOPE_BYTES, MAX_LABEL, MAX_VALUES
from postroom.protocol.records import AS_FILE, check_written, read_record
from postroom.protocol.tasks import TASK_ID, Door
from postroom_a2a import strict_json
from postroom_a2a.messages import context_fault
from postroom_a2a.times import format_time, parse_time

VERSION = 1

EVERYBODY = "*"
"""Recipient of an announcement."""

SEND_MESSAGE = "SendMessage"
"""The A2A 1.0 method that requests a task."""


_DOORS = frozenset(door.value for door in Door)


@dataclass(frozen=True, slots=True)
class TaskRequest:
    """The part that makes a message a request for a task.

    Attributes:
        skill: id of the wanted skill of the recipient's card, "" for any.
        stream: the sender wants to hear of every change, not only of those that end or interrupt the task.
        door: a `protocol.tasks.Door`, "" for none that is known; counts only from the control plane.
        retry_of: id of the task that is asked for again, "" for none.
    """

    skill: str = ""
    stream: bool = False
    door: str = ""
    retry_of: str = ""


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message to one inbox or one feed.

    Attributes:
        id: of the message, also its `Nats-Msg-Id`.
        to: uid of the recipient, `#` and a project, or `EVERYBODY`.
        message: A2A 1.0 Message as JSON; only the library reads it.
        sent_at, expires_at: seconds since the epoch; `expires_at` 0 for never.
        expects_reply: it ends `answered` and not `seen`.
        reply_to: id of the message that this one answers, else "".
        requeue_of: id of the dead message that this one repeats, else "".
        response_subject: subject for the response to a durable A2A request, else "".
        request: a request for a task; None for a plain message.
    """

    id: str
    to: str
    message: dict[str, Any] = field(hash=False)
    sent_at: float
    expects_reply: bool = False
    reply_to: str = ""
    expires_at: float = 0.0
    requeue_of: str = ""
    response_subject: str = ""
    request: TaskRequest | None = None

    def encode(self) -> bytes:
        """The payload.

        Raises:
            MessageTooLarge: over `MAX_ENVELOPE_BYTES` or `MAX_VALUES`.
            InvalidInput: the message or a time holds a value that JSON cannot express.
        """
        record: dict[str, Any] = {
            "v": VERSION,
            "id": self.id,
            "to": self.to,
            "sent_at": format_time(self.sent_at),
            "message": self.message,
        }
        if self.expects_reply:
            record["expects_reply"] = True
        if self.expires_at:
            record["expires_at"] = format_time(self.expires_at)
        for key in ("reply_to", "requeue_of", "response_subject"):
            if value := getattr(self, key):
                record[key] = value
        if self.request is not None:
            record["request"] = _request_record(self.request)
        try:
            # A lone surrogate, which may come from an agent's JSON line, becomes a question mark.
            encoded = strict_json.dumps(record)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"the message cannot be written as JSON: {error}") from error
        if len(encoded) > MAX_ENVELOPE_BYTES:
            raise MessageTooLarge(
                f"the message has {len(encoded)} bytes, the limit is {MAX_ENVELOPE_BYTES}",
                remedy=AS_FILE,
            )
        check_written(encoded, "the message", MAX_DEPTH, MAX_VALUES)
        return encoded

    @classmethod
    def decode(cls, payload: bytes) -> Envelope:
        """The envelope in a record's payload.

        Raises:
            ProtocolViolation: it is not an envelope, or has an unknown version.
        """
        record = read_record(payload)
        if record.get("v") != VERSION:
            raise ProtocolViolation("not an envelope of version 1")
        try:
            message = record["message"]
            if not isinstance(message, dict):
                raise ProtocolViolation("the envelope's message is not an object")
            envelope = cls(
                id=check_message_id(_text(record, "id")),
                to=_text(record, "to"),
                message=message,
                sent_at=parse_time(_text(record, "sent_at")),
                expects_reply=record.get("expects_reply") is True,
                reply_to=_text(record, "reply_to", ""),
                expires_at=parse_time(_text(record, "expires_at"))
                if "expires_at" in record
                else 0.0,
                requeue_of=_text(record, "requeue_of", ""),
                response_subject=_text(record, "response_subject", ""),
                request=_request(record["request"]) if "request" in record else None,
            )
        except (KeyError, InvalidName) as error:
            raise ProtocolViolation(f"not an envelope: {error}") from error
        envelope._check_context()
        return envelope

    def _check_context(self) -> None:
        # The worker rejects a request with such a context, and tells its requester why; a post belongs to no context.
        if self.request is not None or self.to.startswith("#"):
            return
        if fault := context_fault(self.message.get("contextId") or ""):
            raise ProtocolViolation(fault)

    def expired(self, now: float) -> bool:
        """Whether it may no longer be delivered at `now`."""
        return bool(self.expires_at) and now >= self.expires_at


def _text(record: dict[str, Any], key: str, default: str | None = None) -> str:
    value = record[key] if default is None else record.get(key, default)
    if not isinstance(value, str):
        raise ProtocolViolation(f"the envelope's {key} is not a text")
    return value


def _request_record(request: TaskRequest) -> dict[str, Any]:
    record: dict[str, Any] = {"method": SEND_MESSAGE}
    if request.skill:
        record["skill"] = request.skill
    if request.stream:
        record["stream"] = True
    if request.door:
        record["door"] = request.door
    if request.retry_of:
        record["retry_of"] = request.retry_of
    return record


def _request(record: object) -> TaskRequest:
    if not isinstance(record, dict) or record.get("method") != SEND_MESSAGE:
        raise ProtocolViolation("the envelope requests an unknown method")
    skill = record.get("skill", "")
    if not isinstance(skill, str) or len(skill) > MAX_LABEL:
        raise ProtocolViolation("the envelope's skill is not the name of a skill")
    door, retry_of = record.get("door"), record.get("retry_of")
    return TaskRequest(
        skill,
        record.get("stream") is True,
        # Both only tell of a task: what a later version says there is no reason to refuse its message.
        door if door in _DOORS else "",
        retry_of if isinstance(retry_of, str) and TASK_ID.fullmatch(retry_of) else "",
    )
