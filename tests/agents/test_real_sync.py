"""Claude Code and Codex themselves on one repository whose person goes on committing."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.conftest import AgentsRoom, agents_room
from tests.agents.programs import CLAUDE, CODEX
from tests.e2e.conftest import until
from tests.workspaces.bench import git, repository
from tests.workspaces.test_syncing import commit

# The first test may have to install the agents.
pytestmark = pytest.mark.timeout(900)

both = pytest.mark.parametrize("nick", ["ann", "cody"])
one = pytest.mark.parametrize("nick", ["ann", pytest.param("cody", marks=pytest.mark.slow)])
NEWS = "that you have not"


@pytest.fixture(scope="module")
def room() -> Iterator[AgentsRoom]:
    """One post room with a Claude Code, ann, and a Codex, cody, which ask for nothing."""
    with agents_room() as room:
        room.keep_keys()
        app = ("--workspace", str(repository(room.scratch / "app")), "--autonomous")
        room.hire("claude-code", CLAUDE, "ann", "--set", "credential=anthropic", *app, "--detach")
        model = ("--set", "credential=openai", "--set", "model=fake-model")
        room.hire("codex", CODEX, "cody", *model, *app)
        room.await_state("ann", "idle")
        yield room


def done(room: AgentsRoom, nick: str, text: str) -> None:
    """Have a task done; its work has come back then."""
    task = room.delegate(nick, text)
    assert room.await_task(task, "completed", "failed")["state"] == "completed"
    room.await_state(nick, "idle")


def behind(room: AgentsRoom, nick: str) -> int:
    return room.worker(nick)["workspace"]["behind"]


@one
def test_an_agent_is_told_once_and_brought_up_to_date_between_its_turns(
    room: AgentsRoom, nick: str
):
    app = room.scratch / "app"
    room.run("task", "sync", f"@{nick}")
    commit(app, f"new-{nick}.txt", "theirs\n")
    until(lambda: behind(room, nick) == 1)
    for text in ("say hello once", "say hello twice"):
        done(room, nick, text)
    first, second = (room.asked(f"hello {word}", nick)[-1] for word in ("once", "twice"))
    assert NEWS in first.conversation.user
    assert NEWS not in second.conversation.user
    room.model.hold()
    task = room.delegate(nick, "SLOW SAY:[the work is done]")
    assert room.model.waiting.wait(60)
    room.run("task", "sync", f"@{nick}", "--timeout", "0.5", status=5)
    assert "is still at work" in room.stderr
    with room.popen("task", "sync", f"@{nick}") as waits:
        until(lambda: "waits" in room.worker(nick)["workspace"]["doing"])
        room.model.go.set()
        assert waits.wait(60) == 0
    assert room.await_task(task, "completed", "failed")["state"] == "completed"
    assert behind(room, nick) == 0
    done(room, nick, f"RUN:[cat new-{nick}.txt && git status --porcelain]")
    assert "theirs" in str(room.events(nick, "tool_result")[-1]["output"])


@pytest.mark.slow
@both
def test_a_conflict_is_joined_by_the_agent_and_counts_once_its_person_says_so(
    room: AgentsRoom, nick: str
):
    app = room.scratch / "app"
    room.run("task", "sync", f"@{nick}")
    name = f"shared-{nick}.txt"
    done(room, nick, f"RUN:[echo mine > {name} && git add -A && git commit -qm mine]")
    newest = commit(app, name, "theirs\n")
    said = room.json("task", "sync", f"@{nick}", "--let-it-resolve")
    assert said["conflicts"] == [name]
    room.await_task(said["task"], "completed", "failed")
    room.await_state(nick, "idle")
    join = f"git merge -q {newest} || echo both > {name}; git add -A; git commit -qm joined"
    done(room, nick, f"RUN:[{join}]")
    assert "++both" in room.run("task", "sync", f"@{nick}", status=5)
    room.run("task", "apply", f"@{nick}", "--merge", status=5)
    room.run("task", "sync", f"@{nick}", "--yes")
    room.run("task", "apply", f"@{nick}", "--merge")
    assert (app / name).read_text() == "both\n"


@pytest.mark.slow
def test_two_agents_work_is_merged_one_after_the_other(room: AgentsRoom):
    app = room.scratch / "app"
    for nick in ("ann", "cody"):
        room.run("task", "sync", f"@{nick}")
        done(
            room, nick, f"RUN:[echo {nick} > of-{nick}.txt && git add -A && git commit -qm {nick}]"
        )
    room.run("task", "apply", "@ann", "--merge")
    room.run("task", "sync", "@cody")
    room.run("task", "apply", "@cody", "--merge")
    assert [(app / f"of-{nick}.txt").read_text() for nick in ("ann", "cody")] == ["ann\n", "cody\n"]
    assert git(app, "status", "--porcelain") == ""
    room.run("task", "sync", "@ann")
    done(room, "ann", "RUN:[cat of-cody.txt]")
    assert "cody" in str(room.events("ann", "tool_result")[-1]["output"])


@pytest.mark.slow
@both
def test_a_kill_of_the_post_room_in_mid_sync_leaves_the_worker_before_or_after(
    room: AgentsRoom, nick: str
):
    app = room.scratch / "app"
    room.run("task", "sync", f"@{nick}")
    done(room, nick, f"RUN:[echo draft > draft-{nick}.txt]")
    for number in range(300):
        (app / f"n{number}-{nick}").write_text(f"{number}\n" * 2000)
    git(app, "add", ".")
    newest = commit(app, f"last-{nick}.txt", "theirs\n")
    record = Path(room.state / "workers" / room.worker(nick)["uid"] / "workspace.json")
    with room.popen("task", "sync", f"@{nick}") as syncs:
        end = time.monotonic() + 60
        while '"moving": []' in record.read_text():
            assert time.monotonic() < end
        os.kill(room.server["pid"], signal.SIGKILL)
        assert syncs.wait(60) != 0
    room.up()
    room.await_state(nick, "idle")
    room.run("task", "sync", f"@{nick}")
    done(room, nick, f"RUN:[cat draft-{nick}.txt && git rev-parse HEAD && git status --porcelain]")
    said = str(room.events(nick, "tool_result")[-1]["output"])
    assert "draft" in said
    assert f"?? draft-{nick}.txt" in said
    assert '"moving": []' in record.read_text()
    assert git(app, "diff", "--name-only", newest, f"postroom/{nick}") == f"draft-{nick}.txt"
