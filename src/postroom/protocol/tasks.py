"""The id of a task and the chain of its records (docs/architecture.md, Tasks).

A change of a task is one record on `worker.<runner>.tasks.<task>.<state>`. Its headers name its predecessor, so the
sequence in TASKS is the task's version, and the server stores only one of two records with the same predecessor. The
server would also store a record without these headers, so a record counts only as the next link of the chain
(`follows`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from postroom.errors import InvalidInput
from postroom.protocol import subjects
from postroom.protocol.limits import MAX_LABEL
from postroom_a2a.task_state import TaskState

EXPECTED = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_SUBJECT = "Nats-Expected-Last-Subject-Sequence-Subject"
"""Headers by which the server stores a record only if it follows the last one on those subjects."""

TASK_ID = re.compile(r"[0-9a-f]{32}")

EXIT_CODES: dict[str, int] = {
    TaskState.COMPLETED: 0,
    TaskState.FAILED: 11,
    TaskState.CANCELED: 12,
    TaskState.REJECTED: 13,
}
"""Exit status of a command that waited for a task, by its final state."""


SKILL = "urn:postroom:a2a:skill:1"
"""Key in the metadata of a Message that asks for a task, and of the Task: id of the skill that is wanted of the card.
"""


class Door(StrEnum):
    """The way by which a request for a task came in.

    The control plane notes it where it took the request itself. `cli` is `api` with the client's word that it is
    Postroom's command. What came over the bus is `bus`, whatever it says of itself.
    """

    CLI = "cli"
    API = "api"
    BUS = "bus"
    JSONRPC = "a2a+jsonrpc"
    REST = "a2a+rest"
    GRPC = "a2a+grpc"


ANSWERED_BY = "urn:postroom:a2a:answered-by:1"
"""Key in the metadata of an answer: uid of its sender."""

GAVE_UP = "urn:postroom:a2a:gave-up:1"
"""Key in the metadata of the status update that ends a task whose attempts are used up: how many were lost."""


def task_id(worker: str, sender: str, message_id: str) -> str:
    """The id of the task that `worker` makes of the request `message_id` of `sender`.

    It follows from the request. So a message that is delivered twice gives one task, and the sender knows the id as
    soon as the request is stored.
    """
    named = f"task\0{worker}\0{sender}\0{message_id}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(named).hexdigest()[:32]


def key_of(message_id: str) -> str:
    """The idempotency key of a request by an A2A client: the same `messageId` is the same task."""
    return f"a2a:{hashlib.sha256(message_id.encode('utf-8', 'replace')).hexdigest()}"


def used_before(task: str) -> InvalidInput:
    """The refusal of a message whose id `task` has of another message."""
    return InvalidInput(
        f"this messageId was used for another message, in task {task}",
        remedy="give each message a messageId of its own",
    )


def skill_in(message: Mapping[str, Any]) -> str:
    """The skill that the Message of an A2A client names in its metadata, "" for any.

    A2A 1.0 has no field for it: a card's skills describe, and a request goes to the agent. So it is metadata of ours.

    Raises:
        InvalidInput: it is no name of a skill.
    """
    metadata = message.get("metadata")
    named = metadata.get(SKILL, "") if isinstance(metadata, Mapping) else ""
    if not isinstance(named, str) or len(named) > MAX_LABEL:
        raise InvalidInput(f"metadata {SKILL!r} names a skill in at most {MAX_LABEL} characters")
    return named


def chain(worker: str, task: str) -> str:
    """The subjects of all records of a task, as the server compares them."""
    return f"worker.{worker}.tasks.{task}.>"


def chain_headers(worker: str, task: str, last: int) -> dict[str, str]:
    """Headers of the record that follows sequence `last` (0 for the first record)."""
    return {EXPECTED: str(last), EXPECTED_SUBJECT: chain(worker, task)}


def follows(headers: Mapping[str, str], worker: str, task: str, last: int) -> bool:
    """Whether a stored record's headers name sequence `last` of this task as its predecessor."""
    return headers.get(EXPECTED) == str(last) and headers.get(EXPECTED_SUBJECT) == chain(
        worker, task
    )


def parse_task_subject(subject: str) -> tuple[str, str, TaskState] | None:
    """(worker, task, state) of a record's subject; None if the subject is not one of a task."""
    try:
        said = subjects.parse(subject)
        if said.kind != "tasks" or TASK_ID.fullmatch(said.rest[0]) is None:
            return None
        return said.sender, said.rest[0], TaskState(said.rest[1])
    except (ValueError, InvalidInput):
        return None
