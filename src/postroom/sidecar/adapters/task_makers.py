"""Actions from records: what an agent says in a line or over HTTP about tasks.

Each maker raises InvalidInput if a field is missing or not what it has to be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from postroom.errors import InvalidInput
from postroom.protocol.blobs import sha256_of
from postroom.protocol.priority import MAX_REASON
from postroom.sidecar.adapters.actions import (
    AnswerTask,
    Artifact,
    AskInput,
    Canceled,
    CancelTask,
    Complete,
    Delegate,
    Fail,
    Progress,
    Reject,
    TaskAction,
)
from postroom.sidecar.adapters.fields import (
    flag_field,
    key_field,
    name_field,
    ref_field,
    task_field,
    text_field,
    words_field,
)


def _make_progress(record: Mapping[str, Any]) -> Progress:
    return Progress(task_field(record, ""), text_field(record, "text"), ref_field(record))


def _make_artifact(record: Mapping[str, Any]) -> Artifact:
    url = text_field(record, "url", "")
    if url:
        sha256_of(url)
        if text_field(record, "text", ""):
            raise InvalidInput("an artifact has a 'text' or a 'url', not both")
    return Artifact(
        task=task_field(record, ""),
        text="" if url else text_field(record, "text"),
        name=name_field(record, "name"),
        id=name_field(record, "id"),
        append=flag_field(record, "append"),
        last=flag_field(record, "last", default=True),
        url=url,
        media_type=name_field(record, "mediaType"),
        filename=name_field(record, "filename"),
        ref=ref_field(record),
    )


def _make_complete(record: Mapping[str, Any]) -> Complete:
    return Complete(task_field(record, ""), text_field(record, "text", ""), ref_field(record))


def _make_fail(record: Mapping[str, Any]) -> Fail:
    return Fail(task_field(record, ""), text_field(record, "text"), ref_field(record))


def _make_reject(record: Mapping[str, Any]) -> Reject:
    return Reject(task_field(record, ""), text_field(record, "text", ""), ref_field(record))


def _make_ask(record: Mapping[str, Any]) -> AskInput:
    return AskInput(task_field(record, ""), words_field(record, "text"), ref_field(record))


def _make_canceled(record: Mapping[str, Any]) -> Canceled:
    return Canceled(task_field(record, ""), text_field(record, "text", ""), ref_field(record))


TASK_MAKERS: dict[str, Callable[[Mapping[str, Any]], TaskAction]] = {
    "update": _make_progress,
    "artifact": _make_artifact,
    "complete": _make_complete,
    "fail": _make_fail,
    "reject": _make_reject,
    "input_required": _make_ask,
    "canceled": _make_canceled,
}
"""What is said of a task that the agent works on, by the word for it in lines and in paths."""


def make_delegate(record: Mapping[str, Any]) -> Delegate:
    """The `delegate` in a record."""
    to, skill = text_field(record, "to", ""), name_field(record, "skill")
    if not to and not skill:
        raise InvalidInput("'to' or 'skill' has to say who is to do it")
    return Delegate(
        to=to,
        skill=skill,
        text=words_field(record, "text"),
        key=key_field(record),
        stream=flag_field(record, "stream"),
        context=name_field(record, "context"),
        ref=ref_field(record),
    )


def make_cancel_task(record: Mapping[str, Any]) -> CancelTask:
    """The `cancel_task` in a record."""
    reason = name_field(record, "reason", MAX_REASON)
    return CancelTask(task_field(record), reason, ref_field(record))


def make_answer_task(record: Mapping[str, Any]) -> AnswerTask:
    """The `answer_task` in a record."""
    return AnswerTask(task_field(record), words_field(record, "text"), ref_field(record))
