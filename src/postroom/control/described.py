"""What a route says of itself beside its parameters and its docstring, for the document of the API (`control.openapi`).

The first line of the docstring is the route's summary, the return annotation the shape of its answer, and `needs`
states its scope. The decorators here say the rest: the errors that it raises, and answers that are not JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from postroom.errors import PostroomError, Refused, RequestTimeout, StreamFull

F = TypeVar("F", bound=Callable[..., Any])

STORING = (StreamFull, Refused, RequestTimeout)
"""The errors of a route that appends to the log."""

_DESCRIBED = "postroom_described"


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of a route.

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
class Described:
    """What the decorators of a route have said.

    Attributes:
        errors: that it raises beside those that every route has.
        answers: instead of the one that its return annotation says.
        content: its body is content of any type.
    """

    errors: tuple[type[PostroomError], ...] = ()
    answers: tuple[Answer, ...] = ()
    content: bool = False


def description_of(endpoint: Callable[..., Any]) -> Described:
    """What the decorators of `endpoint` have said."""
    return getattr(endpoint, _DESCRIBED, Described())


def _described(**changes: Any) -> Callable[[F], F]:
    def state(endpoint: F) -> F:
        setattr(endpoint, _DESCRIBED, replace(description_of(endpoint), **changes))
        return endpoint

    return state


def fails(*errors: type[PostroomError]) -> Callable[[F], F]:
    """State which errors a route raises. What every route raises is left out: Unauthorized, Forbidden, bad input."""
    return _described(errors=errors)


def answers_with(*given: Answer) -> Callable[[F], F]:
    """State the answers of a route that returns a `Response`."""
    return _described(answers=given)


def streams(**events: Any) -> Callable[[F], F]:
    """State that a route answers with server-sent events, and the shape of the data of each event."""
    return answers_with(Answer(200, str, "text/event-stream", events=events))


def is_stream(endpoint: Callable[..., Any]) -> bool:
    """Whether `streams` was said of `endpoint`."""
    return any(answer.events for answer in description_of(endpoint).answers)


def takes_content(endpoint: F) -> F:
    """State that the body of a route is content of any type, which passes as a stream."""
    return _described(content=True)(endpoint)
