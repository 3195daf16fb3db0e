"""What an agent that Postroom does not run says of its tasks: states and artifacts (docs/api.md, Tasks)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter

from postroom.control.bodies import ArtifactBody, StatusBody
from postroom.control.hot_routes import hot
from postroom.control.in_flight import acted_on
from postroom.control.parts import Parts
from postroom.control.principals import Caller, needs
from postroom.protocol.principal import Scope
from postroom_a2a.task_state import TaskState


def router(parts: Parts) -> APIRouter:
    """The routes."""
    routes = APIRouter(prefix="/tasks")
    reports = parts.reports

    @routes.post("/{task}/status")
    @hot
    @needs(Scope.TASK)
    async def status(task: str, body: StatusBody, me: Caller) -> Mapping[str, Any]:
        view = await reports.status(me.uid, task, TaskState(body.state), body.said, body.seq)
        acted_on(task=view.id)
        return view.as_json()

    @routes.post("/{task}/artifacts")
    @hot
    @needs(Scope.TASK)
    async def artifact(task: str, body: ArtifactBody, me: Caller) -> Mapping[str, Any]:
        view = await reports.artifact(
            me.uid, task, body.artifact, append=body.append, last=body.last, seq=body.seq
        )
        acted_on(task=view.id)
        return view.as_json()

    return routes
