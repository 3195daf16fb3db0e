"""The rules that fold messages, receipts, posts, dead letters and alerts into rows, and when records are over.

A rule records or ignores a malformed record and never stops the fold (`projection.rules`).
"""

from __future__ import annotations

from dataclasses import replace

from postroom.bus.port import Message
from postroom.errors import InvalidInput, ProtocolViolation
from postroom.observe import get_logger
from postroom.projection.changes import Change
from postroom.projection.retention import Over
from postroom.projection.rules import Rule
from postroom.protocol import subjects
from postroom.protocol.alerts import Alert, AlertEnd, decode
from postroom.protocol.content import references_in, subject_of
from postroom.protocol.deadletters import DEAD_ATTEMPTS, DEAD_DROPPED, DEAD_ORIGIN, DEAD_REASON
from postroom.protocol.envelope import Envelope
from postroom.protocol.handover import how_of
from postroom.protocol.ids import CONTROL_PLANE, MESSAGE_ID, UID, is_uid
from postroom.protocol.receipts import Reason, Receipt, State, advance, is_final, may_set
from postroom.store import messages, records
from postroom.store.alerts import AlertRow
from postroom.store.database import Store
from postroom.store.messages import MessageRow
from postroom_a2a import strict_json
from postroom_a2a.messages import context_of, text_of
from postroom_a2a.text import one_line

log = get_logger(__name__)

MAX_SHOWN_RECIPIENT = 128
"""Characters of a recipient that no agent can be; an index of PostgreSQL takes no longer ones than 2,700 bytes."""


# ── INBOX ───────────────────────────────────────────────────────────────────────────────────────────────────


def message_of(record: Message) -> MessageRow | None:
    """The row of a record of INBOX, as it is before any receipt; None for a record that is no message."""
    tokens = record.subject.split(".")
    if len(tokens) != 4 or not is_uid(tokens[3]):
        return None
    _, recipient, _, sender = tokens
    try:
        row = _message_row(record, sender, recipient)
    except ProtocolViolation as error:
        row = _malformed_row(record, sender, recipient, error)
    if UID.fullmatch(recipient) is None and not row.final:
        # The sender may put any token there; no agent can ever have that address.
        reason = Reason.NO_SUCH_RECIPIENT.value
        row = replace(row, state=State.DEAD.value, reason=reason, final=True)
    if len(recipient) > MAX_SHOWN_RECIPIENT:
        row = replace(row, recipient=recipient[:MAX_SHOWN_RECIPIENT])
    return row


def _fold_message(store: Store, record: Message) -> list[Change]:
    row = message_of(record)
    if row is None or not store.messages.insert_message(row):
        # The sender stored the same message again after the server's window of de-duplication: the first one counts.
        return []
    for early in store.records.take_early_receipts(row.sender, row.id):
        row = _apply(store, row, early) or row
    return [_change("mail", row)]


def _named(message_id: str) -> str:
    """`message_id`, or "" for what a hostile sender wrote there: it is the id of no message, and of any length."""
    return message_id if MESSAGE_ID.fullmatch(message_id) else ""


def _message_row(record: Message, sender: str, recipient: str) -> messages.MessageRow:
    envelope = Envelope.decode(record.payload)
    if envelope.to != recipient:
        raise ProtocolViolation("the envelope names another recipient than the subject")
    return messages.MessageRow(
        seq=record.sequence,
        id=envelope.id,
        sender=sender,
        recipient=recipient,
        text=text_of(envelope.message),
        message=_message_json(envelope),
        context_id=context_of(envelope.message),
        expects_reply=envelope.expects_reply,
        reply_to=_named(envelope.reply_to),
        requeue_of=_named(envelope.requeue_of),
        sent_at=envelope.sent_at,
        stored_at=record.timestamp,
        updated_at=record.timestamp,
        expires_at=envelope.expires_at,
        requests=envelope.request is not None,
        subject=subject_of(envelope.message),
        task=next(iter(references_in(envelope.message)), ""),
    )


def _malformed_row(
    record: Message, sender: str, recipient: str, error: ProtocolViolation
) -> messages.MessageRow:
    return messages.MessageRow(
        seq=record.sequence,
        # No message id contains a colon, so this one can belong to no message.
        id=f"malformed:{record.sequence}",
        sender=sender,
        recipient=recipient,
        text="",
        message="{}",
        sent_at=record.timestamp,
        stored_at=record.timestamp,
        updated_at=record.timestamp,
        state=State.DEAD.value,
        reason=one_line(f"{Reason.MALFORMED.value}: {error.message}", 500),
        final=True,
    )


# ── RECEIPTS ────────────────────────────────────────────────────────────────────────────────────────────────


_WITH_REASON = (State.DELIVERED, State.DEAD)
"""States with a reason: why the recipient does not confirm the message, or how it got it; why it never will. The post
office says of an accepted one why it waits.
"""


def _fold_receipt(store: Store, record: Message) -> list[Change]:
    report = _report(record)
    if report is None:
        return []
    row = store.messages.message_of(report.sender, report.message_id)
    if row is None:
        store.records.keep_early_receipt(report)
        return []
    changed = _apply(store, row, report)
    return [_change("receipt", changed)] if changed else []


def _report(record: Message) -> records.EarlyReceipt | None:
    try:
        said = subjects.parse(record.subject)
        receipt = Receipt.decode(record.payload)
    except (InvalidInput, ProtocolViolation):
        return None
    if not may_set(said.sender, receipt.recipient, CONTROL_PLANE):
        return None
    state = receipt.state
    if state is State.ANSWERED and said.sender != CONTROL_PLANE:
        # Only the log says that a message has an answer; the recipient's receipt proves that it has read the message.
        state = State.SEEN
    waits = state is State.ACCEPTED and said.sender == CONTROL_PLANE
    return records.EarlyReceipt(
        seq=record.sequence,
        sender=said.recipient,
        message_id=receipt.message_id,
        recipient=receipt.recipient,
        state=state.value,
        reason=receipt.reason if state in _WITH_REASON or waits else "",
        at=record.timestamp,
    )


def _apply(
    store: Store, row: messages.MessageRow, report: records.EarlyReceipt
) -> messages.MessageRow | None:
    if report.recipient != row.recipient:
        return None
    current = State(row.state)
    state = advance(current, State(report.state), expects_reply=row.expects_reply)
    if state is current and (row.reason or not report.reason or report.state != row.state):
        return None
    final = is_final(state, expects_reply=row.expects_reply)
    # How it was delivered stays true when it was seen.
    reason = report.reason or (row.reason if how_of(row.reason) else "")
    changed = {"final": final, "reason": reason, "receipt": report.seq}
    store.messages.set_state(row.seq, state, at=report.at, **changed)
    return replace(row, state=state.value, updated_at=report.at, **changed)


# ── FEED, DEADLETTER, ALERTS ────────────────────────────────────────────────────────────────────────────────


def _fold_post(store: Store, record: Message) -> list[Change]:
    try:
        said = subjects.parse(record.subject)
        envelope = Envelope.decode(record.payload)
        row = _post_row(record, said, envelope)
    except (InvalidInput, ProtocolViolation) as error:
        log.warning("record %d of FEED is no post: %s", record.sequence, error)
        return []
    if envelope.to != f"#{said.project}" or not store.records.insert_post(row):
        return []
    return [Change("post", row.seq, row.id, row.sender, project=row.project, row=row)]


def _post_row(record: Message, said: subjects.Subject, envelope: Envelope) -> records.PostRow:
    return records.PostRow(
        seq=record.sequence,
        id=envelope.id,
        project=said.project,
        sender=said.sender,
        text=text_of(envelope.message),
        message=_message_json(envelope),
        at=record.timestamp,
    )


def _fold_dead_letter(store: Store, record: Message) -> list[Change]:
    if dropped := record.metadata.get(DEAD_DROPPED, ""):
        done = store.records.mark_dropped(int(dropped), record.timestamp)
        return [Change("deadletter", int(dropped))] if done else []
    row = _dead_letter_row(record)
    if not store.records.insert_dead_letter(row):
        return []
    return [Change("deadletter", row.id, row.message_id, row.sender, row.recipient)]


def _dead_letter_row(record: Message) -> records.DeadLetterRow:
    original = ".".join(record.subject.split(".")[2:])
    tokens = original.split(".")
    sender, recipient = (tokens[3], tokens[1]) if len(tokens) == 4 else ("", "")
    try:
        message_id = Envelope.decode(record.payload).id
    except ProtocolViolation:
        message_id = ""
    return records.DeadLetterRow(
        id=record.sequence,
        origin=record.metadata.get(DEAD_ORIGIN, "") or f"DEADLETTER-{record.sequence}",
        subject=original,
        sender=sender,
        recipient=recipient,
        message_id=message_id,
        payload=record.payload,
        reason=one_line(record.metadata.get(DEAD_REASON, ""), 500),
        attempts=int(record.metadata.get(DEAD_ATTEMPTS, "0")),
        at=record.timestamp,
    )


def _fold_alert(store: Store, record: Message) -> list[Change]:
    try:
        said = subjects.parse(record.subject)
    except InvalidInput:
        return []
    alert, own = decode(record.payload), said.sender == CONTROL_PLANE
    if isinstance(alert, AlertEnd) and own:
        store.alerts.ended(
            alert.ends,
            record.timestamp,
            upto=min(alert.upto or record.sequence, record.sequence),
            id=alert.id,
            kind=alert.kind,
            about=alert.about,
            who=alert.who,
        )
        return [Change("alert", record.sequence, sender=said.sender)]
    text = alert.text if isinstance(alert, Alert) else alert.ends
    # The cause identifies an alert and ends it, so only the control plane may name one.
    cause = (alert.kind, alert.about, alert.who) if own else ("", "", said.sender)
    at, seq = record.timestamp, record.sequence
    store.alerts.raised(AlertRow(seq, seq, said.sender, *cause, text, at, at))
    return [Change("alert", seq, sender=said.sender)]


RULES: dict[str, tuple[Rule, ...]] = {
    "INBOX": (_fold_message,),
    "RECEIPTS": (_fold_receipt,),
    "FEED": (_fold_post,),
    "DEADLETTER": (_fold_dead_letter,),
    "ALERTS": (_fold_alert,),
}
"""The rules of each stream."""


def _change(kind: str, row: messages.MessageRow) -> Change:
    return Change(kind, row.seq, row.id, row.sender, row.recipient, state=row.state, row=row)


def _message_json(envelope: Envelope) -> str:
    return strict_json.dumps(envelope.message).decode()


def _message_over(store: Store, record: Message, before: float) -> bool:
    return _final(store.messages.message_at(record.sequence), before)


def _receipt_over(store: Store, record: Message, before: float) -> bool:
    try:
        about = Receipt.decode(record.payload).message_id
        sender = subjects.parse(record.subject).recipient
    except (ProtocolViolation, InvalidInput):
        return True
    return _final(store.messages.message_of(sender, about), before)


def _final(row: MessageRow | None, before: float) -> bool:
    # Folded without a row: a copy of an earlier message, a receipt without one, or the message was pruned.
    return row is None or (row.final and row.updated_at < before)


def _post_over(store: Store, record: Message, _: float) -> bool:
    return not store.records.has_post(record.sequence)


OVER: dict[str, Over] = {
    "INBOX": Over(_message_over),
    "RECEIPTS": Over(_receipt_over),
    "FEED": Over(_post_over),
}
