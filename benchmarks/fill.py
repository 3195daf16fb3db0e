"""Rows of a post room that has carried traffic, made without carrying it: exchanges of messages, and tasks.

The rows are those that the fold would have written, with every index that they need; the log knows nothing of them.
So a post room that runs shows them, and `first` keeps them clear of what it stores itself meanwhile.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from sqlalchemy import insert

from postroom.protocol.receipts import State
from postroom.protocol.tasks import task_id
from postroom.store.messages import MessageRow
from postroom.store.ports import TaskEventRow, TaskRow
from postroom.store.schema import a2a_task_events, a2a_tasks, messages
from postroom.store.session import Session, prepared, values_of
from postroom_a2a.messages import text_message
from postroom_a2a.task_state import TaskState

T = TypeVar("T")

TEXT = "the quick brown fox jumps over the lazy dog; " * 4

CHUNK = 2000
"""Rows of one statement."""

Row = MessageRow | TaskRow | TaskEventRow

STATEMENTS = {
    MessageRow: prepared(insert(messages)),
    TaskRow: prepared(insert(a2a_tasks)),
    TaskEventRow: prepared(insert(a2a_task_events)),
}


class Filling(Protocol):
    """A connection to a database, as `StoreConnection`."""

    session: Session

    def run(self, work: Callable[[Session], T], *, flush: bool = True) -> T:
        """Run `work` in one transaction."""


class Traffic:
    """What a person and some workers have said to each other, one thing after the other.

    Args:
        person: uid of who asks.
        workers: uids of who answers, in turns.
        first: sequence in INBOX and in TASKS of the first record.
        at: instant of the first record.
        spacing: seconds between two records.
        text: of each message.
    """

    def __init__(
        self,
        person: str,
        workers: Sequence[str],
        *,
        first: int,
        at: float,
        spacing: float = 1.0,
        text: str = TEXT,
    ) -> None:
        self._person = person
        self._workers = itertools.cycle(workers)
        self._inbox = itertools.count(first)
        self._tasks = itertools.count(first)
        self._at, self._spacing = at, spacing
        self._text = text

    def exchanges(self, count: int) -> Iterator[MessageRow]:
        """So many messages of the person, each with its answer: two rows each."""
        for _ in range(count):
            worker = next(self._workers)
            question = self._message(self._person, worker, expects_reply=True)
            yield question
            yield self._message(worker, self._person, reply_to=question.id)

    def tasks(self, count: int, changes: int = 1) -> Iterator[Row]:
        """So many completed tasks: the message that asked, the task, and its `changes` + 2 changes."""
        for _ in range(count):
            worker = next(self._workers)
            request = self._message(self._person, worker, expects_reply=True)
            yield request
            task = task_id(worker, self._person, request.id)
            events = [
                self._event(task, worker, state)
                for state in (
                    TaskState.SUBMITTED,
                    *[TaskState.WORKING] * changes,
                    TaskState.COMPLETED,
                )
            ]
            yield from events
            yield self._task(request, task, events[-1])

    def _next_at(self) -> float:
        self._at += self._spacing
        return self._at

    def _message(
        self, sender: str, recipient: str, *, expects_reply: bool = False, reply_to: str = ""
    ) -> MessageRow:
        seq, at = next(self._inbox), self._next_at()
        new = hashlib.sha256(f"{sender}\0{recipient}\0{seq}".encode()).hexdigest()[:32]
        return MessageRow(
            seq=seq,
            id=new,
            sender=sender,
            recipient=recipient,
            text=self._text,
            message=json.dumps(text_message(new, self._text)),
            sent_at=at,
            stored_at=at,
            updated_at=at,
            expects_reply=expects_reply,
            reply_to=reply_to,
            state=(State.ANSWERED if expects_reply else State.SEEN).value,
            final=True,
        )

    def _event(self, task: str, worker: str, state: TaskState) -> TaskEventRow:
        status = {"state": state.value, "message": text_message("0" * 32, self._text)}
        update = {"statusUpdate": {"taskId": task, "contextId": task, "status": status}}
        event = "" if state is TaskState.SUBMITTED else json.dumps(update)
        seq, at = next(self._tasks), self._next_at()
        return TaskEventRow(
            seq=seq,
            task=task,
            worker=worker,
            state=state.value,
            attempt=1,
            runner="0" * 16,
            at=at,
            event=event,
        )

    def _task(self, request: MessageRow, task: str, last: TaskEventRow) -> TaskRow:
        status = {"state": last.state, "message": text_message("0" * 32, self._text)}
        return TaskRow(
            id=task,
            worker=request.recipient,
            requester=request.sender,
            request=request.id,
            requested_seq=request.seq,
            context_id=task,
            text=self._text,
            created_at=request.stored_at,
            updated_at=last.at,
            state=last.state,
            seq=last.seq,
            attempt=1,
            runner=last.runner,
            said=self._text,
            final=True,
            snapshot_seq=last.seq,
            snapshot=json.dumps({"id": task, "contextId": task, "status": status}),
        )


def fill(connection: Filling, rows: Iterable[Row]) -> int:
    """Store the rows, in transactions so short that others may write meanwhile; returns how many."""
    number, ahead = 0, iter(rows)
    while chunk := list(itertools.islice(ahead, CHUNK)):
        connection.run(lambda session, chunk=chunk: _insert(session, chunk), flush=False)
        number += len(chunk)
    return number


def _insert(session: Session, chunk: Sequence[Row]) -> None:
    for kind, statement in STATEMENTS.items():
        session.run_many(statement, [values_of(row) for row in chunk if type(row) is kind])
