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


@dataclass(frozen=True, slots=True)
class SetStatus:
    """What the agent says of itself: `working` or `idle`."""

    state: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Output:
    """Something the program printed that is no action; it goes to the log."""

    text: str


@dataclass(frozen=True, slots=True)
class Malformed:
    """A line that wants to be an action and is none; the agent is told why."""

    detail: str
    ref: Any = field(default=None, hash=False)


Action = Send | Reply | Post | Seen | Find | SetStatus | Output | Malformed


class Adapter(Protocol):
    """Turns an agent's lines into actions and messages into its input."""

    def feed(self, line: str) -> list[Action]:
        """The actions in one line of its stdout; never an exception."""

    def finish(self, exit_code: int, signal: int) -> list[Action]:
        """The actions that its end implies; `signal` 0 if none ended it."""

    def render(self, message: Incoming) -> bytes:
        """What goes to its stdin for a message or a post, b"" if it is not shown one."""

    def render_control(self, record: Mapping[str, Any]) -> bytes:
        """What goes to its stdin for a record beside messages (`hello`, `receipt`, ...), b"" for nothing."""
