"""What an agent can do, whichever way it asks: by a line on its standard output or over the local HTTP API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any

from postroom.errors import InvalidInput, MessageTooLarge, PostroomError
from postroom.sidecar.a2a.changes import Change, Page
from postroom.sidecar.a2a.live import Live
from postroom.sidecar.adapters import (
    Action,
    AnswerTask,
    Artifact,
    AskInput,
    Canceled,
    CancelTask,
    Complete,
    Delegate,
    Delegated,
    Fail,
    Find,
    Malformed,
    Output,
    Post,
    Progress,
    Reject,
    Reply,
    Seen,
    Send,
    SetStatus,
    TaskAction,
)
from postroom.sidecar.delegations import Delegations
from postroom.sidecar.directory import Directory
from postroom.sidecar.inbox import Inbox
from postroom.sidecar.keys import Derivation, Key, own_key, random_key
from postroom.sidecar.ledger import Ledger
from postroom.sidecar.outgoing import Draft, Outgoing
from postroom.sidecar.program import ProgramExecutor
from postroom.sidecar.session import Run, log_output
from postroom.sidecar.status import Status
from postroom.tasks.engine import TaskEngine
from postroom.tasks.execution import Execution
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import file_artifact, text_artifact
from postroom_a2a.text import one_line

MANY = 20
"""Refused lines in a row from which on the agent is read more slowly, and they are not logged any more."""

PAUSE = 0.25
"""Seconds between two of them."""

_STATES: dict[type[TaskAction], TaskState] = {
    Progress: TaskState.WORKING,
    Complete: TaskState.COMPLETED,
    Fail: TaskState.FAILED,
    Reject: TaskState.REJECTED,
    AskInput: TaskState.INPUT_REQUIRED,
    Canceled: TaskState.CANCELED,
}


@dataclass(frozen=True, slots=True)
class TaskDesk:
    """The parts that have to do with tasks: who runs them, who is asked for them, who knows of them."""

    engine: TaskEngine
    program: ProgramExecutor
    delegations: Delegations
    ledger: Ledger
    live: Live


class Operations:
    """The actions of one worker's agent; also the host of its runs (`agent.AgentHost`)."""

    def __init__(
        self,
        inbox: Inbox,
        outgoing: Outgoing,
        directory: Directory,
        status: Status,
        desk: TaskDesk,
    ) -> None:
        self._inbox = inbox
        self._outgoing = outgoing
        self._directory = directory
        self._status = status
        self._engine = desk.engine
        self._program = desk.program
        self._delegations = desk.delegations
        self._ledger = desk.ledger
        self._live = desk.live
        self._refusals = 0

    async def send(self, action: Send) -> str:
        """Send a message; returns its id once it is on disk.

        Raises:
            PostroomError: it was not accepted, or that is not known.
        """
        recipient = await self._directory.uid_of(action.to)
        key = self._key("send", action.key, recipient, action.text)
        draft = Draft(recipient, action.text, action.expects_reply, expires_in=action.expires_in)
        return await self._outgoing.message(draft, key)

    async def reply(self, action: Reply) -> str:
        """Answer a message and, once the answer is on disk, confirm it; returns the answer's id.

        Raises:
            NotFound: no such message was handed over.
            PostroomError: as `send`; the message stays unconfirmed.
        """
        sender = self._inbox.sender_of(action.to)
        held = self._inbox.find(action.to)
        if action.key:
            key = own_key(f"reply:{action.to}", action.key)
        else:
            key = held.derivation.key("reply", sender, action.text) if held else random_key()
        draft = Draft(
            sender,
            action.text,
            action.expects_reply,
            reply_to=action.to,
            context=held.context if held else "",
            expires_in=action.expires_in,
        )
        sent = await self._outgoing.message(draft, key)
        self._inbox.confirm(action.to)
        return sent

    async def post(self, action: Post) -> str:
        """Post to a feed; returns the id once it is on disk.

        Raises:
            PostroomError: as `send`.
        """
        project = action.project or self._outgoing.home
        key = self._key("post", action.key, f"#{project}", action.text)
        return await self._outgoing.post(project, action.text, key)

    def seen(self, action: Seen) -> None:
        """Confirm a message.

        Raises:
            NotFound: it was never handed over.
        """
        self._inbox.confirm(action.id)

    # ── tasks ───────────────────────────────────────────────────────────────────────────────────────

    async def delegate(self, action: Delegate) -> Delegated:
        """Ask another agent for a task; returns once the request is on disk.

        Raises:
            PostroomError: it was not accepted, or that is not known.
        """
        if action.to:
            worker = await self._delegations.recipient(action.to)
            key = self._key("delegate", action.key, worker.uid, action.text)
        else:
            # What is done again after a crash goes to whom it went before, whoever has the least to do by then.
            key = self._key("delegate", action.key, f"skill:{action.skill}", action.text)
            worker = await self._delegations.chosen(action.skill, key)
        return await self._delegations.delegate(action, worker, key)

    async def on_task(self, action: TaskAction) -> None:
        """What the agent says of a task that it works on; returns once that is on disk.

        Raises:
            NotFound: it does not work on such a task.
            Conflict: the task has ended.
            MessageTooLarge: it was not stored.
        """
        execution = self._engine.execution(action.task)
        if isinstance(action, Artifact):
            artifact = _artifact(action)
            try:
                await execution.result(artifact, append=action.append, last=action.last)
            except MessageTooLarge:
                execution.left_out += 1
                raise
        else:
            text = action.text
            if isinstance(action, Canceled):
                text = text or execution.cancel_reason
            if isinstance(action, Complete) and execution.left_out:
                text = (
                    f"{text} (artifacts left out, since they are too large: {execution.left_out})"
                )
            await self._say(execution, _STATES[type(action)], text)

    async def _say(self, execution: Execution, state: TaskState, text: str) -> None:
        try:
            await execution.say(state, text)
        except MessageTooLarge as error:
            if state is not TaskState.WORKING:
                # An agent that does not read its errors thinks that it is done with the task.
                done = state is TaskState.COMPLETED or state.interrupted
                state = TaskState.FAILED if done else state
                await execution.say(state, f"its last word is too large: {error}", force=True)
            raise

    async def cancel_task(self, action: CancelTask) -> dict[str, Any]:
        """End a task that the agent asked for; returns it as it is then.

        Raises:
            NotFound: it asked for no such task.
            Conflict: it has ended already.
        """
        return await self._ledger.cancel(action.task, action.reason)

    async def answer_task(self, action: AnswerTask) -> dict[str, Any]:
        """Answer a task's question; returns the task as it is then.

        Raises:
            NotFound: the agent asked for no such task.
            Conflict: it waits for nothing.
        """
        return await self._ledger.answer(action.task, action.text, action.named)

    async def task(self, task_id: str, *, wait: bool, timeout: float) -> dict[str, Any]:
        """A task that this worker runs or asked for; with `wait` when it has ended or asks, at most `timeout` s.

        Raises:
            NotFound: there is none.
        """
        if task_id == "current":
            task_id = self._engine.execution().id
        return await self._delegations.view(task_id, wait=wait, timeout=timeout)

    async def tasks(self, role: str, *, open_only: bool, other: str = "") -> list[dict[str, Any]]:
        """Tasks of this worker (`worker`), that it asked for (`requester`), or both ("").

        With `other` only those that have this agent on their other side.
        """
        return await self._ledger.views(role, open_only=open_only, other=other)

    async def changes(self, task_id: str, after: int) -> Page:
        """What is stored past sequence `after` of a task that this worker runs or asked for.

        Raises:
            NotFound: there is none.
        """
        return await self._ledger.changes(task_id, after)

    def follow(self, task_id: str, after: int, worker: str) -> AsyncGenerator[Change, None]:
        """What follows sequence `after` of a task that `worker` runs, each change once; ends with the task."""
        return self._live.follow(self._ledger, task_id, after, worker)

    async def snapshot(self, task_id: str) -> dict[str, Any]:
        """A task that this worker runs or asked for, as A2A JSON.

        Raises:
            NotFound: there is none.
        """
        return await self._ledger.snapshot(task_id)

    async def find(self, action: Find) -> list[dict[str, Any]]:
        """Agents with a card and, if it is given, the skill.

        Raises:
            PostroomError: the control plane did not answer.
        """
        return await self._directory.find(action.skill)

    def held(self) -> list[dict[str, Any]]:
        """Messages handed over and unconfirmed, as the agent was shown them."""
        return [
            {
                "id": message.id,
                "from": {
                    "uid": message.sender.uid,
                    "nick": message.sender.nick,
                    "kind": message.sender.kind,
                },
                "to": message.to,
                "text": message.text,
                "expects_reply": message.expects_reply,
                "reply_to": message.reply_to or None,
                "redelivered": message.redelivered,
                "sent_at": message.sent_at,
            }
            for message in (held.message for held in self._inbox.held)
        ]

    # ── host of the agent's runs ────────────────────────────────────────────────────────────────────

    async def act(self, session: Run, action: Action) -> None:
        """Carry out one action and tell the agent how it went.

        An agent whose every line is refused is read more slowly: one that answers each error with another line that
        is refused would go on as fast as the machine is.
        """
        try:
            answer = await self._perform(session, action)
            self._refusals = 0
        except PostroomError as error:
            answer = _error(action, error, log=self._refusals < MANY)
            self._refusals += 1
            if self._refusals > MANY:
                await asyncio.sleep(PAUSE)
            if isinstance(action, Reply | Seen):
                # An agent that does not read its errors thinks that it is done with the message.
                await self._inbox.give_back(action.to if isinstance(action, Reply) else action.id)
        if answer is not None:
            session.tell(answer)

    async def gone(self) -> None:
        """The agent's run has ended."""
        await self._inbox.gone()

    async def give_back(self, message_id: str) -> None:
        """Whoever was to handle the message has failed."""
        await self._inbox.give_back(message_id)

    async def _perform(self, session: Run, action: Action) -> Mapping[str, Any] | None:
        match action:
            case Send():
                return _receipt(action, await self.send(action))
            case Reply():
                return _receipt(action, await self.reply(action))
            case Post():
                return _receipt(action, await self.post(action))
            case Seen():
                self.seen(action)
            case Find():
                agents = await self.find(action)
                return {"type": "agents", "ref": action.ref, "agents": agents}
            case Delegate():
                done = await self.delegate(action)
                session.tell(_delegated(action, done))
                if done.again:
                    return await self._delegations.recall(done.task, done.worker, action.ref)
            case CancelTask():
                await self.cancel_task(action)
            case AnswerTask():
                await self.answer_task(action)
            case SetStatus():
                self._status.said(action.state, action.detail)
            case Output():
                log_output("stdout", action.text)
                if action.unreadable:
                    self._status.unreadable(action.text, action.unreadable)
            case Malformed():
                raise InvalidInput(action.detail)
            case _:
                await self.on_task(action)
        return None

    def _key(self, kind: str, given: str, recipient: str, text: str) -> Key:
        if given:
            return own_key(kind, given)
        derivation = self._derivation()
        return derivation.key(kind, recipient, text) if derivation else random_key()

    def _derivation(self) -> Derivation | None:
        """The keys of the message or task that the agent is certainly at; None if that may be one of several.

        A key of the wrong one could make what is said of another look as if it had been sent.
        """
        held = self._inbox.held
        if task := self._program.derivation():
            # A message that was given up waiting for is no sign that the agent is at it.
            held = [each for each in held if not each.waited]
        return held[0].derivation if len(held) == 1 else None if held else task


def _artifact(action: Artifact) -> dict[str, Any]:
    named = action.id or action.name or "result"
    if not action.url:
        return text_artifact(named, action.text, action.name)
    return file_artifact(named, action.url, action.media_type, action.filename, action.name)


def _receipt(action: Send | Reply | Post, sent: str) -> dict[str, Any]:
    ref = action.ref if action.ref is not None else action.key or None
    return {"type": "receipt", "ref": ref, "id": sent, "state": "accepted"}


def _delegated(action: Delegate, done: Delegated) -> dict[str, Any]:
    ref = action.ref if action.ref is not None else action.key or None
    to = {"uid": done.worker.uid, "nick": done.worker.nick}
    return {"type": "delegated", "ref": ref, "id": done.id, "task": done.task, "to": to}


def _error(action: Action, error: PostroomError, *, log: bool) -> dict[str, Any]:
    ref = getattr(action, "ref", None)
    if ref is None:
        ref = getattr(action, "key", None) or None
    if log:
        log_output("action refused", str(error))
    return {"type": "error", "ref": ref, "code": error.code, "detail": one_line(error.message, 500)}
