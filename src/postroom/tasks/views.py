"""Tasks as people and the API see them, with the names of their parties.

The `as_json` shapes are those of the HTTP API (docs/api.md). A view shows the parts of an agent's task that have
the form of A2A, and leaves out the rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from postroom.projection.changes import Change
from postroom.protocol import shapes
from postroom.protocol.blobs import PREFIX, named_in
from postroom.protocol.content import parts_of, references_in, said, subject_of
from postroom.protocol.limits import MAX_DETAIL, MAX_NAMED_BLOBS
from postroom.store.agents import Party
from postroom.store.database import Store
from postroom.store.ports import TaskEventRow, TaskHead, TaskRow
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import answer_in, artifacts_of, status_text
from postroom_a2a.text import one_line
from postroom_a2a.times import format_time

OFFLINE = "is offline"
"""Why an agent that is not there does nothing."""

Blocker = Callable[[str], str]
"""Returns why a worker does nothing for its tasks now, such as `is offline`; "" for no known reason."""


@dataclass(frozen=True, slots=True)
class TaskView:
    """A task and its state.

    Attributes:
        seq: sequence in TASKS of its last record, 0 while no worker has taken it.
        requested: sequence of its request in INBOX; lists are in this order.
        detail: an explanation of the state on one line.
        asked: the request, an A2A Message; None where it is left out, as in lists.
        status_text: the worker's text with the present state.
        status_parts: all that it said with it; None where it is left out.
        started_at: instant of its first attempt, None before that.
        artifacts: `{"id", "name", "text", "parts", "files"?}` each; None where they are left out.
        sizes: bytes of the blobs that its requester may read, by hash.
        timed_out: the caller waited for it in vain.
        again: what was sent was there before.
        door, retry_of: as in `store.ports.TaskHead`.
        retried_as: ids of the tasks that ask for it again; None for none, and in lists.
    """

    seq: int
    requested: int
    id: str
    context: str
    state: TaskState
    final: bool
    detail: str
    worker: Party
    requester: Party
    request: str
    skill: str
    text: str
    attempt: int
    created_at: float
    updated_at: float
    status_text: str
    started_at: float | None = None
    artifacts: Sequence[Mapping[str, Any]] | None = None
    timed_out: bool = False
    again: bool = False
    asked: Mapping[str, Any] | None = None
    status_parts: list[dict[str, Any]] | None = None
    sizes: Mapping[str, int] | None = None
    door: str = ""
    retry_of: str = ""
    retried_as: Sequence[str] | None = None

    def as_json(self) -> shapes.Task:
        """Shape of the API."""
        document: shapes.Task = {
            "seq": self.seq,
            "requested": self.requested,
            "id": self.id,
            "context": self.context,
            "state": self.state.value,
            "final": self.final,
            "detail": self.detail,
            "worker": self.worker.as_json(),
            "requester": self.requester.as_json(),
            "request": self.request,
            "skill": self.skill,
            "text": self.text,
            "thread": self.context,
            "attempt": self.attempt,
            "created_at": format_time(self.created_at),
            "updated_at": format_time(self.updated_at),
            "status_text": self.status_text,
            "started_at": None if self.started_at is None else format_time(self.started_at),
            "door": self.door,
            "retry_of": self.retry_of,
        }
        if self.retried_as is not None:
            document["retried_as"] = list(self.retried_as)
        if self.asked is not None:
            document |= cast("shapes.Task", said(self.asked, self.sizes))
            document["subject"] = subject_of(self.asked)
            document["references"] = references_in(self.asked)
        if self.status_parts is not None:
            document["status_parts"] = self.status_parts
        if self.artifacts is not None:
            document["artifacts"] = [
                cast("shapes.Artifact", dict(artifact)) for artifact in self.artifacts
            ]
        if self.timed_out:
            document["timed_out"] = True
        return document


@dataclass(frozen=True, slots=True)
class ArtifactPiece:
    """An artifact, or a further piece of one; after `last` no more of it comes."""

    id: str
    name: str
    append: bool
    last: bool

    def as_json(self) -> shapes.Piece:
        """Shape of the API."""
        return {"id": self.id, "name": self.name, "append": self.append, "last": self.last}


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """One change of a task.

    Attributes:
        kind: `task` (it was taken, or ended by its first record), `status` or `artifact`.
        text: the text of the change or of the artifact.
        artifact: None for other kinds.
        answer: the answer to the task's question, "" with any other change.
        parts: all that was said with the change, or the parts of the artifact.
        answer_parts: the whole answer; None with any other change.
    """

    seq: int
    task: str
    state: TaskState
    attempt: int
    runner: str
    at: float
    kind: str
    text: str
    artifact: ArtifactPiece | None = None
    answer: str = ""
    parts: Sequence[dict[str, Any]] = ()
    answer_parts: Sequence[dict[str, Any]] | None = None

    def as_json(self) -> shapes.TaskEvent:
        """Shape of the API."""
        document: shapes.TaskEvent = {
            "seq": self.seq,
            "task": self.task,
            "state": self.state.value,
            "attempt": self.attempt,
            "runner": self.runner,
            "at": format_time(self.at),
            "kind": self.kind,
            "text": self.text,
            "parts": list(self.parts),
            "artifact": self.artifact.as_json() if self.artifact else None,
            "answer": self.answer,
            "final": self.state.terminal,
        }
        if self.answer_parts is not None:
            document["answer_parts"] = list(self.answer_parts)
        return document


def listed(store: Store, heads: Sequence[TaskHead], blocker: Blocker) -> list[TaskView]:
    """The tasks in their order, as lists show them: without artifacts."""
    known = store.agents.parties(uid for head in heads for uid in (head.worker, head.requester))
    ahead, begun = (
        _ahead(store, heads),
        store.tasks.begun([head.id for head in heads]),
    )
    return [
        _view(head, known, _detail(head, known, ahead, blocker), begun.get(head.id))
        for head in heads
    ]


def whole(store: Store, row: TaskRow, blocker: Blocker) -> TaskView:
    """One task with all that its worker has reported."""
    known = store.agents.parties((row.worker, row.requester))
    begun = store.tasks.begun([row.id]).get(row.id)
    view = _whole(row, known, _ahead(store, [row]), begun, blocker)
    _add_sizes(store, view.artifacts, row.worker)
    if row.final and (retries := store.tasks.retries_of(row.id)):
        view = replace(view, retried_as=[each.id for each in retries])
    hashes = named_in(view.asked)
    return replace(view, sizes=store.blobs.sizes(hashes, row.requester)) if hashes else view


def _whole(
    row: TaskRow,
    known: Mapping[str, Party],
    ahead: Mapping[str, int],
    begun: float | None,
    blocker: Blocker,
) -> TaskView:
    task = json.loads(row.snapshot)
    view = _view(row, known, _detail(row, known, ahead, blocker), begun)
    status = task.get("status")
    return replace(
        view,
        status_text=status_text(task),
        status_parts=_parts_with(status),
        artifacts=[
            {**shown, "parts": parts_of(artifact)}
            for shown, artifact in zip(artifacts_of(task), task.get("artifacts", ()), strict=True)
        ],
        asked=_request_in(task),
    )


def _request_in(task: Mapping[str, Any]) -> Mapping[str, Any]:
    """The Message that asked for a task: the first one of its history, which its worker writes."""
    history = task.get("history")
    first = history[0] if isinstance(history, list) and history else None
    return first if isinstance(first, dict) else {}


def _parts_with(status: object) -> list[dict[str, Any]]:
    """The parts of the message in a status."""
    message = status.get("message") if isinstance(status, dict) else None
    return parts_of(message) if isinstance(message, dict) else []


@dataclass(frozen=True, slots=True)
class Known:
    """A task as who waits for it knows it: enough to show it without reading it again.

    Attributes:
        parties: of its worker and its requester, by uid.
        begun: instant of its first attempt, None before that.
    """

    row: TaskRow
    parties: Mapping[str, Party]
    begun: float | None = None

    @classmethod
    def read(cls, store: Store, row: TaskRow) -> Known:
        """What is known of the task of `row`."""
        begun = store.tasks.begun([row.id]).get(row.id)
        return cls(row, store.agents.parties((row.worker, row.requester)), begun)

    def then(self, change: Change) -> Known:
        """What is known after a change of the task."""
        if change.kind != "task" or change.seq <= self.row.seq:
            return self
        began = self.begun
        if began is None and change.state == TaskState.WORKING:
            began = change.row.updated_at
        # Of the text a change has the beginning.
        return replace(self, row=replace(change.row, text=self.row.text), begun=began)

    def shown(self, blocker: Blocker) -> TaskView | None:
        """The task; None if that takes what only SQL has: the tasks ahead of it, or the sizes of its files."""
        row = self.row
        if row.seq and row.state == TaskState.SUBMITTED:
            return None
        view = _whole(row, self.parties, {}, self.begun, blocker)
        files = any(artifact.get("files") for artifact in view.artifacts or ())
        return None if files or named_in(view.asked) else view


def _add_sizes(store: Store, artifacts: Sequence[Mapping[str, Any]] | None, worker: str) -> None:
    """Add the size of each file, None for a file that the worker may not read."""
    files = [file for artifact in artifacts or () for file in artifact.get("files", ())]
    if not files:
        return
    hashes = {file["url"].removeprefix(PREFIX) for file in files[:MAX_NAMED_BLOBS]}
    known = store.blobs.sizes(hashes, worker)
    for file in files:
        file["size"] = known.get(file["url"].removeprefix(PREFIX))


def news(store: Store, rows: Sequence[TaskEventRow]) -> list[dict[str, Any]]:
    """Changes of any tasks in their order, with parties and request, for readers that follow all tasks."""
    heads = {head.id: head for head in store.tasks.heads_by_ids({row.task for row in rows})}
    known = store.agents.parties(uid for h in heads.values() for uid in (h.worker, h.requester))
    return [
        event(row, head).as_json()
        | {
            "worker": known[head.worker].as_json(),
            "requester": known[head.requester].as_json(),
            "request_text": one_line(head.text, MAX_DETAIL),
        }
        for row in rows
        if (head := heads.get(row.task)) is not None
    ]


def _view(head: TaskHead, known: Mapping[str, Party], detail: str, begun: float | None) -> TaskView:
    return TaskView(
        seq=head.seq,
        requested=head.requested_seq,
        id=head.id,
        context=head.context_id,
        state=TaskState(head.state),
        final=head.final,
        detail=detail,
        worker=known[head.worker],
        requester=known[head.requester],
        request=head.request,
        skill=head.skill,
        text=head.text,
        attempt=head.attempt,
        created_at=head.created_at,
        updated_at=head.updated_at,
        status_text=head.said,
        started_at=begun,
        door=head.door,
        retry_of=head.retry_of,
    )


def _ahead(store: Store, heads: Sequence[TaskHead]) -> dict[str, int]:
    """The number of tasks ahead of each of those that are taken and wait."""
    waiting = [head for head in heads if head.seq and head.state == TaskState.SUBMITTED]
    queues = {worker: store.tasks.queue(worker) for worker in {h.worker for h in waiting}}
    return {
        head.id: sum(
            state == TaskState.WORKING or requested < head.requested_seq
            for requested, state in queues[head.worker]
        )
        for head in waiting
    }


def _detail(
    head: TaskHead, known: Mapping[str, Party], ahead: Mapping[str, int], blocker: Blocker
) -> str:
    state, party = TaskState(head.state), known[head.worker]
    if head.final:
        return one_line(head.said.partition("\n")[0], MAX_DETAIL)
    nick, why = party.nick or head.worker, blocker(head.worker)
    down = why and not why.startswith(":") and party.kind == "worker"
    if down and (state.interrupted or head.released):
        held = "is stopped" if why == OFFLINE else why
        # What was put down says why; an answer says nothing more.
        what = "your answer" if state.interrupted else "it" if head.said else "the answer"
        start = f"{what} waits for its start: postroom restart {nick}"
        return one_line(f"@{nick} {held}; {start}", MAX_DETAIL)
    if state.interrupted:
        return one_line(head.said, MAX_DETAIL)
    if why:
        return blocked(nick, why)
    if not head.seq:
        return f"queued for @{nick}"
    if state is TaskState.WORKING:
        return f"attempt {head.attempt}" if head.attempt > 1 else ""
    others = ahead[head.id]
    return f"waits behind {others} other{'s' if others > 1 else ''}" if others else "next"


def blocked(nick: str, why: str) -> str:
    """The line for a task whose worker does nothing for it now; of what it tries again, `why` begins with a colon."""
    said = f"@{nick}{why}" if why.startswith(":") else f"@{nick} {why}: it waits"
    return one_line(said, MAX_DETAIL)


def event(row: TaskEventRow, task: TaskHead) -> TaskEvent:
    """One change of `task`, which is as that change or a later one has made it."""
    event = json.loads(row.event) if row.event else {}
    kind, text, artifact, parts = "task", "", None, []
    if isinstance(update := event.get("artifactUpdate"), dict):
        kind = "artifact"
        text, artifact, parts = _artifact(update)
    elif isinstance(update := event.get("statusUpdate"), dict):
        kind = "status"
        text, parts = status_text(update), _parts_with(update.get("status"))
    elif row.seq == task.seq:  # the task itself is the event
        text = task.said
        if isinstance(task, TaskRow):
            whole = json.loads(task.snapshot)
            text, parts = status_text(whole), _parts_with(whole.get("status"))
    return TaskEvent(
        seq=row.seq,
        task=row.task,
        state=TaskState(row.state),
        attempt=row.attempt,
        runner=row.runner,
        at=row.at,
        kind=kind,
        text=text,
        artifact=artifact,
        answer=answer_in(event),
        parts=parts,
        answer_parts=parts_of(json.loads(row.answer)) if row.answer else None,
    )


def _artifact(
    update: dict[str, Any],
) -> tuple[str, ArtifactPiece | None, list[dict[str, Any]]]:
    artifact = update.get("artifact")
    if not isinstance(artifact, dict):
        return "", None, []
    (shown,) = artifacts_of({"artifacts": [artifact]})
    append, last = update.get("append") is True, update.get("lastChunk") is True
    text = shown["text"] or " ".join(file["url"] for file in shown.get("files", ()))
    return text, ArtifactPiece(shown["id"], shown["name"], append, last), parts_of(artifact)


def canceler(store: Store, row: TaskRow, by: str) -> str:
    """The nick of who cancels a task, "" where its requester is not told: one of another organisation knows nobody."""
    known = store.agents.agents_by_uid((by, row.requester))
    if by == row.requester or row.requester in known:
        agent = known.get(by) or store.agents.anywhere(by)
        return "" if agent is None else store.agents.parties([by])[by].nick
    return ""
