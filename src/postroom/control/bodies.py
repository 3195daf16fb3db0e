"""Bodies of requests, checked by pydantic. Answers are plain JSON objects, described where they are made."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    model_validator,
)

from postroom.directory.grants import GrantScope
from postroom.errors import InvalidInput, MessageTooLarge
from postroom.protocol.approvals import REQUEST_ID
from postroom.protocol.content import Content
from postroom.protocol.events import MAX_NUMBER
from postroom.protocol.limits import (
    MAX_ASKED,
    MAX_CONTEXT,
    MAX_DEPTH,
    MAX_DESCRIPTION,
    MAX_EMAIL,
    MAX_EVENTS,
    MAX_HOW,
    MAX_INVITE_USES,
    MAX_KEY,
    MAX_LABEL,
    MAX_LINK,
    MAX_PAGE,
    MAX_PARTS,
    MAX_PATH,
    MAX_PATTERN,
    MAX_PIN,
    MAX_REASON,
    MAX_SESSION_KEY,
    MAX_VALUES,
    MAX_WAIT,
)
from postroom.protocol.principal import Scope
from postroom.protocol.records import AS_FILE
from postroom.protocol.sessions import CLIENT
from postroom.protocol.webhooks import HookEvent
from postroom_a2a import strict_json

Text = Annotated[str, Field(min_length=1)]
Name = Annotated[str, Field(max_length=70)]


def read_json(body: bytes) -> Any:
    """The JSON value in the body of a request.

    Raises:
        MessageTooLarge: it has too many values.
        InvalidInput: it is not JSON, or nested too deep.
    """
    try:
        return strict_json.bounded(body, MAX_DEPTH, MAX_VALUES)
    except strict_json.TooMany as error:
        raise MessageTooLarge(f"the body has {error}", remedy=AS_FILE) from error
    except strict_json.TooDeep as error:
        raise InvalidInput(f"the body is {error}") from error
    except ValueError as error:
        raise InvalidInput(f"the body is not JSON: {error}") from error


class Body(BaseModel):
    """A request's body; an unknown key is an error, so that a typing mistake shows at once."""

    model_config = ConfigDict(extra="forbid", defer_build=True)  # most are never asked for


Wait = Annotated[float, Field(ge=0, le=30)]
"""Seconds that the agent has to start; 0 answers without waiting."""


class SpawnBody(Body):
    """`POST /v1/workers`; `path` is where the client read the template, `workspace` a folder of this machine.

    `branches` are patterns of branches of its repository that the worker sees beside the one that it begins from.

    `pin` is the caller's, if they have set one.
    """

    template: str
    files: dict[str, str] = {}
    name: Name = ""
    project: Name = ""
    sandbox: Name = ""
    isolation: Name = ""
    set: dict[str, str] = {}
    path: Annotated[str, Field(max_length=MAX_PATH)] = ""
    workspace: Annotated[str, Field(max_length=MAX_PATH)] = ""
    mode: Literal["", "worktree", "copy", "direct"] = ""
    branches: Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=20)] = []
    autonomous: bool = False
    wait: Wait = 0.0
    pin: Annotated[SecretStr, Field(max_length=MAX_PIN)] = SecretStr("")


class RestartBody(Body):
    """`POST /v1/workers/{ref}/restart`; without a template the worker keeps its own. `pin` is for another one."""

    template: str = ""
    files: dict[str, str] = {}
    wait: Wait = 0.0
    pin: Annotated[SecretStr, Field(max_length=MAX_PIN)] = SecretStr("")


class DiffBody(Body):
    """`POST /v1/workers/{ref}/diff`; `stat` for names and numbers alone, `whole` for all lines of the files.

    `large` lets in what is over the limit.
    """

    paths: Annotated[list[Annotated[str, Field(max_length=MAX_PATH)]], Field(max_length=100)] = []
    stat: bool = False
    whole: bool = False
    large: bool = False


class ApplyBody(Body):
    """`POST /v1/workers/{ref}/apply`, `POST /v1/tasks/{ref}/apply`; `tree` is what a merge brings, as it was shown."""

    merge: bool = False
    undo: bool = False
    tree: Annotated[str, Field(max_length=64)] = ""


class SyncBody(Body):
    """`POST /v1/workers/{ref}/sync`; `resolve` gives conflicts to its agent; `timeout` bounds the wait for its turn.

    `accept` is the `commit` of a `merge` of its agent, which counts from then on.
    """

    rebase: bool = False
    resolve: bool = False
    accept: Annotated[str, Field(max_length=64)] = ""
    timeout: Annotated[float, Field(ge=0, le=3600)] = 300.0


class RotateBody(Body):
    """`POST /v1/trust/rotate`."""

    kind: Literal["agents", "account", "operator", "proxy", "messages"]


class CredentialBody(Body):
    """`POST /v1/credentials`; `header` is `Name: value` with `{secret}` in it."""

    name: Name
    host: Annotated[str, Field(max_length=300)]
    path: Annotated[str, Field(max_length=1000)] = ""
    header: Annotated[str, Field(max_length=1000)] = ""
    secret: SecretStr
    workers: Annotated[list[Name], Field(max_length=1000)] = []
    replace: bool = False


class ContentBody(Body):
    """What is said: a text, parts (A2A 1.0), or both, the text first; with the context id of its thread."""

    text: str = ""
    parts: Annotated[list[dict[str, Any]], Field(max_length=MAX_PARTS)] = []
    subject: Annotated[str, Field(max_length=MAX_LABEL)] = ""
    thread: Annotated[str, Field(max_length=MAX_CONTEXT)] = ""

    @property
    def content(self) -> Content:
        """Raises InvalidInput where it says nothing, or a part is malformed."""
        return Content.given(self.text, self.parts, subject=self.subject, thread=self.thread)


class MessageBody(ContentBody):
    """`POST /v1/messages`; `expires_in` in seconds."""

    to: Text
    expects_reply: bool = True
    expires_in: Annotated[float, Field(gt=0)] | None = None
    key: Annotated[str, Field(max_length=MAX_KEY)] = ""
    reply_to: Annotated[str, Field(max_length=64)] = ""


def _plain(value: Any) -> Any:
    """What a client has sent as null is what it has left out."""
    return "" if value is None else value


class PlainMessageBody(BaseModel):
    """`POST /api/messages`: the fields of small servers for agents, and what else such a client sends beside them."""

    recipient_id: Text
    body: Text
    subject: Annotated[str, Field(max_length=MAX_LABEL), BeforeValidator(_plain)] = ""
    thread_id: Annotated[str, Field(max_length=MAX_CONTEXT), BeforeValidator(_plain)] = ""
    idempotency_key: Annotated[str, Field(max_length=MAX_KEY), BeforeValidator(_plain)] = ""


class AuthorizationBody(BaseModel):
    """`POST /api/authorizations`: who is let in, and what else such a client sends beside it."""

    grantee_id: Text
    scopes: list[GrantScope] | None = None
    expires_at: AwareDatetime | None = None


class AnnouncementBody(ContentBody):
    """`POST /v1/announcements`."""

    key: Annotated[str, Field(max_length=MAX_KEY)] = ""


class AckBody(Body):
    """`POST /v1/inbox/ack`; `how` they were `delivered`: by which hook, queue or tool."""

    ids: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=64)]],
        Field(min_length=1, max_length=MAX_PAGE),
    ]
    state: Literal["delivered", "seen"]
    how: Annotated[str, Field(max_length=MAX_HOW)] = ""

    @model_validator(mode="after")
    def _of_delivery(self) -> AckBody:
        if self.how and self.state != "delivered":
            raise ValueError("how goes with delivered")
        return self


class ArchiveBody(Body):
    """`POST /v1/inbox/archive`: which messages, or all that were `read`; false for `archived` takes them out again."""

    ids: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=64)]], Field(max_length=MAX_PAGE)
    ] = []
    read: bool = False
    archived: bool = True

    @model_validator(mode="after")
    def _of_some(self) -> ArchiveBody:
        if bool(self.ids) == self.read or (self.read and not self.archived):
            raise ValueError("either ids, or read to put all of those away")
        return self


class ReadBody(Body):
    """`POST /v1/projects/{id}/read`: the sequence of the last post that was read; 0 for the last one."""

    seq: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0


class PostBody(ContentBody):
    """`POST /v1/projects/{id}/posts`."""

    key: Annotated[str, Field(max_length=MAX_KEY)] = ""


class TaskBody(ContentBody):
    """`POST /v1/tasks`: for the agent `to`, for an agent that has the skill, or both; `context` is its thread."""

    to: Annotated[str, Field(max_length=70)] = ""
    skill: Annotated[str, Field(max_length=MAX_LABEL)] = ""
    key: Annotated[str, Field(max_length=MAX_KEY)] = ""
    context: Annotated[str, Field(max_length=MAX_CONTEXT)] = ""


class RetryBody(Body):
    """`POST /v1/tasks/{id}/retry`; with `force` also a completed task is asked for again."""

    key: Annotated[str, Field(max_length=MAX_KEY)] = ""
    force: bool = False


class CancelBody(Body):
    """`POST /v1/tasks/{id}/cancel`; `timeout` in seconds for the task to end."""

    reason: Annotated[str, Field(max_length=MAX_REASON)] = ""
    timeout: Annotated[float, Field(ge=0, le=MAX_WAIT)] = 15.0


class AnswerBody(ContentBody):
    """`POST /v1/tasks/{id}/answer`."""


class StatusBody(ContentBody):
    """`POST /v1/tasks/{id}/status`; `seq` is the sequence of the task that the caller knows."""

    state: Literal[
        "working",
        "input-required",
        "auth-required",
        "completed",
        "failed",
        "canceled",
        "rejected",
    ]
    seq: Annotated[int, Field(ge=0)] | None = None

    @property
    def said(self) -> Content | None:
        """What is said with the state, None for nothing."""
        return self.content if self.text or self.parts else None


class ArtifactBody(ContentBody):
    """`POST /v1/tasks/{id}/artifacts`: an artifact or, with `append`, a further piece of the one with that `id`."""

    id: Annotated[str, Field(max_length=MAX_LABEL)] = ""
    name: Annotated[str, Field(max_length=MAX_LABEL)] = ""
    description: Annotated[str, Field(max_length=MAX_DESCRIPTION)] = ""
    metadata: dict[str, Any] | None = None
    append: bool = False
    last: bool = True
    seq: Annotated[int, Field(ge=0)] | None = None

    @property
    def artifact(self) -> dict[str, Any]:
        """The A2A Artifact; without an id, its name is the id."""
        made: dict[str, Any] = {"artifactId": self.id or self.name or "result"}
        for key in ("name", "description", "metadata"):
            if value := getattr(self, key):
                made[key] = value
        return made | {"parts": [dict(part) for part in self.content.parts]}


class EventsBody(Body):
    """`POST /v1/workers/{uid}/sdk-events`: `first` is the number of the first event in the sidecar's `run`, from 1."""

    events: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=MAX_EVENTS)]
    run: Annotated[str, Field(max_length=MAX_LABEL, pattern=r"^[A-Za-z0-9_-]*$")] = ""
    first: Annotated[int, Field(ge=0, le=MAX_NUMBER)] = 0

    @model_validator(mode="after")
    def _numbered(self) -> EventsBody:
        if bool(self.run) != bool(self.first):
            raise ValueError("run and first belong together")
        return self


class ControlBody(Body):
    """`POST /v1/workers/{ref}/control`: the answer to the approval `id`, or an interrupt."""

    type: Literal["control_response", "interrupt"]
    id: Annotated[str, Field(max_length=64)] = ""
    decision: Literal["", "allowed", "denied", "edited"] = ""
    input: dict[str, Any] | None = None
    reason: Annotated[str, Field(max_length=MAX_REASON)] = ""
    channel: Literal["cli", "attach", "chat", "screen", "api"] = "api"
    pin: Annotated[SecretStr, Field(max_length=MAX_PIN)] = SecretStr("")


class PolicyBody(Body):
    """`POST` and `DELETE /v1/workers/{ref}/policy`: a pattern as templates have them.

    Or, with `POST` alone, how much is done unasked, with `task` in the turns for that task. `channel` is how what waits
    already is answered.
    """

    pattern: Annotated[str, Field(max_length=4 * MAX_PATTERN)] = ""
    autonomy: Literal["", "ask", "edits", "all"] = ""
    task: Annotated[str, Field(max_length=64)] = ""
    channel: Literal["cli", "attach", "chat", "screen", "api"] = "api"
    pin: Annotated[SecretStr, Field(max_length=MAX_PIN)] = SecretStr("")


class PinBody(Body):
    """`PUT /v1/pin`; `old` is the PIN before, an empty `pin` removes it."""

    pin: Annotated[SecretStr, Field(max_length=MAX_PIN)]
    old: Annotated[SecretStr, Field(max_length=MAX_PIN)] = SecretStr("")


class BackupBody(Body):
    """`POST /v1/backup`."""

    file: str = Field(min_length=1, max_length=4096)
    passphrase: SecretStr = Field(max_length=1024)


class OpeningBody(Body):
    """`POST` and `DELETE /v1/orgs/{name}/openings`: a folder, a wall, or both; `mode` is how far the folder is open."""

    folder: Annotated[str, Field(max_length=MAX_PATH)] = ""
    mode: Literal["copy", "direct"] = "copy"
    wall: Literal["", "partial", "none"] = ""
    pin: Annotated[SecretStr, Field(max_length=MAX_PIN)] = SecretStr("")

    @model_validator(mode="after")
    def _something(self) -> OpeningBody:
        if not self.folder and not self.wall:
            raise ValueError("it names neither a folder nor a wall")
        return self


class OrgBody(Body):
    """`POST /v1/orgs`."""

    name: Name


ExpiresIn = Annotated[float, Field(gt=0, le=10_000 * 86400.0, allow_inf_nan=False)]


class KeyBody(Body):
    """`POST /v1/keys`: for `agent`, or for oneself; without scopes the usual ones; `expires_in` in seconds.

    `pin` is the caller's, for a key that may operate or administer.
    """

    agent: Name = ""
    name: Annotated[str, Field(max_length=MAX_LABEL)] = ""
    scopes: Annotated[list[Scope], Field(max_length=len(Scope))] = []
    expires_in: ExpiresIn | None = None
    pin: Annotated[SecretStr, Field(max_length=MAX_PIN)] = SecretStr("")


class WebhookBody(Body):
    """`POST /v1/webhooks`: where to, what for, and whose: the caller's, or of an agent that it owns."""

    url: Annotated[str, Field(min_length=1, max_length=MAX_LINK)]
    events: Annotated[list[HookEvent], Field(min_length=1, max_length=len(HookEvent))] = [
        HookEvent.MESSAGE
    ]
    agent: Name = ""


class ReplacingBody(Body):
    """`POST /v1/keys/{key}/rotate`; `pin` as in a KeyBody."""

    pin: Annotated[SecretStr, Field(max_length=MAX_PIN)] = SecretStr("")


class InviteBody(Body):
    """`POST /v1/invites`: the scopes are those of the keys, `pin` is as in a KeyBody; `expires_in` in seconds."""

    kind: Literal["external", "human"] = "external"
    scopes: Annotated[list[Scope], Field(max_length=len(Scope))] = []
    uses: Annotated[int, Field(ge=1, le=MAX_INVITE_USES)] = 1
    expires_in: Annotated[float, Field(gt=0, le=366 * 86400.0)] = 7 * 86400.0
    pin: Annotated[SecretStr, Field(max_length=MAX_PIN)] = SecretStr("")


class JoinBody(Body):
    """`POST /v1/join`: the wanted nick, with `invite` and `code` of an invite, or without both.

    `key` is a secret of 32 characters or more that the caller makes: who asks again with it gets the same agent.
    """

    display_name: Annotated[str, Field(min_length=1, max_length=64)]
    invite: Annotated[str, Field(max_length=64)] = ""
    code: Annotated[SecretStr, Field(max_length=64)] = SecretStr("")
    owner_email: Annotated[str, Field(max_length=MAX_EMAIL)] = ""
    card: dict[str, Any] | None = None
    key: Annotated[SecretStr, Field(max_length=MAX_KEY)] = SecretStr("")


Address = Annotated[str, Field(min_length=1, max_length=140)]
"""An agent: nick, `nick.org` or uid, with or without `@`."""

LetInFor = Annotated[list[GrantScope], Field(max_length=len(GrantScope))]


class GrantBody(Body):
    """`POST /v1/grants`: who is let in, by the caller or by `granter`; without scopes for messages alone.

    `expires_in` in seconds.
    """

    grantee: Address
    granter: Name = ""
    scopes: LetInFor = []
    expires_in: ExpiresIn | None = None


class GrantRequestBody(Body):
    """`POST /v1/grants/requests`: who is asked, and for what; without scopes for messages alone."""

    granter: Address
    scopes: LetInFor = []
    reason: Annotated[str, Field(max_length=MAX_REASON)] = ""


class GrantAnswerBody(Body):
    """`POST /v1/grants/requests/{asked}`: without scopes it is allowed for what was asked.

    `expires_in` in seconds.
    """

    decision: Literal["allowed", "denied"]
    scopes: LetInFor = []
    expires_in: ExpiresIn | None = None


class GrantsOnlyBody(Body):
    """`PUT /v1/grants/only`: `agent` is the caller where none is named."""

    grants_only: bool
    agent: Name = ""


class AdmissionBody(Body):
    """`PUT /v1/admission`; what is not given stays."""

    registration: Literal["", "invite", "open", "closed"] = ""
    grants_only: bool | None = None


class SessionBody(Body):
    """`POST /v1/sessions`: the session that `client` knows by `key`; `nick` is the name that it wants.

    `project` names the repository of its `folder`, `version` is that of its client.
    """

    client: Annotated[str, Field(pattern=CLIENT)]
    key: Annotated[str, Field(min_length=1, max_length=MAX_SESSION_KEY)]
    nick: Name = ""
    folder: Annotated[str, Field(max_length=MAX_PATH)] = ""
    project: Annotated[str, Field(max_length=MAX_PATH)] = ""
    version: Annotated[str, Field(max_length=MAX_LABEL)] = ""


class HeardBody(Body):
    """`PUT /v1/sessions/{ref}`: what is new of a session; nothing, where it was heard alone."""

    state: Literal["", "busy", "idle", "gone"] = ""
    key: Annotated[str, Field(max_length=MAX_SESSION_KEY)] = ""
    folder: Annotated[str, Field(max_length=MAX_PATH)] = ""


class AskedBody(Body):
    """`POST /v1/sessions/{ref}/approvals`: what a session's client asks; `id` is made by who asks."""

    id: Annotated[str, Field(pattern=REQUEST_ID.pattern, min_length=32, max_length=64)]
    tool: Annotated[str, Field(min_length=1, max_length=MAX_LABEL)]
    input: dict[str, Any] = {}
    seconds: Annotated[float, Field(gt=0, le=MAX_ASKED)] = 60.0


class WithdrawBody(Body):
    """`DELETE /v1/sessions/{ref}/approvals/{approval}`."""

    reason: Annotated[str, Field(max_length=MAX_REASON)] = ""


class NickBody(Body):
    """`POST /v1/agents/{ref}/rename`."""

    nick: Name


class OwnerBody(Body):
    """`PUT /v1/agents/{ref}/owner`; `owner` is a person, "" for nobody."""

    owner: Name = ""


class CodeBody(Body):
    """`POST /v1/keys/codes`; `nick` is that of a new agent."""

    nick: Name = ""


class ClaimBody(Body):
    """`POST /v1/keys/claim`."""

    code: Annotated[SecretStr, Field(min_length=1, max_length=64)]


class PersonBody(Body):
    """`POST /v1/people`: the scopes and the end are those of their first key, `pin` is as in a KeyBody."""

    nick: Name
    scopes: Annotated[list[Scope], Field(max_length=len(Scope))] = []
    expires_in: ExpiresIn | None = None
    pin: Annotated[SecretStr, Field(max_length=MAX_PIN)] = SecretStr("")


class AgentBody(PersonBody):
    """`POST /v1/agents`: an agent that Postroom does not run; `card` is what its Agent Card says of it.

    With `public` its card at its A2A address is for everybody, also without a key.
    """

    kind: Literal["external", "service"] = "external"
    card: dict[str, Any] | None = None
    public: bool = False


class RemoteBody(Body):
    """`POST /v1/agents/remote`: the agent of other people at `url`; `nick` is "" for one made of its name."""

    url: Annotated[str, Field(max_length=MAX_LINK)]
    nick: Annotated[str, Field(max_length=80)] = ""
    credential: Annotated[str, Field(max_length=80)] = ""
    deadline: Annotated[float, Field(ge=0)] = 0.0
