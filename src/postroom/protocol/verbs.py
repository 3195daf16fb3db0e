"""The verbs of an agent, each once.

This table makes the lines that an agent prints, the routes of the local API with their checks, and the commands of
`postroom-agent`; a test compares docs/agents.md with it. Each verb is a class: its annotated attributes are the
fields that an agent may set, the others are for the sidecar's own use. Pure.
"""

# The annotations are read when a class is made, so they have to be objects: no `from __future__ import annotations`.

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, NamedTuple, Self, dataclass_transform

from postroom.errors import InvalidInput
from postroom.protocol.content import Content
from postroom.protocol.fields import (
    Arguments,
    BlobUrl,
    Body,
    Bytes,
    Choice,
    Environment,
    Field,
    FileMode,
    Flag,
    Line,
    Parts,
    Path,
    Project,
    Ref,
    Seconds,
    Sha256,
    TaskId,
    Text,
)
from postroom.protocol.limits import (
    MAX_CONTEXT,
    MAX_KEY,
    MAX_LABEL,
    MAX_READ,
    MAX_REASON,
    MAX_RUN,
    MAX_WAIT,
)

CURRENT = "current"
"""In the path of a route: the task that the agent works on."""

_REQUIRED = object()


class Param(NamedTuple):
    """A field of a verb: its attribute, its name in a line, a body or a query, and its default."""

    attribute: str
    name: str
    kind: Field
    default: Any

    @property
    def required(self) -> bool:
        """Whether the field has to be there."""
        return self.default is _REQUIRED

    def read(self, record: Mapping[str, Any]) -> Any:
        """The attribute's value in a record.

        Raises:
            InvalidInput: the field is missing or invalid.
        """
        value = record.get(self.name)
        if value is None and self.kind.formerly:
            value = record.get(self.kind.formerly)
        missing = self.name not in record if self.kind.takes_null else value is None
        if not missing and (value != "" or self.default != ""):
            return self.kind.read(self.name, value)
        if self.required:
            raise self.kind.wrong(self.name)
        return self.default


class Verb(NamedTuple):
    """A verb's entry in the table, beside its fields.

    Attributes:
        name: the type of its line.
        route: method and path in the local API; a part in braces is a field. "" for none.
        pattern: the method and the parts of the path.
        command: of `postroom-agent`, "" for none.
        answer: type of the line that answers a line, "" where only a refusal is answered.
        line: whether an agent may print it.
    """

    name: str
    help: str
    params: tuple[Param, ...]
    route: str
    pattern: tuple[str, ...]
    command: str
    answer: str
    line: bool


VERBS: dict[str, type["Action"]] = {}
"""All verbs by name."""


@dataclass_transform(frozen_default=True)
class Action:
    """An action of an agent; to be treated as immutable.

    It is a small dataclass of its own: `postroom-agent` starts anew for each command, and making so many real ones
    takes longer than the rest of its start.
    """

    verb: ClassVar[Verb]
    _attributes: ClassVar[tuple[str, ...]]
    _defaults: ClassVar[dict[str, Any]]

    def __init_subclass__(
        cls, *, verb: str, route: str = "", command: str = "", answer: str = "", line: bool = True
    ) -> None:
        annotations = cls.__annotations__
        cls._attributes = cls.__match_args__ = tuple(annotations)
        cls._defaults = {name: vars(cls)[name] for name in annotations if name in vars(cls)}
        params = []
        for attribute, annotation in annotations.items():
            for kind in getattr(annotation, "__metadata__", ()):
                default = cls._defaults.get(attribute, _REQUIRED)
                default = default if kind.missing is None else kind.missing
                params.append(Param(attribute, kind.name or attribute, kind, default))
        doc = (cls.__doc__ or "").splitlines()[0].removesuffix(".")
        help_text = doc[:1].lower() + doc[1:]
        method, _, path = route.partition(" ")
        pattern = (method, *path.split("/"))
        cls.verb = Verb(verb, help_text, tuple(params), route, pattern, command, answer, line)
        VERBS[verb] = cls

    def __init__(self, *values: Any, **named: Any) -> None:
        given = dict(zip(self._attributes, values, strict=False)) | named
        wanted = self._defaults | given
        if len(wanted) != len(self._attributes) or len(given) != len(values) + len(named):
            raise TypeError(f"{type(self).__name__} takes {', '.join(self._attributes)}")
        vars(self).update({name: wanted[name] for name in self._attributes})

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None  # a `ref` may be anything

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({values})"

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> Self:
        """The action in a record.

        Raises:
            InvalidInput: a field is missing or invalid.
        """
        action = cls(**{param.attribute: param.read(record) for param in cls.verb.params})
        action._check(record)
        return action

    def _check(self, record: Mapping[str, Any]) -> None:
        """Refuse fields that contradict each other; `record` is where they came from."""


def read_query(action: type[Action], query: Mapping[str, str]) -> dict[str, Any]:
    """The record in a URL's query.

    Raises:
        InvalidInput: a value is invalid.
    """
    record: dict[str, Any] = {}
    for param in action.verb.params:
        if text := query.get(param.name, ""):
            try:
                record[param.name] = param.kind.parse(text)
            except ValueError as error:
                raise param.kind.wrong(param.name) from error
    return record


def find_route(method: str, path: str) -> tuple[type[Action], dict[str, str]] | None:
    """The verb of a request, and the fields in its path; None if there is none."""
    given = (method, *path.split("/"))
    for action in VERBS.values():
        pattern = action.verb.pattern
        pairs = list(zip(pattern, given, strict=False))
        if len(pattern) == len(given) and all(a == b or a.startswith("{") for a, b in pairs):
            fields = {part[1:-1]: said for part, said in pairs if part.startswith("{")}
            if issubclass(action, TaskAction) and fields["task"] == CURRENT:
                fields["task"] = ""
            return action, fields
    return None


class Saying:
    """What verbs have in common that say something by a text, by parts, or by both: then the text is the first part."""

    blank = True
    """Whether a text alone may be blank."""

    @property
    def content(self) -> Content:
        """What is said."""
        said = vars(self)
        if said.get("said") is not None:
            return said["said"]
        text, parts = said["text"], said["parts"]
        texts = ({"text": text},) if text or not parts else ()
        return Content((*texts, *parts), said.get("subject", ""), said.get("thread", ""))

    def _check(self, record: Mapping[str, Any]) -> None:
        said = vars(self)
        if said["parts"]:
            return
        if record.get("text") is None:
            raise InvalidInput("'text' has to be a text")
        if not self.blank and not said["text"].strip():
            raise InvalidInput("'text' is empty")


_TEXT = "the text; from standard input if not given"
_Body = Annotated[str, Body(_TEXT, argument="text", missing="")]
_Said = Annotated[str, Text(argument="text")]
_Parts = Annotated[tuple[dict[str, Any], ...], Parts("beside or instead of the text")]
_Subject = Annotated[str, Line("one line", option="--subject", limit=MAX_LABEL)]
_Thread = Annotated[
    str, Field("id of the conversation", option="--thread", metavar="ID", limit=MAX_CONTEXT)
]
_Key = Annotated[
    str, Field("idempotency key: the same key is the same message", option="--key", limit=MAX_KEY)
]
_Re = Annotated[
    str,
    Field("id of the message or task that it is for", option="--re", metavar="ID", limit=MAX_LABEL),
]
_Ref = Annotated[Any, Ref("echoed in the line that answers")]
_OwnTask = Annotated[
    str, TaskId("another than this one", option="--task", metavar="ID", missing="")
]
_AskedTask = Annotated[str, TaskId("of the task", argument="id")]
_FilePath = Annotated[str, Path("relative to the workspace", argument="path")]


# ── messages ────────────────────────────────────────────────────────────────────────────────────────


class Send(Saying, Action, verb="send", route="POST /v1/send", command="send", answer="receipt"):
    """Send a message; prints its id."""

    to: Annotated[str, Field("@nick or uid", argument="to")]
    text: _Body
    expects_reply: Annotated[
        bool, Flag("the message wants an answer", option="--expects-reply")
    ] = False
    key: _Key = ""
    expires_in: Annotated[float, Seconds("0: never", option="--expires-in")] = 0.0
    ref: _Ref = None
    re: _Re = ""
    parts: _Parts = ()
    subject: _Subject = ""
    thread: _Thread = ""


class Reply(
    Saying, Action, verb="reply", route="POST /v1/reply", command="reply", answer="receipt"
):
    """Answer a message and confirm it; prints the id."""

    to: Annotated[str, Field("id of the message to answer", argument="id")]
    text: _Body
    expects_reply: Annotated[bool, Flag("the answer wants an answer")] = False
    key: _Key = ""
    expires_in: Annotated[float, Seconds("0: never")] = 0.0
    ref: _Ref = None
    parts: _Parts = ()
    subject: _Subject = ""
    thread: Annotated[str, Field("if not that of the message", limit=MAX_CONTEXT)] = ""


class Post(Saying, Action, verb="post", route="POST /v1/post", command="post", answer="receipt"):
    """Post to the project's feed; prints the id."""

    text: _Body
    project: Annotated[str, Project("another project of this worker", option="--project")] = ""
    key: _Key = ""
    ref: _Ref = None
    re: _Re = ""
    parts: _Parts = ()
    subject: _Subject = ""
    thread: _Thread = ""


class Announce(
    Saying,
    Action,
    verb="announce",
    route="POST /v1/announce",
    command="announce",
    answer="receipt",
):
    """Say something to everybody of the organisation; prints the id."""

    text: _Body
    key: _Key = ""
    ref: _Ref = None
    re: _Re = ""
    parts: _Parts = ()
    subject: _Subject = ""
    thread: _Thread = ""


class Seen(Action, verb="seen", route="POST /v1/seen", command="seen"):
    """Confirm a message."""

    id: Annotated[str, Field("id of the message", argument="id")]
    ref: _Ref = None


class ListMessages(Action, verb="inbox", route="GET /v1/inbox", command="inbox", line=False):
    """Messages that are not confirmed."""


class ListThread(Action, verb="thread", route="GET /v1/thread", command="thread", answer="thread"):
    """What this agent said and was told in a conversation, oldest first."""

    thread: Annotated[str, Field("of the conversation", argument="id", limit=MAX_CONTEXT)]
    ref: _Ref = None


class WhoAmI(Action, verb="whoami", route="GET /v1/whoami", command="whoami", line=False):
    """Who I am."""


class Find(Action, verb="find", route="GET /v1/agents", command="agents", answer="agents"):
    """Who is there, and what they can do."""

    skill: Annotated[str, Field("only agents that have it", option="--skill", limit=MAX_LABEL)] = ""
    ref: _Ref = None


class SetStatus(Action, verb="status"):
    """Say whether the agent is at work."""

    state: Annotated[str, Choice("", "working", "idle")]
    detail: Annotated[str, Field("for people")] = ""


# ── the task that the agent works on; `task` "" is the one it was handed last ───────────────────────


class Progress(
    Saying, Action, verb="update", route="POST /v1/tasks/{task}/update", command="update"
):
    """Say how far the task is."""

    task: _OwnTask
    text: _Body
    ref: _Ref = None
    parts: _Parts = ()


class Artifact(
    Saying, Action, verb="artifact", route="POST /v1/tasks/{task}/artifact", command="artifact"
):
    """Give a result of the task.

    Attributes:
        id: "" for the artifact that `name` names, or a new one.
        append: it comes behind what the artifact holds; else it takes its place.
        url: of the blob that is the piece, "" where something else is.
    """

    task: _OwnTask
    text: _Body
    name: Annotated[str, Field("for people", option="--name", limit=MAX_LABEL)] = ""
    id: Annotated[str, Field("of the artifact", option="--id", limit=MAX_LABEL)] = ""
    append: Annotated[bool, Flag("a further piece of it", option="--append")] = False
    last: Annotated[bool, Flag("further pieces follow", option="--more")] = True
    url: Annotated[str, BlobUrl("of a blob, instead of a text")] = ""
    media_type: Annotated[str, Field("of the blob", name="mediaType", limit=MAX_LABEL)] = ""
    filename: Annotated[str, Field("of the blob", limit=MAX_LABEL)] = ""
    ref: _Ref = None
    parts: _Parts = ()

    @property
    def content(self) -> Content:
        """What it holds."""
        if not self.url:
            return super().content
        part = {"url": self.url, "mediaType": self.media_type, "filename": self.filename}
        return Content(({name: value for name, value in part.items() if value},))

    def _check(self, record: Mapping[str, Any]) -> None:
        if not self.url:
            super()._check(record)
        elif self.text or self.parts:
            raise InvalidInput("an artifact has a 'url', or a 'text' and 'parts', not both")


class Complete(
    Saying, Action, verb="complete", route="POST /v1/tasks/{task}/complete", command="complete"
):
    """The task is done.

    Attributes:
        message: an A2A client that waits gets what is said as a Message, in place of the Task.
    """

    task: _OwnTask
    text: _Said = ""
    message: Annotated[
        bool,
        Flag("this is the whole answer: an A2A client gets it and no task", option="--message"),
    ] = False
    ref: _Ref = None
    parts: _Parts = ()

    @property
    def content(self) -> Content:
        """What is said; marked where it is the whole answer."""
        said = super().content
        if not self.message:
            return said
        from postroom_a2a.tasks import (
            WHOLE,
        )  # late: for `postroom-agent`, which starts anew each time

        return Content(said.parts, more={"metadata": {WHOLE: True}})

    def _check(self, record: Mapping[str, Any]) -> None:
        """Accept one that says nothing."""


class Fail(Saying, Action, verb="fail", route="POST /v1/tasks/{task}/fail", command="fail"):
    """The task cannot be done."""

    task: _OwnTask
    text: _Body
    ref: _Ref = None
    parts: _Parts = ()


class Reject(Saying, Action, verb="reject", route="POST /v1/tasks/{task}/reject", command="reject"):
    """The task will not be done."""

    task: _OwnTask
    text: _Said = ""
    ref: _Ref = None
    parts: _Parts = ()

    def _check(self, record: Mapping[str, Any]) -> None:
        """Accept one that says nothing."""


class AskInput(
    Saying,
    Action,
    verb="ask",
    route="POST /v1/tasks/{task}/ask",
    command="ask",
):
    """Ask who wants the task; the answer comes as `input`, or with the task once more."""

    blank = False

    task: _OwnTask
    text: _Body
    ref: _Ref = None
    parts: _Parts = ()


class AskAuth(
    Saying,
    Action,
    verb="ask_auth",
    route="POST /v1/tasks/{task}/ask_auth",
    command="ask-auth",
):
    """Ask to be let in somewhere, by whoever can; the answer comes as for a question."""

    blank = False

    task: _OwnTask
    text: _Body
    ref: _Ref = None
    parts: _Parts = ()


class Canceled(Saying, Action, verb="canceled", route="POST /v1/tasks/{task}/canceled"):
    """The agent has stopped, as it was told."""

    task: _OwnTask
    text: _Said = ""
    ref: _Ref = None
    parts: _Parts = ()

    def _check(self, record: Mapping[str, Any]) -> None:
        """Accept one that says nothing."""


TaskAction = Progress | Artifact | Complete | Fail | Reject | AskInput | AskAuth | Canceled


# ── tasks that the agent asks others for ────────────────────────────────────────────────────────────


class Delegate(
    Saying,
    Action,
    verb="delegate",
    route="POST /v1/delegate",
    command="delegate",
    answer="delegated",
):
    """Ask another agent for a task; prints its id.

    Attributes:
        to: "" for any agent with the skill.
        skill: of the other's card, "" for none in particular.
        thread: A2A context that the task belongs to, "" for a new one.
        quiet: somebody else follows the task, and the agent's program is told of its end alone.
        named: the `messageId` that an A2A client gave the request, "" for none.
        said: all that such a client said, in place of the other fields.
    """

    blank = False

    to: Annotated[str, Field("@nick or uid", missing="")]
    skill: Annotated[
        str, Field("any agent that has it", option="--skill", limit=MAX_LABEL, missing="")
    ]
    text: Annotated[str, Text("what to do", missing="")]
    key: Annotated[str, Field("the same key is the same task", option="--key", limit=MAX_KEY)] = ""
    stream: Annotated[bool, Flag("hear of every change")] = False
    thread: Annotated[
        str,
        Field(
            "id of the conversation",
            option="--thread",
            metavar="ID",
            limit=MAX_CONTEXT,
            formerly="context",
        ),
    ] = ""
    ref: _Ref = None
    re: _Re = ""
    parts: _Parts = ()
    subject: _Subject = ""
    quiet: bool = False
    named: str = ""
    said: Content | None = None

    def _check(self, record: Mapping[str, Any]) -> None:
        if not self.to and not self.skill:
            raise InvalidInput("'to' or 'skill' has to say who is to do it")
        super()._check(record)


class CancelTask(
    Action, verb="cancel_task", route="POST /v1/tasks/{task}/cancel", command="cancel"
):
    """End a task that this agent asked for."""

    task: _AskedTask
    reason: Annotated[str, Field("for who works on it", option="--reason", limit=MAX_REASON)] = ""
    ref: _Ref = None


class AnswerTask(
    Saying, Action, verb="answer_task", route="POST /v1/tasks/{task}/answer", command="answer"
):
    """Answer what such a task asks.

    Attributes:
        named, said: as in `Delegate`.
    """

    blank = False

    task: _AskedTask
    text: _Body
    ref: _Ref = None
    named: str = ""
    parts: _Parts = ()
    said: Content | None = None


class ListTasks(Action, verb="tasks", route="GET /v1/tasks", command="tasks", line=False):
    """Tasks of this agent, and those that it asked for."""

    role: Annotated[str, Choice("only those", "worker", "requester", option="--role")] = ""
    open: Annotated[bool, Flag("only those that have not ended", option="--open")] = False


class GetTask(Action, verb="task", route="GET /v1/tasks/{task}", command="task", line=False):
    """What became of a task."""

    task: Annotated[str, Field("of the task", argument="id")]
    wait: Annotated[bool, Flag("until it has ended, or asks something")] = False
    timeout: Annotated[float, Seconds("of the wait", most=MAX_WAIT)] = MAX_WAIT


# ── commands, files and blobs ───────────────────────────────────────────────────────────────────────


class RunCommand(Action, verb="run", route="POST /v1/run", command="run", line=False):
    """Run a program and exit as it does."""

    words: Annotated[
        tuple[str, ...], Arguments("program and arguments; no shell reads them", name="command")
    ]
    cwd: Annotated[str, Path("folder in the workspace", option="--cwd", metavar="DIR")] = ""
    timeout: Annotated[float, Seconds("then kill it", option="--timeout", most=MAX_RUN)] = 60.0
    env: Annotated[Mapping[str, str], Environment("set this, too")] = MappingProxyType({})

    def _check(self, record: Mapping[str, Any]) -> None:  # noqa: ARG002
        if not self.timeout:
            raise InvalidInput("'timeout' has to be more than 0 seconds")


class ReadFile(Action, verb="read", route="GET /v1/files", command="file read", line=False):
    """Print a file."""

    path: _FilePath
    offset: Annotated[int, Bytes("where to begin")] = 0
    length: Annotated[int, Bytes("at most so many")] = MAX_READ


class WriteFile(Action, verb="write", route="PUT /v1/files", command="file write", line=False):
    """Make or replace a file from standard input."""

    path: _FilePath
    mode: Annotated[int, FileMode("permission bits", option="--mode", metavar="OCTAL")] = 0o644


class RemoveFile(
    Action, verb="remove", route="DELETE /v1/files", command="file remove", line=False
):
    """Remove a file, or a folder with all that is in it."""

    path: _FilePath


class ListFolder(Action, verb="list", route="GET /v1/folders", command="file list", line=False):
    """What is in a folder: mode, size, name."""

    path: _FilePath = ""


class PutBlob(Action, verb="put", route="PUT /v1/blobs", command="blob put", line=False):
    """Store a file; prints its URL."""


class GetBlob(Action, verb="get", route="GET /v1/blobs/{sha256}", command="blob get", line=False):
    """Fetch a blob and check it."""

    sha256: Annotated[str, Sha256("of the content")]
