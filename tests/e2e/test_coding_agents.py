"""A coding agent behind the wall of a real post room: seen, asked for, answered, and in one session over crashes."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.e2e.conftest import PostRoom, gone, until
from tests.e2e.processes import Process, below, sidecar_of

CODER = Path(__file__).resolve().parents[1] / "fakes" / "coder.py"

TEMPLATE = """
[worker]
name = "{name}"
[workstation]
command = ["python3", "/opt/agent/coder.py"]
adapter = "claude"
files = ["coder.py"]
instructions = false
[sidecar]
"""


def coder(room: PostRoom, name: str, rules: str = "") -> None:
    """A worker with the scripted agent."""
    text = TEMPLATE.format(name=name) + rules
    room.run("spawn", room.template(text, name, coder=CODER.read_text()))


def delegate(room: PostRoom, name: str, text: str) -> str:
    """A task for the worker; its id."""
    return room.json("delegate", f"@{name}", text)["id"]


def ended(room: PostRoom, task: str, state: str = "completed") -> dict[str, Any]:
    """The task once it is in that state."""
    until(lambda: room.json("task", "show", task)["state"] == state)
    return room.json("task", "show", task)


def events(room: PostRoom, name: str) -> list[dict[str, Any]]:
    """All events of the worker."""
    with room.client() as client:
        return client.transport.call("GET", f"/v1/workers/@{name}/sdk-events?limit=500")["events"]


def pending(room: PostRoom) -> dict[str, Any]:
    """The one approval that waits, once there is one."""
    with room.client() as client:
        (found,) = until(lambda: client.transport.call("GET", "/v1/approvals")["approvals"])
    return found


def decide(room: PostRoom, asked: dict[str, Any], decision: str) -> None:
    """Answer an approval."""
    body = {"type": "control_response", "id": asked["id"], "decision": decision, "channel": "api"}
    with room.client() as client:
        client.transport.call("POST", f"/v1/workers/{asked['worker']['uid']}/control", json=body)


def agent_of(room: PostRoom, name: str) -> Process:
    """The process of the scripted agent."""
    found = [p for p in below(room.worker(name)["pid"]) if "coder.py" in p.command]
    return found[-1]


def in_order(found: list[dict[str, Any]]) -> list[str]:
    """Kinds of a worker's events but for texts, once each where the sidecar has told them twice."""
    return [event["type"] for event in found if event["type"] not in {"text", "wall"}]


@pytest.mark.requirement("failing-last-word")
def test_a_program_that_prints_no_json_is_said_where_people_look(shared: PostRoom):
    text = '[worker]\nname = "mumbler"\n[workstation]\ncommand = ["sh", "-c", "{}"]\n'
    shared.run("spawn", shared.template(text.format("while read -r line; do echo Hi; done"), "m"))
    with shared.client() as client:
        told = client.follow_task(delegate(shared, "mumbler", "hi"))
        trouble = next(
            event.data for event in told if event.kind == "trouble" and event.data["text"]
        )
    task = shared.json("task", "list")["tasks"][0]["id"]
    said = "no JSON; last: Hi"

    assert said in trouble["text"]
    assert said in shared.worker("mumbler")["trouble"]
    assert said in shared.run("status", "--wide")
    assert said in shared.run("task", "show", task)
    shared.run("task", "cancel", task)


@pytest.mark.requirement("approval-one-object")
def test_people_see_and_answer_what_a_coding_agent_behind_the_wall_asks(shared: PostRoom):
    coder(shared, "asker")
    task = delegate(shared, "asker", "RUN:[printf asked]")
    asked = pending(shared)
    assert (asked["tool"], asked["task"]) == ("Bash", task)
    decide(shared, asked, "allowed")

    assert ended(shared, task)["artifacts"][0]["text"] == "ran: asked"
    kinds = ["started", "tool_call", "control_request", "control_response"]
    kinds += ["tool_result", "usage", "result"]
    until(lambda: in_order(events(shared, "asker")) == kinds)


@pytest.mark.requirement("policy-added-at-once")
def test_what_a_person_allows_always_is_not_asked_again_also_after_a_restart_with_another_template(
    shared: PostRoom,
):
    def done(text: str) -> str:
        return ended(shared, delegate(shared, "always", text))["artifacts"][0]["text"]

    coder(shared, "always")
    task = delegate(shared, "always", "RUN:[printf same]")
    asked = pending(shared)
    said = shared.run("approve", asked["id"], "--always")
    assert "does not ask for Bash(printf same) any more" in said
    assert ended(shared, task)["artifacts"][0]["text"] == "ran: same"
    assert done("RUN:[printf same]") == "ran: same"

    changed = TEMPLATE.format(name="always") + 'auto_deny = ["Bash(*secret*)"]'
    shared.run("policy", "@always", "--allow", "Bash(printf *)")
    shared.template(changed, "always", coder=CODER.read_text())
    shared.run("restart", "@always")
    assert done("RUN:[printf same]") == "ran: same"
    assert done("RUN:[printf secret]") == "denied: denied by Bash(*secret*)"
    shown = shared.run("policy", "@always")
    assert "kept by the post room" in shown

    shared.run("policy", "@always", "--remove", "Bash(printf *)", "--remove", "Bash(printf same)")
    task = delegate(shared, "always", "RUN:[printf same]")
    decide(shared, pending(shared), "denied")
    assert ended(shared, task)["artifacts"][0]["text"].startswith("denied")


@pytest.mark.requirement("autonomy-set")
@pytest.mark.requirement("coding-policy-no-shell-tricks")
def test_all_is_allowed_until_its_task_ends_over_sigkill_and_restart_and_then_it_asks_again(
    shared: PostRoom,
):
    coder(shared, "free", 'auto_deny = ["Bash(*secret*)"]')
    workspace = Path(shared.state / "workers" / shared.worker("free")["uid"] / "workspace")
    task = delegate(
        shared, "free", "RUN:[touch begun] WAIT:[go] RUN:[echo a > f; cat f] RUN:[echo secret]"
    )
    pending(shared)
    said = shared.run("autonomy", "@free", "all", "--until-task-ends")
    assert f"all until task {task[:8]} ends (set by @" in said
    until((workspace / "begun").exists)  # what waited is answered
    assert shared.worker("free")["autonomy"] == "all"
    agent_of(shared, "free").kill()
    shared.run("restart", "@free")
    (workspace / "go").touch()
    text = ended(shared, task)["artifacts"][0]["text"]
    assert text.endswith("ran: a; denied: denied by Bash(*secret*)")

    assert shared.worker("free")["autonomy"] == "ask"
    assert "until task" not in shared.run("autonomy", "@free")
    again = delegate(shared, "free", "RUN:[cd sub && ls 2>&1 | tail -1; cat f > g]")
    asked = pending(shared)
    assert "not by a rule: it has a redirection to g" in shared.run("approvals", asked["id"])
    decide(shared, asked, "denied")
    ended(shared, again)


@pytest.mark.requirement("autonomy-set")
def test_a_worker_that_is_spawned_autonomous_asks_for_nothing_until_that_is_taken_back(
    shared: PostRoom,
):
    text = TEMPLATE.format(name="loose") + 'auto_deny = ["Bash(*secret*)"]'
    made = shared.template(text, "loose", coder=CODER.read_text())
    shared.run("spawn", made, "--autonomous")
    done = ended(shared, delegate(shared, "loose", "RUN:[echo a > f; cat f] RUN:[echo secret]"))
    assert done["artifacts"][0]["text"] == "ran: a; denied: denied by Bash(*secret*)"
    assert "UNASKED" in shared.run("status")
    (said,) = [e for e in events(shared, "loose") if e["type"] == "policy"]
    assert (said["autonomy"], bool(said["by"]["nick"])) == ("all", True)
    assert "set by @" in shared.run("policy", "@loose")

    shared.run("autonomy", "@loose", "ask")
    task = delegate(shared, "loose", "RUN:[echo b]")
    decide(shared, pending(shared), "denied")
    ended(shared, task)


@pytest.mark.requirement("coding-session-survives-sigkill")
def test_the_same_session_goes_on_after_sigkill_of_the_agent_and_of_the_sidecar_in_mid_turn(
    shared: PostRoom,
):
    coder(shared, "phoenix", "autonomous = true")
    task = delegate(shared, "phoenix", "RUN:[touch begun] WAIT:[go] RECALL")
    workspace = Path(shared.state / "workers" / shared.worker("phoenix")["uid"] / "workspace")
    until((workspace / "begun").exists)
    (workspace / "begun").unlink()
    agent_of(shared, "phoenix").kill()
    until((workspace / "begun").exists)
    (workspace / "begun").unlink()
    sidecar = sidecar_of(shared.worker("phoenix")["pid"])
    assert sidecar is not None
    sidecar.kill()
    until(lambda: shared.worker("phoenix")["state"] != "working")
    shared.run("restart", "@phoenix")
    until((workspace / "begun").exists)
    (workspace / "go").touch()

    done = ended(shared, task)
    assert done["artifacts"][0]["text"].endswith("has 3 prompts")
    sessions = {e["session"] for e in events(shared, "phoenix") if e["type"] == "started"}
    assert len(sessions) == 1


@pytest.mark.requirement("events-folded-once")
def test_no_event_is_lost_or_doubled_by_a_sigkill_of_the_post_room_in_mid_turn(room: PostRoom):
    room.up()
    coder(room, "writer", "autonomous = true")
    task = delegate(room, "writer", "EVENTS:[500] WAIT:[go] EVENTS:[500]")
    uid = room.worker("writer")["uid"]
    until(lambda: any(e["type"] == "text" for e in events(room, "writer")))
    os.kill(room.server["pid"], signal.SIGKILL)
    until(lambda: gone(room.server["pid"]))
    (room.state / "workers" / uid / "workspace" / "go").touch()
    room.up()
    ended(room, task)

    def texts() -> list[str]:
        with room.client() as client:
            pages, after = [], 0
            while after is not None:
                page = client.transport.call(
                    "GET", f"/v1/workers/{uid}/sdk-events?limit=500&after_id={after}"
                )
                pages += page["events"]
                after = page["next"]
        return [e["text"] for e in pages if e["type"] == "text" and e["text"].startswith("event")]

    wanted = [f"event {n}" for n in range(500)] * 2
    until(lambda: texts()[-1000:] == wanted)
    before = texts()[:-1000]
    assert before == [f"event {n}" for n in range(len(before))]


def reports(room: PostRoom) -> int:
    """Reports of events that came, also repeated ones."""
    with room.client() as client:
        server = client.server
    headers = {"Authorization": f"Bearer {server.token}"}
    page = httpx2.get(f"{server.url}/metrics", headers=headers).text
    counted = 'postroom_http_requests_total{method="POST",route="/v1/workers/{uid}/sdk-events"'
    return sum(int(float(s.split()[-1])) for s in page.splitlines() if s.startswith(counted))


@pytest.mark.slow
@pytest.mark.requirement("events-folded-once")
def test_after_a_sigkill_of_the_sidecar_what_it_asks_is_seen_at_once_however_much_it_said_before(
    room: PostRoom,
):
    room.up()
    coder(room, "chatty", 'auto_approve = ["Bash(sleep *)"]')
    ended(room, delegate(room, "chatty", "RUN:[sleep 0.15] " * 20))
    until(lambda: in_order(events(room, "chatty"))[-1] == "result")
    before = reports(room)
    assert before >= 20
    sidecar = sidecar_of(room.worker("chatty")["pid"])
    assert sidecar is not None
    sidecar.kill()
    until(lambda: gone(sidecar.pid))
    room.run("restart", "@chatty")
    task = delegate(room, "chatty", "RUN:[printf asked]")
    asked = pending(room)
    said = reports(room) - before
    decide(room, asked, "allowed")

    assert asked["task"] == task
    # One that learns how far the run before was taken, and what the new run has to say.
    assert said <= 6
    assert ended(room, task)["artifacts"][0]["text"] == "ran: asked"
