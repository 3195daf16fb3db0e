"""Tasks between two organisations of a post room, by real processes and the commands."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from tests.e2e.across import operator
from tests.e2e.conftest import EXAMPLES, PostRoom, running_room, until

ASKS = """
[worker]
name = "painter"
[workstation]
command = ["sh", "-c", "cat > said; cat said; grep -q red said || postroom-agent ask 'which colour?'"]
adapter = "text"
"""


@pytest.fixture(scope="module")
def room() -> Generator[PostRoom]:
    with running_room() as made:
        made.run("org", "create", "acme")
        yield made


@pytest.mark.requirement("guest-tasks")
@pytest.mark.timeout(120)
def test_a_worker_of_another_organisation_does_a_task_by_the_commands(room: PostRoom) -> None:
    here, there = operator(room, "default"), operator(room, "acme")
    room.run("--org", "acme", "spawn", str(EXAMPLES / "echo.toml"))
    room.run("--org", "acme", "spawn", room.template(ASKS, "painter"))

    room.run("delegate", "@echo.acme", "hello", status=6)
    assert "it has not let you in" in room.stderr
    for worker in ("echo", "painter"):
        said = {"grantee": here.address, "granter": worker, "scopes": ["task"]}
        there.ask("POST", "/v1/grants", json=said)
    answer = room.run("delegate", "@echo.acme", "hello", "--wait")
    task = room.json("delegate", "@painter.acme", "paint it")["id"]

    assert "hello" in answer
    asked = until(lambda: _in_state(room, task, "input-required"))
    assert asked["worker"]["nick"] == "painter.acme"
    room.run("task", "answer", task, "red")
    assert until(lambda: _in_state(room, task, "completed"))
    assert "painter.acme" in room.run("task", "show", task)
    assert room.json("--org", "acme", "task", "show", task)["requester"]["nick"] == here.address[1:]
    second = room.json("delegate", "@painter.acme", "paint another")["id"]
    assert room.json("task", "cancel", second)["state"] == "canceled"


def _in_state(room: PostRoom, task: str, state: str) -> Any:
    shown = room.json("task", "show", task)
    return shown if shown["state"] == state else None
