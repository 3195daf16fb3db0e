"""Real Claude Code and Codex that are let work: autonomy, `A`, `a` for whole lines, and what a template denies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.conftest import AgentsRoom, agents_room
from tests.agents.programs import CLAUDE, CODEX
from tests.workspaces.bench import repository

# The first test may have to install the agents.
pytestmark = pytest.mark.timeout(900)

both = pytest.mark.parametrize("nick", ["ann", "cody"])
AGENTS = {"ann": ("claude-code", CLAUDE), "cody": ("codex", CODEX)}
SHELL = {"ann": "Bash", "cody": "shell"}


@pytest.fixture(scope="module")
def room() -> Iterator[AgentsRoom]:
    """One post room with a Claude Code and a Codex, each with a copy of a repository."""
    with agents_room() as room:
        room.keep_keys()
        for nick in AGENTS:
            hired(room, nick, nick)
        yield room


def hired(room: AgentsRoom, kind: str, nick: str, *words: str, template: str = "") -> None:
    app = repository(room.scratch / nick)
    name, program = AGENTS[kind]
    key = "credential=anthropic" if kind == "ann" else "credential=openai"
    model = () if kind == "ann" else ("--set", "model=fake-model")
    workspace = ("--workspace", str(app))
    room.hire(template or name, program, nick, "--set", key, *model, *workspace, *words)


def said(room: AgentsRoom, task: str) -> str:
    """The result of a task that asks for nothing more."""
    done = room.await_task(task, "completed", "failed", "input-required")
    assert done["state"] == "completed", done
    return done["artifacts"][0]["text"]


def waits(room: AgentsRoom) -> list[str]:
    return [each["title"] for each in room.get("/v1/approvals", state="pending")["approvals"]]


@both
def test_all_is_allowed_until_the_task_ends_and_then_it_asks_again(room: AgentsRoom, nick: str):
    task = room.delegate(nick, "RUN:[touch one.txt] RUN:[touch two.txt && ls *.txt]")
    asked = room.await_approval(task)
    assert asked["title"] == "touch one.txt"
    out = room.run("autonomy", f"@{nick}", "all", "--until-task-ends")
    assert f"allowed {asked['id'][:8]}, which waited: touch one.txt" in out
    text = said(room, task)
    assert "one.txt" in text
    assert "two.txt" in text

    again = room.delegate(nick, "RUN:[touch three.txt]")
    room.decide(nick, room.await_approval(again)["id"], "denied", reason="no more")
    said(room, again)


@both
def test_a_whole_line_is_allowed_always_for_its_folder_and_for_no_other(
    room: AgentsRoom, nick: str
):
    line = "cd /tmp && touch made.txt 2>&1 | tail -1"
    first = room.delegate(nick, f"RUN:[{line}]")
    asked = room.await_approval(first)
    out = room.run("approve", asked["id"], "--always", "--worker", f"@{nick}")
    assert f"does not ask for {SHELL[nick]}({line}) any more" in out
    said(room, first)

    said(room, room.delegate(nick, f"RUN:[{line}]"))
    other = room.delegate(nick, "RUN:[cd /var/tmp && touch made.txt 2>&1 | tail -1]")
    room.decide(nick, room.await_approval(other)["id"], "denied", reason="another folder")
    said(room, other)
    output = room.delegate(nick, "RUN:[cd /tmp && touch made.txt > out.txt]")
    refused = room.await_approval(output)["id"]
    assert "not by a rule: it has a redirection" in room.run("approvals", refused)
    room.decide(nick, refused, "denied", reason="it writes")
    said(room, output)


@both
def test_one_that_is_spawned_autonomous_asks_for_nothing_and_what_its_template_denies_stays_denied(
    room: AgentsRoom, nick: str, tmp_path: Path
):
    name = f"free-{nick}"
    text = room.run("templates", "show", AGENTS[nick][0])
    assert text.count("\n[sidecar]\n") == 1
    own = tmp_path / f"{name}.toml"
    rule = f'auto_deny = ["{SHELL[nick]}(*secret*)"]'
    own.write_text(text.replace("\n[sidecar]\n", f"\n[sidecar]\n{rule}\n"))
    hired(room, nick, name, "--autonomous", template=str(own))
    task = room.delegate(name, "RUN:[touch a.txt; ls a.txt > b.txt; cat b.txt]")
    assert "a.txt" in said(room, task)
    denied = room.delegate(name, "RUN:[touch secret.txt]")
    said(room, denied)
    [result] = room.events_at_end(denied, "tool_result")
    assert result["status"] == "denied"
    assert waits(room) == []


def test_an_edit_that_waits_is_answered_by_autonomy_for_edits_and_a_command_is_not(
    room: AgentsRoom,
):
    task = room.delegate("ann", "EDIT:[added.txt]=[by an agent] RUN:[touch more.txt]")
    asked = room.await_approval(task)
    out = room.run("autonomy", "@ann", "edits")
    assert f"allowed {asked['id'][:8]}, which waited: /workspace/added.txt" in out
    command = room.await_approval(task)
    assert command["tool"] == "Bash"
    room.decide("ann", command["id"], "denied", reason="no command")
    said(room, task)
    assert "ann: ask" in room.run("autonomy", "@ann", "ask")


def test_an_edit_for_codex_is_refused_with_its_reason_and_it_waits_on(room: AgentsRoom):
    task = room.delegate("cody", "RUN:[touch edited.txt]")
    asked = room.await_approval(task)
    refused = room.call("approve", asked["id"], "--input", '{"command": "touch other.txt"}')
    assert (refused.returncode, "takes no edited input" in refused.stderr) == (2, True)
    assert asked["editable"] is False
    assert room.await_approval(task)["id"] == asked["id"]
    room.decide("cody", asked["id"], "denied", reason="over")
    said(room, task)
