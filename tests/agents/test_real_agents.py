"""Claude Code and Codex themselves, in their sandboxes, with a fake model outside that the gateway alone reaches."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.agents.conftest import SECRET, AgentsRoom, agents_room, awaited
from tests.agents.programs import CLAUDE, CODEX
from tests.e2e.conftest import until
from tests.workspaces.bench import git, repository

# The first test may have to install the agents.
pytestmark = pytest.mark.timeout(900)

both = pytest.mark.parametrize("nick", ["ann", "cody"])
SHELL = {"ann": "Bash", "cody": "shell"}
KEY = {"ann": ("x-api-key", SECRET), "cody": ("authorization", f"Bearer {SECRET}")}
"""The header in which each agent's model expects its key."""


@pytest.fixture(scope="module")
def room() -> Iterator[AgentsRoom]:
    """One post room with a Claude Code, ann, and a Codex, cody."""
    with agents_room() as room:
        room.keep_keys()
        app = ("--workspace", str(repository(room.scratch / "app")))
        room.hire("claude-code", CLAUDE, "ann", "--set", "credential=anthropic", *app, "--detach")
        room.hire("codex", CODEX, "cody", "--set", "credential=openai", "--set", "model=fake-model")
        room.await_state("ann", "idle")
        yield room


@pytest.mark.requirement("agents-real")
@both
def test_a_real_agent_answers_a_task_and_never_has_the_models_key(room: AgentsRoom, nick: str):
    before = len(room.asked("say hello", nick))
    task = room.delegate(nick, "say hello")
    done = room.await_task(task, "completed", "failed")
    assert done["artifacts"][0]["text"] == "Hello from the fake model."
    kinds = [event["type"] for event in room.events_at_end(task)]
    assert [kind for kind in kinds if kind in ("text", "usage", "result")] == [
        "text",
        "usage",
        "result",
    ]
    name, value = KEY[nick]
    [request] = room.asked("say hello", nick)[before:]
    assert request.headers[name] == value
    hunt = "RUN:[cat /proc/*/environ /proc/*/cmdline 2>/dev/null | grep -ac sk-real; env | grep -c KEY]"
    found = room.delegate(nick, hunt)
    room.allow(nick, found)
    said = room.await_task(found, "completed", "failed")["artifacts"][0]["text"]
    # The only hits are the words of the hunt itself; the variables with the stand-ins are there.
    assert SECRET not in said
    assert SECRET not in json.dumps(room.events_at_end(found))


@pytest.mark.requirement("mcp-tools-short")
@both
def test_a_real_agent_is_offered_the_tools_of_the_post_room(room: AgentsRoom, nick: str):
    task = room.delegate(nick, "say hello")
    assert room.await_task(task, "completed", "failed")["state"] == "completed"
    said = json.dumps(room.asked("say hello", nick)[-1].body)
    assert "mcp__postroom" in said
    assert "a2a_delegate_task" in said
    card = room.get(f"/v1/agents/{nick}/card")
    assert {skill["id"] for skill in card["skills"]} == {"code", "review"}


@pytest.mark.requirement("agents-real")
@both
def test_a_tool_call_waits_for_a_person_and_is_then_done(room: AgentsRoom, nick: str):
    task = room.delegate(nick, "RUN:[echo a sign > sign.txt; cat sign.txt]")
    approval = room.await_approval(task)
    assert (approval["tool"], approval["title"]) == (
        SHELL[nick],
        "echo a sign > sign.txt; cat sign.txt",
    )
    room.decide(nick, approval["id"], "allowed")
    done = room.await_task(task, "completed", "failed")
    assert "a sign" in done["artifacts"][0]["text"]
    [result] = room.events_at_end(task, "tool_result")
    assert (result["status"], result["output"].strip()) == ("ok", "a sign")


@pytest.mark.requirement("agents-real")
@both
def test_a_denied_tool_call_is_not_done_and_the_agent_is_told_why(room: AgentsRoom, nick: str):
    task = room.delegate(nick, "RUN:[touch denied.txt]")
    room.decide(nick, room.await_approval(task)["id"], "denied", reason="not on a Monday")
    assert room.await_task(task, "completed", "failed")["state"] == "completed"
    [result] = room.events_at_end(task, "tool_result")
    assert result["status"] == "denied"
    assert "not on a Monday" in json.dumps(room.model.requests[-1].body)


@pytest.mark.requirement("agents-real")
@both
def test_an_interrupt_ends_the_turn_while_the_model_is_asked(room: AgentsRoom, nick: str):
    room.model.hold()
    task = room.delegate(nick, "SLOW SAY:[too late]")
    assert room.model.waiting.wait(30)
    room.control(nick, type="interrupt", reason="enough", channel="api")
    [result] = until(lambda: room.events_of(task, "result"))
    assert result["status"] == "interrupted"
    room.model.go.set()
    assert room.await_task(task, "completed", "failed", "canceled")["state"] != "completed"
    again = room.await_task(room.delegate(nick, "say hello"), "completed", "failed")
    assert again["state"] == "completed"


@pytest.mark.requirement("agents-real")
@both
def test_a_failed_model_fails_the_task_with_its_reason(room: AgentsRoom, nick: str):
    task = room.delegate(nick, "FAIL:[400]")
    done = room.await_task(task, "completed", "failed")
    assert done["state"] == "failed"
    assert "scripted failure" in json.dumps(done)
    [result] = room.events_at_end(task, "result")
    assert result["status"] == "failed"


@pytest.mark.requirement("failing-last-word")
@both
def test_a_key_that_the_models_host_refuses_is_an_alert_with_the_command_that_mends_it(
    room: AgentsRoom, nick: str
):
    name = {"ann": "anthropic", "cody": "openai"}[nick]

    def refused() -> list[dict[str, Any]]:
        alerts = room.json("status")["alerts"]
        return [one for one in alerts if f"the credential {name!r}" in one["text"]]

    task = room.delegate(nick, "FAIL:[401]")
    [alert] = awaited(refused)
    assert f"postroom credential add {name} --host http://127.0.0.1:" in alert["text"]
    assert "--replace" in alert["text"]
    assert awaited(lambda: "401" in room.worker(nick)["trouble"])
    rows = room.run("status").splitlines()
    assert any(row.startswith(f"@{nick} ") and "401" in row for row in rows)
    settle(room, nick, task)

    hello = room.await_task(room.delegate(nick, "say hello"), "completed", "failed")
    assert hello["state"] == "completed"
    assert until(lambda: not refused())
    assert until(lambda: not room.worker(nick)["trouble"])


@pytest.mark.requirement("failing-last-word")
@pytest.mark.parametrize("status", [429, 529])
def test_a_model_that_is_busy_is_the_agents_last_word_with_the_time_of_its_next_try(
    room: AgentsRoom, status: int
):
    task = room.delegate("ann", f"FAIL:[{status}|20]")
    trouble = awaited(lambda: room.worker("ann")["trouble"])
    assert re.search(rf"{status}\); it tries again \(1 of \d+\), at \d\d:\d\d:\d\d$", trouble)
    assert room.get(f"/v1/tasks/{task}")["detail"] == f"@ann: {trouble}"
    settle(room, "ann", task)


@pytest.mark.requirement("failing-last-word")
@pytest.mark.parametrize(
    "nick, how, said",
    [
        ("ann", "garbage", "malformed response"),
        ("ann", "nothing", "server_error, 502); it tries again"),
        pytest.param("cody", "garbage", "stream disconnected", marks=pytest.mark.slow),
        pytest.param("cody", "nothing", "502 Bad Gateway", marks=pytest.mark.slow),
    ],
)
def test_a_model_that_answers_garbage_or_nothing_is_the_agents_last_word_at_once(
    room: AgentsRoom, nick: str, how: str, said: str
):
    task = room.delegate(nick, f"FAIL:[{how}]")
    assert awaited(lambda: said in room.worker(nick)["trouble"])
    rows = room.run("status", "--wide").splitlines()
    assert any(row.startswith(f"@{nick} ") and said in row for row in rows)
    settle(room, nick, task)


def settle(room: AgentsRoom, nick: str, task: str) -> None:
    """End a task that an agent would try again for long."""
    if not room.get(f"/v1/tasks/{task}")["final"]:
        room.run("task", "cancel", task)
    room.await_task(task, "canceled", "failed")
    room.await_state(nick, "idle")


@pytest.mark.requirement("agents-real")
@both
def test_a_question_of_the_agent_is_the_tasks_question(room: AgentsRoom, nick: str):
    task = room.delegate(nick, "ASK:[Which colour?|red|blue]")
    asked = room.await_task(task, "input-required", "completed", "failed")
    assert asked["state"] == "input-required"
    assert "Which colour?" in json.dumps(asked)
    room.run("task", "answer", task, "blue")
    done = room.await_task(task, "completed", "failed")
    assert "blue" in done["artifacts"][0]["text"]


@pytest.mark.requirement("agents-real")
def test_an_edit_comes_back_as_a_branch_of_the_repository(room: AgentsRoom):
    app = room.scratch / "app"
    task = room.delegate("ann", "EDIT:[added.txt]=[written by an agent]")
    approval = room.await_approval(task)
    assert (approval["tool"], approval["title"]) == ("Write", "/workspace/added.txt")
    room.decide("ann", approval["id"], "allowed")
    assert room.await_task(task, "completed", "failed")["state"] == "completed"
    until(lambda: git(app, "branch", "--list", "postroom/ann"))
    assert "+written by an agent" in room.run("diff", "@ann", "added.txt")
    room.run("task", "apply", task, "--merge")
    assert (app / "added.txt").read_text() == "written by an agent"


@pytest.mark.requirement("agents-real")
def test_one_agent_delegates_to_another_by_its_shell(room: AgentsRoom):
    task = room.delegate("ann", "RUN:[postroom-agent delegate @cody 'say hello' --wait]")
    room.allow("ann", task)
    done = room.await_task(task, "completed", "failed")
    assert "Hello from the fake model." in done["artifacts"][0]["text"]
    [theirs] = [event for event in room.events("cody", "result") if event["task"] != task][-1:]
    assert theirs["status"] == "completed"


@pytest.mark.requirement("agents-real")
@both
def test_mail_that_arrives_while_it_works_is_answered_after(room: AgentsRoom, nick: str):
    room.model.hold()
    task = room.delegate(nick, "SLOW SAY:[the work is done]")
    assert room.model.waiting.wait(30)
    message = room.json("send", f"@{nick}", "SAY:[got your mail]")["id"]
    room.model.go.set()
    assert room.await_task(task, "completed", "failed")["state"] == "completed"
    reply = awaited(lambda: room.reply_to(message))
    assert reply["text"] == "got your mail"


@pytest.mark.requirement("agents-real")
@both
def test_a_killed_agent_goes_on_in_its_session(room: AgentsRoom, nick: str):
    room.await_task(room.delegate(nick, "say hello"), "completed", "failed")
    before = room.events(nick, "started")[-1]["session"]
    room.model.hold()
    task = room.delegate(nick, "SLOW SAY:[still here]")
    assert room.model.waiting.wait(30)
    os.kill(room.program_of(nick), signal.SIGKILL)
    room.model.go.set()
    done = room.await_task(task, "completed", "failed")
    assert done["artifacts"][0]["text"] == "still here"
    room.events_at_end(task)
    after = room.events(nick, "started")[-1]
    assert (after["session"], after["resumed"]) == (before, True)


@pytest.mark.requirement("agents-real")
@both
def test_an_agent_whose_sidecar_is_killed_goes_on_in_its_session(room: AgentsRoom, nick: str):
    room.await_task(room.delegate(nick, "say hello"), "completed", "failed")
    before = room.events(nick, "started")[-1]["session"]
    room.model.hold()
    task = room.delegate(nick, "SLOW SAY:[still here]")
    assert room.model.waiting.wait(30)
    os.kill(room.sidecar_of(nick), signal.SIGKILL)
    room.model.go.set()
    room.run("restart", nick, "--same")
    done = room.await_task(task, "completed", "failed")
    assert done["artifacts"][0]["text"] == "still here"
    room.events_at_end(task)
    after = room.events(nick, "started")[-1]
    assert (after["session"], after["resumed"]) == (before, True)
