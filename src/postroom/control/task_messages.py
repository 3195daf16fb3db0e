"""The messages that belong to a task: what was asked, said of it, answered, and sent in its course."""

from __future__ import annotations

import json

from postroom.protocol import shapes
from postroom.protocol.content import parts_of
from postroom.protocol.ids import is_uid
from postroom.protocol.limits import MAX_PAGE
from postroom.protocol.principal import Principal
from postroom.protocol.tasks import ANSWERED_BY
from postroom.store.database import Store
from postroom.store.messages import MessageRow
from postroom.store.ports import TaskRow
from postroom.tasks.views import TaskEvent, event
from postroom_a2a.times import format_time


def messages_of(store: Store, task: TaskRow, me: Principal) -> list[shapes.TaskMessage]:
    """The messages of a task, the oldest first: its changes, and what was sent, the first `MAX_PAGE` of each.

    A guest sees what is between itself and the agent of the task alone.
    """
    request = store.messages.message_at(task.requested_seq)
    sent = store.messages.sent_in(task.id, task.worker, task.requested_seq, MAX_PAGE)
    rows = [*([request] if request is not None else []), *sent]
    if me.guest:
        rows = [row for row in rows if me.uid in (row.sender, row.recipient)]
    changes = [
        (event(row, task), row.answer) for row in store.tasks.events_of(task.id, limit=MAX_PAGE)
    ]
    authors = [_author(answer) for _, answer in changes]
    if me.guest:
        authors = [author if author in (me.uid, task.worker) else "" for author in authors]
    uids = {uid for row in rows for uid in (row.sender, row.recipient)} | {task.worker, *authors}
    known = {uid: party.as_json() for uid, party in store.agents.parties(uids - {""}).items()}
    worker = known[task.worker]
    found = [_of_row(row, task, known) for row in rows]
    for (change, _), author in zip(changes, authors, strict=True):
        if change.answer or change.answer_parts:
            found.append(_answer(change, known.get(author), worker))
        elif change.text and change.kind != "artifact":
            found.append(_news(change, worker))
    return sorted(found, key=lambda message: message["at"])


def _of_row(row: MessageRow, task: TaskRow, known: dict[str, shapes.Party]) -> shapes.TaskMessage:
    kind = "request" if row.seq == task.requested_seq else "task" if row.requests else "message"
    return {
        "kind": kind,
        "id": row.id,
        "at": format_time(row.stored_at),
        "from": known[row.sender],
        "to": known[row.recipient],
        "state": row.state,
        "text": row.text,
        "parts": parts_of(json.loads(row.message)),
    }


def _answer(
    change: TaskEvent, author: shapes.Party | None, worker: shapes.Party
) -> shapes.TaskMessage:
    parts = list(change.answer_parts) if change.answer_parts else [{"text": change.answer}]
    return {
        "kind": "answer",
        "id": "",
        "at": format_time(change.at),
        "from": author,
        "to": worker,
        "state": change.state.value,
        "text": change.answer,
        "parts": parts,
    }


def _news(change: TaskEvent, worker: shapes.Party) -> shapes.TaskMessage:
    return {
        "kind": "news",
        "id": "",
        "at": format_time(change.at),
        "from": worker,
        "to": None,
        "state": change.state.value,
        "text": change.text,
        "parts": list(change.parts),
    }


def _author(answer: str) -> str:
    """The uid of who gave an answer, as its worker's sidecar noted it from the subject; "" where it is not kept."""
    metadata = json.loads(answer).get("metadata") if answer else None
    named = metadata.get(ANSWERED_BY) if isinstance(metadata, dict) else None
    return named if isinstance(named, str) and is_uid(named) else ""
