"""The table of operations: what anyone may ask of an organisation, each said once, beside the function that does it.

    operations = Operations()

    @operations.post("/v1/tasks/{task}/answer", Scope.TASK, fails=(NotFound, Conflict, *STORING))
    async def answer(parts: Parts, task: TaskRef, body: AnswerBody, me: Principal) -> shapes.Task:
        ...

The first line of the docstring is the summary, the return annotation the shape of the answer. A parameter is given by
its name (`OF_API`, `OF_REQUEST`), else it is of the path, the body (a model or an object), or the query. From the
table come the routes (`control.router`), the document of the API (`control.openapi`) and docs/api.md.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partialmethod
from types import FunctionType, NoneType
from typing import TYPE_CHECKING, Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl

from postroom.errors import InvalidInput, PostroomError, Refused, RequestTimeout, StreamFull
from postroom.protocol.limits import MAX_BODY
from postroom.protocol.principal import Scope

if TYPE_CHECKING:
    from pydantic import TypeAdapter

F = TypeVar("F", bound=Callable[..., Any])

OF_API = frozenset({"parts", "orgs", "measuring", "announcement", "table"})
"""Parameters that are no fields but of the API: the parts of the organisation; all organisations and what measures them
(the default one's API alone has these); what gives the content of `server.json`; the operations themselves."""

OF_REQUEST = frozenset({"me", "request", "socket", "connection"})
"""Parameters that are no fields but of the request: the principal, the raw request, the WebSocket, on the bus the user
key of the connection."""

SOCKET = "WEBSOCKET"
"""In the place of an HTTP method, also in the audit log: the operation talks over a WebSocket."""

ASK = "ASK"
"""In the place of an HTTP method: agents ask it on the bus, and its path is the end of the subject."""

LOOKS = frozenset({"GET", "HEAD", SOCKET})
"""Methods of operations that change nothing; what the others do is in the audit log."""

STORING = (StreamFull, Refused, RequestTimeout)
"""The errors of an operation that appends to the log."""

REST = "{rest:path}"
"""At the end of a path: whatever follows."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Who may call an operation.

    Attributes:
        scope: that a key must have; None where its scopes do not matter.
        door: workers may call it through their doors, too.
        open: everybody may call it, without a key.
    """

    scope: Scope | None
    door: bool = False
    open: bool = False


ANY_KEY = Demand(None)
"""Everybody with a key: the operation is about that key."""

ANYONE = Demand(None, open=True)
"""Everybody, also without a key."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of an operation that is not the JSON of its return annotation.

    Attributes:
        shape: of its JSON, or of the text; None for an answer without a body.
        events: for server-sent events the shape of each one's data, by its name.
    """

    status: int
    shape: Any = None
    media_type: str = "application/json"
    text: str = ""
    example: str = ""
    events: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class As:
    """In the annotation of a field: its name for callers, where that is no name for a parameter."""

    name: str


@dataclass(frozen=True, slots=True)
class Naming:
    """In the annotation of a field: it names an agent."""


@dataclass(frozen=True)
class Field:
    """A field of an operation.

    Attributes:
        name: of the function's parameter.
        shown: its name for callers.
        hint: its annotation.
        default: the value where none is given; `Parameter.empty` where one has to be.
    """

    name: str
    shown: str
    hint: Any
    default: Any

    @property
    def required(self) -> bool:
        """Whether it has to be given."""
        return self.default is inspect.Parameter.empty

    @property
    def is_body(self) -> bool:
        """Whether it is the body: a model, or an object; perhaps one that may be left out."""
        return _is_body(self.hint)

    @cached_property
    def adapter(self) -> TypeAdapter[Any]:
        """What checks a value; made at the first call, since most operations are never called in a process."""
        from pydantic import TypeAdapter

        return TypeAdapter(self.hint)

    def checked(self, value: Any, place: str = "") -> Any:
        """The value. Raises InvalidInput, which names where in the field the fault is."""
        from pydantic import ValidationError

        try:
            return self.adapter.validate_python(value, from_attributes=True)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in (*filter(None, (place,)), *first["loc"]))
            raise InvalidInput(f"{where or 'the body'}: {first['msg']}") from error


@dataclass(frozen=True, eq=False)
class Operation:
    """One operation.

    Attributes:
        call: the function that does it.
        path: with its fields in braces.
        noun: what it is about: the module that has it.
        status: of the answer that its return annotation says.
        fails: the errors that it raises, beside those that any operation raises.
        answers: in the place of the answer that its return annotation says.
        content: its body is content of any type, which passes as a stream.
        by_owner: an agent may not do it alone: its owner is asked (`control.acts`), which is the answer 202.
        hidden: it is not in the document.
        most: bytes of its body.
        crosses: what its own organisation does not have is asked of those whose guest the caller is.
        strangers: agents of open registration may call it, too; it shows them nothing but their own and whom a grant
            ties to them.
    """

    call: Callable[..., Any]
    method: str
    path: str
    noun: str
    demand: Demand
    status: int = 200
    fails: tuple[type[PostroomError], ...] = ()
    answers: tuple[Answer, ...] = ()
    content: bool = False
    by_owner: bool = False
    hidden: bool = False
    most: int = MAX_BODY
    crosses: bool = False
    strangers: bool = False

    @property
    def name(self) -> str:
        """Its name, such as `tasks.answer`; unique."""
        if self.method == "HEAD":
            return f"{self.noun}.head"
        return f"{self.noun}.{cast('FunctionType', self.call).__name__.rstrip('_')}"

    @property
    def streams(self) -> bool:
        """Whether it answers with events until its caller goes."""
        return self.method == SOCKET or any(answer.events for answer in self.answers)

    @property
    def changes(self) -> bool:
        """Whether a call may change anything: then it goes on when its caller has gone, and the audit log has it."""
        return self.method not in LOOKS

    @cached_property
    def _parameters(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.call).parameters

    @cached_property
    def takes(self) -> frozenset[str]:
        """Names of the parameters of its function."""
        return frozenset(self._parameters)

    @cached_property
    def segments(self) -> tuple[str, ...]:
        """The path, split."""
        return tuple(self.path.split("/"))

    @cached_property
    def places(self) -> dict[int, str]:
        """The path's fields, by the index of their segment."""
        named = enumerate(self.segments)
        return {at: name[1:-1] for at, name in named if name[:1] == "{" and name != REST}

    @cached_property
    def hints(self) -> dict[str, Any]:
        """The annotations of its function."""
        return get_type_hints(self.call, include_extras=True)

    @cached_property
    def body(self) -> Field | None:
        """The field that its body is."""
        if self.method in (SOCKET, ASK):
            return None
        return next((field for field in self._fields if field.is_body), None)

    @cached_property
    def query(self) -> dict[str, Field]:
        """The fields that are neither of the path nor the body, by the names that callers use."""
        others = {*self.places.values(), self.body and self.body.name}
        return {field.shown: field for field in self._fields if field.name not in others}

    @cached_property
    def naming(self) -> tuple[str, ...]:
        """The fields of path and query that name an agent."""
        named = ((field.name, getattr(field.hint, "__metadata__", ())) for field in self._fields)
        return tuple(name for name, marks in named if any(isinstance(m, Naming) for m in marks))

    @cached_property
    def _fields(self) -> tuple[Field, ...]:
        found = []
        for name, parameter in self._parameters.items():
            if name not in self.given:
                hint = self.hints[name]
                marks = [m.name for m in getattr(hint, "__metadata__", ()) if isinstance(m, As)]
                found.append(Field(name, marks[0] if marks else name, hint, parameter.default))
        return tuple(found)

    @cached_property
    def given(self) -> tuple[str, ...]:
        """Names of the parameters that are no fields (`OF_API`, `OF_REQUEST`)."""
        return tuple(self.takes & (OF_API | OF_REQUEST))

    @cached_property
    def _words(self) -> tuple[tuple[int, str], ...]:
        """The segments of the path that are no fields, by their index."""
        named = enumerate(self.segments)
        return tuple((at, name) for at, name in named if at not in self.places and name != REST)

    def matches(self, segments: list[str]) -> bool:
        """Whether the path of a request, split, is one of this operation."""
        own, given = len(self.segments), len(segments)
        if given != own and (given < own or self.segments[-1] != REST):
            return False
        for at, word in self._words:
            if segments[at] != word:
                return False
        return all(map(segments.__getitem__, self.places))

    def checked(self, given: Mapping[str, Any], place: str = "") -> dict[str, Any]:
        """The values of the fields but for path and body, checked; one that nobody knows is ignored.

        Args:
            given: by the names that callers use.
            place: where they stand, for errors.

        Raises:
            InvalidInput: a value is not as it has to be, or one is missing.
        """
        values = {}
        for shown, asked in self.query.items():
            if shown in given:
                values[asked.name] = asked.checked(given[shown], f"{place}{shown}")
            elif asked.required:
                raise InvalidInput(f"{place}{shown}: Field required")
        return values

    def in_query(self, query: bytes) -> dict[str, Any]:
        """The checked values of a query; of one twice the last counts. Raises InvalidInput."""
        given = dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True)) if query else {}
        return self.checked(given, "query.")


class Operations:
    """The operations of one module."""

    def __init__(self) -> None:
        self._all: list[Operation] = []

    def __iter__(self) -> Iterator[Operation]:
        return iter(self._all)

    def add(
        self,
        method: str,
        path: str,
        who: Scope | Demand,
        *,
        door: bool = False,
        events: Mapping[str, Any] | None = None,
        **how: Any,
    ) -> Callable[[F], F]:
        """Make a function an operation.

        Args:
            who: may call it: those with a scope, `ANY_KEY`, or `ANYONE`.
            door: workers may, too.
            events: it answers with these server-sent events; the shape of the data of each.
            how: further attributes of the `Operation`.
        """
        demand = who if isinstance(who, Demand) else Demand(who, door)
        if events is not None:
            how["answers"] = (Answer(200, str, "text/event-stream", events=events),)

        def put(call: F) -> F:
            noun = call.__module__.rpartition(".")[2]
            self._all.append(Operation(call, method, path, noun, demand, **how))
            return call

        return put

    get = partialmethod(add, "GET")
    head = partialmethod(add, "HEAD")
    post = partialmethod(add, "POST")
    put = partialmethod(add, "PUT")
    delete = partialmethod(add, "DELETE")
    socket = partialmethod(add, SOCKET)
    ask = partialmethod(add, ASK)


def _is_body(hint: Any) -> bool:
    if get_origin(hint) in (Union, type(int | str)):
        return any(_is_body(each) for each in get_args(hint) if each is not NoneType)
    return get_origin(hint) is dict or hasattr(hint, "model_fields")
