"""SIGKILL of hook, server, `run`, client and control plane between any two steps: nothing is lost, no receipt lies."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom.protocol.frame import AGAIN
from tests.connect.conftest import Connected, Terminal, connected, until
from tests.connect.test_relay import server
from tests.connect.test_run import arrived, opened
from tests.e2e.conftest import PostRoom, gone, running_room


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Connected]:
    """With a post room that may be killed, and is up at the end."""
    with running_room() as room, connected(room, tmp_path) as made:
        yield made


def kill(room: PostRoom) -> None:
    """SIGKILL the control plane, which takes its nats-server with it."""
    pids = room.server["pid"], room.server["nats_pid"]
    os.kill(pids[0], signal.SIGKILL)
    until(lambda: all(map(gone, pids)))


@pytest.mark.requirement("session-kills-harmless")
def test_the_control_plane_may_be_killed_between_any_two_steps(alone: Connected):
    app, nick = opened(alone)
    sent = arrived(alone, nick)
    kill(alone.room)

    assert "| which shape?" in app.prompt("t2"), "what is here is handed over without it"
    alone.room.up()
    until(lambda: alone.state(sent) == "delivered")
    kill(alone.room)
    app.stop("answered")
    alone.room.up()
    until(lambda: alone.state(sent) == "seen")

    second = alone.send(nick, "after a restart")
    until(lambda: alone.sessions()[nick[1:]]["waiting"])
    assert second in app.prompt("t3")


def test_a_session_that_began_without_a_post_room_has_its_address_once_it_is_up(alone: Connected):
    kill(alone.room)
    app = alone.client(folder="early")
    assert app.run("SessionStart", source="startup").stdout == b""

    alone.room.up()

    until(lambda: alone.sessions().get("early"))
    assert "the address @early" in app.prompt("t1")


def test_the_end_of_a_turn_is_not_lost_while_another_hook_begins_run(mine: Connected):
    app, nick = opened(mine)
    sent = arrived(mine, nick)
    assert sent in app.prompt("t2")
    until(lambda: mine.state(sent) == "delivered")
    mine.kill_run()

    waiter = app.wait()
    assert app.stop("answered") == ""

    until(lambda: mine.state(sent) == "seen")
    until(lambda: mine.sessions()[nick[1:]]["state"] == "idle")
    assert waiter.poll() is None


class Model:
    """What the model of a client has read, and what it was shown without the word that it is a repetition."""

    def __init__(self) -> None:
        self.unflagged: Counter[str] = Counter()

    def reads(self, text: str) -> None:
        for block in text.split("\n\n"):
            found = re.search(r"^\| letter (\d+)$", block, re.MULTILINE)
            if found and AGAIN not in block:
                self.unflagged[found[1]] += 1


def step(app: Terminal, mine: Connected, model: Model, rng: random.Random) -> None:
    """The client goes on by an event or two, and something may be killed."""
    match rng.randrange(7):
        case 0:
            app.turn = f"t{rng.random()}"
            model.reads(app.at("UserPromptSubmit", prompt="go on"))
        case 1:
            use = f"u{rng.random()}"
            app.at("PreToolUse", tool_use_id=use)
            model.reads(app.at("PostToolBatch", tool_calls=[{"tool_use_id": use}]))
        case 2:
            model.reads(app.stop(f"{rng.random()}"))
        case 3:  # a hook is killed, perhaps after it gave its text
            hook = subprocess.Popen(
                app.command("UserPromptSubmit"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=app.env,
                start_new_session=True,
            )
            app.turn = f"t{rng.random()}"
            assert hook.stdin
            hook.stdin.write(app.said("UserPromptSubmit", prompt="x"))
            hook.stdin.close()
            hook.stdin = None
            try:
                hook.wait(rng.random() / 40)
            except subprocess.TimeoutExpired:
                os.killpg(hook.pid, signal.SIGKILL)
            model.reads(hook.communicate()[0].decode().replace("\\n", "\n"))
        case 4 if mine.status():
            mine.kill_run()
            app.at("PreToolUse", tool_use_id="begins it")
            until(mine.sessions)
        case 5:
            app.kill()
            app.open()
            model.reads(app.start("resume"))
        case _:
            with server(app) as tools:
                model.reads(tools.call("a2a_check_inbox"))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.requirement("session-kills-harmless")
def test_whatever_is_killed_each_message_is_seen_once_unflagged_at_most(mine: Connected, seed: int):
    rng = random.Random(seed)
    app, nick = opened(mine)
    model = Model()
    sent = []
    for number in range(12):
        sent.append(mine.send(nick, f"letter {number}"))
        step(app, mine, model, rng)
        step(app, mine, model, rng)
    for _ in range(4):
        app.prompt(f"end{_}")
        app.stop(f"end{_}")

    until(lambda: {mine.state(each) for each in sent} == {"seen"})
    assert max(model.unflagged.values()) == 1
