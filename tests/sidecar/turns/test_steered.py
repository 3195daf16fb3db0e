"""People see what a coding agent does, and decide what it may do."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from postroom.protocol.priority import Input
from postroom_a2a.messages import ROLE_USER, text_message, text_of
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import artifacts_of, status_text
from tests.sidecar.turns.control import Control, control_plane
from tests.sidecar.turns.rig import coder, coding, prompts, sessions
from tests.sidecar.worker_rig import WorkerRig, end, until

pytestmark = pytest.mark.anyio


@pytest.fixture
async def control() -> AsyncIterator[Control]:
    async with control_plane() as found:
        yield found


def asking(control: Control, **turns: Any) -> dict[str, Any]:
    """The sidecar's rules with which the agent asks people."""
    return {"autonomous": False, "changes": {"control_url": control.url}, **turns}


async def result(home: WorkerRig, task: str) -> list[str]:
    """The texts of the results of a task that has to be completed."""
    record = await home.task(task, TaskState.COMPLETED)
    return [artifact["text"] for artifact in artifacts_of(record.task)]


async def test_all_that_the_agent_does_is_reported_in_its_order(home: WorkerRig, control: Control):
    async with coding(home, changes={"control_url": control.url}):
        task = await home.request("RUN:[echo seen]")
        assert await result(home, task) == ["ran: seen"]
        await control.until(lambda: control.of("result"))

    kinds = [kind for kind in control.kinds() if kind != "text"]
    assert kinds == [
        *("wall", "started", "tool_call", "tool_result", "usage", "result"),
    ]
    (call,) = control.of("tool_call")
    assert call["task"] == task
    assert call["input"]["command"] == "echo seen"
    assert len({event["turn"] for event in control.events if event["type"] != "wall"}) == 1


@pytest.mark.parametrize(
    "decision, more, said",
    [
        ("allowed", {}, "ran: asked"),
        ("denied", {"reason": "not here"}, "denied: not here"),
        ("edited", {"input": {"command": "echo other"}}, "ran: other"),
    ],
)
async def test_a_person_allows_denies_or_edits_what_the_agent_asks(
    home: WorkerRig, control: Control, decision: str, more: dict[str, Any], said: str
):
    async with coding(home, **asking(control)):
        task = await home.request("RUN:[echo asked]")
        request = await control.request()
        assert (request["kind"], request["tool"], request["task"]) == ("tool", "Bash", task)
        assert request["input"]["command"] == "echo asked"
        await control.decide(request["request"], decision, **more)

        assert await result(home, task) == [said]


async def test_the_policy_decides_without_people_and_says_so(home: WorkerRig, control: Control):
    rules = {"auto_approve": ["Bash(echo *)"], "auto_deny": ["Bash(*secret*)"]}
    async with coding(home, **asking(control, **rules)):
        assert await result(home, await home.request("RUN:[echo yes]")) == ["ran: yes"]
        denied = await result(home, await home.request("RUN:[echo secret]"))
        assert denied == ["denied: denied by Bash(*secret*)"]
        await home.request("RUN:[echo yes; rm -rf x]")
        asked = await control.request(2)

    decided = [(e["decision"], e["channel"], e["by"]) for e in control.of("control_response")]
    assert decided[:2] == [
        ("allowed", "policy", {"rule": "Bash(echo *)"}),
        ("denied", "policy", {"rule": "Bash(*secret*)"}),
    ]
    assert asked["input"]["command"] == "echo yes; rm -rf x"


@pytest.mark.requirement("approval-one-object")
@pytest.mark.requirement("policy-added-at-once")
async def test_a_pattern_that_is_added_or_removed_counts_for_the_next_thing_the_agent_wants(
    home: WorkerRig, control: Control
):
    rules = {"rules": ["Bash(echo began)"], "auto_deny": ["Bash(*secret*)"]}
    added = ["Bash(echo *)", "Bash"]
    async with coding(home, **asking(control, **rules)):
        assert await result(home, await home.request("RUN:[echo began]")) == ["ran: began"]

        waits = await home.request("RUN:[echo waits]")
        asked = await control.request(1)
        await control.say(type="policy", change="added", pattern="Bash(echo *)", rules=added)
        # What waits stays with the person, though it would not be asked now.
        await control.decide(asked["request"], "denied", reason="not this one")
        assert await result(home, waits) == ["denied: not this one"]

        assert await result(home, await home.request("RUN:[echo yes; echo no]")) == ["ran: yes\nno"]
        assert await result(home, await home.request("RUN:[echo secret]")) == [
            "denied: denied by Bash(*secret*)"
        ]
        await control.say(type="policy", change="removed", pattern="Bash(echo *)", rules=[])
        await control.say(type="policy", rules="Bash")
        await control.say(type="policy", change="added", pattern="Bash(echo *)")
        last = await home.request("RUN:[echo began]")
        asked = await control.request(4)
        await control.decide(asked["request"], "allowed")
        assert await result(home, last) == ["ran: began"]

    decided = [(e["decision"], e["by"]) for e in control.of("control_response")]
    assert ("allowed", {"rule": "Bash(echo began)"}) in decided
    assert ("allowed", {"rule": "Bash"}) in decided


@pytest.mark.requirement("autonomy-set")
async def test_what_is_set_for_a_task_counts_in_its_turns_alone_and_denials_stay(
    home: WorkerRig, control: Control
):
    rules = {"auto_deny": ["Bash(*secret*)"], "autonomy": {"0" * 32: "all"}}
    async with coding(home, **asking(control, **rules)):
        first = await home.request("RUN:[echo one] RUN:[echo two > f; cat f] RUN:[echo secret]")
        asked = await control.request()
        await control.say(type="policy", change="autonomy", rules=[], autonomy={first: "all"})
        await control.decide(asked["request"], "allowed")
        assert await result(home, first) == [
            "ran: one; ran: two; denied: denied by Bash(*secret*)",
        ]
        other = await home.request("RUN:[echo other]")
        asked = await control.request(3)
        assert asked["task"] == other
        await control.decide(asked["request"], "denied", reason="it asks again")
        assert await result(home, other) == ["denied: it asks again"]

    by = [e["by"] for e in control.of("control_response")]
    assert {"rule": "autonomy all"} in by


@pytest.mark.requirement("autonomy-set")
async def test_an_agent_that_was_started_to_ask_for_nothing_asks_from_its_next_turn_on(
    home: WorkerRig, control: Control
):
    async with coding(home, **asking(control, autonomous=True)):
        assert await result(home, await home.request("RUN:[echo free]")) == ["ran: free"]
        assert control.of("control_request") == []
        await control.say(type="policy", change="autonomy", rules=[], autonomy={"": "ask"})
        await control.until(lambda: control.taken == 1)
        task = await home.request("RUN:[echo asked]")
        asked = await control.request()
        await control.decide(asked["request"], "allowed")
        assert await result(home, task) == ["ran: asked"]
    assert len(sessions(home)) == 1


async def test_an_answer_that_came_while_the_agent_was_away_is_used_once_when_it_asks_again(
    home: WorkerRig, control: Control
):
    config = home.config("", agent=coder(autonomous=False), control_url=control.url)
    process = await home.start(config)
    task = await home.request("RUN:[echo once >> ran] RUN:[echo once >> ran]")
    first = await control.request()
    process.kill()
    await process.wait()
    await control.decide(first["request"], "allowed")
    process = await home.start(config)
    try:
        await until((home.folder / "ran").exists)
        second = await control.until(
            lambda: next(
                (e for e in control.of("control_request") if e["request"] != first["request"]), None
            )
        )
        assert (home.folder / "ran").read_text() == "once\n"
        await control.decide(second["request"], "denied", reason="enough")

        assert await result(home, task) == ["ran: ; denied: enough"]
    finally:
        await end(process)
    assert len(sessions(home)) == 1
    assert "go on where you were" in prompts(home)[1]


@pytest.mark.requirement("approval-one-object")
async def test_what_a_killed_agent_has_asked_stays_open_and_is_the_same_when_it_asks_again(
    home: WorkerRig, control: Control
):
    config = home.config("", agent=coder(autonomous=False), control_url=control.url)
    process = await home.start(config)
    try:
        task = await home.request("RUN:[echo once >> ran]")
        first = await control.request()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        os.kill(int(children), signal.SIGKILL)
        second = await control.request(1)
        assert second["request"] == first["request"]
        assert control.of("control_response") == []
        await control.decide(first["request"], "allowed")

        assert await result(home, task) == ["ran:"]
        assert (home.folder / "ran").read_text() == "once\n"
    finally:
        await end(process)


async def test_a_question_in_a_task_is_the_tasks_question_and_the_same_turn_goes_on(
    home: WorkerRig, control: Control
):
    async with coding(home, **asking(control)):
        task = await home.request("ASK:[which colour?|red|blue]")
        asked = await home.task(task, TaskState.INPUT_REQUIRED)
        assert status_text(asked.task) == "which colour?\n- red\n- blue"
        message = text_message("a" * 32, "blue", role=ROLE_USER)
        await home.overtake(Input(task, message))

        assert await result(home, task) == ["told: blue"]
    assert len(prompts(home)) == 1


async def test_an_expired_approval_counts_as_the_template_says(home: WorkerRig, control: Control):
    rules = asking(control, approval_timeout=30, approval_default="allow")
    async with coding(home, **rules):
        task = await home.request("RUN:[echo late]")
        request = await control.request()
        assert request["default"] == "allow"
        assert request["expires_at"].endswith("Z")
        await control.decide(request["request"], "expired", channel="clock")

        assert await result(home, task) == ["ran: late"]


async def test_a_person_ends_a_turn_and_the_task_says_who(home: WorkerRig, control: Control):
    async with coding(home, changes={"control_url": control.url}):
        task = await home.request("SLOW:[600]")
        await control.until(lambda: "text" in control.kinds())
        await control.say(type="interrupt", reason="wrong branch")
        failed = await home.task(task, TaskState.FAILED)

        assert status_text(failed.task) == "interrupted by @ann: wrong branch"
        message = await home.write("still there?", expects_reply=True)
        await home.seen(message)
    assert [text_of(e.message) for e in home.to_alice()] == ["heard: still there?"]
    assert [e["status"] for e in control.of("result")] == ["interrupted", "completed"]


@pytest.mark.requirement("events-folded-once")
async def test_events_wait_on_disk_while_the_control_plane_is_away_and_none_is_lost_or_doubled(
    home: WorkerRig, control: Control
):
    control.status, control.lose = 503, 2
    config = home.config("", agent=coder(), control_url=control.url)
    process = await home.start(config)
    task = await home.request("EVENTS:[300]")
    assert await result(home, task) == ["300 events"]
    process.kill()
    await process.wait()
    assert control.events == []

    control.status = 202
    process = await home.start(config)
    try:
        await control.until(lambda: len(control.of("wall")) == 2)
    finally:
        await end(process)
    texts = [event["text"] for event in control.of("text")]
    assert texts == [f"event {n}" for n in range(300)] + ["300 events"]
    assert control.kinds().count("result") == 1
