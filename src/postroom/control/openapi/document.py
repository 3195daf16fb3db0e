"""The OpenAPI document of one API, from its routes (docs/api.md; `/v1/openapi.json`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, get_type_hints

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute, iter_route_contexts
from starlette.responses import Response

from postroom.control.described import Answer, Described, description_of
from postroom.control.openapi.examples import BODIES, CARD, example
from postroom.control.openapi.schema import Schema, Schemas, without_defaults
from postroom.control.principals import demand_of
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
    Scope.OPERATE: "what is everybody's: workers, all mail and tasks, dead letters, alerts, events",
    Scope.ADMIN: "keys, people, organisations, credentials, trust, retention, shutdown",
}

Operation = dict[str, Any]


def document(app: FastAPI) -> dict[str, Any]:
    """The document of `app`."""
    routes = {
        (context.path, method): context.original_route
        for context in iter_route_contexts(app.routes)
        if isinstance(context.original_route, APIRoute)
        for method in context.methods or ()
    }
    made = get_openapi(title=app.title, version=app.version, description=ABOUT, routes=app.routes)
    components = made["components"]
    schemas = Schemas()
    # Answers have shapes of ours, which are added below: all that the framework has made is of requests.
    schemas.components = {n: without_defaults(s) for n, s in components["schemas"].items()}
    components["schemas"] = schemas.components
    schemas.of(shapes.Problem)
    for path, operations in made["paths"].items():
        for method, operation in operations.items():
            route = routes[path, method.upper()]
            _describe(operation, path, method, route, schemas)
    for name in ("HTTPValidationError", "ValidationError"):  # the framework's; ours are problems
        schemas.components.pop(name, None)
    made["paths"] = _always(schemas) | made["paths"]
    components["securitySchemes"] = {
        KEY_SCHEME: {
            "type": "http",
            "scheme": "bearer",
            "description": "An API key. Its scopes: "
            + "; ".join(f"`{scope.value}`: {text}" for scope, text in SCOPES.items()),
        }
    }
    components["examples"] = {
        error.code: {"summary": error.code, "value": _problem(error)} for error in _all_errors(made)
    }
    for name, body in BODIES.items():
        if name in schemas.components:
            schemas.components[name]["examples"] = [body]
    return made


# ── one operation ────────────────────────────────────────────────────────────────────────────────


def _describe(
    operation: Operation, path: str, method: str, route: APIRoute, schemas: Schemas
) -> None:
    endpoint = route.endpoint
    said, demand = description_of(endpoint), demand_of(endpoint)
    summary, _, more = (endpoint.__doc__ or "").strip().partition("\n")
    operation["summary"] = summary.rstrip(".")
    operation["description"] = _text(more) or summary
    operation["operationId"] = f"{method}{path.removeprefix('/v1')}".replace("/", "_")
    operation["tags"] = [endpoint.__module__.rpartition(".")[2]]
    scope = demand.scope
    named = [] if scope is None else [scope.value]
    operation["security"] = [] if demand.open else [{KEY_SCHEME: named}]
    operation["x-postroom-scope"] = None if scope is None else scope.value
    if demand.door:
        operation["x-postroom-door"] = True
        operation["description"] += "\n\nWorkers call it through their own doors, too."
    _describe_body(operation, said)
    operation["responses"] = _answers(route, said, schemas, method) | _refusals(
        operation, said, keyed=not demand.open
    )


def _text(docstring: str) -> str:
    """The paragraphs of a docstring without its first line, its line breaks undone."""
    lines = [line.strip() for line in docstring.strip().splitlines()]
    paragraphs = "\n".join(lines).split("\n\n")
    return "\n\n".join(" ".join(paragraph.split("\n")) for paragraph in paragraphs)


def _describe_body(operation: Operation, said: Described) -> None:
    if said.content:
        content = {"type": "string", "contentMediaType": "application/octet-stream"}
        operation["requestBody"] = {
            "required": True,
            "description": "The content; its Content-Type is kept.",
            "content": {"application/octet-stream": {"schema": content, "example": "hello"}},
        }
    elif body := operation.get("requestBody"):
        (media,) = body["content"].values()
        media["schema"] = without_defaults(media["schema"])
        asked = media["schema"].get("anyOf", [media["schema"]])[0]
        if "$ref" in asked:  # of a body that may be left out, too
            media["schema"] = asked
            media["example"] = BODIES[_named(asked)]
        else:
            media["example"] = CARD


def _answers(route: APIRoute, said: Described, schemas: Schemas, method: str) -> dict[str, Any]:
    given = said.answers or (_annotated(route),)
    return {
        str(answer.status): _answer(answer, schemas, empty=method == "head") for answer in given
    }


def _annotated(route: APIRoute) -> Answer:
    """The answer that the return annotation of a route says."""
    hint = get_type_hints(route.endpoint, include_extras=True)["return"]
    if isinstance(hint, type) and issubclass(hint, Response):
        raise TypeError(f"{route.path}: state what it answers with `answers`")
    return Answer(route.status_code or 200, None if hint is type(None) else hint)


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


def _refusals(operation: Operation, said: Described, *, keyed: bool) -> dict[str, Any]:
    errors = [*ALWAYS, *said.errors]
    if keyed:
        errors += [Unauthorized, TooManyRequests]
    if any(answer.events for answer in said.answers):
        errors.append(Refused)
    if operation.get("parameters") or "requestBody" in operation:
        errors.append(InvalidInput)
    if "requestBody" in operation:
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


def _all_errors(made: Mapping[str, Any]) -> Iterator[type[PostroomError]]:
    """The errors that the answers of any route name."""
    named = set()
    for operations in made["paths"].values():
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
