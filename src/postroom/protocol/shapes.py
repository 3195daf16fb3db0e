"""Shapes of the JSON objects in the control plane's answers (docs/api.md, Objects)."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

Time = str
"""An instant: RFC 3339 in UTC, such as `2026-01-31T12:00:00.000Z` (`postroom_a2a.times`)."""


class Party(TypedDict):
    """The sender or recipient of a message. `kind` is `worker`, `external`, `human` or `service`."""

    uid: str
    nick: str
    kind: str


class Agent(Party):
    """An entry of the directory."""

    org: str


class File(TypedDict):
    """A part with a URL; `size` is None where the URL is not that of a stored blob."""

    url: str
    mediaType: str
    filename: str
    size: int | None


class Credential(TypedDict):
    """A credential that the gateway adds to requests, without its secret.

    `url` is the beginning of its requests, `header` contains `{secret}`. `workers` are the only ones that may use it
    (`uid`, `nick`); empty for every worker whose template names it.
    """

    name: str
    url: str
    header: str
    workers: list[dict[str, str]]


class OrgCounts(TypedDict, total=False):
    """What an organisation has, in numbers; empty while it is not open."""

    workers: int
    running: int
    inbox: int
    deadletters: int


class Me(TypedDict):
    """The operator, as an agent of an organisation."""

    uid: str
    nick: str


class Org(TypedDict):
    """An organisation. `state` is `open`, `opening` or `failed`; `detail` says why it failed."""

    name: str
    state: str
    detail: str
    me: Me | None
    counts: OrgCounts


class Listed(Agent):
    """An agent in a list: `card` is its signed Agent Card, `online` whether it takes messages now.

    `seen_at` is its last sign of life, null for none. People have no card.
    """

    online: bool
    seen_at: str | None
    card: dict[str, Any] | None


Mail = TypedDict(
    "Mail",
    {
        "id": str,
        "seq": int,
        "from": Party,
        "to": Party,
        "text": str,
        "parts": list[dict[str, Any]],
        "files": NotRequired[list[File]],
        "subject": str,
        "thread": str | None,
        "state": str,
        "reason": str,
        "expects_reply": bool,
        "reply_to": str | None,
        "sent_at": Time,
        "updated_at": Time,
        "answer": "Mail | None",
        "requeue_of": str | None,
        "attempts": int,
        "task": str | None,
        "redelivered": bool,
        "timed_out": NotRequired[bool],
    },
)
"""A message to one agent; `parts` are A2A's, `text` joins their texts. `state` is a `receipts.State`.

`task` is the id of the task that it requests. `redelivered`: its reader may have been given it before.
"""

Post = TypedDict(
    "Post",
    {
        "seq": int,
        "id": str,
        "project": str,
        "from": Party,
        "text": str,
        "parts": list[dict[str, Any]],
        "files": NotRequired[list[File]],
        "subject": str,
        "thread": str | None,
        "at": Time,
    },
)
"""An entry in a project's feed."""


Announcement = TypedDict(
    "Announcement",
    {
        "seq": int,
        "id": str,
        "from": Party,
        "text": str,
        "parts": list[dict[str, Any]],
        "subject": str,
        "thread": str | None,
        "at": str,
    },
)
"""What an agent says to everybody of its organisation; `at` is RFC 3339."""


class Wall(TypedDict):
    """The sandbox of a worker. `level` is `enforced`, `partial` or `none`."""

    provider: str
    level: str


class Artifact(TypedDict):
    """A result of a task, its text parts joined."""

    id: str
    name: str
    text: str
    parts: list[dict[str, Any]]
    files: NotRequired[list[File]]


class Blob(TypedDict):
    """Content that is kept by its hash."""

    url: str
    sha256: str
    size: int
    media_type: str
    created_at: Time
    touched_at: Time
    named: bool


class Task(TypedDict):
    """Work that was given to an agent. `state` is a `tasks.TaskState`.

    Attributes:
        final: nothing follows.
        detail: an explanation of the state for people, "" for nothing.
        request: id of the message that requested it.
        attempt: number of attempts so far.
        seq: sequence of its last record; 0 while no worker has taken it.
        requested: sequence of its request; lists are in this order, the newest first.
        parts, subject: the whole request, not in lists.
        thread: the same as `context`.
        status_text: the agent's text with the state.
        status_parts: all that it said with the state, not in lists.
        started_at: instant of its first attempt, None before that.
        timed_out: the caller waited for it in vain.
    """

    id: str
    context: str
    state: str
    final: bool
    detail: str
    worker: Party
    requester: Party
    request: str
    skill: str
    text: str
    parts: NotRequired[list[dict[str, Any]]]
    files: NotRequired[list[File]]
    subject: NotRequired[str]
    thread: str
    attempt: int
    seq: int
    requested: int
    created_at: Time
    updated_at: Time
    status_text: str
    status_parts: NotRequired[list[dict[str, Any]]]
    started_at: NotRequired[Time | None]
    artifacts: NotRequired[list[Artifact]]
    timed_out: NotRequired[bool]


class Piece(TypedDict):
    """The artifact of an event's text: `append` to the earlier text, `last` if the artifact is complete."""

    id: str
    name: str
    append: bool
    last: bool


class TaskEvent(TypedDict):
    """One change of a task. `kind` is `task` (the first record), `status` or `artifact`."""

    seq: int
    task: str
    state: str
    attempt: int
    runner: str
    at: Time
    kind: str
    text: str
    parts: list[dict[str, Any]]
    artifact: Piece | None
    answer: NotRequired[str]
    answer_parts: NotRequired[list[dict[str, Any]]]
    final: bool


class Current(TypedDict):
    """The task that a worker is busy with, in short."""

    id: str
    state: str
    text: str
    attempt: int
    status_text: NotRequired[str]
    started_at: NotRequired[Time | None]
    updated_at: NotRequired[Time]


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
    last_seen: Time | None
    unread: int | None
    pid: int | None
    created_at: Time
    task: NotRequired[Current | None]
    open_tasks: NotRequired[int]
    unenforced: NotRequired[list[str]]
    stderr: NotRequired[list[str]]
    started: NotRequired[bool | None]
    changed: NotRequired[list[str]]


class Removed(TypedDict):
    """A worker that is gone; unless it was `purged`, `folder` still holds its workspace."""

    uid: str
    nick: str
    folder: str
    purged: NotRequired[bool]


class Leftover(TypedDict):
    """Files of a removed worker; `nick` "" if nobody knows it any more."""

    uid: str
    nick: str
    folder: str
    bytes: int | None


class Excess(TypedDict):
    """What is older, or more, than the user keeps; `project` "" for what belongs to none, `oldest` its end."""

    kind: str
    project: str
    count: int
    bytes: int
    oldest: Time


class Alert(TypedDict):
    """A condition that needs a person; `nick` is "" for one of the post room."""

    id: int
    at: Time
    first_at: Time
    count: int
    nick: str
    who: Party | None
    kind: str
    text: str
    ended: str
    """Reason of its end, "" while it stands."""
    ended_at: Time | None


class Status(TypedDict):
    """The status of the whole post room."""

    version: str
    server: dict[str, Any]
    org: str
    me: dict[str, str]
    workers: list[Worker]
    deadletters: int
    inbox: NotRequired[int]
    """Messages that the operator has not read."""
    alerts: list[Alert]
    attention: NotRequired[list[Task]]
    """Tasks that wait for an answer."""
    audit: NotRequired[str]
    """Why the audit log cannot be written, "" if it can."""
    bus: NotRequired[str]
    """The fault of the connection to NATS, "" for none."""


Dead = TypedDict(
    "Dead",
    {
        "id": str,
        "message_id": str,
        "from": Party,
        "to": Any,
        "text": str,
        "parts": list[dict[str, Any]],
        "files": NotRequired[list[File]],
        "subject": str,
        "thread": str | None,
        "reason": str,
        "attempts": int,
        "at": Time,
        "bus_subject": str,
        "requeued_as": str | None,
    },
)
"""A message that could not be delivered; `bus_subject` is the subject of its record in the log."""

Milestone = Literal["delivered", "seen", "answered"]
"""A state that a sender can wait for."""

Rest = Literal["final", "settled"]
"""The states of a task that a caller can wait for: its end, or also a question of the agent."""
