"""Whatever is killed while mail is on its way to Claude Code: it arrives, once or marked as the same one."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from pathlib import Path

import pytest

from postroom.client.locate import locate
from postroom.protocol.frame import AGAIN
from tests.agents.conftest import descendants
from tests.connect.clients.desk import Claude, Desk
from tests.e2e.conftest import until

# The first test may have to install the program.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def app(desk: Desk) -> Claude:
    window = Claude(desk, desk.project("app"))
    window.turn("SAY:[hello]")
    return window


@pytest.fixture
def busy(app: Claude, desk: Desk) -> Path:
    """The file that ends the tool at which the session works; the request after it is held."""
    desk.model.go.set()
    app.idle()
    desk.model.hold()
    return app.at_work()


def arrives(app: Claude, desk: Desk, sent: str, *, again: bool = False) -> None:
    """A message is seen in the end; the model has got it once, or a second time as the same one."""
    desk.model.go.set()
    if again:  # what ended the turn may have been lost, too: the next one shows it
        app.idle()
        app.turn("SAY:[and on]")
    desk.reaches(sent, "seen")
    shown = str(desk.asked(sent)[-1].body).count(f"message {sent}, ")
    assert shown == 1 or (again and AGAIN in str(desk.asked(sent)[-1].body))


@pytest.mark.requirement("session-kills-harmless")
def test_a_run_that_was_killed_is_begun_anew_by_a_hook_and_brings_the_mail(
    app: Claude, desk: Desk, busy: Path
):
    desk.kill_run()
    sent = desk.send("@app", "run is killed: which shape?")
    busy.touch()
    desk.holds()

    arrives(app, desk, sent)


@pytest.mark.requirement("session-kills-harmless")
def test_what_was_handed_over_is_proven_though_run_was_killed_in_between(
    app: Claude, desk: Desk, busy: Path
):
    sent = desk.send("@app", "run is killed after it: which shape?")
    desk.waits("app")
    busy.touch()
    desk.holds()
    desk.reaches(sent, "delivered")
    desk.kill_run()

    arrives(app, desk, sent, again=True)


@pytest.mark.requirement("session-kills-harmless")
def test_mail_is_handed_over_while_the_post_room_is_down_and_told_afterwards(
    app: Claude, desk: Desk, busy: Path
):
    sent = desk.send("@app", "the post room is killed: which shape?")
    desk.waits("app")
    os.kill(desk.room.server["pid"], signal.SIGKILL)
    busy.touch()
    desk.holds()
    assert desk.asked("| the post room is killed: which shape?")
    desk.room.up()

    arrives(app, desk, sent)


@pytest.mark.requirement("session-kills-harmless")
def test_mail_whose_hook_was_killed_comes_with_the_next_one(app: Claude, desk: Desk, busy: Path):
    sent = desk.send("@app", "the hook is killed: which shape?")
    desk.waits("app")
    run = desk.status()["pid"]
    os.kill(run, signal.SIGSTOP)
    try:
        busy.touch()
        hook = until(lambda: batch_hook(app.terminal.process.pid))
        os.kill(hook, signal.SIGKILL)
    finally:
        os.kill(run, signal.SIGCONT)
    desk.holds()
    assert not desk.asked(sent)

    arrives(app, desk, sent, again=True)


@pytest.mark.requirement("session-kills-harmless")
def test_mail_arrives_though_the_server_of_its_tools_was_killed(
    app: Claude, desk: Desk, busy: Path
):
    [relay] = [pid for pid in descendants(app.terminal.process.pid) if b"relay.py" in words(pid)]
    os.kill(relay, signal.SIGKILL)
    sent = desk.send("@app", "the tools are killed: which shape?")
    desk.waits("app")
    busy.touch()
    desk.holds()

    arrives(app, desk, sent)


@pytest.mark.requirement("session-hook-harmless")
def test_no_key_is_in_what_a_client_starts_or_its_model_reads(app: Claude, desk: Desk, busy: Path):
    with sqlite3.connect(f"file:{desk.folder / 'sessions.db'}?mode=ro", uri=True) as journal:
        rows = [json.loads(said) for (said,) in journal.execute("SELECT said FROM sessions")]
    keys = [locate(desk.room.state).token, *(row["secret"] for row in rows)]
    assert len(keys) == 2
    assert all(keys)
    read = [str(one.body) for one in desk.model.asked()]
    for pid in descendants(app.terminal.process.pid):
        read += [words(pid).decode(errors="replace"), environment(pid).decode(errors="replace")]
    busy.touch()
    desk.model.go.set()

    assert not [text for key in keys for text in read if key in text]


def batch_hook(client: int) -> int:
    """The process that a client runs at the end of a batch of tools, 0 for none."""
    found = [pid for pid in descendants(client) if b"PostToolBatch\0" in words(pid)]
    return found[-1] if found else 0


def words(pid: int) -> bytes:
    """The command line of a process."""
    return _of(pid, "cmdline")


def environment(pid: int) -> bytes:
    return _of(pid, "environ")


def _of(pid: int, what: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes()
    except OSError:
        return b""
