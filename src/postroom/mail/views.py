"""Messages, posts and dead letters as people and the API see them, with the names of their parties.

The `as_json` shapes are those of the HTTP API (docs/api.md).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from postroom.errors import ProtocolViolation
from postroom.protocol import priority, shapes
from postroom.protocol.blobs import PREFIX, named_in
from postroom.protocol.content import about_in, said, subject_of
from postroom.protocol.deadletters import is_of_task
from postroom.protocol.envelope import Envelope
from postroom.protocol.handover import how_of
from postroom.protocol.priority import Input
from postroom.protocol.receipts import State
from postroom.protocol.tasks import task_id
from postroom.store.agents import Party
from postroom.store.database import Store
from postroom.store.messages import MessageRow
from postroom.store.records import DeadLetterRow, PostRow
from postroom.store.threads import ThreadRow
from postroom_a2a.messages import context_of, text_of
from postroom_a2a.times import format_time

PREVIEW = 200
"""Characters of a thread's last message."""


@dataclass(frozen=True, slots=True)
class Mail:
    """A message and its state.

    Attributes:
        message: A2A Message, as JSON text where it was read from the database.
        sizes: bytes of the blobs that it names and its sender may read, by hash; None while nobody has looked.
        answer: the first reply of its recipient.
        attempts: known deliveries: those of its dead letter, else 1 once it was delivered.
        timed_out: the caller waited for it in vain.
        task: id of the task that it requests, "" for none.
        redelivered: its reader may have been given it before, and has not acknowledged it.
        how: it was delivered, as its recipient says; "" for not said.
        note: what its sender is told when it is accepted, "" for nothing.
        altered: it is not as it was stored, so nothing is shown of what it says.
        expires_at: when it is dead if it was not seen before, 0 for never.
    """

    seq: int
    id: str
    sender: Party
    recipient: Party
    text: str
    message: dict[str, Any] | str
    subject: str
    thread: str
    state: State
    reason: str
    expects_reply: bool
    reply_to: str
    requeue_of: str
    sent_at: float
    updated_at: float
    final: bool
    attempts: int = 0
    answer: Mail | None = None
    timed_out: bool = False
    sizes: Mapping[str, int] | None = field(default=None, compare=False)
    task: str = ""
    redelivered: bool = False
    how: str = ""
    note: str = ""
    altered: bool = False
    expires_at: float = 0.0

    @property
    def unsized(self) -> bool:
        """Whether it, or its answer, names blobs whose sizes nobody has looked up."""
        own = self.sizes is None and bool(_named(self.message))
        return own or (self.answer is not None and self.answer.unsized)

    def as_json(self) -> shapes.Mail:
        """Shape of the API."""
        message = _document(self.message)
        document: shapes.Mail = {
            "seq": self.seq,
            "id": self.id,
            "from": self.sender.as_json(),
            "to": self.recipient.as_json(),
            "text": self.text,
            **said(message, self.sizes),
            "subject": self.subject,
            "thread": self.thread or None,
            "state": self.state.value,
            "reason": self.reason,
            "expects_reply": self.expects_reply,
            "reply_to": self.reply_to or None,
            "requeue_of": self.requeue_of or None,
            "sent_at": format_time(self.sent_at),
            "updated_at": format_time(self.updated_at),
            "expires_at": format_time(self.expires_at) if self.expires_at else None,
            "attempts": self.attempts,
            "answer": self.answer.as_json() if self.answer else None,
            "task": self.task or None,
            "redelivered": self.redelivered,
        }
        if self.timed_out:
            document["timed_out"] = True
        if self.how:
            document["how"] = self.how
        if self.note:
            document["note"] = self.note
        if self.altered:
            document["altered"] = True
        if about := about_in(message):
            document["about"] = about
        return document


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread as one of its parties has it.

    Attributes:
        seq: of its last message.
    """

    id: str
    parties: Sequence[Party]
    messages: int
    unread: int
    seq: int
    subject: str
    last: Mail

    def as_json(self) -> shapes.Thread:
        """Shape of the API."""
        return {
            "id": self.id,
            "subject": self.subject,
            "parties": [party.as_json() for party in self.parties],
            "messages": self.messages,
            "unread": self.unread,
            "seq": self.seq,
            "from": self.last.sender.as_json(),
            "text": self.last.text[:PREVIEW],
            "at": format_time(self.last.sent_at),
        }


@dataclass(frozen=True, slots=True)
class Post:
    """A post of a project's feed."""

    seq: int
    id: str
    project: str
    sender: Party
    text: str
    message: str
    at: float
    sizes: Mapping[str, int] | None = None

    def as_json(self) -> shapes.Post:
        """Shape of the API."""
        message = _document(self.message)
        return {
            "seq": self.seq,
            "id": self.id,
            "project": self.project,
            "from": self.sender.as_json(),
            "text": self.text,
            **said(message, self.sizes),
            "subject": subject_of(message),
            "thread": context_of(message) or None,
            "at": format_time(self.at),
        }


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that could not be delivered.

    Attributes:
        message: A2A Message, empty where the letter was never one.
        bus_subject: subject of its record in the log.
        requeued_as: id of the message that repeats it.
        task: id of the task that was given up, "" for a letter of a message.
    """

    id: int
    message_id: str
    sender: Party
    recipient: Party
    text: str
    message: dict[str, Any]
    reason: str
    attempts: int
    at: float
    bus_subject: str
    requeued_as: str
    task: str = ""
    sizes: Mapping[str, int] | None = None

    def as_json(self) -> shapes.Dead:
        """Shape of the API."""
        return {
            "id": self.id,
            "message_id": self.message_id or None,
            "from": self.sender.as_json(),
            "to": self.recipient.as_json(),
            "text": self.text,
            **said(self.message, self.sizes),
            "subject": subject_of(self.message),
            "thread": context_of(self.message) or None,
            "reason": self.reason,
            "attempts": self.attempts,
            "at": format_time(self.at),
            "bus_subject": self.bus_subject,
            "requeued_as": self.requeued_as or None,
            "task": self.task or None,
        }


def mails(store: Store, rows: Sequence[MessageRow]) -> list[Mail]:
    """The messages of `rows` in their order, each with its answer."""
    answers = store.messages.first_answers(rows)
    everything = [*rows, *answers.values()]
    known = store.agents.parties(uid for row in everything for uid in (row.sender, row.recipient))
    attempts = store.records.attempts_of(row.id for row in everything)
    sizes = sizes_of(store, ((row.sender, row.message) for row in everything))

    def of(row: MessageRow, answer: Mail | None) -> Mail:
        tried = attempts.get((row.sender, row.id), 0)
        mail = shown(row, known[row.sender], known[row.recipient], tried, answer)
        return replace(mail, sizes=sizes[row.sender])

    # One level of answers only: an answer may have been answered in turn.
    shown_answers = {seq: of(row, None) for seq, row in answers.items()}
    return [of(row, shown_answers.get(row.seq)) for row in rows]


def threads(store: Store, uid: str, rows: Sequence[ThreadRow]) -> list[Thread]:
    """The threads of `uid` in their order."""
    ends = {row.seq: row for row in store.messages.messages_at(_ends(rows))}
    everybody = {uid for row in rows for uid in row.parties}
    everybody.update(each for row in ends.values() for each in (row.sender, row.recipient))
    known = store.agents.parties(everybody)
    unread = store.messages.unread_in(uid, [row.thread for row in rows])
    found = []
    for row in rows:
        first, last = ends.get(row.first), ends.get(row.last)
        if last is not None:
            mail = shown(last, known[last.sender], known[last.recipient])
            parties = [known[each] for each in row.parties]
            subject = last.subject or (first.subject if first else "")
            few = unread.get(row.thread, 0)
            found.append(Thread(row.thread, parties, row.count, few, row.last, subject, mail))
    return found


def _ends(rows: Iterable[ThreadRow]) -> set[int]:
    return {seq for row in rows for seq in (row.first, row.last)}


def shown(
    row: MessageRow, sender: Party, recipient: Party, attempts: int = 0, answer: Mail | None = None
) -> Mail:
    """One message; `attempts` as its dead letter has them, 0 without one."""
    how = how_of(row.reason)
    handed_over = row.state not in {State.ACCEPTED.value, State.DEAD.value}
    return Mail(
        seq=row.seq,
        id=row.id,
        sender=sender,
        recipient=recipient,
        text=row.text,
        message=row.message,
        subject=row.subject,
        thread=row.context_id,
        state=State(row.state),
        reason="" if how else row.reason,
        how=how,
        expects_reply=row.expects_reply,
        reply_to=row.reply_to,
        requeue_of=row.requeue_of,
        sent_at=row.sent_at,
        updated_at=row.updated_at,
        final=row.final,
        attempts=attempts or int(handed_over),
        answer=answer,
        task=task_id(row.recipient, row.sender, row.id) if row.requests else "",
        altered=row.altered,
        expires_at=row.expires_at,
    )


def changed(mail: Mail, row: MessageRow) -> Mail:
    """The message after the fold has written `row`: itself, or a message that may answer it."""
    sender, recipient = mail.sender, mail.recipient
    if (row.id, row.sender) == (mail.id, sender.uid):
        new = shown(row, sender, recipient, 0, mail.answer)
        return replace(new, attempts=max(mail.attempts, new.attempts), sizes=mail.sizes)
    answers = (row.reply_to, row.sender, row.recipient) == (mail.id, recipient.uid, sender.uid)
    if answers and mail.answer is None:
        return replace(mail, answer=shown(row, recipient, sender))
    return mail


def posts(store: Store, rows: Sequence[PostRow]) -> list[Post]:
    """The posts of `rows` in their order."""
    known = store.agents.parties(row.sender for row in rows)
    sizes = sizes_of(store, ((row.sender, row.message) for row in rows))
    return [post(row, known[row.sender], sizes[row.sender]) for row in rows]


def post(row: PostRow, sender: Party, sizes: Mapping[str, int] | None = None) -> Post:
    """One post."""
    return Post(row.seq, row.id, row.project, sender, row.text, row.message, row.at, sizes)


def dead_letters(store: Store, rows: Sequence[DeadLetterRow]) -> list[DeadLetter]:
    """The dead letters of `rows` in their order."""
    known = store.agents.parties(uid for row in rows for uid in (row.sender, row.recipient))
    requeued = store.messages.requeues(row.message_id for row in rows)
    messages = [_message(row.payload) for row in rows]
    said_by = ((row.sender, message or {}) for row, message in zip(rows, messages, strict=True))
    sizes = sizes_of(store, said_by)

    def of(row: DeadLetterRow, message: dict[str, Any] | None) -> DeadLetter:
        task = task_id(row.recipient, row.sender, row.message_id) if is_of_task(row.origin) else ""
        again = [each.request for each in store.tasks.retries_of(task)] if task else []
        return DeadLetter(
            id=row.id,
            message_id=row.message_id,
            sender=known[row.sender],
            recipient=known[row.recipient],
            text=_text(row.payload) if message is None else text_of(message),
            message=message or {},
            reason=row.reason,
            attempts=row.attempts,
            at=row.at,
            bus_subject=row.subject,
            requeued_as=again[-1] if again else requeued.get((row.sender, row.message_id), ""),
            task=task,
            sizes=sizes[row.sender],
        )

    return [of(row, message) for row, message in zip(rows, messages, strict=True)]


def sizes_of(
    store: Store, messages: Iterable[tuple[str, dict[str, Any] | str]]
) -> dict[str, dict[str, int]]:
    """For each sender the bytes of the blobs that it may read and its messages name, by hash.

    Args:
        messages: each with its sender.
    """
    named: dict[str, set[str]] = defaultdict(set)
    for sender, message in messages:
        named[sender].update(_named(message))
    return {sender: store.blobs.sizes(hashes, sender) for sender, hashes in named.items()}


def _named(message: dict[str, Any] | str) -> list[str]:
    """The hashes of the blobs that a message names."""
    if isinstance(message, str) and PREFIX not in message:
        return []  # most messages name none, and a list of them is read often
    return named_in(_document(message))


def _document(message: dict[str, Any] | str) -> dict[str, Any]:
    return json.loads(message) if isinstance(message, str) else message


def _message(payload: bytes) -> dict[str, Any] | None:
    """The A2A Message in a payload that may be anything, None for none."""
    with suppress(ProtocolViolation):
        return Envelope.decode(payload).message
    with suppress(ProtocolViolation):
        said = priority.decode(payload)
        return said.message if isinstance(said, Input) else None
    return None


def _text(payload: bytes) -> str:
    """A payload without a message, for a person."""
    try:
        said = priority.decode(payload)
    except ProtocolViolation:
        return payload[:500].decode("utf-8", errors="replace")
    return f"{type(said).__name__.lower()} of task {said.task}"
