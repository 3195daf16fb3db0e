"""The interface of adapters, and the messages and tasks for an agent (`protocol.verbs` has its actions)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from postroom.protocol.traces import TRACEPARENT
from postroom.protocol.verbs import Action
from postroom.sidecar.lines import Overlong
from postroom_a2a.messages import text_of

Parts = tuple[Mapping[str, Any], ...]
"""Parts of an A2A Message; anyone may have made them."""


@dataclass(frozen=True, slots=True)
class Sender:
    """The sender of a record: nats-server has proved `uid`; nick and kind are for display."""

    uid: str
    nick: str = ""
    kind: str = ""

    def as_json(self) -> dict[str, str]:
        """The sender as an agent sees it."""
        return {"uid": self.uid, "nick": self.nick, "kind": self.kind}


@dataclass(frozen=True, slots=True)
class Incoming:
    """A message or a post for the agent.

    Attributes:
        to: `@nick` of the worker, or `#project` for a post.
        text: its text parts, one per line.
        parts: all of it; () for one part with the text.
        thread: A2A context id, "" for none.
        reply_to: id of the agent's message that this one answers, "" for none.
        redelivered: the message may have been handed over before.
        sent_at: RFC 3339.
        trace: its `traceparent`, "" for none.
    """

    id: str
    sender: Sender
    to: str
    text: str
    expects_reply: bool = False
    reply_to: str = ""
    redelivered: bool = False
    sent_at: str = ""
    parts: Parts = field(default=(), hash=False)
    subject: str = ""
    thread: str = ""
    trace: str = ""

    def as_json(self) -> dict[str, Any]:
        """The message as its agent sees it."""
        traced = {TRACEPARENT: self.trace} if self.trace else {}
        return {
            "id": self.id,
            "to": self.to,
            "from": self.sender.as_json(),
            "text": self.text,
            "parts": parts_or_text(self.parts, self.text),
            "subject": self.subject,
            "thread": self.thread,
            "expects_reply": self.expects_reply,
            "reply_to": self.reply_to or None,
            "redelivered": self.redelivered,
            "sent_at": self.sent_at,
            **traced,
        }


class Heard(NamedTuple):
    """One message of a task's history; `role` is `user` or `agent`."""

    role: str
    text: str
    parts: Parts = ()


@dataclass(frozen=True, slots=True)
class IncomingTask:
    """A task for the agent.

    Attributes:
        thread: A2A context id.
        text, parts: as in `Incoming`.
        skill: as the request names it, "" for none.
        attempt: 1 the first time.
        resumed: an earlier attempt may have done a part of it.
        history: all messages, oldest first; empty if there is only the request.
        sent_at: RFC 3339.
        trace: `traceparent` of the request, "" for none.
    """

    id: str
    thread: str
    sender: Sender
    text: str
    skill: str = ""
    attempt: int = 1
    resumed: bool = False
    history: tuple[Heard, ...] = field(default=(), hash=False)
    sent_at: str = ""
    parts: Parts = field(default=(), hash=False)
    subject: str = ""
    trace: str = ""


@dataclass(frozen=True, slots=True)
class Output:
    """A line that is not an action and goes to the log; `unreadable` is its fault, "" if such lines are normal."""

    text: str
    unreadable: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class MalformedLine:
    """A malformed action; `detail` tells the agent the reason."""

    detail: str
    ref: Any = field(default=None, hash=False)


Said = Action | Output | MalformedLine
"""The meaning of an agent's line."""


def overlong(line: Overlong) -> Output:
    """What goes to the log of a line that was too long."""
    return Output(f"over-long line: {line.prefix}")


@dataclass(frozen=True, slots=True)
class End:
    """The end of a run of the program.

    Attributes:
        signal: the one that ended it, 0 for none.
        signalled: the sidecar sent a signal to it, so that its output may be incomplete.
        stderr: the last lines of its standard error.
    """

    exit_code: int
    signal: int = 0
    signalled: bool = False
    stderr: str = ""


class Adapter(Protocol):
    """Turns the output of one run of an agent into actions, and messages into its input."""

    def feed(self, data: bytes) -> list[Said]:
        """What the next bytes of its stdout mean, cut anywhere; never an exception.

        An over-long line is reported, and the next one is read as usual.
        """

    def finish(self, end: End) -> list[Said]:
        """The rest of its output, and the actions that its end implies."""

    def render(self, message: Incoming) -> bytes:
        """Its stdin for a message or a post, b"" to omit it."""

    def render_task(self, task: IncomingTask) -> bytes:
        """Its stdin for a task."""

    def render_control(self, record: Mapping[str, Any]) -> bytes:
        """Its stdin for a record beside messages (`hello`, `receipt`, ...), b"" to omit it."""


def said_in(message: Mapping[str, Any]) -> tuple[str, Parts]:
    """The text of an A2A Message, and its parts, also those of a kind that nobody here knows."""
    parts = message.get("parts")
    found = parts if isinstance(parts, list) else []
    return text_of(dict(message)), tuple(part for part in found if isinstance(part, dict))


def parts_or_text(parts: Parts, text: str) -> list[Mapping[str, Any]]:
    """The parts for an agent: one of text where there are none."""
    return list(parts) or [{"text": text}]
