"""Codex itself, in a terminal, connected to a real post room: mail arrives, and receipts tell the truth."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from postroom.protocol.frame import AGAIN
from tests.agents.programs import CODEX, installed
from tests.connect.clients.desk import Codex, Desk
from tests.connect.clients.terminal import ESCAPE
from tests.e2e.conftest import PostRoom, until
from tests.fakes.model.server import FakeModel

# The first test may have to install the program.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def desk(
    room: PostRoom, model: FakeModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Desk]:
    """With Codex connected, beside what the person has set up in its files."""
    made = Desk(room, tmp_path_factory.mktemp("home"), model)
    made.set_up_codex(made.project("app"))
    made.connect("codex")
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def app(desk: Desk) -> Codex:
    """A session that is open."""
    window = Codex(desk, desk.project("app"))
    window.begin("SAY:[hello]")
    return window


@pytest.fixture
def idle(app: Codex, desk: Desk) -> Codex:
    """That session, between two turns."""
    desk.model.go.set()
    app.idle()
    desk.model.hold()
    return app


@pytest.mark.requirement("session-clients-real")
def test_a_session_has_an_address_and_its_model_is_told(app: Codex, desk: Desk):
    assert app.nick == "app"
    app.turn("SAY:[once more]")
    assert desk.asked("this session has the address @app")


@pytest.mark.requirement("session-clients-real")
def test_mail_in_mid_turn_is_in_the_next_request_and_seen_after_it(idle: Codex, desk: Desk):
    end = idle.at_work()
    sent = desk.send("@app", "in mid turn: which shape?")
    desk.waits("app")
    assert desk.state(sent) == "accepted"
    end.touch()

    desk.holds()
    assert "| in mid turn: which shape?" in str(desk.model.asked()[-1].body)
    idle.terminal.shows("mail from @root: in mid turn: which shape?")
    desk.reaches(sent, "delivered")
    desk.model.go.set()
    desk.reaches(sent, "seen")


@pytest.mark.requirement("session-clients-real")
def test_mail_that_comes_while_the_model_answers_makes_the_turn_go_on(idle: Codex, desk: Desk):
    idle.say("SLOW SAY:[thought]")
    desk.holds()
    sent = desk.send("@app", "at the end: which shape?")
    desk.waits("app")
    desk.model.go.set()

    until(lambda: desk.asked("| at the end: which shape?"))
    desk.reaches(sent, "seen")


@pytest.mark.requirement("session-clients-real")
def test_an_idle_session_is_woken_by_mail(idle: Codex, desk: Desk):
    sent = desk.send("@app", "while it rests: which shape?")

    until(lambda: desk.asked("| while it rests: which shape?"))
    desk.reaches(sent, "seen")
    idle.terminal.shows(
        "a program and not the user", "mail from @root: while it rests: which shape?"
    )


@pytest.mark.requirement("session-mail-proven")
def test_mail_of_an_interrupted_request_is_not_seen_and_comes_again(idle: Codex, desk: Desk):
    end = idle.at_work()
    sent = desk.send("@app", "before Esc: which shape?")
    desk.waits("app")
    end.touch()
    desk.holds()
    desk.reaches(sent, "delivered")
    idle.terminal.press(ESCAPE)
    idle.terminal.shows("interrupted")
    desk.model.go.set()
    assert desk.state(sent) == "delivered"

    idle.turn("SAY:[and on]")
    assert AGAIN in str(desk.asked(sent)[-1].body)
    desk.reaches(sent, "seen")


@pytest.mark.requirement("session-kills-harmless")
def test_a_session_whose_daemon_was_killed_keeps_its_address_and_mail_when_it_resumes(
    idle: Codex, desk: Desk
):
    end, uid = idle.at_work(), idle.row["uid"]
    sent = desk.send("@app", "before the kill: which shape?")
    desk.waits("app")
    end.touch()
    desk.holds()
    desk.reaches(sent, "delivered")
    idle.kill()
    desk.model.go.set()
    assert desk.state(sent) == "delivered"

    idle.open("resume", "--last")
    idle.turn("SAY:[resumed]")
    assert idle.row["uid"] == uid
    assert AGAIN in str(desk.asked(sent)[-1].body)
    desk.reaches(sent, "seen")


@pytest.mark.requirement("session-clients-real")
def test_two_windows_of_one_daemon_are_two_sessions_that_write_to_each_other(
    idle: Codex, desk: Desk
):
    other = Codex(desk, idle.folder)
    other.begin("SAY:[also here]")
    assert other.nick == "app-2"
    given = '{"to": "@app-2", "text": "from one to the other"}'
    idle.say(f"CALL:[a2a_send_message]=[{given}]")

    [request, *_] = until(lambda: desk.asked("| from one to the other"))
    assert "From @app (" in str(request.body)
    sent = desk.found("from one to the other")
    assert (sent["from"]["nick"], sent["to"]["nick"]) == ("app", "app-2")
    desk.reaches(sent["id"], "seen")


@pytest.mark.requirement("connect-doctor-tells")
def test_doctor_asks_codex_whether_its_person_has_approved_the_hooks(
    desk: Desk, idle: Codex, monkeypatch: pytest.MonkeyPatch
):
    path = f"{installed(CODEX).parent}{os.pathsep}{desk.env['PATH']}"
    monkeypatch.setitem(desk.env, "PATH", path)

    found = json.loads(desk.command("doctor", "connect", "--json"))["findings"]

    said = {one["what"]: one for one in found if one["about"] == "codex"}
    assert (said["trust"]["state"], said["program"]["state"]) == ("ok", "ok")
    assert said["trust"]["detail"].startswith("you have approved all ")
    assert said["last hook"]["detail"].startswith("Stop at ")


@pytest.mark.requirement("connect-bytes-come-back")
def test_disconnecting_gives_the_files_back_without_what_was_connected(desk: Desk, idle: Codex):
    idle.close()
    config = desk.home / ".codex" / "config.toml"
    desk.command("disconnect", "codex")

    assert not (desk.home / ".codex" / "hooks.json").exists()
    left = config.read_text()
    assert "mcp_servers.postroom" not in left
    assert left.startswith("# the person's own\n")
