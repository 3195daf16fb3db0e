"""What webhooks are told: from what is stored past the cursors to deliveries, and from a delivery to its request.

A delivery is a number in one of the streams. What it says is read when it goes out:

    INBOX      sequence of the message, which may request a task
    RECEIPTS   sequence of the message in INBOX and its new state (`_number`), so a state is told once
    TASKS      sequence of the change
    EVENTS     id of the event that asks for an approval, or settles it
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from postroom.events import approvals
from postroom.identity.sealing import Sealer
from postroom.protocol.approvals import POLICY, Decision
from postroom.protocol.principal import OPERATOR_KEY, Scope
from postroom.protocol.receipts import RANK, State
from postroom.protocol.webhooks import HookEvent
from postroom.push.changes import is_pushed
from postroom.push.receivers import NOT_KEPT, SECRET_LOST, Outgoing, Receiver
from postroom.store.agents import Party
from postroom.store.database import Store
from postroom.store.messages import MessageRow
from postroom.store.ports import TaskHead
from postroom.store.pushes import PushRow, push_id
from postroom.store.webhooks import HookRow
from postroom.webhooks.signing import WebhookKey, a2a_headers
from postroom_a2a.task_state import TaskState
from postroom_a2a.times import format_time

PAGE = 200
"""Records of one stream that one transaction looks at."""

PREVIEW = 200
"""Characters of a text that a delivery shows."""

_STATES = 8
"""More than there are states of a message."""

_KINDS = {
    HookEvent.MESSAGE: ("mail",),
    HookEvent.RECEIPT: ("receipt", "mail"),  # of a receipt that was folded before its message
    HookEvent.TASK: ("task", "mail"),
}
"""The kinds of changes that tell of an event."""

_STATE = {rank: state for state, rank in RANK.items()}

Payload = dict[str, Any]
Deliveries = Iterator[tuple[Receiver, int, str]]
"""Each with its receiver, its number, and the id of what it is about."""


# ── from the log to deliveries ──────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Taken:
    """What was taken.

    Attributes:
        receivers: with new deliveries.
        more: whether there is more to take.
        concerns: the changes after which there may be: an owner of a webhook and a kind; "" for anybody.
    """

    receivers: Sequence[Receiver] = ()
    more: bool = False
    concerns: frozenset[tuple[str, str]] = field(default_factory=frozenset)


def take(store: Store, now: float) -> Taken:
    """Give what is stored past the cursors its deliveries, at most a page of each stream."""
    hooks = store.webhooks.active()
    if not hooks:
        return Taken()
    told = Told(store, hooks)
    receivers: dict[str, Receiver] = {}
    more = False
    for stream, find in _FIND.items():
        after = store.webhooks.cursor(stream)
        found, upto, full = find(told, after)
        for receiver, number, about in found:
            row = PushRow(push_id(receiver.key, number), receiver.key, about, number, next_at=now)
            store.pushes.add([row])
            receivers[receiver.key] = receiver
        if upto > after:
            store.webhooks.move(stream, upto)
        more = more or full
    return Taken(list(receivers.values()), more, told.concerns)


def begin(store: Store) -> None:
    """Set the cursors to the end: what is stored before the first webhook is no news."""
    for stream in ("INBOX", "RECEIPTS", "TASKS"):
        store.webhooks.move(stream, store.cursor(stream))
    store.webhooks.move("EVENTS", store.last_event)


class Told:
    """Which webhooks hear of what."""

    def __init__(self, store: Store, hooks: Iterable[HookRow]) -> None:
        self.store = store
        self._by: defaultdict[tuple[str, str], list[HookRow]] = defaultdict(list)
        self._all: list[HookRow] = []
        for hook in hooks:
            for event in hook.events.split():
                self._by[hook.owner, event].append(hook)
            if HookEvent.APPROVAL in hook.events.split() and _operates(store, hook):
                self._all.append(hook)

    @property
    def concerns(self) -> frozenset[tuple[str, str]]:
        """See `Taken`. Whose an approval is shows only when it is looked at."""
        found = {
            (owner, kind) for owner, event in self._by for kind in _KINDS.get(HookEvent(event), ())
        }
        asked = any(event == HookEvent.APPROVAL for _, event in self._by)
        return frozenset(found | {("", "event")} if asked else found)

    def of(self, event: HookEvent, stream: str, *owners: str) -> list[Receiver]:
        """The receivers for an event of those agents."""
        found = [
            hook for owner in dict.fromkeys(owners) for hook in self._by.get((owner, event), ())
        ]
        return [Receiver.in_stream(hook, stream) for hook in found]

    def messages(self, after: int) -> tuple[Deliveries, int, bool]:
        """As each of `_FIND`: the deliveries, up to where they are, and whether the page was full."""
        folded = self.store.cursor("INBOX")  # what requests a task is told when that is there
        rows = [row for row in self.store.messages.past(after, PAGE) if row.seq <= folded]

        def found() -> Deliveries:
            for row in rows:
                event = HookEvent.TASK if row.requests else HookEvent.MESSAGE
                # One that is dead already reaches nobody: it is malformed, or its sender may not.
                reached = [row.recipient] if row.state != State.DEAD.value else []
                for receiver in self.of(event, "INBOX", *reached):
                    yield receiver, row.seq, row.id
                if row.receipt:  # it was folded before the message, and its sequence may be passed
                    yield from self._receipt(row)

        return found(), rows[-1].seq if rows else after, len(rows) == PAGE

    def receipts(self, after: int) -> tuple[Deliveries, int, bool]:
        """See `messages`."""
        rows = self.store.messages.receipts_past(after, PAGE)
        found = (delivery for row in rows for delivery in self._receipt(row))
        return found, rows[-1].receipt if rows else after, len(rows) == PAGE

    def _receipt(self, row: MessageRow) -> Deliveries:
        for receiver in self.of(HookEvent.RECEIPT, "RECEIPTS", row.sender):
            yield receiver, _number(row), row.id

    def tasks(self, after: int) -> tuple[Deliveries, int, bool]:
        """See `messages`."""
        rows = self.store.tasks.events_past(after, PAGE)
        heads = {
            head.id: head for head in self.store.tasks.heads_by_ids({row.task for row in rows})
        }

        def found() -> Deliveries:
            for row in rows:
                head = heads.get(row.task)
                if head is not None and is_pushed(row):
                    whose = (head.worker, head.requester)
                    for receiver in self.of(HookEvent.TASK, "TASKS", *whose):
                        yield receiver, row.seq, row.task

        return found(), rows[-1].seq if rows else after, len(rows) == PAGE

    def approvals(self, after: int) -> tuple[Deliveries, int, bool]:
        """See `messages`; what a worker's own policy settles concerns nobody."""
        rows = self.store.approvals.news_past(after, PAGE)

        def found() -> Deliveries:
            for event, row in rows:
                if row is None or row.response.get("channel") == POLICY:
                    continue
                asker = self.store.grants.reached(row.worker)
                owners = [asker.owner] if asker is not None and asker.owner else []
                receivers = self.of(HookEvent.APPROVAL, "EVENTS", *owners)
                receivers += [Receiver.in_stream(hook, "EVENTS") for hook in self._all]
                for receiver in {each.key: each for each in receivers}.values():
                    yield receiver, event, row.id

        full = len(rows) == PAGE
        # A read looks at every event past its cursor, so that is kept near the end.
        return found(), rows[-1][0] if full else max(after, self.store.last_event), full


_FIND: Mapping[str, Callable[[Told, int], tuple[Deliveries, int, bool]]] = {
    "INBOX": Told.messages,
    "RECEIPTS": Told.receipts,
    "TASKS": Told.tasks,
    "EVENTS": Told.approvals,
}


def _number(row: MessageRow) -> int:
    return row.seq * _STATES + RANK[State(row.state)]


def _operates(store: Store, hook: HookRow) -> bool:
    """Whether the key that a webhook was made with may operate, so that all approvals are its owner's to see."""
    if hook.api_key == OPERATOR_KEY:
        return True
    key = store.keys.get(hook.api_key)
    return key is not None and Scope.OPERATE.value in key.scopes.split()


# ── from a delivery to its request ──────────────────────────────────────────────────────────────────────────


def event_of(store: Store, push: PushRow) -> str:
    """The event of a delivery; "" if what it is about is no longer kept."""
    return _said(store, push)[0]


def request(
    store: Store, hook: HookRow, push: PushRow, key: WebhookKey, sealer: Sealer, now: float
) -> Outgoing:
    """The request of an attempt at `now`."""
    event, payload = _said(store, push)
    if not event:
        return Outgoing(fault=NOT_KEPT, drop=True)
    return signed(hook, push.id, event, payload, key, sealer, now)


def signed(
    hook: HookRow,
    name: str,
    event: str,
    payload: Payload,
    key: WebhookKey,
    sealer: Sealer,
    now: float,
) -> Outgoing:
    """A request with that content, under the id `name`; receivers refuse an old timestamp, so it is the attempt's."""
    secrets = secrets_of(hook, sealer, now)
    if not secrets:
        return Outgoing(fault=SECRET_LOST)
    timestamp = format_time(now)
    said = {"event": event, "payload": payload, "timestamp": timestamp}
    body = json.dumps(said, ensure_ascii=False).encode("utf-8", "surrogatepass")
    headers = [
        ("content-type", "application/json"),
        *a2a_headers(secrets, event, timestamp, body),
        *key.headers(secrets, name, now, body),
    ]
    return Outgoing(headers, body)


def secrets_of(hook: HookRow, sealer: Sealer, now: float) -> list[str]:
    """The secrets that sign, the present one first; none where that is lost."""
    secret = sealer.open(hook.secret, place(hook.id))
    if not secret:
        return []
    former = ""
    if hook.former_until is not None and now < hook.former_until:
        former = sealer.open(hook.former, place(hook.id)) or ""
    return [secret, former] if former else [secret]


def place(webhook: str) -> str:
    """What the secrets of a webhook are bound to."""
    return f"webhooks/{webhook}"


def _said(store: Store, push: PushRow) -> tuple[str, Payload]:
    """Event and payload of a delivery; "" where what it is about is no longer kept."""
    _, _, stream = push.hook.partition("/")
    return _SAID[stream](store, push.seq) or ("", {})


def _message(store: Store, number: int) -> tuple[str, Payload] | None:
    row = store.messages.message_at(number)
    if row is None:
        return None
    if row.requests:
        heads = store.tasks.heads_by_requests([number])
        return None if not heads else _task(store, heads[0], TaskState.SUBMITTED.value, "")
    sender = _party(store, row.sender)
    return HookEvent.MESSAGE.value, {
        "message_id": row.id,
        "sender_id": row.sender,
        "sender_name": sender.nick,
        "subject": row.subject,
        "preview": row.text[:PREVIEW],
    }


def _receipt(store: Store, number: int) -> tuple[str, Payload] | None:
    seq, rank = divmod(number, _STATES)
    row = store.messages.message_at(seq)
    if row is None:
        return None
    state = _STATE[rank].value
    return HookEvent.RECEIPT.value, {
        "message_id": row.id,
        "recipient_id": row.recipient,
        "recipient_name": _party(store, row.recipient).nick,
        "subject": row.subject,
        "state": state,
        "reason": row.reason if state == row.state else "",
    }


def _change(store: Store, number: int) -> tuple[str, Payload] | None:
    for change in store.tasks.events_at([number]):
        head = store.tasks.head_by_id(change.task)
        if head is not None:
            what = "artifact" if "artifactUpdate" in _object(change.event) else change.state
            return _task(store, head, change.state, what)
    return None


def _task(store: Store, head: TaskHead, state: str, what: str) -> tuple[str, Payload]:
    return HookEvent.TASK.value, {
        "task_id": head.id,
        "state": state,
        "what": what or state,
        "worker_id": head.worker,
        "worker_name": _party(store, head.worker).nick,
        "requester_id": head.requester,
        "requester_name": _party(store, head.requester).nick,
        "preview": head.text[:PREVIEW],
    }


def _approval(store: Store, number: int) -> tuple[str, Payload] | None:
    row = store.approvals.about(number)
    if row is None:
        return None
    (view,) = approvals.views(store, [row])
    shown = view.as_json()
    return HookEvent.APPROVAL.value, {
        "approval_id": row.id,
        "state": row.state.value if number == row.settled else Decision.PENDING.value,
        "worker_id": row.worker,
        "worker_name": view.worker.nick,
        "tool": shown["tool"],
        "preview": (shown["title"] or shown["reason"])[:PREVIEW],
    }


_SAID: Mapping[str, Callable[[Store, int], tuple[str, Payload] | None]] = {
    "INBOX": _message,
    "RECEIPTS": _receipt,
    "TASKS": _change,
    "EVENTS": _approval,
}


def _party(store: Store, uid: str) -> Party:
    return store.agents.parties([uid]).get(uid) or Party(uid, "", "unknown")


def _object(event: str) -> Mapping[str, Any]:
    return json.loads(event) if event else {}
