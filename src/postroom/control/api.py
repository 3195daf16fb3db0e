"""The HTTP API `/v1` (docs/api.md): its routes, their callers, and errors as problem documents (RFC 9457)."""

from __future__ import annotations

import errno
from collections.abc import Callable

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from postroom import __version__
from postroom.control.hot_routes import HotRoutes
from postroom.control.org_router import Scope
from postroom.control.orgs import Orgs
from postroom.control.parts import Parts
from postroom.control.routes import (
    agents,
    alerts,
    announcements,
    audit,
    backup,
    blobs,
    credentials,
    deadletters,
    feeds,
    messages,
    orgs,
    retention,
    room,
    tasks,
    trust,
    workers,
)
from postroom.control.statefile import Announcement
from postroom.errors import (
    PROBLEM_TYPE,
    Conflict,
    InvalidInput,
    NotFound,
    PostroomError,
    StateUnwritable,
    http_status,
    problem,
)
from postroom.observe import get_logger

log = get_logger(__name__)


def build_api(
    parts: Parts, announcement: Callable[[], Announcement], managed: Orgs | None = None
) -> tuple[FastAPI, HotRoutes]:
    """The application of one organisation, and what answers its hot routes.

    Args:
        announcement: returns the present content of `server.json`.
        managed: all organisations, for the API of the default one; None for the others'.
    """
    app = FastAPI(
        title="Postroom",
        version=__version__,
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    _answer_problems(app)
    only_operator = [Depends(parts.gate.operator)]
    # The workers' own route comes first: it has other callers than `/workers/{ref}`.
    app.include_router(workers.events_router(parts), prefix="/v1")
    app.include_router(agents.keys_router(parts), prefix="/v1")
    app.include_router(blobs.router(parts), prefix="/v1")
    app.include_router(blobs.operator_router(parts), prefix="/v1", dependencies=only_operator)
    routers = (
        workers,
        agents,
        announcements,
        tasks,
        messages,
        feeds,
        deadletters,
        alerts,
        credentials,
        audit,
        trust,
        retention,
    )
    hot = HotRoutes(parts.gate.is_operator, _failure)
    for part in routers:
        routes = part.router(parts)
        app.include_router(routes, prefix="/v1", dependencies=only_operator)
        hot.add(routes, "/v1")
    app.include_router(workers.leftovers_router(parts), prefix="/v1", dependencies=only_operator)
    status = room.router(parts, announcement)
    app.include_router(status, prefix="/v1", dependencies=only_operator)
    if managed is not None:
        app.include_router(orgs.router(managed), prefix="/v1", dependencies=only_operator)
        saving = backup.router(parts, managed)
        app.include_router(saving, prefix="/v1", dependencies=only_operator)
        app.include_router(orgs.absent_router(managed), dependencies=only_operator)
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
    if status in (429, 503, 507):
        headers["Retry-After"] = "1"
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


async def _http(_: Request, error: HTTPException) -> JSONResponse:
    known = {404: NotFound, 405: Conflict}.get(error.status_code, PostroomError)
    return _document(known(str(error.detail)), error.status_code)


async def _unexpected(request: Request, error: Exception) -> JSONResponse:
    return _failure(request.scope, error)


def _failure(scope: Scope, error: Exception) -> JSONResponse:
    """The answer for any error of a route."""
    if isinstance(error, PostroomError):
        return _document(error)
    if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return _document(StateUnwritable("the disk is full", remedy="free space, then do it again"))
    log.error("%s %s failed", scope["method"], scope["path"], exc_info=error)
    return _document(PostroomError("an internal error; the control plane's log has it"))
