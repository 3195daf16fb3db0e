"""What an agent that Postroom does not run says of its tasks: states and artifacts (docs/api.md, Tasks)."""

from __future__ import annotations

from postroom.control.bodies import ArtifactBody, StatusBody
from postroom.control.in_flight import acted_on
from postroom.control.ops.table import STORING, Operations
from postroom.control.parameters import TaskRef
from postroom.control.parts import Parts
from postroom.directory.outside import KINDS
from postroom.errors import Conflict, Forbidden, NotFound
from postroom.protocol import shapes
from postroom.protocol.principal import Principal, Scope
from postroom_a2a.task_state import TaskState

operations = Operations()


@operations.post(
    "/v1/tasks/{task}/status", Scope.TASK, fails=(NotFound, Conflict, *STORING), strangers=True
)
async def status(parts: Parts, task: TaskRef, body: StatusBody, me: Principal) -> shapes.Task:
    """Say how a task of the caller stands.

    The caller is the agent that does the task. With `seq` it is refused (409) if the task has changed since.
    """
    doer = _doer(me)
    view = await parts.reports.status(doer, task, TaskState(body.state), body.said, body.seq)
    acted_on(task=view.id)
    return view.as_json()


@operations.post(
    "/v1/tasks/{task}/artifacts", Scope.TASK, fails=(NotFound, Conflict, *STORING), strangers=True
)
async def artifact(parts: Parts, task: TaskRef, body: ArtifactBody, me: Principal) -> shapes.Task:
    """Add an artifact to a task of the caller.

    With `append` it is a further piece of the one with that `id`; after `last` no more of it comes.
    """
    view = await parts.reports.artifact(
        _doer(me), task, body.artifact, append=body.append, last=body.last, seq=body.seq
    )
    acted_on(task=view.id)
    return view.as_json()


def _doer(me: Principal) -> str:
    """The uid of the agent that reports; Forbidden for one whose tasks have another runner, or none."""
    if me.kind not in KINDS:
        raise Forbidden(f"@{me.nick} is a {me.kind}: it does not report over the API")
    return me.uid
