"""Lists of the shapes, and the outcomes of acts: what the routes answer beside single objects (`shapes`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict

from postroom.protocol.shapes import (
    Activity,
    Alert,
    AlteredMail,
    Announcement,
    Approval,
    Blob,
    ControlRecord,
    Credential,
    Dead,
    Delivery,
    Excess,
    Feed,
    Grant,
    GrantRequest,
    Interrupt,
    Invite,
    Key,
    Leftover,
    Listed,
    Mail,
    Opening,
    Org,
    Person,
    Post,
    Push,
    Session,
    StaleBranch,
    Task,
    TaskEvent,
    TaskMessage,
    Thread,
    Time,
    Webhook,
    Worker,
    WorkerEvent,
)

# ── lists ────────────────────────────────────────────────────────────────────────────────────────


class Mails(TypedDict):
    """Messages: of a chat the oldest first, found ones the newest first.

    `next` is what to give as `before` for the earlier ones, null if there are none.
    """

    messages: list[Mail]
    next: int | None


class Threads(TypedDict):
    """Threads, the one with the newest message first; `next` is the `before` of the others, null if there are none."""

    threads: list[Thread]
    next: int | None


class Feeds(TypedDict):
    """The feeds of all projects, as far as the caller has read them."""

    feeds: list[Feed]
    next: None


class Archived(TypedDict):
    """How many messages were put away or taken out again, and the ids that name no message to the caller."""

    count: int
    unknown: list[str]


class Inbox(TypedDict):
    """Messages to the caller, the oldest first; `next` is what to give as `after` for what comes later."""

    messages: list[Mail]
    next: int


class PlainMessage(TypedDict):
    """A message under `/api`: `read_at` is null while it is unread."""

    id: str
    sender_id: str
    sender_name: str
    recipient_id: str
    subject: str
    body: str
    thread_id: str | None
    created_at: Time
    read_at: Time | None


class Authorization(TypedDict):
    """A grant under `/api`: instants are null for never."""

    id: str
    granter_id: str
    grantee_id: str
    scopes: list[str]
    expires_at: Time | None
    revoked_at: Time | None


class Authorizations(TypedDict):
    """The grants of and to the caller under `/api`, the newest first."""

    authorizations: list[Authorization]


class PlainInbox(TypedDict):
    """The newest messages to the caller under `/api`, the oldest of them first."""

    messages: list[PlainMessage]


class Posts(TypedDict):
    """Posts of a project, the oldest first; `next` is the `before` of the earlier ones, null if there are none."""

    posts: list[Post]
    next: int | None


class ProjectEvent(TypedDict):
    """A post, or what happened beside the posts: one of the two is null."""

    post: Post | None
    activity: Activity | None


class ProjectEvents(TypedDict):
    """The newest posts and what happened beside them, the oldest first; what comes then begins past `after`.

    `next` is the `before` of the earlier ones, null if there are none.
    """

    events: list[ProjectEvent]
    after: str
    next: str | None


class Approvals(TypedDict):
    """Approvals, the newest first; `next` is the `before` of the earlier ones, null if there are none."""

    approvals: list[Approval]
    next: int | None


class Control(TypedDict):
    """What is said to a worker's agent, the oldest first; `next` is the `after_id` of what comes later."""

    records: list[ControlRecord]
    next: int


class Controlled(TypedDict):
    """What was said to a worker's agent: the approval that it has settled, or the interrupt; the other is null."""

    approval: Approval | None
    interrupt: Interrupt | None


class Announcements(TypedDict):
    """Announcements of an agent, the oldest first; `next` is the `before` (or `after`) of the next page."""

    announcements: list[Announcement]
    next: int | None


class WorkerEvents(TypedDict):
    """Events of a worker's agent, the oldest first; `next` is the `after_id` of the next page, null after the last."""

    events: list[WorkerEvent]
    next: int | None


class Tasks(TypedDict):
    """Tasks, the newest request first; `next` is the `before` of the earlier ones, null if there are none."""

    tasks: list[Task]
    next: int | None


class Pushes(TypedDict):
    """Pushes of a task, the oldest change first; `next` is the `after` of the later ones, null if there are none."""

    pushes: list[Push]
    next: int | None


class Webhooks(TypedDict):
    """Webhooks, the oldest first; `next` is null."""

    webhooks: list[Webhook]
    next: None


class Deliveries(TypedDict):
    """Deliveries to a webhook: those that wait first, then the last that was tried; `next` is null."""

    deliveries: list[Delivery]
    next: None


class TaskEvents(TypedDict):
    """Changes of a task, the oldest first; `next` is the `after` of the later ones, null if there are none yet."""

    events: list[TaskEvent]
    next: int | None


class TaskMessages(TypedDict):
    """The messages that belong to a task, the oldest first."""

    messages: list[TaskMessage]


class Deadletters(TypedDict):
    """Dead letters, the newest first; `next` is the `before` of the earlier ones, null if there are none."""

    deadletters: list[Dead]
    next: int | None


class Blobs(TypedDict):
    """Blobs, the largest first; `next` is the `after` of the smaller ones, null if there are none."""

    blobs: list[Blob]
    next: str | None


class Alerts(TypedDict):
    """Alerts: those of the post room before those of agents, each the newest first."""

    alerts: list[Alert]
    next: None


class Agents(TypedDict):
    """Everybody with an address, by nick."""

    agents: list[Listed]
    next: None


class Workers(TypedDict):
    """Workers, the oldest first."""

    workers: list[Worker]
    next: None


class Projects(TypedDict):
    """Names of projects: that somebody is or was in or has posted to, and `main`."""

    projects: list[str]
    next: None


class Sessions(TypedDict):
    """Sessions in the terminals of people."""

    sessions: list[Session]
    next: None


class Grants(TypedDict):
    """Grants, the newest first."""

    grants: list[Grant]
    next: None


class GrantRequests(TypedDict):
    """Requests to be let in, the newest first."""

    requests: list[GrantRequest]
    next: None


class Keys(TypedDict):
    """API keys, without their secrets."""

    keys: list[Key]
    next: None


class Invites(TypedDict):
    """The invites of an organisation, the newest first."""

    invites: list[Invite]
    next: None


class People(TypedDict):
    """The people of the organisation."""

    people: list[Person]
    next: None


class Credentials(TypedDict):
    """Credentials, without their secrets."""

    credentials: list[Credential]
    next: None


class Orgs(TypedDict):
    """Organisations, the default one first."""

    orgs: list[Org]
    next: None


class Openings(TypedDict):
    """What the operator has opened of the machine to the lesser keys of an organisation."""

    openings: list[Opening]
    next: None


class Leftovers(TypedDict):
    """What removed workers have left on disk, and in a repository that was named."""

    leftovers: list[Leftover]
    branches: list[StaleBranch]
    next: None


class Retention(TypedDict):
    """What the settings of retention do not keep."""

    retention: list[Excess]
    next: None


class Integrity(TypedDict):
    """A check of all messages: `first` are from before messages were signed, `named` the first altered ones."""

    messages: int
    first: int
    altered: int
    named: list[AlteredMail]


class CardKeys(TypedDict):
    """A JWK set (RFC 7517): the keys that Agent Cards are signed with."""

    keys: list[dict[str, Any]]


class TrustKey(TypedDict):
    """A public key that signs credentials. `state` is `identity`, `active` or `former`."""

    role: str
    key: str
    state: str


class TrustKeys(TypedDict):
    """The public keys that sign credentials."""

    keys: list[TrustKey]
    next: None


# ── outcomes ─────────────────────────────────────────────────────────────────────────────────────


class Acknowledged(TypedDict):
    """The messages that were acknowledged, and the ids that name no message to the caller."""

    messages: list[Mail]
    unknown: list[str]


class Stored(TypedDict):
    """A stored blob; nothing says whether somebody else had stored it before."""

    url: str
    sha256: str
    size: int


class Asked(TypedDict):
    """A request to be let in was sent to `granter`, if there is such an agent: that nobody is told."""

    granter: str
    asked: bool


class Cleared(TypedDict):
    """How many alerts were cleared."""

    cleared: int


class Requeued(TypedDict):
    """The id of the message that repeats a dead letter."""

    id: str


class Reported(TypedDict):
    """The ids of events that were stored.

    `next` is the number of the next event of the run; 0 for a report without a run.
    """

    stored: list[int]
    next: int


class RemovedOrg(TypedDict):
    """An organisation that is gone, and the folder where its files are kept."""

    name: str
    folder: str


class Rotated(TypedDict):
    """A rotation of keys: `cut` are the uids that had not moved in time, `steps` what a person must do."""

    roles: list[str]
    cut: list[str]
    steps: list[str]


class Saved(TypedDict):
    """A backup; `skipped` names what could not be read."""

    file: str
    bytes: int
    orgs: list[str]
    skipped: list[str]


class Ending(TypedDict):
    """The post room ends."""

    ending: bool


class Ready(TypedDict):
    """Whether everything is up. `away` is what does not answer, `database` or `bus`; it is not there at the start."""

    ready: bool
    away: NotRequired[Sequence[str]]
