"""The real Gemini CLI and OpenCode as workers, in their sandboxes. Run by hand: see hand_installed.py."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.conftest import SECRET, AgentsRoom, agents_room
from tests.agents.hand_installed import installed
from tests.e2e.conftest import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

HELLO = "Hello from the fake model."
KEYS = {
    "gemini": ("gemini", "x-goog-api-key", "{secret}"),
    "opencode": ("openrouter", "authorization", "Bearer {secret}"),
}
"""For each agent the name of its credential, and the header in which its model has the key."""
MORE = {"gemini": ("model=gemini-2.5-flash",), "opencode": ("model=fake-model", "path=/v1")}


@pytest.fixture(scope="module", params=["gemini", "opencode"])
def nick(request: pytest.FixtureRequest) -> str:
    """The agent, which is its worker's nick, too."""
    return request.param


@pytest.fixture(scope="module")
def room(nick: str) -> Iterator[AgentsRoom]:
    """A post room with this one worker."""
    folder = Path(installed(nick)).parent
    with agents_room() as room:
        room.env["PATH"] = f"{folder}{os.pathsep}{room.env['PATH']}"
        host = f"127.0.0.1:{room.model.port}"
        name, header, value = KEYS[nick]
        line = ("--header", f"{header}: {value}")
        room.run("credential", "add", name, "--host", f"http://{host}", *line, given=SECRET)
        chosen = ("scheme=http", f"host={host}", *MORE[nick])
        room.run("spawn", nick, *(word for one in chosen for word in ("--set", one)))
        until(
            lambda: room.events(nick, "started"), 120
        )  # OpenCode takes its time at the first start
        yield room


@pytest.mark.requirement("agents-real")
def test_a_task_is_done_and_the_key_is_added_outside(room: AgentsRoom, nick: str) -> None:
    task = room.delegate(nick, "say hello")
    done = room.await_task(task, "completed", "failed")
    assert done["artifacts"][0]["text"] == HELLO
    kinds = [event["type"] for event in room.events_at_end(task)]
    assert [kind for kind in kinds if kind in ("usage", "result")] == ["usage", "result"]
    _, header, value = KEYS[nick]
    assert room.model.asked()[-1].headers[header] == value.format(secret=SECRET)
    assert not room.model.others  # no update check, no telemetry


@pytest.mark.requirement("agents-real")
@pytest.mark.parametrize("decision, status", [("allowed", "ok"), ("denied", "denied")])
def test_a_tool_call_waits_for_a_person(
    room: AgentsRoom, nick: str, decision: str, status: str
) -> None:
    task = room.delegate(nick, f"RUN:[echo {decision} > sign.txt; cat sign.txt]")
    approval = room.await_approval(task)
    assert (approval["tool"], approval["title"]) == (
        "execute",
        f"echo {decision} > sign.txt; cat sign.txt",
    )
    room.decide(nick, approval["id"], decision)
    assert room.await_task(task, "completed", "failed")["state"] == "completed"
    assert [event["status"] for event in room.events_at_end(task, "tool_result")] == [status]


@pytest.mark.requirement("agents-real")
def test_an_interrupt_withdraws_the_question_and_ends_the_turn(room: AgentsRoom, nick: str) -> None:
    task = room.delegate(nick, "RUN:[sleep 300]")
    approval = room.await_approval(task)
    room.control(nick, type="interrupt", reason="enough", channel="api")
    [result] = until(lambda: room.events_of(task, "result"))
    assert result["status"] == "interrupted"
    assert room.get(f"/v1/approvals/{approval['id']}")["state"] == "withdrawn"


@pytest.mark.requirement("agents-real")
def test_a_failed_model_fails_the_task_and_the_session_goes_on(room: AgentsRoom, nick: str) -> None:
    done = room.await_task(room.delegate(nick, "FAIL:[401]"), "completed", "failed")
    assert (done["state"], "scripted failure" in done["detail"]) == ("failed", True)
    again = room.delegate(nick, "say hello")
    assert room.await_task(again, "completed", "failed")["artifacts"][0]["text"] == HELLO
    assert len(room.events(nick, "started")) == 1
    assert "sleep 300" in str(room.model.asked()[-1].body)  # what was said in the turns before
