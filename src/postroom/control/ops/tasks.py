"""Tasks: delegate, list, show and wait, follow, cancel, answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field
from starlette.responses import StreamingResponse

from postroom.control.bodies import AnswerBody, CancelBody, RetryBody, TaskBody
from postroom.control.guests import following, giving, sending
from postroom.control.in_flight import acted_on, came_by
from postroom.control.ops.table import STORING, As, Operations
from postroom.control.parameters import (
    After,
    Before,
    Limit,
    Ref,
    SearchText,
    Seconds,
    TaskRef,
    next_page,
)
from postroom.control.parts import Parts
from postroom.control.task_messages import messages_of
from postroom.directory.grants import GrantScope
from postroom.errors import Conflict, ContentNotTaken, NotFound
from postroom.feed.events import streamed
from postroom.feed.records import TaskFeed
from postroom.protocol import answers, shapes
from postroom.protocol.content import Content
from postroom.protocol.principal import Principal, Scope
from postroom_a2a.task_state import TaskState

Open = Annotated[
    bool | None,
    Field(description="Only open tasks, or with false only those that have ended."),
    As("open"),
]
OverDoor = Annotated[
    Literal["", "cli", "api", "bus", "a2a+jsonrpc", "a2a+rest", "a2a+grpc"],
    Field(description="Only tasks that were asked for over this door."),
]
InState = Annotated[TaskState | None, Field(description="Only tasks in this state.")]


Until = Annotated[
    Literal["", "final", "settled", "changed"],
    Field(
        description="What to wait for: its end, with `settled` also a question, with `changed` any change."
    ),
]


operations = Operations()


@operations.post(
    "/v1/tasks",
    Scope.TASK,
    status=201,
    fails=(NotFound, Conflict, ContentNotTaken, *STORING),
    strangers=True,
)
async def delegate(parts: Parts, body: TaskBody, me: Principal) -> shapes.Task:
    """Give a task to an agent.

    `to` names an agent, not a person; one of another organisation by `@nick.org` or its uid. With `skill` alone the
    task goes to an agent whose card has the skill with that id: one that is online before one that is not, then the one
    with the fewest open tasks. 201 says that the request is on disk; a request with a `key` can be repeated.
    """
    if me.stranger:
        await parts.gate.sees(me, body.to, GrantScope.TASK)
    said = body.content
    if body.context and not said.thread:
        said = replace(said, thread=body.context)
    async with giving(parts, me, body.to, said) as given:
        view = await given.parts.assigner.delegate(
            me.uid, to=given.agent, skill=body.skill, said=said, key=body.key, door=came_by()
        )
    acted_on(task=view.id)
    return given.shown(view.as_json())


@operations.get("/v1/tasks", Scope.READ, fails=(NotFound,), strangers=True)
async def list_(
    parts: Parts,
    me: Principal,
    state: InState = None,
    worker: Ref = "",
    requester: Ref = "",
    limit: Limit = 50,
    before: Before = 0,
    door: OverDoor = "",
    text: SearchText = "",
    *,
    open_only: Open = None,
) -> answers.Tasks:
    """List tasks, the newest request first.

    With `text` those whose request has its words.
    """
    found = await parts.tasks.listed(
        worker=await parts.uid_of(worker),
        requester=await parts.uid_of(requester),
        states=() if state is None else (state,),
        open_only=open_only,
        limit=limit,
        before=before,
        only=me.only,
        door=door,
        text=text,
    )
    older = next_page(found, limit, lambda view: view.requested)
    return {"tasks": [view.as_json() for view in found], "next": older}


@operations.get(
    "/v1/tasks/{task}", Scope.READ, fails=(NotFound, Conflict), crosses=True, strangers=True
)
async def show(
    parts: Parts,
    task: TaskRef,
    me: Principal,
    wait: Until = "",
    after: After = 0,
    timeout: Seconds = 30.0,
) -> shapes.Task:
    """Show a task, at once or when it has come so far.

    With `wait` it answers when the task is final, or with `settled` also when it waits for an answer, after
    `timeout` seconds in any case; with `changed` when it has a record past the sequence `after`. The wait ends with
    its caller.
    """
    if not wait:
        view = await parts.tasks.get(task, me.only)
    elif wait == "changed":
        await _follow(parts, task, me)
        view = await parts.tasks.reached(task, after + 1, timeout, me.only)
    else:
        await _follow(parts, task, me)
        view = await parts.tasks.wait(task, timeout, settled=wait == "settled", only=me.only)
    usage = await parts.events.usage_of_task(view.worker.uid, view.id)
    shown: shapes.Task = {**view.as_json(), "usage": usage.as_json()}
    if followed := parts.remote_work.followed(view.worker.uid, view.id):
        shown["followed"] = followed
    return shown


@operations.get(
    "/v1/tasks/{task}/events", Scope.READ, fails=(NotFound, Conflict), crosses=True, strangers=True
)
async def events(
    parts: Parts, task: TaskRef, me: Principal, after: After = 0, limit: Limit = 50
) -> answers.TaskEvents:
    """Read the changes of a task, the oldest first."""
    found = await parts.tasks.events(task, after=after, limit=limit, only=me.only)
    later = next_page(found, limit, lambda event: event.seq)
    return {"events": [event.as_json() for event in found], "next": later}


@operations.get(
    "/v1/tasks/{task}/stream",
    Scope.READ,
    fails=(NotFound, Conflict),
    crosses=True,
    events={"update": shapes.TaskEvent, "trouble": shapes.Trouble},
    strangers=True,
)
async def stream(parts: Parts, task: TaskRef, me: Principal, after: After = 0) -> StreamingResponse:
    """Follow a task until it ends.

    Events `update`, each a change; `id:` is the sequence to come back with. Beside them `trouble`: what keeps the
    task now.
    """
    named = await _follow(parts, task, me)
    return streamed(TaskFeed(parts.changes, parts.tasks, parts.bus, named), after)


@operations.get(
    "/v1/tasks/{task}/messages",
    Scope.READ,
    fails=(NotFound, Conflict),
    crosses=True,
    strangers=True,
)
async def messages(parts: Parts, task: TaskRef, me: Principal) -> answers.TaskMessages:
    """Read the messages that belong to a task, the oldest first.

    Its request, what its agent said of it, the answers to its questions, and what its agent sent to others in its
    course, as the agent says.
    """
    row = await parts.tasks.find(task, me.only)
    found = await parts.database.read(lambda store: messages_of(store, row, me))
    return {"messages": found}


@operations.post(
    "/v1/tasks/{task}/retry",
    Scope.TASK,
    status=201,
    fails=(NotFound, Conflict, ContentNotTaken, *STORING),
    crosses=True,
)
async def retry(
    parts: Parts, task: TaskRef, me: Principal, body: RetryBody | None = None
) -> shapes.Task:
    """Ask for a task again that failed, was canceled or rejected.

    A new task of the same agent with the same message, `retry_of` the old one. Without a `key` a task has one
    retry: who asks again gets that one. 409 if the task has not ended, or is completed, unless `force` is given.
    """
    wish = body or RetryBody()
    row = await parts.tasks.find(task, me.only)
    async with sending(parts, me, row, Content(())):
        view = await parts.retries.retry(row.id, me, key=wish.key, force=wish.force, door=came_by())
    acted_on(task=view.id)
    return view.as_json()


@operations.post(
    "/v1/tasks/{task}/cancel",
    Scope.TASK,
    fails=(NotFound, Conflict, *STORING),
    crosses=True,
    strangers=True,
)
async def cancel(
    parts: Parts, task: TaskRef, me: Principal, body: CancelBody | None = None
) -> shapes.Task:
    """Cancel a task.

    It answers when the task is final, or after `timeout` seconds. A second cancel changes nothing; 409 if the task
    has ended otherwise.
    """
    wish = body or CancelBody()
    view = await parts.tasks.cancel(
        task, me.uid, reason=wish.reason, timeout=wish.timeout, only=me.only
    )
    acted_on(task=view.id)
    return view.as_json()


@operations.post(
    "/v1/tasks/{task}/answer",
    Scope.TASK,
    fails=(NotFound, Conflict, ContentNotTaken, *STORING),
    crosses=True,
    strangers=True,
)
async def answer(parts: Parts, task: TaskRef, body: AnswerBody, me: Principal) -> shapes.Task:
    """Answer the question of a task.

    200 says that the answer is on disk; of two the first one counts. 409 if the task waits for no answer.
    """
    row = await parts.tasks.find(task, me.only)
    async with sending(parts, me, row, body.content):
        view = await parts.tasks.answer(row.id, me.uid, body.content, only=me.only)
    acted_on(task=view.id)
    return view.as_json()


async def _follow(parts: Parts, task: str, me: Principal) -> str:
    """The id of a task that is going to be followed."""
    row = await parts.tasks.find(task, me.only)
    await following(parts, me, row.worker)
    return row.id
