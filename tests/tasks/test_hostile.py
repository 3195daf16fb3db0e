"""Agents that mean harm store requests and records of tasks, and others' tasks go on."""

from __future__ import annotations

import json
import secrets
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from postroom.errors import InvalidInput, ProtocolViolation
from postroom.protocol.envelope import Envelope
from postroom.protocol.records import MAX_DEPTH
from postroom.protocol.tasks import chain_headers, task_id
from postroom.store.ports import TaskRow
from postroom_a2a.task_state import TaskState
from tests.mail.desk import BACKENDS
from tests.tasks.desk import TaskDesk, following, open_desk

pytestmark = pytest.mark.anyio


def request(to: str, message: dict, **fields: object) -> tuple[str, bytes]:
    """Id and payload of a request as anybody may store it."""
    made = secrets.token_hex(16)
    envelope = {
        "v": 1,
        "id": made,
        "to": to,
        "sent_at": "2026-01-01T00:00:00Z",
        "message": {"messageId": made, "role": "ROLE_USER", "parts": [{"text": "do it"}]} | message,
        "expects_reply": True,
        "request": {"method": "SendMessage"},
    }
    return made, json.dumps(envelope | fields).encode()


async def still_folds(desk: TaskDesk) -> None:
    """Others' tasks go on."""
    ann, bob = await desk.worker("ann2"), await desk.worker("bob2")
    row = await desk.taken(bob, await desk.ask(ann, bob.uid))
    row = await desk.write(bob, row, TaskState.COMPLETED, "42")
    await desk.settled()
    assert row.final


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_context_that_fills_the_task_does_not_stop_the_fold(tmp_path: Path, backend: str):
    async with open_desk(tmp_path, backend) as desk:
        eve = await desk.worker("eve")
        nobody = secrets.token_hex(16)
        made, payload = request(nobody, {"contextId": "x" * 250_000})
        await eve.store(nobody, payload, made)
        await desk.final(task_id(nobody, eve.uid, made))
        assert desk.fold.statistics.poisoned == 0
        await still_folds(desk)


def nested(payload: bytes, depth: int) -> bytes:
    """`payload` with metadata that are nested so deep."""
    return payload.replace(b'"NESTED"', b"[" * depth + b"]" * depth)


async def test_content_nested_as_deep_as_python_reads_does_not_stop_the_fold(tmp_path: Path):
    async with open_desk(tmp_path, "nats") as desk:
        ann, eve = await desk.worker("ann"), await desk.worker("eve")
        for depth in (*range(50, 70), *range(930, 1000, 2)):
            nobody = secrets.token_hex(16)
            made, payload = request(nobody, {"metadata": "NESTED"})
            await eve.store(nobody, nested(payload, depth), made)
            row = await desk.ask(ann, eve.uid)
            record = following(row, TaskState.SUBMITTED)
            record = replace(record, task=record.task | {"metadata": "NESTED"})
            await eve.bus.publish(
                record.subject(eve.uid),
                nested(record.encode(), depth),
                metadata=chain_headers(eve.uid, row.id, 0),
            )
        await still_folds(desk)
        assert desk.fold.statistics.poisoned == 0


async def test_what_cannot_be_told_of_one_task_does_not_stop_the_fold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with open_desk(tmp_path, "nats") as desk:
        ann, eve = await desk.worker("ann"), await desk.worker("eve")
        tell = desk.task_clerk._tell_requester

        async def breaks(event: Any, task: TaskRow, requester: Any) -> None:
            if task.worker == eve.uid:
                raise ValueError("nobody foresaw this")
            await tell(event, task, requester)

        monkeypatch.setattr(desk.task_clerk, "_tell_requester", breaks)
        await desk.write(eve, await desk.ask(ann, eve.uid), TaskState.REJECTED, "no")
        await still_folds(desk)
        assert desk.fold.statistics.poisoned == 1


async def test_a_task_whose_request_is_nested_as_deep_as_can_be_can_be_done(tmp_path: Path):
    async with open_desk(tmp_path, "nats") as desk:
        ann, bob = await desk.worker("ann"), await desk.worker("bob")
        depth = MAX_DEPTH
        while True:  # the deepest that is taken
            made, payload = request(bob.uid, {"metadata": "NESTED"})
            payload = nested(payload, depth)
            try:
                Envelope.decode(payload)
                break
            except ProtocolViolation:
                depth -= 1
        await ann.store(bob.uid, payload, made)
        row = await desk.taken(bob, await desk.task(task_id(bob.uid, ann.uid, made), 0))
        done = await desk.write(bob, row, TaskState.COMPLETED, "42")
        await desk.settled()
        assert [update.sequence for update in await desk.updates(ann.uid)] == [done.seq]


async def test_what_nobody_could_read_is_not_written(tmp_path: Path):
    async with open_desk(tmp_path) as desk:
        ann, bob = await desk.worker("ann"), await desk.worker("bob")
        row = await desk.ask(ann, bob.uid)
        deep = json.loads("[" * 100 + "]" * 100)
        record = following(row, TaskState.SUBMITTED)
        with pytest.raises(InvalidInput, match="nested"):
            replace(record, task=record.task | {"metadata": deep}).encode()
        with pytest.raises(InvalidInput, match="nested"):
            Envelope("m", bob.uid, {"metadata": deep}, 0.0).encode()
