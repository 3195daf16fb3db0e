"""A2A 1.0 Tasks as JSON: snapshots, and the events that change them (specification, sections 4.1.1 and 4.2). Pure.

A snapshot is complete by itself: state, artifacts, and in `history` the request, the agent's questions and the answers
to them. Progress is in the events alone.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Any

from postroom_a2a.errors import InvalidInput
from postroom_a2a.messages import files_of, text_message, text_of, texts_of
from postroom_a2a.task_state import TaskState
from postroom_a2a.times import format_time

Task = dict[str, Any]
"""A Task as JSON."""

Event = dict[str, Any]
"""A StreamResponse as JSON: `{"task"}`, `{"statusUpdate"}` or `{"artifactUpdate"}`."""

Message = dict[str, Any]
"""A Message as JSON."""

ANSWER = "urn:postroom:a2a:answer:1"
"""Key in the metadata of a status update: the answer to the task's question."""

WHOLE = "urn:postroom:a2a:message:1"
"""Key in the metadata of a completed task's status message: the agent means it as its whole answer."""


def new_task(task_id: str, context_id: str, request: Message, at: float) -> Task:
    """The `submitted` task of a request."""
    return {
        "id": task_id,
        "contextId": context_id,
        "status": {"state": TaskState.SUBMITTED.a2a, "timestamp": format_time(at)},
        "history": [request],
    }


def state_of(task: Task) -> TaskState:
    """The state of a snapshot.

    Raises:
        InvalidInput: the snapshot has none.
    """
    status = task.get("status")
    try:
        return TaskState.from_a2a(status.get("state") if isinstance(status, dict) else None)
    except ValueError as error:
        raise InvalidInput(str(error)) from error


def status_text(holder: Task) -> str:
    """The agent's text in the status of a task or a status update, "" for none."""
    status = holder.get("status")
    message = status.get("message") if isinstance(status, dict) else None
    return text_of(message) if isinstance(message, dict) else ""


def agent_message(task: Task, text: str) -> Message:
    """A new message from the agent about its task."""
    message = text_message(secrets.token_hex(16), text, context_id=task["contextId"])
    return {**message, "taskId": task["id"]}


def status_update(task: Task, state: TaskState, at: float, message: Message | None = None) -> Event:
    """The event for a change of state, or for progress (`working` again)."""
    status: dict[str, Any] = {"state": state.a2a, "timestamp": format_time(at)}
    if message is not None:
        status["message"] = message
    return {
        "statusUpdate": {"taskId": task["id"], "contextId": task["contextId"], "status": status}
    }


def whole_answer(task: Task) -> Message | None:
    """The message that an agent gave in place of results; None where there is none, or there are artifacts."""
    message = task["status"].get("message") or {}
    metadata = message.get("metadata")
    if state_of(task) is not TaskState.COMPLETED or task.get("artifacts"):
        return None
    if not isinstance(metadata, dict) or metadata.get(WHOLE) is not True:
        return None
    rest = {name: value for name, value in metadata.items() if name != WHOLE}
    said = {name: value for name, value in message.items() if name != "metadata"}
    return {**said, "metadata": rest} if rest else said


def answer_update(task: Task, at: float, answer: Message) -> Event:
    """The event for an answer, which makes the task `working` again; its metadata holds the answer."""
    event = status_update(task, TaskState.WORKING, at)
    event["statusUpdate"]["metadata"] = {ANSWER: text_of(answer)}
    return event


def answer_in(event: Event) -> str:
    """The answer in an event by `answer_update`, "" in any other event."""
    update = event.get("statusUpdate")
    metadata = update.get("metadata") if isinstance(update, dict) else None
    answer = metadata.get(ANSWER) if isinstance(metadata, dict) else None
    return answer if isinstance(answer, str) else ""


def artifact_update(
    task: Task, artifact: dict[str, Any], *, append: bool = False, last: bool = True
) -> Event:
    """The event for an artifact `{"artifactId", "name"?, "parts", ...}`.

    Args:
        append: the parts follow those of the artifact's earlier events.
        last: no event follows for this artifact.
    """
    update: dict[str, Any] = {
        "taskId": task["id"],
        "contextId": task["contextId"],
        "artifact": artifact,
    }
    if append:
        update["append"] = True
    if last:
        update["lastChunk"] = True
    return {"artifactUpdate": update}


def text_artifact(artifact_id: str, text: str, name: str = "") -> dict[str, Any]:
    """An artifact with one text part."""
    named = {"name": name} if name else {}
    return {"artifactId": artifact_id, **named, "parts": [{"text": text}]}


def file_artifact(
    artifact_id: str, url: str, media_type: str, filename: str, name: str = ""
) -> dict[str, Any]:
    """An artifact with one URL part; "" for an unknown media type or file name."""
    part = {"url": url}
    part |= {"mediaType": media_type} if media_type else {}
    part |= {"filename": filename} if filename else {}
    named = {"name": name} if name else {}
    return {"artifactId": artifact_id, **named, "parts": [part]}


def apply(task: Task, event: Event, *, answer: Message | None = None) -> Task:
    """The snapshot after `event`; `task` stays unchanged. An `answer` that made the agent go on joins the history."""
    return compose(task, [(event, answer)])


def compose(task: Task, changes: Iterable[tuple[Event, Message | None]]) -> Task:
    """The snapshot after all `changes` (an event, and the answer that came with it), as `apply` makes it one by one.

    It costs as much as the changes are long, however long the task is by then.
    """
    after = dict(task)
    history: list[Message] | None = None
    artifacts: _Artifacts | None = None
    for event, answer in changes:
        if answer is not None:
            if history is None:
                history = after["history"] = [*after.get("history", ())]
            history += (*_question(after), answer)
        if "statusUpdate" in event:
            update = event["statusUpdate"]
            after["status"] = update["status"]
            if update.get("metadata"):
                after["metadata"] = {**after.get("metadata", {}), **update["metadata"]}
        elif "artifactUpdate" in event:
            update = event["artifactUpdate"]
            if artifacts is None:
                artifacts = _Artifacts(after.get("artifacts", ()))
                after["artifacts"] = artifacts.all
            artifacts.put(update["artifact"], append=bool(update.get("append")))
    return after


def _question(task: Task) -> Iterable[Message]:
    if state_of(task).interrupted and isinstance(task["status"].get("message"), dict):
        yield task["status"]["message"]


class _Artifacts:
    """The artifacts of a task that changes; each is copied at its first change, so that the others stay as they are."""

    def __init__(self, given: Iterable[dict[str, Any]]) -> None:
        self.all = list(given)
        self._places: dict[str, list[int]] = {}
        self._own: set[int] = set()
        for place, artifact in enumerate(self.all):
            self._places.setdefault(artifact["artifactId"], []).append(place)

    def put(self, new: dict[str, Any], *, append: bool) -> None:
        """Replace the artifact with that id or, with `append`, add the parts to it; else it is a new one."""
        places = self._places.setdefault(new["artifactId"], [])
        if not places:
            places.append(len(self.all))
            self.all.append(new)
            return
        for place in places:
            old = self.all[place]
            if not append:
                self.all[place] = new
                self._own.discard(place)
            elif place in self._own:
                old["parts"].extend(new["parts"])
            else:
                self.all[place] = {**old, "parts": [*old["parts"], *new["parts"]]}
                self._own.add(place)


def artifacts_of(task: Task) -> list[dict[str, Any]]:
    """The artifacts as `{"id", "name", "text", "files"?}`: the text parts joined, and the URL parts."""
    return [_shown(artifact) for artifact in task.get("artifacts", ())]


def _shown(artifact: dict[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": str(artifact.get("artifactId", "")),
        "name": str(artifact.get("name", "")),
        "text": "".join(texts_of(artifact)),
    }
    if files := files_of(artifact):
        shown["files"] = files
    return shown
