"""The HTTP API `/v1` (docs/api.md): routes, who may call them, errors as problem documents."""

from __future__ import annotations

from fastapi import Depends, FastAPI

from postroom import __version__
from postroom.control import problems
from postroom.control.context import Context
from postroom.control.routes import (
    agents,
    alerts,
    audit,
    blobs,
    credentials,
    deadletters,
    feeds,
    messages,
    orgs,
    room,
    tasks,
    trust,
    workers,
)


def build_api(context: Context) -> FastAPI:
    """The application."""
    app = FastAPI(
        title="Postroom",
        version=__version__,
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    problems.install(app)
    only_operator = [Depends(context.gate.operator)]
    # The workers' own route comes first: it has other callers than `/workers/{ref}`.
    app.include_router(workers.events_router(context), prefix="/v1")
    app.include_router(agents.keys_router(context), prefix="/v1")
    app.include_router(blobs.router(context), prefix="/v1")
    app.include_router(blobs.operator_router(context), prefix="/v1", dependencies=only_operator)
    routers = (
        workers,
        agents,
        tasks,
        messages,
        feeds,
        deadletters,
        alerts,
        credentials,
        audit,
        trust,
        room,
    )
    for part in routers:
        app.include_router(part.router(context), prefix="/v1", dependencies=only_operator)
    app.include_router(workers.leftovers_router(context), prefix="/v1", dependencies=only_operator)
    if context.orgs is not None:
        app.include_router(orgs.router(context.orgs), prefix="/v1", dependencies=only_operator)
        app.include_router(orgs.absent_router(context.orgs), dependencies=only_operator)
    return app
