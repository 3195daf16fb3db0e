"""`postroom connect run` with a real post room and the real hook file: mail arrives, and receipts tell the truth."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from postroom.protocol.frame import AGAIN
from tests.connect.conftest import (
    DEADLINE,
    KEY,
    Connected,
    Terminal,
    connected,
    of_processes,
    until,
)
from tests.e2e.conftest import PostRoom, gone


def opened(mine: Connected, session: str = "", folder: str = "app") -> tuple[Terminal, str]:
    """A session that has begun a turn, and its address."""
    client = mine.client(session=session, folder=folder)
    client.start()
    client.prompt("t1")
    (nick,) = [n for n, each in mine.sessions().items() if each["pid"] == client.process.pid]
    return client, f"@{nick}"


def arrived(mine: Connected, nick: str, text: str = "which shape?", *words: str) -> str:
    """A message that `run` has; its id."""
    sent = mine.send(nick, text, *words)
    until(lambda: mine.sessions()[nick[1:]]["waiting"], "it arrives")
    return sent


def test_a_session_registers_at_its_first_hook_and_its_model_is_told_its_address(mine: Connected):
    app = mine.client(folder="shapes")
    told = app.start()

    told = told or app.prompt("t1")

    assert "this session has the address @shapes." in told
    assert "this session has the address" not in app.prompt("t2")


@pytest.mark.requirement("session-mail-proven")
def test_mail_is_delivered_by_a_hook_and_seen_by_what_follows_a_request(mine: Connected):
    app, nick = opened(mine)
    sent = arrived(mine, nick)

    assert app.at("PreToolUse", tool_use_id="a") == ""
    assert mine.state(sent) == "accepted"
    text = app.at("PostToolBatch", tool_calls=[{"tool_use_id": "a"}])
    assert "| which shape?" in text
    assert "the owner of this session" in text
    assert app.shown == "Postroom: mail from @root: which shape?"
    until(lambda: mine.state(sent) == "delivered")
    app.at("PreToolUse", tool_use_id="a")
    app.at("PreToolUse", tool_use_id="c", agent_id="a subagent")
    app.at("PreToolUse", tool_use_id="b")
    until(lambda: mine.state(sent) == "seen")


@pytest.mark.requirement("session-woken-rightly")
def test_a_turn_goes_on_for_new_mail_and_ends_without(mine: Connected):
    app, nick = opened(mine)
    assert app.stop() == ""
    app.prompt("t2")
    sent = arrived(mine, nick)

    assert "| which shape?" in app.stop("first")
    assert not app.shown, "the client shows the text itself"
    assert app.stop("second") == ""

    until(lambda: mine.state(sent) == "seen")


@pytest.mark.requirement("session-woken-rightly")
def test_an_idle_session_is_woken_by_the_hook_that_waits(mine: Connected):
    app, nick = opened(mine)
    old = app.wait()
    until(lambda: mine.sessions()[nick[1:]]["waiter"])
    new = app.wait()
    assert (old.wait(DEADLINE), old.stderr and old.stderr.read()) == (0, b""), "one waits at a time"
    app.stop()

    sent = mine.send(nick, "which shape?")

    assert new.wait(DEADLINE) == 2
    assert new.stderr
    text = new.stderr.read().decode()
    assert "| which shape?" in text
    until(lambda: mine.state(sent) == "delivered")
    assert app.prompt("t2", text=f"<task-notification>{text}") == ""
    assert app.shown == "Postroom: mail from @root: which shape?"
    assert mine.state(sent) == "delivered"
    app.stop("answered")
    until(lambda: mine.state(sent) == "seen")


@pytest.mark.requirement("session-woken-rightly")
def test_mail_of_others_does_not_wake_and_is_there_at_the_next_prompt(mine: Connected):
    app, nick = opened(mine)
    waiter = app.wait()
    app.stop()
    stranger = mine.stranger("carl")

    sent = stranger(nick, "which shape?")

    until(lambda: mine.sessions()[nick[1:]]["waiting"])
    app.at("PreToolUse", tool_use_id="a", agent_id="none of its business")
    assert waiter.poll() is None
    assert "| which shape?" in app.prompt("t2")
    until(lambda: mine.state(sent) == "delivered")


@pytest.mark.requirement("session-woken-rightly")
def test_those_whom_the_owner_lets_in_wake(shared_room: PostRoom, tmp_path: Path):
    with connected(shared_room, tmp_path, "@dora") as mine:
        app, nick = opened(mine)
        waiter = app.wait()
        app.stop()

        mine.stranger("dora")(nick, "which shape?")

        assert waiter.wait(DEADLINE) == 2


def test_it_works_the_same_with_a_login(mine: Connected, tmp_path: Path):
    """With a person's key that is no operator's, by HTTP."""
    with mine.room.client() as client:
        key = client.add_person("frida")["key"]["key"]
    file = tmp_path / "key"
    file.write_text(key)
    file.chmod(0o600)
    words = ["login", mine.room.server["url"], "--name", "far", "--key-file", str(file)]
    subprocess.run([sys.executable, "-m", "postroom", *words], env=mine.env, check=True)
    (mine.folder / "settings.json").write_text(json.dumps({"login": "far"}))
    app, nick = opened(mine, folder="frida-app")
    assert mine.status()["post_room"] == "far"

    sent = arrived(mine, nick)
    text = app.prompt("t2")

    assert "| which shape?" in text
    assert "the owner of this session" not in text
    app.stop()
    until(lambda: mine.state(sent) == "seen")


def test_one_conversation_in_two_processes_has_two_addresses_and_says_so(mine: Connected):
    app, nick = opened(mine)
    twin = mine.client(session=app.session)
    told = twin.start("resume") or twin.prompt("t1")

    assert f"Another process has this conversation open under {nick}" in told
    assert len(mine.sessions()) == 2
    sent = arrived(mine, nick)
    assert twin.prompt("t5") == ""
    assert sent in app.prompt("t2")


def test_clear_keeps_the_address(mine: Connected):
    app, nick = opened(mine)
    app.at("SessionEnd", reason="clear")
    app.session += "-cleared"
    app.start("clear")
    until(lambda: mine.room.json("agents") and mine.sessions()[nick[1:]]["state"] == "idle")

    sent = arrived(mine, nick)

    assert sent in app.prompt("t2")
    assert len(mine.sessions()) == 1


@pytest.mark.requirement("session-mail-proven")
def test_a_killed_client_gives_back_what_was_not_proven(mine: Connected):
    app, nick = opened(mine)
    sent = arrived(mine, nick)
    assert AGAIN not in app.prompt("t2")
    until(lambda: mine.state(sent) == "delivered")
    app.kill()
    until(lambda: mine.sessions()[nick[1:]]["state"] == "gone")
    assert mine.state(sent) == "delivered"

    app.open()
    text = app.start("resume")

    assert sent in text
    assert AGAIN in text
    app.prompt("t3")
    app.stop()
    until(lambda: mine.state(sent) == "seen")


def test_a_hook_that_is_killed_before_it_confirms_has_delivered_nothing(mine: Connected):
    app, nick = opened(mine)
    sent = arrived(mine, nick)
    reading, writing = os.pipe()  # a client that reads nothing
    os.set_blocking(writing, False)
    while True:
        try:
            os.write(writing, b"x" * 65536)
        except BlockingIOError:
            break
    os.set_blocking(writing, True)
    hook = subprocess.Popen(
        app.command("UserPromptSubmit"),
        stdin=subprocess.PIPE,
        stdout=writing,
        env=app.env,
        start_new_session=True,
    )
    assert hook.stdin
    hook.stdin.write(app.said("UserPromptSubmit", prompt="x"))
    hook.stdin.close()
    until(lambda: mine.sessions()[nick[1:]]["handed"] or None, "it is handed over")
    os.killpg(hook.pid, signal.SIGKILL)
    hook.wait()
    os.close(reading)
    os.close(writing)

    until(lambda: mine.sessions()[nick[1:]]["waiting"], "it is given back")
    assert mine.state(sent) == "accepted"
    assert AGAIN in app.prompt("t3")


@pytest.mark.requirement("session-kills-harmless")
def test_run_may_be_killed_at_any_step_and_nothing_is_lost(mine: Connected):
    app, nick = opened(mine)
    first = arrived(mine, nick, "one")
    mine.kill_run()
    second = mine.send(nick, "two")
    app.at("PreToolUse", tool_use_id="a")  # begins it again
    until(lambda: mine.sessions().get(nick[1:], {}).get("waiting") == 2)

    text = app.at("PostToolBatch", tool_calls=[{"tool_use_id": "a"}])
    assert text.index("| one") < text.index("| two")
    assert AGAIN not in text
    until(lambda: mine.state(second) == "delivered")
    mine.kill_run()
    app.at("PreToolUse", tool_use_id="b")  # nobody listens: this one proves nothing
    until(lambda: mine.sessions().get(nick[1:]))
    app.at("PreToolUse", tool_use_id="c")

    until(lambda: mine.state(first) == mine.state(second) == "seen")


def test_a_waiter_outlives_run_and_begins_it_again(mine: Connected):
    app, nick = opened(mine)
    app.stop()
    waiter = app.wait()
    until(lambda: mine.sessions()[nick[1:]]["waiter"])
    mine.kill_run()
    until(lambda: mine.sessions().get(nick[1:], {}).get("waiter"), "it waits again")

    mine.send(nick, "which shape?")

    assert waiter.wait(DEADLINE) == 2


def test_a_renamed_session_is_told(mine: Connected):
    app, nick = opened(mine)
    with mine.room.client() as client:
        client.rename_agent(nick, "api-of-pat")
    until(lambda: mine.sessions().get("api-of-pat"))

    assert "this session has the address @api-of-pat." in app.prompt("t2")


@pytest.mark.requirement("session-hook-harmless")
def test_no_key_is_in_what_a_client_can_see(mine: Connected):
    """Neither the person's nor the session's: in environment, command line and answers of hooks and of `run`."""
    app, nick = opened(mine)
    arrived(mine, nick)
    answer = app.run("UserPromptSubmit", prompt="x").stdout
    waiter = app.wait()
    until(lambda: mine.sessions()[nick[1:]]["waiter"])
    seen = [answer, json.dumps(mine.status()).encode(), mine.hook.read_bytes()]
    seen.append(of_processes(mine.status()["pid"], waiter.pid))
    seen += [path.read_bytes() for path in mine.folder.glob("*.log")]

    everything = b"\0".join(seen)

    assert KEY.fullmatch(mine.room.server["token"].encode())
    assert b"CLAUDE_PID" in everything
    assert not KEY.search(everything)
    assert (mine.folder / "sessions.db").stat().st_mode & 0o077 == 0


def test_run_ends_after_the_last_session(mine: Connected):
    mine.env["POSTROOM_CONNECT_LINGER"] = "0.2"
    app = mine.client()
    app.env["POSTROOM_CONNECT_LINGER"] = "0.2"
    app.start()
    pid = mine.status()["pid"]
    app.at("SessionEnd", reason="prompt_input_exit")

    until(lambda: gone(pid))
    assert not (mine.folder / "run.sock").exists()


@pytest.mark.requirement("session-is-agent")
def test_the_next_session_of_a_project_has_the_name_of_the_one_before(mine: Connected):
    first = mine.client(folder="again")
    first.start()
    first.kill()

    second = mine.client(folder="again")
    second.start()

    (nick,) = [n for n, each in mine.sessions().items() if each["pid"] == second.process.pid]
    assert nick == "again"


def test_a_hook_that_comes_after_the_end_of_its_client_makes_nothing_of_it(mine: Connected):
    first = mine.client(folder="late")
    first.start()
    pid = first.process.pid
    first.process.kill()
    first.process.wait()

    first.run("PreToolUse", tool_use_id="1")

    (row,) = [each for each in mine.sessions().values() if each["pid"] == pid]
    assert row["state"] == "gone"
