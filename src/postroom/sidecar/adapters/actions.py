"""What an agent can do and what it can be handed: the vocabulary between adapters and the sidecar."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Sender:
    """Who sent a message: `uid` is what the server has checked, nick and kind are for reading."""

    uid: str
    nick: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Incoming:
    """A message or a post for the agent.

    Attributes:
        id: of the message.
        sender: who sent it.
        to: `@nick` of the worker, or `#project` for a post.
        text: of the message.
        expects_reply: whether the sender waits for an answer.
        reply_to: id of the agent's message that this one answers, "" if none.
        redelivered: whether it may have been handed over before.
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


@dataclass(frozen=True, slots=True)
class IncomingTask:
    """A task for the agent.

    Attributes:
        id, context: of the task.
        sender: who asked for it.
        text: of the request.
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
class Send:
    """Send a message; `to` is `@nick` or a uid, `expires_in` seconds, `ref` is echoed in the receipt."""

    to: str
    text: str
    expects_reply: bool = False
    key: str = ""
    expires_in: float = 0.0
    ref: Any = field(default=None, hash=False)


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer the message with the id `to`, and confirm it."""

    to: str
    text: str
    expects_reply: bool = False
    key: str = ""
    expires_in: float = 0.0
    ref: Any = field(default=None, hash=False)


@dataclass(frozen=True, slots=True)
class Post:
    """Post to a project's feed; "" is the worker's own project."""

    text: str
    project: str = ""
    key: str = ""
    ref: Any = field(default=None, hash=False)


@dataclass(frozen=True, slots=True)
class Seen:
    """Confirm a message."""

    id: str
    ref: Any = field(default=None, hash=False)


@dataclass(frozen=True, slots=True)
class Find:
    """Look for agents with `skill`, "" for all; `ref` is echoed in the answer."""

    skill: str = ""
    ref: Any = field(default=None, hash=False)


# What an agent says of a task that it works on; `task` "" is the one it was handed last.


@dataclass(frozen=True, slots=True)
class Progress:
    """Say how far it is."""

    task: str
    text: str
    ref: Any = field(default=None, hash=False)


@dataclass(frozen=True, slots=True)
class Artifact:
    """A result, or a piece of one.

    Attributes:
        task: that it belongs to.
        text: of the piece.
        name: for people.
        id: of the artifact, "" for the one that `name` names, or a new one.
        append: it comes behind what the artifact holds; else it takes its place.
        last: nothing more comes of it.
        url: of the blob that is the piece, "" where `text` is.
        media_type, filename: of the blob, "" where they are not known.
    """

    task: str
    text: str
    name: str = ""
    id: str = ""
    append: bool = False
    last: bool = True
    url: str = ""
    media_type: str = ""
    filename: str = ""
    ref: Any = field(default=None, hash=False)


@dataclass(frozen=True, slots=True)
class Complete:
    """It is done."""

    task: str
    text: str = ""
    ref: Any = field(default=None, hash=False)


@dataclass(frozen=True, slots=True)
class Fail:
    """It cannot be done."""

    task: str
    text: str
    ref: Any = field(default=None, hash=False)


@dataclass(frozen=True, slots=True)
class Reject:
    """The agent will not do it."""

    task: str
    text: str = ""
    ref: Any = field(default=None, hash=False)


@dataclass(frozen=True, slots=True)
class AskInput:
    """Ask who wants the task, and wait for the answer."""

    task: str
    text: str
    ref: Any = field(default=None, hash=False)


@dataclass(frozen=True, slots=True)
class Canceled:
    """The agent has stopped, as it was told."""

    task: str
    text: str = ""
    ref: Any = field(default=None, hash=False)


TaskAction = Progress | Artifact | Complete | Fail | Reject | AskInput | Canceled


@dataclass(frozen=True, slots=True)
class Delegate:
    """Ask another agent for a task.

    Attributes:
        to: `@nick` or uid; "" for any agent with the skill.
        skill: of the other's card, "" for none in particular.
        text: what to do.
        key: the same key is the same task.
        stream: whether to hear of every change, not only of those that end or interrupt it.
        context: A2A context that it belongs to, "" for a new one.
        ref: echoed in the answer and in every update.
        quiet: somebody else follows it, and the agent's program is told of its end alone.
        named: the `messageId` that an A2A client gave the request, "" for none.
    """

    to: str
    skill: str
    text: str
    key: str = ""
    stream: bool = False
    context: str = ""
    ref: Any = field(default=None, hash=False)
    quiet: bool = False
    named: str = ""


@dataclass(frozen=True, slots=True)
class CancelTask:
    """End a task that this agent asked for."""

    task: str
    reason: str = ""
    ref: Any = field(default=None, hash=False)


@dataclass(frozen=True, slots=True)
class AnswerTask:
    """Answer what a task that this agent asked for wants to know; `named` as in `Delegate`."""

    task: str
    text: str
    ref: Any = field(default=None, hash=False)
    named: str = ""


@dataclass(frozen=True, slots=True)
class Delegated:
    """A request for a task is stored: `id` is the message's, `worker` is who will do it.

    `again`: it may have been asked for before, so whatever became of it may have been told before.
    """

    id: str
    task: str
    worker: Sender
    again: bool = False


@dataclass(frozen=True, slots=True)
class SetStatus:
    """What the agent says of itself: `working` or `idle`."""

    state: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Output:
    """Something the program printed that is no action; it goes to the log.

    `unreadable` says what is wrong with it, "" where such lines are to be expected.
    """

    text: str
    unreadable: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Malformed:
    """A line that wants to be an action and is none; the agent is told why."""

    detail: str
    ref: Any = field(default=None, hash=False)


Action = (
    Send
    | Reply
    | Post
    | Seen
    | Find
    | SetStatus
    | TaskAction
    | Delegate
    | CancelTask
    | AnswerTask
    | Output
    | Malformed
)


@dataclass(frozen=True, slots=True)
class End:
    """How a run of the program ended.

    Attributes:
        exit_code: of the program.
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

    def feed(self, line: str) -> list[Action]:
        """The actions in one line of its stdout; never an exception."""

    def skip(self) -> list[Action]:
        """The actions where a line of its stdout was too long to be read."""

    def finish(self, end: End) -> list[Action]:
        """The actions that its end implies."""

    def render(self, message: Incoming) -> bytes:
        """What goes to its stdin for a message or a post, b"" if it is not shown one."""

    def render_task(self, task: IncomingTask) -> bytes:
        """What goes to its stdin for a task."""

    def render_control(self, record: Mapping[str, Any]) -> bytes:
        """What goes to its stdin for a record beside messages (`hello`, `receipt`, ...), b"" for nothing."""
