"""The subject table: how every subject is built, and its sender and recipient.

The sender is a token of the subject, and the server's permission check proves it: a credential may publish only
subjects that carry its own uid (docs/architecture.md, Subjects). So code reads a sender with `sender_of`, never from
a payload.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from postroom.errors import InvalidInput
from postroom.protocol.ids import CONTROL_PLANE, NAME, NO_PROJECT, is_uid

JETSTREAM = "js"
"""Answerer token of replies that come from JetStream (a convention: nothing checks it)."""

CONTROL = "ctl"
"""Answerer token of replies that come from the control plane's services."""


def inbox(recipient: str, sender: str) -> str:
    """Messages and A2A requests to an agent; stored in INBOX."""
    return f"worker.{recipient}.inbox.{sender}"


def priority(recipient: str, sender: str) -> str:
    """Cancels, answers and updates that must overtake work; stored in PRIORITY."""
    return f"worker.{recipient}.priority.{sender}"


def task(uid: str, task_id: str, state: str) -> str:
    """A change of a task, written by its worker; stored in TASKS."""
    return f"worker.{uid}.tasks.{task_id}.{state}"


def receipts(sender: str, setter: str) -> str:
    """A receipt toward the original sender; stored in RECEIPTS."""
    return f"worker.{sender}.receipts.{setter}"


def outbox(uid: str) -> str:
    """Announcements of an agent; stored in OUTBOX."""
    return f"worker.{uid}.outbox"


def status(uid: str) -> str:
    """Health and state of an agent; the last one is kept in PRESENCE."""
    return f"worker.{uid}.status"


def events(uid: str) -> str:
    """Normalised events of an agent, published by the control plane; stored in EVENTS."""
    return f"worker.{uid}.events"


def rpc(uid: str, sender: str) -> str:
    """Ephemeral A2A request-reply; stored nowhere."""
    return f"worker.{uid}.rpc.{sender}"


def feed(project: str, sender: str) -> str:
    """Activity of a project; stored in FEED."""
    return f"project.{project}.feed.{sender}"


def alerts(sender: str) -> str:
    """Records that need a person; stored in ALERTS."""
    return f"system.alerts.{sender}"


def discovery(sender: str) -> str:
    """Agent Card announcements; stored nowhere (the control plane writes the registry)."""
    return f"system.discovery.{sender}"


def deadletter(original: str) -> str:
    """Undeliverable message; stored in DEADLETTER."""
    return f"system.deadletter.{original}"


NO_WORKER = "-"
"""Stands in `audit` for lines without a worker."""


def audit(worker: str) -> str:
    """Copy of the audit lines of one worker, or with "" of lines without one; stored in AUDIT."""
    return f"audit.{worker or NO_WORKER}"


def ctl(own: str, *verb: str) -> str:
    """Request of an agent to the control plane, e.g. `ctl(own, "agents", "resolve")`; stored nowhere."""
    return ".".join(("ctl", own, *verb))


def reply(asker: str, answerer: str, token: str) -> str:
    """Reply subject: even an answer names its sender. `token` carries 8 random bytes or more."""
    return f"_I.{asker}.{answerer}.{token}"


def renewal_notice(uid: str) -> str:
    """Asks agent `uid` to renew its credential now; nobody but the control plane may publish there."""
    return reply(uid, CONTROL_PLANE, "renew")


@dataclass(frozen=True, slots=True)
class Subject:
    """The parts of a subject.

    Attributes:
        kind: `inbox`, `priority`, `tasks`, `receipts`, `outbox`, `status`, `events`, `rpc`, `feed`, `alerts`,
            `discovery`, `deadletter`, `audit`, `ctl` or `reply`.
        sender: uid that the server has checked, "" where the subject names none (`deadletter`, `audit`).
        recipient: uid, "" where there is no single recipient.
        project: project of a feed, else "".
        rest: further tokens: task id and state, the verb of `ctl`, the original subject, the reply token.
    """

    kind: str
    sender: str
    recipient: str = ""
    project: str = ""
    rest: tuple[str, ...] = ()


# kind -> whether a sender token follows the third part
_WORKER_TO = frozenset({"inbox", "priority", "rpc", "receipts"})
_WORKER_OWN = frozenset({"outbox", "status", "events"})


@lru_cache(maxsize=4096)
def parse(subject: str) -> Subject:
    """The parts of `subject`.

    Raises:
        InvalidInput: it has none of the table's forms, or a token is not a uid or a project.
    """
    tokens = subject.split(".")
    match tokens:
        case ["worker", uid, kind, sender] if kind in _WORKER_TO and is_uid(uid) and is_uid(sender):
            return Subject(kind, sender, recipient=uid)
        case ["worker", uid, kind] if kind in _WORKER_OWN and is_uid(uid):
            return Subject(kind, uid)
        case ["worker", uid, "tasks", task_id, state] if is_uid(uid) and task_id and state:
            return Subject("tasks", uid, rest=(task_id, state))
        case ["project", project, "feed", sender] if NAME.fullmatch(project) and is_uid(sender):
            return Subject("feed", sender, project=project)
        case ["system", ("alerts" | "discovery") as kind, sender] if is_uid(sender):
            return Subject(kind, sender)
        case ["system", "deadletter", *original] if original:
            return Subject("deadletter", "", rest=tuple(original))
        case ["audit", uid] if uid == NO_WORKER or is_uid(uid):
            return Subject("audit", "")
        case ["ctl", own, *verb] if is_uid(own) and verb and all(verb):
            return Subject("ctl", own, recipient=CONTROL_PLANE, rest=tuple(verb))
        case ["_I", asker, answerer, *token] if is_uid(asker) and token:
            return Subject("reply", answerer, recipient=asker, rest=tuple(token))
    raise InvalidInput(f"{subject!r} is not a subject of the bus")


def sender_of(subject: str) -> str:
    """The uid that the server has authenticated for a message on `subject`, "" if it names none."""
    try:
        return parse(subject).sender
    except InvalidInput:
        return ""


def feed_filters(projects: tuple[str, ...]) -> list[str]:
    """Filter subjects of an agent's FEED consumer.

    Without a project the filter matches nothing, since an empty list would mean every feed.
    """
    return [feed(project, "*") for project in projects or (NO_PROJECT,)]


def accepts_delivery(
    stream: str, own: str, projects: tuple[str, ...], subject: str, reply_to: str
) -> bool:
    """Whether a pulled message may be taken for what its subject says.

    A publisher may name any reply subject, so a stranger can steer a frame into a pull's inbox. A real message has a
    subject of this agent (or the feed of one of its projects) and answers to its own consumer (docs/architecture.md,
    Receivers check).
    """
    if not reply_to.startswith(f"$JS.ACK.{stream}.{own}."):
        return False
    try:
        said = parse(subject)
    except InvalidInput:
        return False
    if said.kind == "feed":
        return stream == "FEED" and said.project in projects
    return said.recipient == own and said.kind == stream.lower()


def accepts_rpc(own: str, subject: str, reply_to: str) -> bool:
    """Whether an ephemeral request may be answered: its reply must be the asker's own, for this answerer."""
    try:
        said = parse(subject)
    except InvalidInput:
        return False
    if said.kind != "rpc" or said.recipient != own:
        return False
    return reply_to.startswith(reply(said.sender, own, "")) and len(reply_to.split(".")) == 4


def accepts_announcement(subject: str, reply_to: str) -> bool:
    """Whether a card announcement counts: its reply must be `_I.<sender>.all.<token>`."""
    try:
        said = parse(subject)
    except InvalidInput:
        return False
    return said.kind == "discovery" and reply_to.startswith(reply(said.sender, "all", ""))
