"""To which message or task an action of the agent belongs: its order among others, and its idempotency key."""

from __future__ import annotations

from postroom.errors import NotFound
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
from postroom.sidecar.adapters import MalformedLine, Output, Said
from postroom.sidecar.inbox import Inbox
from postroom.sidecar.keys import Derivation, Owner
from postroom.sidecar.program import ProgramExecutor
from postroom_a2a.text import one_line

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
