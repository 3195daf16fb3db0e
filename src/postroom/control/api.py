"""The HTTP API `/v1` (docs/api.md): its routes, their callers, and errors as problem documents (RFC 9457)."""

from __future__ import annotations

import errno
from collections.abc import Callable

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import iter_route_contexts
from starlette.exceptions import HTTPException

from postroom import __version__
from postroom.control.hot_routes import HotRoutes
from postroom.control.org_router import Scope
from postroom.control.orgs import Orgs
from postroom.control.parts import Parts
from postroom.control.principals import AdmittedRoute, demand_of
from postroom.control.routes import (
    agents,
    alerts,
    announcements,
    approvals,
    audit,
    backup,
    blobs,
    credentials,
    deadletters,
    described,
    events,
    feeds,
    inbox,
    keys,
    messages,
    metrics,
    openings,
    orgs,
    people,
    pushes,
    reports,
    retention,
    room,
    tasks,
    terminals,
    trust,
    workers,
    workspaces,
)
from postroom.control.statefile import Announcement
from postroom.control.websockets import SocketRoutes
from postroom.errors import (
    PROBLEM_TYPE,
    InvalidInput,
    MalformedRequest,
    MethodNotAllowed,
    NotFound,
    PostroomError,
    StateUnwritable,
    http_status,
    problem,
    retry_after,
)
from postroom.observe import get_logger

log = get_logger(__name__)


def build_api(
    parts: Parts, announcement: Callable[[], Announcement], managed: Orgs | None = None
) -> tuple[FastAPI, HotRoutes]:
    """The application of one organisation, and what answers its hot routes; its WebSockets are in `app.state.sockets`.

    Args:
        announcement: returns the present content of `server.json`.
        managed: all organisations, for the API of the default one; None for the others'.
    """
    app = FastAPI(
        title="Postroom",
        version=__version__,
        openapi_url=None,  # ours is made elsewhere (`control.openapi`)
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
    )
    app.state.gate = parts.gate
    sockets = app.state.sockets = SocketRoutes(parts.gate.admit, parts.gate.stream)
    sockets.include(events.sockets(parts))
    sockets.include(terminals.socket_routes(parts))
    _answer_problems(app)
    hot = HotRoutes(parts.gate.admit, _failure)

    def include(routes: APIRouter, prefix: str = "/v1") -> None:
        for route in routes.routes:
            if not isinstance(route, AdmittedRoute):
                raise TypeError(f"the route {route} admits everybody: see `Routes`")
            demand_of(route.endpoint)  # a route without one is an error
            route.shown = prefix + route.path
        app.include_router(routes, prefix=prefix)
        hot.add(routes, prefix)

    # The workers' own routes come first: they have other callers than `/workers/{ref}`.
    include(events.router(parts))
    include(approvals.door_router(parts))
    include(terminals.router(parts))
    include(agents.keys_router(parts), "")
    include(blobs.operator_router(parts))
    routers = (
        blobs,
        workers,
        workspaces,
        agents,
        announcements,
        approvals,
        keys,
        people,
        tasks,
        pushes,
        reports,
        messages,
        inbox,
        feeds,
        deadletters,
        alerts,
        credentials,
        audit,
        trust,
        retention,
    )
    for part in routers:
        include(part.router(parts))
    include(workers.leftovers_router(parts))
    include(room.router(parts, announcement))
    include(described.router(app))
    if managed is not None:
        include(orgs.router(managed))
        include(openings.router(managed))
        include(backup.router(parts, managed))
        include(metrics.router(parts, managed), "")
        include(orgs.absent_router(managed), "")
    return app, hot


def _answer_problems(app: FastAPI) -> None:
    """Make `app` answer every error as a problem document."""
    app.add_exception_handler(PostroomError, _ours)  # ty: ignore[invalid-argument-type]
    app.add_exception_handler(RequestValidationError, _invalid)  # ty: ignore[invalid-argument-type]
    app.add_exception_handler(HTTPException, _http)  # ty: ignore[invalid-argument-type]
    app.add_exception_handler(Exception, _unexpected)


def _document(error: PostroomError, status: int = 0) -> JSONResponse:
    status = status or http_status(error)
    body = problem(error) | {"status": status}
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    if (seconds := retry_after(error)) is not None:
        headers["Retry-After"] = str(seconds)
    return JSONResponse(body, status, headers=headers, media_type=PROBLEM_TYPE)


async def _ours(_: Request, error: PostroomError) -> JSONResponse:
    return _document(error)


async def _invalid(request: Request, error: RequestValidationError) -> JSONResponse:
    first = error.errors()[0]
    in_json = "json" in request.headers.get("content-type", "")
    # For malformed JSON the location is a position in the text, not a field.
    fields = [] if first["type"] == "json_invalid" else first["loc"]
    where = ".".join(str(part) for part in fields if part != "body")
    remedy = "" if where or in_json else "send it with the header Content-Type: application/json"
    return _document(InvalidInput(f"{where or 'the body'}: {first['msg']}", remedy=remedy))


async def _http(request: Request, error: HTTPException) -> JSONResponse:
    if isinstance(error.__cause__, PostroomError):  # met where FastAPI reads the body
        return _document(error.__cause__)
    asked = f"{request.method} {request.url.path}"
    match error.status_code:
        case 404:
            refused: PostroomError = NotFound(f"there is no {asked}", remedy=_LOOK)
        case 405:
            refused = MethodNotAllowed(f"there is no {asked}", remedy=_LOOK)
        case status if status < 500:
            refused = MalformedRequest(str(error.detail))
        case _:
            refused = PostroomError(str(error.detail))
    answer = _document(refused, error.status_code)
    answer.headers.update(error.headers or {})
    if error.status_code == 405:
        answer.headers["Allow"] = ", ".join(_allowed(request))
    return answer


def _allowed(request: Request) -> list[str]:
    """The methods of the path of a request; the framework names those of the first route that has the path."""
    path = request.scope["path"].removeprefix(request.scope["root_path"])
    found = set[str]()
    for route in iter_route_contexts(request.app.routes):
        if route.path_regex.match(path):
            found |= route.methods or set()
    return sorted(found)


async def _unexpected(request: Request, error: Exception) -> JSONResponse:
    return _failure(request.scope, error)


_LOOK = "GET /v1/openapi.json lists what there is"


def _failure(scope: Scope, error: Exception) -> JSONResponse:
    """The answer for any error of a route."""
    if isinstance(error, PostroomError):
        return _document(error)
    if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return _document(StateUnwritable("the disk is full", remedy="free space, then do it again"))
    log.error("%s %s failed", scope["method"], scope["path"], exc_info=error)
    return _document(PostroomError("an internal error; the control plane's log has it"))
