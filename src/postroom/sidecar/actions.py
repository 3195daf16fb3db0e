"""The verbs of an agent, carried out alike for a line on its standard output and a request to the local HTTP API."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from postroom.errors import InvalidInput, MessageTooLarge, NotFound, PostroomError
from postroom.observe import get_logger
from postroom.protocol.content import Content
from postroom.protocol.envelope import EVERYBODY
from postroom.protocol.parts import TEXT, check_takes, kind_of
from postroom.protocol.verbs import (
    CURRENT,
    Action,
    Announce,
    AnswerTask,
    Artifact,
    AskAuth,
    AskInput,
    Canceled,
    CancelTask,
    Complete,
    Delegate,
    Fail,
    Find,
    GetTask,
    ListMessages,
    ListTasks,
    ListThread,
    Post,
    Progress,
    Reject,
    Reply,
    Seen,
    Send,
    SetStatus,
    TaskAction,
)
from postroom.sidecar.adapters import MalformedLine, Output, Said
from postroom.sidecar.agent import AgentHost
from postroom.sidecar.ctl import DirectoryClient, TaskClient
from postroom.sidecar.delegations import Delegated, Delegations
from postroom.sidecar.inbox import Inbox
from postroom.sidecar.keys import Key, Owner, own_key, random_key
from postroom.sidecar.outgoing import Outgoing, OutgoingMessage
from postroom.sidecar.program import Ownership
from postroom.sidecar.reading import log_output
from postroom.sidecar.session import AgentRun
from postroom.sidecar.status import StatusReporter
from postroom.tasks.engine import TaskEngine
from postroom.tasks.execution import Execution
from postroom_a2a.task_state import TaskState
from postroom_a2a.text import one_line

MANY = 20
"""Refused lines in a row after which the sidecar reads the agent slowly and logs no further refusal."""

PAUSE = 0.25
"""Seconds between two lines then."""

_log = get_logger(__name__)

_STATES: dict[type[TaskAction], TaskState] = {
    Progress: TaskState.WORKING,
    Complete: TaskState.COMPLETED,
    Fail: TaskState.FAILED,
    Reject: TaskState.REJECTED,
    AskInput: TaskState.INPUT_REQUIRED,
    AskAuth: TaskState.AUTH_REQUIRED,
    Canceled: TaskState.CANCELED,
}


class Actions(AgentHost):
    """Carries out the actions of one worker's agent; also the host of its runs."""

    def __init__(
        self,
        *,
        inbox: Inbox,
        outgoing: Outgoing,
        directory: DirectoryClient,
        status: StatusReporter,
        engine: TaskEngine,
        ownership: Ownership,
        delegations: Delegations,
        task_client: TaskClient,
    ) -> None:
        self._inbox = inbox
        self._outgoing = outgoing
        self._directory = directory
        self._status = status
        self._engine = engine
        self._ownership = ownership
        self._delegations = delegations
        self._task_client = task_client
        self._refusals = 0

    async def perform(
        self, action: Action, owner: Owner | None = None
    ) -> dict[str, Any] | list[dict[str, Any]]:
        """Carry out one action; returns its answer as the local API gives it.

        Args:
            owner: None for one that is to be found out.

        Raises:
            PostroomError: the action was refused, or its outcome is unknown.
        """
        match action:
            case Send():
                return _accepted(await self.send(action, owner))
            case Reply():
                return _accepted(await self.reply(action))
            case Post():
                return _accepted(await self.post(action, owner))
            case Announce():
                return _accepted(await self.announce(action, owner))
            case Seen():
                self._inbox.confirm(action.id)
                return {"id": action.id, "state": "seen"}
            case Find():
                return {"agents": await self._directory.find(action.skill)}
            case ListThread():
                messages = await self._directory.thread(action.thread)
                return {"thread": action.thread, "messages": messages}
            case ListMessages():
                return [held.message.as_json() for held in self._inbox.held]
            case SetStatus():
                self._status.said(action.state, action.detail)
                return {}
            case Delegate():
                return _delegated(await self.delegate(action))
            case CancelTask():
                return await self.cancel_task(action)
            case AnswerTask():
                return (await self.answer_task(action))[0]
            case GetTask():
                return await self.task(action.task, wait=action.wait, timeout=action.timeout)
            case ListTasks():
                return {"tasks": await self.tasks(action.role, open_only=action.open)}
            case (
                Progress()
                | Artifact()
                | Complete()
                | Fail()
                | Reject()
                | AskInput()
                | AskAuth()
                | Canceled()
            ):
                await self.on_task(action)
                return {"task": action.task or CURRENT, "state": "accepted"}
        raise InvalidInput(f"the sidecar does not carry out {action.verb.name!r}")

    async def send(self, action: Send, owner: Owner | None = None) -> str:
        """Send a message; returns its id once it is on disk.

        It names the task at which the agent is certainly at work.
        """
        recipient = await self._directory.uid_of(action.to)
        owner = owner or self._ownership.of(action)
        key = self._key("send", action, recipient, owner)
        await self._check_taken(action.to, action.content)
        said = action.content.referring(owner.task).traced(owner.trace)
        draft = OutgoingMessage(recipient, said, action.expects_reply, expires_in=action.expires_in)
        sent, _ = await self._outgoing.message(draft, key)
        return sent

    async def reply(self, action: Reply) -> str:
        """Answer a message and, once the answer is on disk, confirm the message; returns the answer's id.

        Raises:
            PostroomError: the answer was not stored; the message stays unconfirmed.
        """
        sender = self._inbox.sender_of(action.to)
        held = self._inbox.find(action.to)
        if action.key:
            key = own_key(f"reply:{action.to}", action.key)
        else:
            key = held.derivation.key("reply", sender, action.content) if held else random_key()
        said = action.content
        if held is not None and not said.thread:
            said = replace(said, thread=held.message.thread)
        said = said.traced(held.derivation.trace if held is not None else "")
        await self._check_taken(sender, said)
        draft = OutgoingMessage(
            sender,
            said,
            action.expects_reply,
            reply_to=action.to,
            expires_in=action.expires_in,
        )
        sent, _ = await self._outgoing.message(draft, key)
        self._inbox.confirm(action.to, answered=True)
        return sent

    async def post(self, action: Post, owner: Owner | None = None) -> str:
        """Post to a feed; returns the id once it is on disk."""
        project = action.project or self._outgoing.home
        key = self._key("post", action, f"#{project}", owner)
        said = action.content.traced(owner.trace if owner is not None else "")
        return await self._outgoing.post(project, said, key)

    async def announce(self, action: Announce, owner: Owner | None = None) -> str:
        """Announce something; returns the id once it is on disk."""
        key = self._key("announce", action, EVERYBODY, owner)
        return await self._outgoing.announce(action.content, key)

    # ── tasks ───────────────────────────────────────────────────────────────────────────────────────

    async def delegate(self, action: Delegate, owner: Owner | None = None) -> Delegated:
        """Ask another agent for a task; returns once the request is on disk.

        The request names the task at which the agent is certainly at work.
        """
        owner = owner or self._ownership.of(action)
        if action.to:
            worker = await self._delegations.recipient(action.to)
            key = self._key("delegate", action, worker.uid, owner)
        else:
            # A request that is repeated after a crash goes to the same agent, though another may be less busy by then.
            key = self._key("delegate", action, f"skill:{action.skill}", owner)
            worker = await self._delegations.chosen(action.skill, key)
        await self._check_taken(worker.uid, action.content, action.skill)
        return await self._delegations.delegate(action, worker, key, owner.task, owner.trace)

    async def on_task(self, action: TaskAction) -> None:
        """Store the agent's report on a task that it works on; returns once it is on disk.

        Raises:
            NotFound: the agent does not work on this task.
            Conflict: the task has ended.
            MessageTooLarge: nothing was stored.
        """
        execution = self._engine.execution(action.task)
        if isinstance(action, Artifact):
            try:
                await execution.result(_artifact(action), append=action.append, last=action.last)
            except MessageTooLarge:
                execution.left_out += 1
                raise
        else:
            said = action.content
            if isinstance(action, Canceled) and said.empty:
                said = Content.of_text(execution.cancel_reason)
            if isinstance(action, Complete) and execution.left_out:
                note = f"(artifacts left out, since they are too large: {execution.left_out})"
                said = _with_note(said, note)
            await self._say(execution, _STATES[type(action)], said)

    async def _say(self, execution: Execution, state: TaskState, said: Content) -> None:
        try:
            await execution.say(state, said)
        except MessageTooLarge as error:
            if state is not TaskState.WORKING:
                # An agent that does not read its errors believes that the task has ended.
                done = state is TaskState.COMPLETED or state.interrupted
                state = TaskState.FAILED if done else state
                await execution.say(
                    state, f"the agent's last report is too large: {error}", force=True
                )
            raise

    async def cancel_task(self, action: CancelTask) -> dict[str, Any]:
        """End a task that the agent asked for; returns the task."""
        return await self._task_client.cancel(action.task, action.reason)

    async def answer_task(self, action: AnswerTask) -> tuple[dict[str, Any], bool]:
        """Answer the question of a task that the agent asked for; returns the task, and whether it had the answer.

        Raises:
            Conflict: the task has no open question.
        """
        return await self._task_client.answer(action.task, action.content, action.named)

    async def task(self, task_id: str, *, wait: bool, timeout: float) -> dict[str, Any]:
        """A task that this worker runs or asked for; `wait`: at most `timeout` seconds, until it ends or asks."""
        if task_id == "current":
            task_id = self._engine.execution().id
        return await self._delegations.view(task_id, wait=wait, timeout=timeout)

    async def tasks(self, role: str, *, open_only: bool) -> list[dict[str, Any]]:
        """Tasks of this worker (`worker`), that it asked for (`requester`), or both ("")."""
        return await self._task_client.views(role, open_only=open_only)

    # ── host of the agent's runs ────────────────────────────────────────────────────────────────────

    def owner_of(self, said: Said) -> Owner:
        """To which message or task a line belongs that the agent has printed just now."""
        return self._ownership.of_line(said)

    def at_work(self, task: str) -> bool:
        try:
            return not self._engine.execution(task).settled.is_set()
        except NotFound:
            return False

    async def act(self, session: AgentRun, said: Said, owner: Owner) -> None:
        """Carry out the action of a line and report the outcome to the agent.

        After many refusals in a row the agent is read slowly: one that answers each error with another wrong line
        would take all of the processor.
        """
        try:
            await self._act(session, said, owner)
            self._refusals = 0
        except PostroomError as error:
            self._ownership.goes_on(said, owner)
            session.tell(_error(said, error, log=self._refusals < MANY))
            self._refusals += 1
            if self._refusals > MANY:
                await asyncio.sleep(PAUSE)
            if isinstance(said, Reply | Seen):
                # An agent that does not read its errors believes that it has confirmed the message.
                await self._inbox.give_back(said.to if isinstance(said, Reply) else said.id)

    async def gone(self) -> None:
        """The agent's run has ended."""
        await self._inbox.gone()

    async def give_back(self, message_id: str) -> None:
        """Give back a message whose run has failed."""
        await self._inbox.give_back(message_id)

    async def _act(self, session: AgentRun, said: Said, owner: Owner) -> None:
        if isinstance(said, Output):
            log_output("stdout", said.text)
            if said.unreadable:
                self._status.unreadable(said.text, said.unreadable)
            return
        if isinstance(said, MalformedLine):
            raise InvalidInput(said.detail)
        self._status.readable()
        if owner.fault is not None:
            raise owner.fault
        line = {"type": said.verb.answer, "ref": _ref(said)}
        if isinstance(said, Delegate):
            done = await self.delegate(said, owner)
            session.tell(line | _delegated(done))
            if done.again:
                update = await self._delegations.recall(done.task, done.worker, said.ref)
                if update is not None:
                    session.tell(update)
            return
        answer = await self.perform(said, owner)
        if said.verb.answer and isinstance(answer, dict):
            session.tell(line | answer)

    async def _check_taken(self, recipient: str, said: Content, skill: str = "") -> None:
        """Refuse parts that the recipient's card does not take, so that the agent learns it before they are sent.

        Raises:
            ContentNotTaken: as `check_takes`.
        """
        if all(kind_of(part) == TEXT for part in said.parts):
            return  # a text is taken by everybody whom one can write to
        try:
            entry = await self._directory.entry(recipient)
        except PostroomError as error:
            _log.info("the card of %s is not known, so what it takes is not: %s", recipient, error)
            return
        check_takes(entry.get("card"), said.parts, str(entry.get("nick", recipient)), skill)

    def _key(
        self,
        kind: str,
        action: Send | Post | Announce | Delegate,
        recipient: str,
        owner: Owner | None,
    ) -> Key:
        owner = owner or self._ownership.of(action)
        if action.key:
            return own_key(kind, action.key)
        if owner.derivation is None:
            return random_key()
        return owner.derivation.key(kind, recipient, action.content)


def _artifact(action: Artifact) -> dict[str, Any]:
    named = {"name": action.name} if action.name else {}
    parts = [dict(part) for part in action.content.parts]
    return {"artifactId": action.id or action.name or "result", **named, "parts": parts}


def _with_note(said: Content, note: str) -> Content:
    *parts, last = said.parts
    if kind_of(last) != TEXT:
        return replace(said, parts=(*said.parts, {"text": note}))
    return replace(said, parts=(*parts, {**last, "text": f"{last['text']} {note}"}))


def _accepted(sent: str) -> dict[str, Any]:
    return {"id": sent, "state": "accepted"}


def _delegated(done: Delegated) -> dict[str, Any]:
    to = {"uid": done.worker.uid, "nick": done.worker.nick}
    return {"id": done.id, "task": done.task, "to": to}


def _ref(said: Said) -> Any:
    ref = getattr(said, "ref", None)
    return ref if ref is not None else getattr(said, "key", None) or None


def _error(said: Said, error: PostroomError, *, log: bool) -> dict[str, Any]:
    if log:
        log_output("action refused", str(error))
    detail = one_line(error.message, 500)
    return {"type": "error", "ref": _ref(said), "code": error.code, "detail": detail}
