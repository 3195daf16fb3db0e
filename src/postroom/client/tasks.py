"""The routes of tasks as methods (docs/api.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from postroom.client.calls import Calls, given, new_key, task_ref
from postroom.client.records import Rest, Task, TaskEvent
from postroom.client.stream import Event, EventStream

CANCEL_TIMEOUT = 15.0
"""Seconds that an agent gets to stop working on a task; its sidecar kills it after 5."""


class TaskCalls(Calls):
    """Tasks of the agents, as their operator.

    A `ref` is a task's id or its beginning, of 4 hex digits or more.
    """

    def delegate(
        self, text: str, *, to: str = "", skill: str = "", key: str = "", context: str = ""
    ) -> Task:
        """Give an agent a task; it is on disk when this returns, also if the agent is offline.

        Args:
            text: what to do.
            to: `@nick` or uid; "" lets the post room choose an agent that has `skill`.
            skill: that the agent's card must have.
            key: idempotency key; the same key toward the same agent is the same task. Without one a fresh
                one is made, so that an attempt that is repeated asks for nothing twice.
            context: id of the conversation that the task belongs to.
        """
        body = {"text": text, "key": key or new_key()}
        body |= given(to=to, skill=skill, context=context)
        return self._post_keyed("/v1/tasks", body)

    def tasks(
        self,
        *,
        open_only: bool = False,
        state: str = "",
        worker: str = "",
        requester: str = "",
        limit: int = 100,
        before: int = 0,
    ) -> list[Task]:
        """Tasks, newest first, without their artifacts; `before` is a `requested` of an earlier answer."""
        query: dict[str, Any] = {"limit": limit} | ({"open": 1} if open_only else {})
        query |= given(state=state, worker=worker, requester=requester, before=before or None)
        return self._get("/v1/tasks", query)["tasks"]

    def task(self, ref: str) -> Task:
        """One task with its artifacts."""
        return self._get(f"/v1/tasks/{task_ref(ref)}")

    def await_task(self, ref: str, rest: Rest, timeout: float) -> Task:
        """The task when it has come to rest.

        After `timeout` seconds it is returned as it stands, with `timed_out` true.
        """
        return self._wait(f"/v1/tasks/{task_ref(ref)}", rest, timeout)

    def task_events(self, ref: str, *, after: int = 0, limit: int = 200) -> list[TaskEvent]:
        """Changes of a task after the stream sequence `after`, oldest first."""
        query = {"after": after, "limit": limit}
        return self._get(f"/v1/tasks/{task_ref(ref)}/events", query)["events"]

    def follow_task(
        self, ref: str, *, after: int = 0, away: Callable[[bool], None] = lambda _: None
    ) -> EventStream:
        """Changes of a task after the stream sequence `after`, up to the one that ends it.

        Each event is an `update`, its data a `TaskEvent`, or a `trouble`: `text` says what keeps the task now, `worker`
        who does. `away` is told when the post room has gone and when it is back.
        """
        path = f"/v1/tasks/{task_ref(ref)}/stream"
        return EventStream(
            self.transport, {}, after=str(after), path=path, is_last=_ends_task, away=away
        )

    def cancel_task(self, ref: str, *, reason: str = "", timeout: float = CANCEL_TIMEOUT) -> Task:
        """Have an agent stop working on a task; after `timeout` seconds it is returned as it stands.

        Raises:
            Conflict: it has ended already.
        """
        body = {"timeout": timeout} | given(reason=reason)
        path = f"/v1/tasks/{task_ref(ref)}/cancel"
        return self._post(path, body, repeatable=True, patience=timeout)

    def answer_task(self, ref: str, text: str) -> Task:
        """Answer the question that a task waits with.

        It is never repeated by itself: the agent could take the second one for the answer to its next question.

        Raises:
            Conflict: it asks nothing.
        """
        return self._post(f"/v1/tasks/{task_ref(ref)}/answer", {"text": text})


def _ends_task(event: Event) -> bool:
    return event.data.get("final") is True
