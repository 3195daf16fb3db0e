"""Shapes of the JSON objects in the control plane's answers (docs/api.md, Objects).

The server's `as_json`, the client and the document of the API (`control.openapi`) use these and no others. A docstring
is the description that callers read there. A list is an object with its noun and `next`: what to ask with for the next
page, None after the last one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, TypedDict


@dataclass(frozen=True, slots=True)
class Format:
    """The form of a text (JSON Schema, format)."""

    name: str


Time = Annotated[str, Format("date-time")]
"""An instant: RFC 3339 in UTC, such as `2026-01-31T12:00:00.000Z` (`postroom_a2a.times`)."""

Card = dict[str, Any]
"""An Agent Card (A2A 1.0)."""

Part = dict[str, Any]
"""A part of a message (A2A 1.0): text, data, a URL, or bytes."""


WorkerEvent = dict[str, Any]
"""An event of a worker's agent: `id` (grows), `at`, `worker` and `type`; the other fields depend on `type`.

`request` is the id of the approval that it is about; `cut` says that it was too large, so that texts are shortened.
"""


class Party(TypedDict):
    """The sender or recipient of a message. `kind` is `worker`, `external`, `human` or `service`."""

    uid: str
    nick: str
    kind: str


class Agent(Party):
    """An entry of the directory."""

    org: str


class Me(TypedDict):
    """Uid and nick of an agent."""

    uid: str
    nick: str


class File(TypedDict):
    """A part with a URL; `size` is null where the URL is not that of a stored blob."""

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
    workers: list[Me]


class OrgCounts(TypedDict, total=False):
    """What an organisation has, in numbers; empty while it is not open."""

    workers: int
    running: int
    inbox: int
    deadletters: int


class Org(TypedDict):
    """An organisation. `state` is `open`, `opening` or `failed`; `detail` says why it failed."""

    name: str
    state: str
    detail: str
    me: Me | None
    counts: OrgCounts


class Opening(TypedDict):
    """What the operator has opened of the machine to the lesser keys of an organisation: a folder, or a wall.

    `mode` is `copy` for a folder that may be read, `direct` for one that may be written, too.
    """

    kind: str
    name: str
    mode: str
    opened_at: Time


class SessionState(TypedDict):
    """How a session in somebody's terminal stands: `state` is `busy`, `idle` or `gone`, since `state_at`.

    `heard_at` is when it was heard last, to the minute. `folder` is "" for callers who may not know it.
    """

    client: str
    folder: str
    state: str
    state_at: Time
    heard_at: Time


class Session(SessionState):
    """A session in the terminal of its `owner`, known to its client by `key`.

    `project` names the repository of its folder, "" for none. `online`: its mail reaches it by itself.
    """

    uid: str
    nick: str
    owner: Party
    key: str
    project: str
    version: str
    online: bool


class SessionChange(Session):
    """What has become of a session, and when: `what` is `added`, `renamed` or `ended`."""

    what: str
    at: Time


class Grant(TypedDict):
    """What lets `grantee` reach `granter` for `scopes`: `message`, `task` or `card`.

    `state` is `valid`, `expired` or `revoked`. An agent of another organisation is shown as its granter named it, with
    the `kind` `unknown`: whether there is one, nobody is told.
    """

    id: str
    granter: Party
    grantee: Party
    scopes: list[str]
    state: str
    made_at: Time
    expires_at: Time | None
    ended_at: Time | None


class GrantRequest(TypedDict):
    """`grantee` asks to be let in by `granter`; `state` is `pending`, `allowed` or `denied`."""

    id: str
    granter: Party
    grantee: Party
    scopes: list[str]
    reason: str
    state: str
    asked_at: Time
    answered_by: Party | None
    answered_at: Time | None


class GrantsOnly(TypedDict):
    """Whether an agent is reached by grants alone, by its own word or by that of its organisation (`everybody`)."""

    agent: Party
    grants_only: bool
    everybody: bool


class Admission(TypedDict):
    """How agents come into an organisation: `registration` is `invite`, `open` or `closed`.

    `grants_only`: its agents are reached by grants alone.
    """

    registration: str
    grants_only: bool


class MailState(TypedDict):
    """The new state of a message to the agent with the uid `to`."""

    id: str
    to: str
    state: str
    reason: str


class Listed(Agent):
    """An agent in a list: `card` is its signed Agent Card, `online` whether it takes messages now.

    `seen_at` is its last sign of life, null for none. People have no card. `session` is null for agents that are none.
    `unverified_email` is what an agent that joined says of its owner; who administers has it by `GET /v1/agents/{ref}`.
    """

    online: bool
    seen_at: Time | None
    card: Card | None
    session: SessionState | None
    unverified_email: NotRequired[str]


class Remote(TypedDict):
    """Where and how an agent of other people is called.

    `url` was given, `address` is that of its card's interface. `credential` names the one of its requests, "" for
    none. `deadline` is the seconds that a task may take.
    """

    url: str
    address: str
    binding: str
    version: str
    streams: bool
    credential: str
    deadline: float


class RemoteListed(Listed):
    """An agent of other people, and where it is called; `added` is false for one that was there already."""

    remote: Remote
    added: bool


Mail = TypedDict(
    "Mail",
    {
        "id": str,
        "seq": int,
        "from": Party,
        "to": Party,
        "text": str,
        "parts": list[Part],
        "files": NotRequired[list[File]],
        "subject": str,
        "thread": str | None,
        "state": str,
        "reason": str,
        "expects_reply": bool,
        "reply_to": str | None,
        "sent_at": Time,
        "updated_at": Time,
        "expires_at": Time | None,
        "answer": "Mail | None",
        "requeue_of": str | None,
        "attempts": int,
        "task": str | None,
        "redelivered": bool,
        "how": NotRequired[str],
        "note": NotRequired[str],
        "about": NotRequired[str],
        "timed_out": NotRequired[bool],
        "altered": NotRequired[bool],
    },
)
Mail.__doc__ = """A message to one agent; `parts` are A2A's, `text` joins their texts.

`state` is `accepted`, `delivered`, `seen`, `answered` or `dead`.
It is dead if it was not seen by `expires_at`, null for never.
`task` is the id of the task that it requests. `redelivered`: its reader may have been given it before.
`about` is the id of the task that it brings news of.
`how` says how it was delivered, where its recipient told. `note` is for its sender, in the answer to `send` alone.
`timed_out`: the caller waited in vain. `altered`: it is not as it was stored, so what it says is not shown.
"""

AlteredMail = TypedDict("AlteredMail", {"id": str, "from": Party, "to": Party, "at": Time})
AlteredMail.__doc__ = (
    """A message that is not as it was stored; its parties are as its row names them now."""
)

Thread = TypedDict(
    "Thread",
    {
        "id": str,
        "subject": str,
        "parties": list[Party],
        "messages": int,
        "unread": int,
        "seq": int,
        "from": Party,
        "text": str,
        "at": Time,
    },
)
Thread.__doc__ = """A thread as the caller has it: with whom, how many messages, how many the caller has not seen.

`seq`, `from`, `text` (its beginning) and `at` are of the last message; `subject` is its own, else that of the first.
"""


class Feed(TypedDict):
    """A project's feed for the caller: `read` is the sequence up to which its posts are read.

    `unread` counts the later posts of others, up to 1,000.
    """

    project: str
    read: int
    unread: int


Post = TypedDict(
    "Post",
    {
        "seq": int,
        "id": str,
        "project": str,
        "from": Party,
        "text": str,
        "parts": list[Part],
        "files": NotRequired[list[File]],
        "subject": str,
        "thread": str | None,
        "at": Time,
    },
)
Post.__doc__ = "An entry in a project's feed."


class Activity(TypedDict):
    """Something that happened in a project beside its posts.

    `what` is `joined`, `left`, `took` (a task), `asks` (a question about a task), `ended` (a task), `approval` (asks to
    be allowed something), `decided` (that was settled) or `failed` (a worker). `by` is who asked for the task, or who
    decided; `state` is that of the task or of the approval, else "".
    """

    at: Time
    what: str
    worker: Party
    by: Party | None
    task: str | None
    approval: str | None
    state: str
    text: str


Announcement = TypedDict(
    "Announcement",
    {
        "seq": int,
        "id": str,
        "from": Party,
        "text": str,
        "parts": list[Part],
        "files": NotRequired[list[File]],
        "subject": str,
        "thread": str | None,
        "at": Time,
    },
)
Announcement.__doc__ = "What an agent says to everybody of its organisation."


class Wall(TypedDict):
    """The sandbox of a worker. `level` is `enforced`, `partial` or `none`."""

    provider: str
    level: str


class Said(TypedDict):
    """What is said: its parts, and those of them that are files."""

    parts: list[Part]
    files: NotRequired[list[File]]


class Artifact(TypedDict):
    """A result of a task, its text parts joined."""

    id: str
    name: str
    text: str
    parts: list[Part]
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


class Push(TypedDict):
    """One change of a task on its way to a URL that a caller named.

    Attributes:
        id: the `webhook-id` of its attempts.
        config: id of the push notification config.
        seq: sequence of the change.
        what: the task's state with the change, or `artifact`; "" if it is no longer kept.
        state: `pending`, `delivered` or `given-up`.
        status: HTTP status of the last answer, 0 for none.
        reason: why the last attempt failed, "" if it did not.
        tried_at: instant of the last attempt, null for none.
        next_at: instant of the next one; null for none, and while it waits behind another to the same receiver.
    """

    id: str
    config: str
    url: str
    seq: int
    what: str
    state: str
    attempts: int
    status: int
    reason: str
    tried_at: Time | None
    next_at: Time | None


class Webhook(TypedDict):
    """A URL that is told what happens to an agent.

    Attributes:
        owner: whom it tells of.
        events: `message.received`, `receipt`, `task`, `approval`.
        state: `active`, `disabled`, or `lost`: its secret is, and nothing goes there until it has a new one.
        reason: why it is not active, "" if it is.
        pending: deliveries that wait.
        former_until: until when its former secret signs, too; null without one.
    """

    id: str
    owner: Party
    url: str
    events: list[str]
    state: str
    reason: str
    pending: int
    created_at: Time
    former_until: Time | None


class NewWebhook(Webhook):
    """A webhook with its secret, which no other answer has."""

    secret: str


class Delivery(TypedDict):
    """Something that a webhook is told.

    Attributes:
        id: the `webhook-id` of its attempts.
        event: "" if what it is about is no longer kept.
        about: id of the message, the task or the approval.
        state: `pending`, `delivered` or `given-up`.
        status: HTTP status of the last answer, 0 for none.
        reason: why the last attempt failed, "" if it did not.
        tried_at: instant of the last attempt, null for none.
        next_at: instant of the next one, null for none; it may wait behind another.
    """

    id: str
    webhook: str
    event: str
    about: str
    state: str
    attempts: int
    status: int
    reason: str
    tried_at: Time | None
    next_at: Time | None


class Attempt(TypedDict):
    """What came of a test: `status` 0 for no answer; `reason` why it failed, "" if it did not."""

    delivered: bool
    status: int
    reason: str


class WebhookKeys(TypedDict):
    """What verifies that a request to a webhook is of this post room (Standard Webhooks).

    Attributes:
        secret: of the caller alone, for signatures of `v1`.
        public: the public key for signatures of `v1a`, also in the organisation's JWK set.
    """

    secret: str
    public: str


class Task(TypedDict):
    """Work that was given to an agent. `state` is one of A2A's, such as `working`.

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
        started_at: instant of its first attempt, null before that.
        timed_out: the caller waited for it in vain.
        usage: what its worker's agent used for it, not in lists.
        references: ids of tasks that its requester names, such as the one for which it delegates; not in lists.
        door: over what it was asked for: `cli`, `api`, `bus`, `a2a+jsonrpc`, `a2a+rest`, `a2a+grpc`; "" if unknown.
        retry_of: id of the task that it asks for again, "" for none.
        retried_as: ids of the tasks that ask for it again; absent without any, and in lists.
        followed: how its agent is heard, if that is an A2A server of other people; not in lists.
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
    parts: NotRequired[list[Part]]
    files: NotRequired[list[File]]
    subject: NotRequired[str]
    thread: str
    attempt: int
    seq: int
    requested: int
    created_at: Time
    updated_at: Time
    status_text: str
    status_parts: NotRequired[list[Part]]
    started_at: NotRequired[Time | None]
    artifacts: NotRequired[list[Artifact]]
    timed_out: NotRequired[bool]
    usage: NotRequired[Usage]
    followed: NotRequired[str]
    references: NotRequired[list[str]]
    door: str
    retry_of: str
    retried_as: NotRequired[list[str]]


TaskMessage = TypedDict(
    "TaskMessage",
    {
        "kind": str,
        "id": str,
        "at": Time,
        "from": Party | None,
        "to": Party | None,
        "state": str,
        "text": str,
        "parts": list[Part],
    },
)
TaskMessage.__doc__ = """A message that belongs to a task.

`kind` is `request`, `answer` (to a question of the task), `news` (what its agent said of it), `message` (what the agent
sent in its course) or `task` (what it gave to another agent). `id` is that of the message, "" for answers and news.
`from` is null where it is not kept who answered, `to` for news. `state` is that of the message, for answers and news
that of the task.
"""


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
    parts: list[Part]
    artifact: Piece | None
    answer: NotRequired[str]
    answer_parts: NotRequired[list[Part]]
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


class Workspace(TypedDict):
    """The folder that a worker works on.

    `mode` is `worktree`, `copy` or `direct`; `branch` its branch in that repository, or ""; `notes` are sentences for
    people about what it has not got; `onto` the person's branch that it began from, or ""; `behind` and `ahead` count
    the commits that only that one has, or only the worker; `doing` is what is being done about it now, or ""; `merged`
    is the branch of the last merge that is not undone, or "".
    """

    path: str
    mode: str
    branch: str
    notes: NotRequired[list[str]]
    onto: NotRequired[str]
    behind: NotRequired[int]
    ahead: NotRequired[int]
    doing: NotRequired[str]
    merged: NotRequired[str]


class Usage(TypedDict):
    """Tokens that went into models and came out of them, and what they cost in US dollars, as coding agents said it."""

    input_tokens: int
    output_tokens: int
    cost: float


class Worker(TypedDict):
    """An agent that the post room runs.

    `state` is `starting`, `idle`, `working`, `stalled`, `failed`, `exited`, `stopped` or `unknown`. `template` is the
    path that it was spawned from, or ""; `stderr` the last lines that its agent printed there before it ended;
    `unread` null while the bus does not tell; `task` what it works on, else what waits for an answer; `unenforced` the
    limits of its template that nothing keeps on this machine; `workspace` null for an empty folder of its own;
    `trouble` the newest error that its agent has met, "" once it goes on.
    `autonomy` is what a coding agent does unasked now: `ask` (nothing), `edits` or `all`; "" for another agent.
    """

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
    autonomy: NotRequired[str]
    open_tasks: NotRequired[int]
    unenforced: NotRequired[list[str]]
    stderr: NotRequired[list[str]]
    trouble: NotRequired[str]
    workspace: NotRequired[Workspace | None]
    usage: NotRequired[Usage]
    started: NotRequired[bool | None]
    changed: NotRequired[list[str]]


class Difference(TypedDict):
    """What a worker changed since it began.

    `text` is what `git diff` prints; `cut` says that there is more; `left` names what could not be brought back;
    `command` takes the work over, "" where there is none; `tree` names its files as they are now (git), "" for none.
    """

    worker: str
    workspace: Workspace
    tree: str
    text: str
    cut: bool
    files: int
    commits: int
    left: list[str]
    command: str
    merge: NotRequired[Merge | None]


class Merge(TypedDict):
    """A merge that a worker's agent made after a conflict, until its person says that it counts.

    `text` is how `commit` differs from both sides, `onto` of the person and `before` of the worker, as `git diff --cc`
    prints it: what is as one of both is left out.
    """

    commit: str
    onto: str
    before: str
    text: str
    cut: bool


class Applied(TypedDict):
    """The branch of a worker, up to date; `merged` is the new commit, "" if nothing was merged.

    `onto` is the branch that the person is on, and `back` the commit to go back to, "" for none yet; `tree` is as in a
    Difference.
    """

    task: str
    worker: str
    path: str
    mode: str
    branch: str
    tree: str
    command: str
    merged: str
    onto: str
    back: str
    notes: list[str]
    hinders: str
    left: list[str]


class Synced(TypedDict):
    """A worker brought up to the newest commit of the person's branch that it began from.

    `taken` counts the commits that it had not; `commit` is its newest one now. `conflicts` are files that only somebody
    who understands both can join: then it is as it was, and `task` is the one that its agent was given for it, or "".
    """

    worker: str
    workspace: Workspace
    onto: str
    commit: str
    taken: int
    conflicts: list[str]
    task: str
    left: list[str]
    merge: NotRequired[Merge | None]


class Removed(TypedDict):
    """A worker that is gone; unless it was `purged`, `folder` still holds its workspace."""

    uid: str
    nick: str
    folder: str
    purged: NotRequired[bool]


class Leftover(TypedDict):
    """Files of a removed worker; `nick` "" if nobody knows it any more; `unsaved` names what is nowhere else."""

    uid: str
    nick: str
    folder: str
    bytes: int | None
    unsaved: list[str]


class StaleBranch(TypedDict):
    """A branch of a removed worker; `merged` is what has all of it, or ""; `commits` are in nothing else."""

    name: str
    commit: str
    merged: str
    commits: int


class Excess(TypedDict):
    """What is older, or more, than the user keeps; `project` "" for what belongs to none, `oldest` its end."""

    kind: str
    project: str
    count: int
    bytes: int
    oldest: Time


class Alert(TypedDict):
    """A condition that needs a person; `nick` is "" and `who` null for one of the post room.

    `at` is when it was raised last. `ended` is the reason of its end, "" while it stands; `ended_at` is null where its
    cause has gone by itself.
    """

    id: int
    at: Time
    first_at: Time
    count: int
    nick: str
    who: Party | None
    kind: str
    text: str
    ended: str
    ended_at: Time | None


class ApprovalAnswer(TypedDict):
    """An answer to an approval: `id` of its event, `by` null where the channel decided itself, `input` if edited.

    `channel` is `cli`, `attach`, `chat`, `screen` or `api` of a person, `policy` of the template, `agent` of an agent
    that no longer asks, `clock` of an expiry, or `room` of a post room that withdraws what nobody waits for any more.
    """

    id: int
    at: Time
    decision: str
    by: Party | None
    channel: str
    reason: str
    input: dict[str, Any] | None


class Became(TypedDict):
    """What became of an act once it was settled: whether it is done, and in words."""

    done: bool
    text: str


class Approval(TypedDict):
    """What an agent asks before it acts, and the answer; `answer` is null while it is pending.

    `kind` is `tool`, `question`, or `act`: the post room asks the agent's owner whether it does `tool`, an operation of
    the API, with `input` in the agent's name; `title` says it in the post room's words, `became` what came of it.

    `state` is `pending`, `allowed`, `denied`, `edited`, `withdrawn` or `expired`; an expired one counts as `default`
    says, `allow` or `deny`, or of a session `no answer`: its client asks at the terminal. `tool`, `title`, `input` and
    `reason` are the agent's words; `editable` is false where it takes no input but its own. `seq` is the id of the
    event that asked. `late` are answers that came after the one that counted, and had no effect.
    """

    id: str
    seq: int
    state: str
    worker: Party
    task: str | None
    message: str | None
    kind: str
    tool: str
    title: str
    input: dict[str, Any]
    editable: NotRequired[bool]
    reason: str
    default: str
    asked_at: Time
    expires_at: Time | None
    answer: ApprovalAnswer | None
    late: list[ApprovalAnswer]
    became: NotRequired[Became]


class OwnerAsked(TypedDict):
    """An agent may not do alone what it has asked for: its owner `of` is asked, and `approval` is the id of that."""

    approval: str
    of: Party | None
    text: str
    expires_at: Time | None


ControlRecord = dict[str, Any]
"""What a worker's sidecar is told: `id` of the event, `at`, and by `type` the rest.

`control_response` has `request` (the approval's id), `decision`, `by`, `channel`, and perhaps `input` and `reason`;
`interrupt` has `by`, `channel` and `reason`; `policy` has `by`, `change` and `pattern` or `autonomy`, and the last one
of an answer has `rules`, all patterns that people have added, and `autonomy` by task, as they are when this is read.
"""


class Interrupt(TypedDict):
    """A turn is to end: `id` of the event that says so."""

    id: int
    at: Time
    worker: Party
    by: Party
    channel: str
    reason: str


class AddedPattern(TypedDict):
    """A pattern that a person has allowed for one worker from then on."""

    pattern: str
    by: Party
    at: Time


class SetAutonomy(TypedDict):
    """How much a worker does unasked, as a person has set it: `ask`, `edits` or `all`; `task` null for all turns."""

    autonomy: str
    task: str | None
    by: Party
    at: Time


class Policy(TypedDict):
    """What the agent of a worker may do, or may not do, without asking a person.

    They count in this order: `auto_deny`, then `auto_approve`, both of the template that was read at `template` (""
    where that is not known), then `added` and `autonomy`, which the post room keeps. `autonomous`: of its template,
    what nothing names is not asked. `answered`: ids of the approvals that a change has answered.
    """

    worker: Party
    template: str
    autonomous: bool
    auto_deny: list[str]
    auto_approve: list[str]
    added: list[AddedPattern]
    autonomy: list[SetAutonomy]
    answered: NotRequired[list[str]]


class Pin(TypedDict):
    """The caller's PIN: whether one is set, and how long no try is taken."""

    set: bool
    tries_left: int
    paused_until: Time | None


class Certificate(TypedDict):
    """The certificate that the post room presents. `ca` is the path of the authority to trust, "" for the system's.

    `local`: Postroom made it. `authority` is the authority's fingerprint, "" if Postroom has not made it.
    """

    names: list[str]
    not_after: Time
    fingerprint: str
    local: bool
    ca: str
    authority: str


class Server(TypedDict):
    """The process of the post room and its addresses; who does not operate is shown the first three.

    `listen` are the URLs for other machines, `logins` what others type there. `nats_pid` is 0 for servers of somebody
    else, `notes` are sentences about this start, `database` is "" for files in `state`.
    """

    url: str
    listen: list[str]
    started_at: Time
    pid: NotRequired[int]
    nats_url: NotRequired[str]
    nats_pid: NotRequired[int]
    state: NotRequired[str]
    ca: NotRequired[str]
    tls: NotRequired[Certificate | None]
    notes: NotRequired[list[str]]
    logins: NotRequired[list[str]]
    database: NotRequired[str]


class Failing(TypedDict):
    """Background work that fails now and is tried again by itself: `error` is the last one, `since` when it began."""

    name: str
    error: str
    since: str
    failures: int


class Status(TypedDict):
    """The status of the whole post room.

    `commit` is that of its source, "" where it is not known. `inbox` counts the caller's unread messages.
    `approvals` are the first 20 that are pending, `alerts` the first 10 that stand, `attention` the tasks that wait
    for an answer, the oldest first. `grants` are those of and to the caller and what belongs to the caller, which count
    or ended within a day; `asking` are the requests for one that wait for an answer. `audit` says why the audit log
    cannot be written, `bus` that NATS does not answer; "" for no trouble. `background` is the work of the organisation
    that fails now, for the default one also that of the whole post room. `sessions` are those of the caller, for who
    operates all.
    """

    version: str
    commit: NotRequired[str]
    server: Server
    org: str
    me: Me
    workers: list[Worker]
    sessions: NotRequired[list[Session]]
    deadletters: int
    inbox: NotRequired[int]
    approvals: NotRequired[list[Approval]]
    alerts: list[Alert]
    attention: NotRequired[list[Task]]
    grants: NotRequired[list[Grant]]
    asking: NotRequired[list[GrantRequest]]
    audit: NotRequired[str]
    bus: NotRequired[str]
    background: NotRequired[list[Failing]]


class Problem(TypedDict):
    """Why a request was refused (RFC 9457). `code` is stable, the last part of `type`; `detail` is for people.

    `remedy` says what to do, "" for nothing known. `details` are causes, for a reader who looks further.
    """

    type: str
    title: str
    status: int
    detail: str
    code: str
    remedy: str
    details: NotRequired[list[str]]


class Trouble(TypedDict):
    """What keeps a task now, `text` "" when nothing does any more; `worker` is the nick of the one it waits for."""

    task: str
    text: str
    worker: str
    at: Time


class RoomChange(TypedDict):
    """What the status says beside workers and approvals, of the moment and not of the log.

    `inbox` counts the caller's unread messages, `alerts` those that stand, 50 at most; `bus` is whether NATS answers.
    """

    inbox: int
    deadletters: int
    alerts: int
    bus: bool
    at: NotRequired[Time]


class WorkerChange(TypedDict):
    """The state of a worker, of the moment and not of the log; `removed` for one that is no more."""

    uid: str
    nick: str
    state: str
    detail: str
    at: NotRequired[Time]


class TaskNews(TaskEvent):
    """A change of any task, with its parties and the beginning of its request."""

    worker: Party
    requester: Party
    request_text: str


Dead = TypedDict(
    "Dead",
    {
        "id": int,
        "message_id": str | None,
        "from": Party,
        "to": Party,
        "text": str,
        "parts": list[Part],
        "files": NotRequired[list[File]],
        "subject": str,
        "thread": str | None,
        "reason": str,
        "attempts": int,
        "at": Time,
        "bus_subject": str,
        "requeued_as": str | None,
        "task": str | None,
    },
)
Dead.__doc__ = """A message that could not be delivered; `message_id` is null where nobody can read it.

`bus_subject` is the subject of its record in the log, `requeued_as` the id of the message that repeats it.
`task` is the id of a task whose attempts are used up: its request was delivered, and nobody does it any more.
"""

Milestone = Literal["delivered", "seen", "answered"]
"""A state that a sender can wait for."""

Rest = Literal["final", "settled"]
"""The states of a task that a caller can wait for: its end, or also a question of the agent."""


class Principal(TypedDict):
    """Who the caller is and what they may do. `method` is `key` or `door`, `key` the id of the API key, "" for none."""

    uid: str
    nick: str
    org: str
    kind: str
    scopes: list[str]
    method: str
    key: str
    expires_at: Time | None


class Key(TypedDict):
    """An API key without its secret. `state` is `valid`, `expired` or `revoked`; `made_by` is the nick of its maker."""

    id: str
    agent: Party | None
    name: str
    scopes: list[str]
    state: str
    created_at: Time | None
    expires_at: Time | None
    used_at: Time | None
    revoked_at: Time | None
    made_by: str | None


class NewKey(Key):
    """A new API key with its secret, `key`, which no other answer has."""

    key: str


class Person(TypedDict):
    """A person of the organisation; `owner` is whom the operator's key makes its bearer."""

    uid: str
    nick: str
    owner: bool
    created_at: Time


class NewPerson(Person):
    """A new person with their first key."""

    key: NewKey


class Invite(TypedDict):
    """An invite without its code. `state` is `valid`, `used`, `expired`, `revoked`, or `tried` (too many wrong codes).

    `uses` are left; `kind` and `scopes` are those of who joins; `made_by` is a nick.
    """

    id: str
    kind: str
    scopes: list[str]
    uses: int
    state: str
    made_by: str | None
    created_at: Time
    expires_at: Time


class NewInvite(Invite):
    """A new invite with its link, and its code, which no other answer has."""

    link: str
    code: str


class Joined(TypedDict):
    """Who has joined, with the first key; `joined` is `invite` or `open`."""

    uid: str
    nick: str
    org: str
    kind: str
    joined: str
    key: NewKey


class KeyCode(TypedDict):
    """A code with which the owner of an agent claims a key for it; it opens nothing itself."""

    code: str
    expires_at: Time


class NewSession(Session):
    """A session that was registered, with the key that is its only one; `resumed`: it was known before."""

    api_key: NewKey
    resumed: bool


class NewAgent(Listed):
    """A new agent that Postroom does not run, with its first key."""

    key: NewKey
