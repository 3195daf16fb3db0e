"""What an adapter is, and what an agent can be handed (`protocol.verbs` has what an agent can say)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from postroom.protocol.verbs import Action


@dataclass(frozen=True, slots=True)
class Sender:
    """An agent that sent something: the server has checked `uid`, nick and kind are for reading."""

    uid: str
    nick: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Incoming:
    """A message or a post for the agent.

    Attributes:
        to: `@nick` of the worker, or `#project` for a post.
        expects_reply: the sender waits for an answer.
        reply_to: id of the agent's message that this one answers, "" if it answers none.
        redelivered: it may have been handed over before.
        sent_at: RFC 3339.
    """

    id: str
    sender: Sender
    to: str
    text: str
    expects_reply: bool = False
    reply_to: str = ""
    redelivered: bool = False
    sent_at: str = ""

    def as_json(self) -> dict[str, Any]:
        """The message as an agent is shown it."""
        record = asdict(self)
        sender = record.pop("sender")
        return record | {"from": sender, "reply_to": self.reply_to or None}


@dataclass(frozen=True, slots=True)
class IncomingTask:
    """A task for the agent.

    Attributes:
        skill: that the request names, "" for none.
        attempt: 1 the first time.
        resumed: it was begun before, so something of it may be done already.
        history: (`user` or `agent`, text) of what was said, oldest first; empty where only the request was.
        sent_at: RFC 3339.
    """

    id: str
    context: str
    sender: Sender
    text: str
    skill: str = ""
    attempt: int = 1
    resumed: bool = False
    history: tuple[tuple[str, str], ...] = ()
    sent_at: str = ""


@dataclass(frozen=True, slots=True)
class Output:
    """Something the program printed that is not an action; it goes to the log.

    `unreadable` says what is wrong with it, "" where such lines are to be expected.
    """

    text: str
    unreadable: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class MalformedLine:
    """A line that is meant as an action and cannot be read; the agent is told why."""

    detail: str
    ref: Any = field(default=None, hash=False)


Said = Action | Output | MalformedLine
"""What a line of an agent's means."""


@dataclass(frozen=True, slots=True)
class End:
    """How a run of the program ended.

    Attributes:
        signal: that ended it, 0 for none.
        told: it was sent a signal to end by, so what it said may be half of what it had to say.
        complaint: the last lines that it wrote to its standard error.
    """

    exit_code: int
    signal: int = 0
    told: bool = False
    complaint: str = ""


class Adapter(Protocol):
    """Turns an agent's lines into actions and messages into its input."""

    def feed(self, line: str) -> list[Said]:
        """What one line of its stdout says; never an exception."""

    def skip(self) -> list[Said]:
        """What follows from a line of its stdout that was too long to be read."""

    def finish(self, end: End) -> list[Said]:
        """What its end implies."""

    def render(self, message: Incoming) -> bytes:
        """What goes to its stdin for a message or a post, b"" if it is not shown one."""

    def render_task(self, task: IncomingTask) -> bytes:
        """What goes to its stdin for a task."""

    def render_control(self, record: Mapping[str, Any]) -> bytes:
        """What goes to its stdin for a record beside messages (`hello`, `receipt`, ...), b"" for nothing."""
