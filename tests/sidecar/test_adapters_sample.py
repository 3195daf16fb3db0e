"""The agent that docs/agents.md shows, run as it stands there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from postroom.protocol import subjects
from postroom.protocol.envelope import Envelope, TaskRequest
from postroom.protocol.tasks import task_id
from postroom.protocol.verbs import Artifact, AskInput, Canceled, Complete, Progress
from postroom.sidecar.adapters import Heard, IncomingTask, JsonLines, Said, Sender
from postroom.tasks.records import Link, TaskRecord
from postroom_a2a.messages import text_message
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import artifacts_of
from tests.sidecar.worker_rig import WorkerRig

DOCUMENT = Path(__file__).parents[2] / "docs" / "agents.md"
ALICE = Sender("a" * 32, "alice", "worker")
FIRST, SECOND = "1" * 32, "2" * 32


def sample() -> str:
    (found,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    return found


def answers(*lines: bytes) -> list[Said]:
    """What the sample says to these lines."""
    words = [sys.executable, "-c", sample()]
    done = subprocess.run(words, input=b"".join(lines), capture_output=True, check=True, timeout=30)
    return JsonLines().feed(done.stdout)


def control(**record: Any) -> bytes:
    return json.dumps(record).encode() + b"\n"


def test_the_sample_does_its_tasks_asks_and_heeds_a_cancel():
    assert len(sample().splitlines()) <= 25
    adapter = JsonLines()
    history = (
        Heard("user", "?"),
        Heard("agent", "What shall I count?"),
        Heard("user", "these two"),
    )
    assert answers(
        control(type="hello"),
        adapter.render_task(IncomingTask(FIRST, "c", ALICE, "one two three")),
        adapter.render_task(IncomingTask(SECOND, "c", ALICE, "?")),
        control(type="input", task=SECOND, text="four", **{"from": {}}),
        adapter.render_task(IncomingTask(SECOND, "c", ALICE, "?", resumed=True, history=history)),
        control(type="cancel", task=FIRST, reason=""),
    ) == [
        Progress(FIRST, "3 words to count"),
        Artifact(FIRST, "3", "count"),
        Complete(FIRST, "counted"),
        AskInput(SECOND, "What shall I count?"),
        Progress(SECOND, "1 words to count"),
        Artifact(SECOND, "1", "count"),
        Complete(SECOND, "counted"),
        Progress(SECOND, "2 words to count"),
        Artifact(SECOND, "2", "count"),
        Complete(SECOND, "counted"),
        Canceled(FIRST),
    ]


@pytest.mark.anyio
@pytest.mark.requirement("task-kill-requester-told")
async def test_in_a_sidecar_the_sample_completes_a_task(home: WorkerRig):
    request = Envelope(
        id="f" * 32,
        to=home.worker,
        message=text_message("f" * 32, "one two three"),
        sent_at=time.time(),
        expects_reply=True,
        request=TaskRequest(),
    )
    async with home.sidecar(sample()):
        subject = subjects.inbox(home.worker, home.alice.uid)
        await home.alice.publish(subject, request.encode(), id=request.id)
        await home.tap.until(
            lambda: TaskState.COMPLETED in [record.state for record in records(home)]
        )

    found = records(home)
    assert [record.state.value for record in found] == ["working"] * 3 + ["completed"]
    assert {record.id for record in found} == {task_id(home.worker, home.alice.uid, request.id)}
    assert [artifact["text"] for artifact in artifacts_of(found[-1].task)] == ["3"]


def records(home: WorkerRig) -> list[TaskRecord]:
    """Records of the one task, in order."""
    found: list[TaskRecord] = []
    for message in home.tap.of("tasks"):
        found.append(Link.decode(message.payload).after(found[-1].task if found else None))
    return found
