"""Requests for tasks in the name of people: put into the log once, as any message (`projection.submit`).

A caller that has too many open tasks is refused before anything is stored (`OpenTasks`). The database is asked seldom:
after a count, half of what is free may be given before the next one.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

from postroom.directory.agents import Takers, check_files
from postroom.errors import InvalidInput, Refused
from postroom.projection.submit import Submitter, author_of
from postroom.protocol import subjects
from postroom.protocol.content import Content, content
from postroom.protocol.envelope import Envelope, TaskRequest
from postroom.protocol.ids import message_id
from postroom.protocol.limits import MAX_LABEL
from postroom.protocol.tasks import task_id, used_before
from postroom.store.agents import Agent
from postroom.store.database import Database, Store
from postroom.store.messages import MessageRow
from postroom.store.ports import TaskRow
from postroom.tasks.records import TaskRecord
from postroom_a2a.messages import ROLE_USER, context_of, text_of
from postroom_a2a.tasks import new_task


class Requested(NamedTuple):
    """The task as the fold will make it, the requester, and whether it was requested before."""

    row: TaskRow
    author: Agent
    again: bool


class Requests:
    """Stores requests.

    Args:
        takers: asked whether a worker takes what is said; by default everybody takes everything.
        open_tasks: their bound for one agent; without it there is none.
    """

    def __init__(
        self,
        submitter: Submitter,
        database: Database,
        *,
        clock: Callable[[], float] = time.time,
        takers: Takers | None = None,
        open_tasks: OpenTasks | None = None,
    ) -> None:
        self._open_tasks = open_tasks or OpenTasks(database)
        self._submitter = submitter
        self._database = database
        self._clock = clock
        self.takers = takers or Takers()

    async def store(
        self,
        requester: str,
        worker: Agent,
        said: Content | str,
        request: TaskRequest,
        *,
        key: str = "",
        as_message: str = "",
        named: Callable[[str], None] = lambda _: None,
    ) -> Requested:
        """Request a task from `worker`; on return the request is in the log, on disk.

        Unless stated otherwise, an error means that nothing was stored.

        Args:
            said: what is to be done; its thread is the context of the task, which has one of its own without it.
            as_message: the `messageId` of its author, "" for none; shown to people, proves nothing.
            named: called with the id of the task before its request is stored.
            key: idempotency key: one key and one worker give one task. "" for a new task.

        Raises:
            ContentNotTaken: the worker's card says that it does not take a part.
            InvalidInput: nothing is said, a malformed part, a blob that the requester may not read, a person as the
                worker, a name that is too long, or a `messageId` of another request; the text then names the task.
            MessageTooLarge: the task would be too large.
            Refused: the worker has as many open tasks as an agent may have.
            StreamFull: the worker's inbox is full.
            StateUnwritable: the disk is full.
            RequestTimeout, BusDisconnected: perhaps stored; ask again with the same key.
        """
        said = content(said)
        if worker.kind == "human":
            raise InvalidInput(
                f"@{worker.nick} is a person: people are given messages, not tasks",
                remedy=f"postroom send @{worker.nick} TEXT",
            )
        if len(request.skill) > MAX_LABEL:
            raise InvalidInput(f"the name of a skill has at most {MAX_LABEL} characters")
        now = self._clock()
        author, _ = await self._database.point(
            lambda store: (author_of(store, requester), check_files(store, requester, said))
        )
        await self.takers.check(worker, said, request.skill)

        def envelope(made: str) -> Envelope:
            return Envelope(
                id=made,
                to=worker.uid,
                message=said.message(as_message or made, ROLE_USER),
                sent_at=now,
                expects_reply=True,
                request=request,
            )

        def named_envelope(made: str) -> Envelope:
            named(task_id(worker.uid, requester, made))
            return envelope(made)

        def earlier(made: str) -> Awaitable[MessageRow | None]:
            return self._database.point(lambda store: store.messages.earlier(requester, made))

        # The request must also fit the task's records, or the worker could only refuse it.
        _first(envelope(secrets.token_hex(16)), requester).encode()
        subject = subjects.inbox(worker.uid, requester)
        named_key = request_key(key)
        try:
            await self._open_tasks.check(worker)
        except Refused:  # what was given before is given again, however many there are
            if not (key and await self.given(requester, named_key, [worker.uid])):
                raise

        def used(made: str) -> InvalidInput:
            return used_before(task_id(worker.uid, requester, made))

        done = await self._submitter.submit(
            author,
            worker.uid,
            subject,
            named_key,
            named_envelope,
            earlier,
            used if as_message else None,
        )
        row = _untaken(done.envelope, requester, done.sequence, request)
        return Requested(row, author.agent, done.again)

    async def given(self, requester: str, key: str, workers: Iterable[str]) -> str:
        """The one of `workers` that `requester` gave a task under that key of its message ids, "" if none."""
        author = await self._database.point(lambda store: author_of(store, requester))
        made = {worker: message_id(author.secret, worker, key) for worker in workers}

        def find(store: Store) -> str:
            for worker, request in made.items():
                if store.messages.message_of(requester, request) is not None:
                    return worker
            return ""

        return await self._database.point(find)


def request_key(key: str) -> str:
    """The key of a request, apart from the keys of messages."""
    return f"task\0{key}" if key else ""


def _first(envelope: Envelope, requester: str) -> TaskRecord:
    """The first record of the requested task."""
    task = task_id(envelope.to, requester, envelope.id)
    context = context_of(envelope.message) or task
    snapshot = new_task(task, context, envelope.message, envelope.sent_at)
    return TaskRecord(snapshot, envelope.id, requester)


def _untaken(envelope: Envelope, requester: str, sequence: int, request: TaskRequest) -> TaskRow:
    record = _first(envelope, requester)
    return TaskRow(
        id=record.id,
        worker=envelope.to,
        requester=record.requester,
        request=record.request,
        requested_seq=sequence,
        context_id=record.task["contextId"],
        text=text_of(envelope.message),
        skill=request.skill,
        stream=request.stream,
        door=request.door,
        retry_of=request.retry_of,
        created_at=envelope.sent_at,
        updated_at=envelope.sent_at,
        snapshot=json.dumps(record.task),
    )


class OpenTasks:
    """The bound of open tasks of each agent of an organisation.

    Agents delegate to one another on the bus, where the inbox of each pair is bounded; a count has their tasks, too.

    Args:
        most: 0 for no bound.
        refused: called when a task is.
    """

    def __init__(
        self, database: Database, most: int = 0, refused: Callable[[], None] = lambda: None
    ) -> None:
        self._database = database
        self._most = most
        self._refused = refused
        self._free: dict[str, int] = {}

    async def check(self, worker: Agent) -> None:
        """Count a task that is about to be given to `worker`.

        Raises:
            Refused: it has as many as it may have.
        """
        if not self._most:
            return
        free = self._free.get(worker.uid, 0)
        if free < 1:
            counts = await self._database.read(lambda store: store.tasks.counts())
            left = self._most - counts.get(worker.uid, 0)
            if left < 1:
                self._refused()
                raise Refused(
                    f"@{worker.nick} has {self._most} open tasks, the most that one agent can have",
                    remedy=f"wait until some end, or cancel some: postroom task list --worker @{worker.nick}",
                )
            free = (left + 1) // 2
        self._free[worker.uid] = free - 1
