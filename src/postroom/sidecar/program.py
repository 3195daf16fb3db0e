"""The agent program as an executor of tasks.

`actions` carries out the program's lines; here is which run has which task, the fate of a task whose program ends or is
stopped, and to which message or task an action belongs: its order among others, and its idempotency key.
"""

from __future__ import annotations

import asyncio
import signal
from collections import deque
from collections.abc import Mapping
from typing import Any

from postroom.errors import NotFound
from postroom.protocol.content import subject_of
from postroom.protocol.ids import is_uid
from postroom.protocol.tasks import ANSWERED_BY, SKILL
from postroom.protocol.traces import trace_of
from postroom.protocol.verbs import (
    Announce,
    AnswerTask,
    Artifact,
    CancelTask,
    Delegate,
    Post,
    Progress,
    Reply,
    Seen,
    Send,
    TaskAction,
)
from postroom.sidecar.adapters import (
    Heard,
    IncomingTask,
    MalformedLine,
    Output,
    Said,
    Sender,
    parts_or_text,
    said_in,
)
from postroom.sidecar.agent import AgentGone, AgentProgram
from postroom.sidecar.ctl import DirectoryClient
from postroom.sidecar.inbox import Inbox
from postroom.sidecar.keys import OF_TASK, Derivation, Owner
from postroom.sidecar.session import AgentRun
from postroom.tasks.execution import Execution, Executor
from postroom.tasks.log import AttemptLost, ExecutorGone
from postroom_a2a.messages import ROLE_USER
from postroom_a2a.tasks import Message
from postroom_a2a.text import one_line

HAD = 64
"""Former tasks of the program that its lines may still name."""


class ProgramExecutor(Executor):
    """Hands tasks to the agent of one worker.

    Args:
        grace: seconds for the program to stop work on a canceled task before it is killed.
    """

    def __init__(self, agent: AgentProgram, directory: DirectoryClient, grace: float) -> None:
        self._agent = agent
        self._directory = directory
        self._grace = grace
        self._sessions: dict[str, AgentRun] = {}
        self._derivations: dict[str, Derivation] = {}
        self._had: deque[str] = deque(maxlen=HAD)
        # By task, the run that asked a question: only that run can take the answer alone.
        self._asked: dict[str, AgentRun] = {}
        self._last: AgentRun | None = None

    def derivation(self, task_id: str = "") -> Derivation | None:
        """The keys of the task that the program works on, or of this very one; None if it does not."""
        if task_id:
            return self._derivations.get(task_id)
        return next(reversed(self._derivations.values()), None)

    def had(self, task_id: str) -> bool:
        """Whether the program was handed this task lately, and no longer works on it."""
        return task_id in self._had

    async def ready(self) -> None:
        """Wait for a run of the program, and until the run before has let go of its task."""
        if self._last is not None:
            await self._last.let_go()
        try:
            await self._agent.running()
        except AgentGone as error:
            raise ExecutorGone("the agent has ended and is not started again") from error

    def free(self) -> bool:
        return self._agent.free and (self._last is None or self._last.free)

    async def execute(self, execution: Execution) -> None:
        """Hand the task over, and wait until it is settled or the program has ended."""
        requester = execution.record.requester
        asker = await self._directory.describe(requester)
        answerer = await self._directory.describe(_author(execution.heard or {}, requester))
        session = await self._run_for(execution)
        if execution.canceling:
            await self.forget(execution.id)
            return  # before the program knows of it
        # No `await` between the check and this: a later cancel finds the session.
        self._sessions[execution.id] = self._last = session
        begun_before = execution.attempt > 1 or execution.heard is not None
        self._derivations[execution.id] = Derivation(
            f"{OF_TASK}{execution.id}", begun_before, trace=trace_of(execution.request)
        )
        try:
            await self._hand_over(session, execution, asker, answerer)
            await _first(execution.settled, session.ended)
            if execution.lost:
                # Another attempt has the task: the program must not work on it, too.
                await self._kill(session)
        finally:
            del self._sessions[execution.id], self._derivations[execution.id]
            self._had.append(execution.id)
        if not execution.settled.is_set():
            raise AttemptLost(f"the agent ended: {session.how_ended}")
        if execution.state.interrupted:
            self._asked[execution.id] = session
        else:
            self._agent.confirmed()

    async def _run_for(self, execution: Execution) -> AgentRun:
        """The run that waits for the answer which the task has got, or one that takes the whole task."""
        asked = self._asked.get(execution.id)
        if execution.heard is not None and asked is not None and asked.waits:
            return asked
        try:
            return await self._agent.running()
        except AgentGone as error:
            raise AttemptLost("the agent has ended and is not started again") from error

    async def _hand_over(
        self, session: AgentRun, execution: Execution, asker: Sender, answerer: Sender
    ) -> None:
        asked = self._asked.pop(execution.id, None)
        heard = execution.heard
        try:
            if heard is not None and asked is session:
                await session.say(_input(execution.id, heard, answerer))
            else:
                await session.hand_over(_incoming(execution, asker))
        except BrokenPipeError:
            await _first(execution.settled, session.ended)

    async def cancel(self, execution: Execution) -> str:
        """Ask the program to stop, and kill it if it has not stopped within the grace."""
        session = self._sessions.get(execution.id)
        if session is None:
            return ""
        try:
            async with asyncio.timeout(self._grace):
                await _interrupt(session, execution.id, execution.cancel_reason)
                await _first(execution.settled, session.ended)
        except TimeoutError:
            await self._kill(session)
            return f"the agent did not stop within {self._grace:g} s and was ended"
        return ""

    async def forget(self, task_id: str) -> None:
        """Tell the program that asked, if it still runs, that no answer will come."""
        session = self._asked.pop(task_id, None)
        if session is not None:
            session.tell({"type": "cancel", "task": task_id, "reason": ""})

    async def _kill(self, session: AgentRun) -> None:
        self._agent.confirmed()  # a kill by the sidecar must not count as a failed run
        session.send_signal(signal.SIGKILL)
        await session.ended.wait()


async def _interrupt(session: AgentRun, task_id: str, reason: str) -> None:
    try:
        told = await session.say({"type": "cancel", "task": task_id, "reason": reason})
    except BrokenPipeError:
        told = False
    if not told:
        session.send_signal(signal.SIGINT)


async def _first(*events: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def _author(message: Mapping[str, Any], requester: str) -> str:
    metadata = message.get("metadata")
    named = metadata.get(ANSWERED_BY) if isinstance(metadata, dict) else None
    return named if isinstance(named, str) and is_uid(named) else requester


def _input(task_id: str, heard: Message, by: Sender) -> dict[str, Any]:
    text, parts = said_in(heard)
    said = {"text": text, "parts": parts_or_text(parts, text)}
    return {"type": "input", "task": task_id, **said, "from": by.as_json()}


def _incoming(execution: Execution, sender: Sender) -> IncomingTask:
    task = execution.task
    history = tuple(
        Heard("user" if said.get("role") == ROLE_USER or number == 0 else "agent", *said_in(said))
        for number, said in enumerate(task.get("history", ()))
    )
    text, parts = said_in(execution.request)
    metadata = task.get("metadata")
    skill = metadata.get(SKILL) if isinstance(metadata, dict) else ""
    return IncomingTask(
        id=execution.id,
        thread=execution.context,
        sender=sender,
        text=text,
        skill=skill if isinstance(skill, str) else "",
        attempt=execution.attempt,
        resumed=execution.attempt > 1 or execution.heard is not None,
        history=history if len(history) > 1 else (),
        sent_at=str(task["status"].get("timestamp", "")),
        parts=parts,
        subject=subject_of(execution.request),
        trace=trace_of(execution.request),
    )


TASK = "task"
"""The owner of all that is said of the task at work: a worker has one at a time."""


class Ownership:
    """Knows the owners of one worker's actions."""

    def __init__(self, inbox: Inbox, program: ProgramExecutor) -> None:
        self._inbox = inbox
        self._program = program

    def of_line(self, said: Said) -> Owner:
        """The owner of a line that the agent has printed just now, behind all lines before it.

        Lines that follow do not belong to a message or a task that this line ends.
        """
        match said:
            case Reply() | Seen():
                message = said.to if isinstance(said, Reply) else said.id
                held = self._inbox.find(message)
                return Owner(message, _over(held.derivation) if held else None)
            case Send() | Post() | Announce() | Delegate():
                try:
                    return self.of(said)
                except NotFound as error:
                    return Owner("refused", fault=error)
            case CancelTask() | AnswerTask():
                return Owner(f"asked {said.task}")
            case MalformedLine():
                return Owner("refused")
            case Output():
                return Owner("output")
        if not isinstance(said, TaskAction):
            return Owner(said.verb.name)
        at_work = self._program.derivation()
        goes_on = isinstance(said, Progress | Artifact) or at_work is None
        return Owner(TASK, at_work if goes_on else _over(at_work))

    def goes_on(self, said: Said, owner: Owner) -> None:
        """A line was refused, so what it should have ended goes on."""
        if owner.derivation is not None and isinstance(said, Reply | Seen | TaskAction):
            owner.derivation.over = False

    def of(self, action: Send | Post | Announce | Delegate) -> Owner:
        """The owner of an action that makes a record.

        Raises:
            NotFound: it names something that the agent was not handed, or that will be handed over again.
        """
        return self._named(action.re) if action.re else self._only_one()

    def _named(self, name: str) -> Owner:
        if (held := self._inbox.find(name)) is not None:
            return Owner(name, held.derivation)
        if (at_work := self._program.derivation(name)) is not None:
            return Owner(TASK, at_work)
        if self._program.had(name):
            return Owner(TASK)
        try:
            self._inbox.sender_of(name)
        except NotFound as error:
            text = f"'re' names {one_line(name, 80)!r}, and this worker has no such message or task"
            raise NotFound(text) from error
        return Owner(name)  # it was confirmed, so it never comes again

    def _only_one(self) -> Owner:
        """The message or task that the agent is certainly at; else an owner without a name.

        A key of the wrong message could make a new record look like one that was sent before.
        """
        at_work = self._program.derivation()
        if at_work is not None and at_work.over:
            at_work = None
        held = [each for each in self._inbox.held if each.begun and not each.derivation.over]
        if at_work is not None:
            # A message that was set aside is no sign that the agent works on it.
            held = [each for each in held if not each.set_aside]
        if len(held) + (at_work is not None) != 1:
            return Owner()
        return Owner(held[0].message.id, held[0].derivation) if held else Owner(TASK, at_work)


def _over(derivation: Derivation) -> Derivation:
    derivation.over = True
    return derivation
