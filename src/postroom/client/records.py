"""Shapes of the JSON objects that the control plane answers with (docs/api.md, Objects)."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict


class Party(TypedDict):
    """One end of a message. `kind` is `worker`, `external`, `human` or `service`."""

    uid: str
    nick: str
    kind: str


class Agent(Party):
    """An entry of the directory."""

    org: str


class Listed(Agent):
    """An agent as it is listed: `card` is its signed Agent Card, `online` whether it takes messages now.

    People have neither.
    """

    online: bool | None
    card: dict[str, Any] | None


Mail = TypedDict(
    "Mail",
    {
        "id": str,
        "seq": int,
        "from": Party,
        "to": Party,
        "text": str,
        "state": str,
        "reason": str,
        "expects_reply": bool,
        "reply_to": str | None,
        "sent_at": float,
        "updated_at": float,
        "answer": "Mail | None",
        "requeue_of": str | None,
        "attempts": int,
        "timed_out": NotRequired[bool],
    },
)
"""A message to one agent. `state` is a `receipts.State`; times are seconds since the epoch."""

Post = TypedDict(
    "Post", {"seq": int, "id": str, "project": str, "from": Party, "text": str, "at": float}
)
"""An entry in a project's feed."""


class Wall(TypedDict):
    """The sandbox of a worker. `level` is `enforced`, `partial` or `none`."""

    provider: str
    level: str


class Worker(TypedDict):
    """An agent that the post room runs. `state` is a `presence.WorkerState`."""

    uid: str
    nick: str
    project: str
    template: str
    desired: str
    state: str
    detail: str
    sandbox: Wall
    last_seen: float | None
    unread: int
    pid: int | None
    created_at: float


class Removed(TypedDict):
    """A worker that is gone; `folder` still holds its workspace."""

    uid: str
    nick: str
    folder: str


class Status(TypedDict):
    """The whole post room at a glance."""

    version: str
    server: dict[str, Any]
    org: str
    me: dict[str, str]
    workers: list[Worker]
    deadletters: int
    inbox: NotRequired[int]
    """Messages that the operator has not read."""
    alerts: list[Any]


Dead = TypedDict(
    "Dead",
    {
        "id": str,
        "message_id": str,
        "from": Party,
        "to": Any,
        "text": str,
        "reason": str,
        "attempts": int,
        "at": float,
        "subject": str,
        "requeued_as": str | None,
    },
)
"""A message that could not be delivered."""

Milestone = Literal["delivered", "seen", "answered"]
"""A state that a sender can wait for."""
