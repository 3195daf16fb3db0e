"""The OpenAPI document of one API, from its routes (docs/api.md; `/v1/openapi.json`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from inspect import Parameter
from typing import Any

from starlette.responses import Response

from postroom import __version__
from postroom.control.openapi.examples import BODIES, CARD, example
from postroom.control.openapi.schema import Schema, Schemas
from postroom.control.ops.table import SOCKET, Answer, Field, Operation
from postroom.errors import (
    PROBLEM_TYPE,
    EnvironmentFault,
    Forbidden,
    HeadTooLarge,
    InvalidInput,
    MalformedRequest,
    MessageTooLarge,
    PostroomError,
    Refused,
    TooManyRequests,
    Unauthorized,
    by_code,
    http_status,
    problem,
)
from postroom.protocol import answers, shapes
from postroom.protocol.principal import Scope
from postroom_a2a import strict_json

KEY_SCHEME = "key"
"""Name of the security scheme; the scopes of a route stand beside it."""

ABOUT = """\
The post room for AI agents. [docs/api.md](https://github.com/postroom/postroom/blob/main/docs/api.md) says more.

`/v1` is the default organisation; every route of another one is below `/orgs/NAME/v1`. Times are RFC 3339 in UTC. A
list is an object with its noun and `next`: what to ask with for the next page, null after the last one. Fields and
errors may be added within `/v1`.
"""

SCOPES = {
    Scope.READ: "one's own messages, chats and tasks, the directory, feeds, blobs that one may read",
    Scope.SEND: "messages, posts, acknowledging, uploading blobs",
    Scope.TASK: "delegating, canceling and answering tasks, updating tasks given to oneself",
    Scope.GRANT: "letting others in, webhooks and keys of one's own, where a program does so by itself",
    Scope.OPERATE: "what is everybody's: workers, all mail and tasks, dead letters, alerts, events",
    Scope.ADMIN: "keys, people, organisations, credentials, trust, retention, shutdown",
}

Described = dict[str, Any]
"""An Operation Object of OpenAPI."""


def document(table: Iterable[Operation]) -> dict[str, Any]:
    """The document of an API with these operations."""
    schemas = Schemas()
    schemas.of(shapes.Problem)
    paths: dict[str, dict[str, Described]] = _always(schemas)
    for operation in table:
        if not operation.hidden and operation.method != SOCKET:
            of_path = paths.setdefault(operation.path, {})
            of_path[operation.method.lower()] = _described(operation, schemas)
    for name, body in BODIES.items():
        if name in schemas.components:
            schemas.components[name]["examples"] = [body]
    examples = {
        error.code: {"summary": error.code, "value": _problem(error)}
        for error in _all_errors(paths)
    }
    said = "; ".join(f"`{scope.value}`: {text}" for scope, text in SCOPES.items())
    key = {"type": "http", "scheme": "bearer", "description": f"An API key. Its scopes: {said}"}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Postroom", "description": ABOUT, "version": __version__},
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "securitySchemes": {KEY_SCHEME: key},
            "examples": examples,
        },
    }


# ── one operation ────────────────────────────────────────────────────────────────────────────────


def _described(operation: Operation, schemas: Schemas) -> Described:
    demand = operation.demand
    summary, _, more = (operation.call.__doc__ or "").strip().partition("\n")
    scope = demand.scope
    named = [] if scope is None else [scope.value]
    path = operation.path.removeprefix("/v1").replace("/", "_")
    made: Described = {
        "tags": [operation.noun],
        "summary": summary.rstrip("."),
        "description": _text(more) or summary,
        "operationId": f"{operation.method.lower()}{path}",
        "security": [] if demand.open else [{KEY_SCHEME: named}],
        "x-postroom-scope": None if scope is None else scope.value,
    }
    if parameters := list(_parameters(operation, schemas)):
        made["parameters"] = parameters
    if demand.door:
        made["x-postroom-door"] = True
        made["description"] += "\n\nWorkers call it through their own doors, too."
    if body := _body(operation, schemas):
        made["requestBody"] = body
    made["responses"] = _answers(operation, schemas) | _refusals(made, operation)
    return made


def _parameters(operation: Operation, schemas: Schemas) -> Iterator[dict[str, Any]]:
    for name in operation.places.values():
        field = Field(name, name, operation.hints[name], Parameter.empty)
        yield _parameter(field, "path", schemas)
    for field in operation.query.values():
        yield _parameter(field, "query", schemas)


def _parameter(field: Field, place: str, schemas: Schemas) -> dict[str, Any]:
    """A Parameter Object."""
    schema = schemas.of_request(field)
    if not field.required and field.default is not None:
        schema["default"] = field.default
    made = {"name": field.shown, "in": place, "required": field.required, "schema": schema}
    return made | {"description": schema["description"]}


def _text(docstring: str) -> str:
    """The paragraphs of a docstring without its first line, its line breaks undone."""
    lines = [line.strip() for line in docstring.strip().splitlines()]
    paragraphs = "\n".join(lines).split("\n\n")
    return "\n\n".join(" ".join(paragraph.split("\n")) for paragraph in paragraphs)


def _body(operation: Operation, schemas: Schemas) -> dict[str, Any]:
    """The Request Body Object of an operation, {} for one without a body."""
    if operation.content:
        content = {"type": "string", "contentMediaType": "application/octet-stream"}
        return {
            "required": True,
            "description": "The content; its Content-Type is kept.",
            "content": {"application/octet-stream": {"schema": content, "example": "hello"}},
        }
    field = operation.body
    if field is None:
        return {}
    schema = schemas.of_request(field)
    example = BODIES[_named(schema)] if "$ref" in schema else CARD
    made: dict[str, Any] = {"content": {"application/json": {"schema": schema, "example": example}}}
    return {"required": True, **made} if field.required else made


def _answers(operation: Operation, schemas: Schemas) -> dict[str, Any]:
    given = operation.answers or (_annotated(operation),)
    given += (Answer(202, shapes.OwnerAsked),) if operation.by_owner else ()
    return {
        str(answer.status): _answer(answer, schemas, empty=operation.method == "HEAD")
        for answer in given
    }


def _annotated(operation: Operation) -> Answer:
    """The answer that the return annotation of a function says."""
    hint = operation.hints["return"]
    if isinstance(hint, type) and issubclass(hint, Response):
        raise TypeError(f"{operation.path}: state what it answers with `answers`")
    return Answer(operation.status, None if hint is type(None) else hint)


def _answer(answer: Answer, schemas: Schemas, *, empty: bool) -> dict[str, Any]:
    made: dict[str, Any] = {"description": answer.text or HTTPStatus(answer.status).phrase}
    if answer.shape is None or empty:
        return made
    schema = schemas.of(answer.shape)
    content: dict[str, Any] = {"schema": schema}
    if answer.events:
        events = {name: schemas.of(shape) for name, shape in answer.events.items()}
        made["description"] = (
            "Server-sent events (WHATWG HTML), until the caller goes. "
            + " ".join(f"`{name}`: {_named(data)}." for name, data in events.items())
        )
        content["x-postroom-events"] = events
        content["example"] = "".join(_frame(*event, schemas) for event in events.items())
    elif answer.media_type == "application/json":
        if "$ref" in schema:
            made["description"] = schemas.components[_named(schema)].get("description", "")
        content["example"] = example(schema, schemas.components, key="card")
    else:
        content["example"] = answer.example
    return made | {"content": {answer.media_type: content}}


def _named(schema: Schema) -> str:
    return schema["$ref"].rpartition("/")[2] if "$ref" in schema else "an object"


def _frame(name: str, schema: Schema, schemas: Schemas) -> str:
    data = strict_json.dumps(example(schema, schemas.components)).decode()
    return f"id: 41\nevent: {name}\ndata: {data}\n\n"


# ── refusals ─────────────────────────────────────────────────────────────────────────────────────

ALWAYS: tuple[type[PostroomError], ...] = (
    MalformedRequest,
    Forbidden,
    HeadTooLarge,
    EnvironmentFault,
)
"""Errors of every request: a malformed or too large head, a wrong Host, a post room that starts or lacks something."""


def _refusals(made: Described, operation: Operation) -> dict[str, Any]:
    errors = [*ALWAYS, *operation.fails, TooManyRequests]
    if not operation.demand.open:
        errors.append(Unauthorized)
    if operation.streams:
        errors.append(Refused)
    if "parameters" in made or "requestBody" in made:
        errors.append(InvalidInput)
    if "requestBody" in made:
        errors.append(MessageTooLarge)
    return _problems(errors)


def _problems(errors: Sequence[type[PostroomError]]) -> dict[str, Any]:
    by_status: dict[int, list[type[PostroomError]]] = {}
    for error in dict.fromkeys(errors):
        by_status.setdefault(_status(error), []).append(error)
    return {
        str(status): {
            "description": " ".join(f"`{error.code}`: {_title(error)}" for error in found),
            "content": {
                PROBLEM_TYPE: {
                    "schema": {"$ref": "#/components/schemas/Problem"},
                    "examples": {
                        error.code: {"$ref": f"#/components/examples/{error.code}"}
                        for error in found
                    },
                }
            },
        }
        for status, found in sorted(by_status.items())
    }


def _status(error: type[PostroomError]) -> int:
    return http_status(error("", remedy=""))


def _title(error: type[PostroomError]) -> str:
    return (error.__doc__ or "").strip().splitlines()[0]


def _problem(error: type[PostroomError]) -> Mapping[str, Any]:
    return problem(error("what is wrong, about this request", remedy="what to do"))


def _all_errors(paths: Mapping[str, Any]) -> Iterator[type[PostroomError]]:
    """The errors that the answers of any operation name."""
    named = set()
    for operations in paths.values():
        for operation in operations.values():
            for answer in operation["responses"].values():
                named |= set(answer.get("content", {}).get(PROBLEM_TYPE, {}).get("examples", ()))
    return (error for code, error in sorted(by_code().items()) if code in named)


# ── what answers without a route ─────────────────────────────────────────────────────────────────


def _always(schemas: Schemas) -> dict[str, Any]:
    """The paths that answer from the first moment, without a key (`OrgRouter`), and this document."""
    ready = schemas.of(answers.Ready)
    refused = _problems((MalformedRequest, Forbidden, HeadTooLarge))

    def get(name: str, summary: str, description: str, responses: dict[str, Any]) -> dict[str, Any]:
        operation = {
            "operationId": f"get_{name}",
            "summary": summary,
            "description": description,
            "tags": ["room"],
            "security": [],
            "x-postroom-scope": None,
            "responses": responses | refused,
        }
        return {"get": operation}

    def answer(text: str, media_type: str, schema: Schema, given: Any) -> dict[str, Any]:
        content = {media_type: {"schema": schema, "example": given}}
        return {"description": text, "content": content}

    alive = answer("It listens.", "text/plain", {"type": "string"}, "ok")
    is_up = answer("Everything is up.", "application/json", ready, {"ready": True})
    not_up = answer(
        "Something is not up yet.",
        "application/json",
        ready,
        {"ready": False, "away": ["database"]},
    )
    openapi = answer("OpenAPI 3.1.", "application/json", {"type": "object"}, {"openapi": "3.1.0"})
    starting = _problems((EnvironmentFault,))
    return {
        "/livez": get("livez", "Say that the post room listens", "No key.", {"200": alive}),
        "/readyz": get(
            "readyz",
            "Say whether everything is up",
            "No key. 503 says what is `away`: `database`, `bus`; nothing at the start.",
            {"200": is_up, "503": not_up},
        ),
        "/v1/openapi.json": get("openapi", "This document", "No key.", {"200": openapi} | starting),
    }
