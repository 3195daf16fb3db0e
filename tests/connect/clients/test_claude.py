"""Claude Code itself, in a terminal, connected to a real post room: mail arrives, and receipts tell the truth."""

from __future__ import annotations

import json
import re

import pytest

from postroom.protocol.frame import AGAIN
from tests.connect.clients.desk import Claude, Desk
from tests.connect.clients.terminal import ERASE, ESCAPE
from tests.e2e.conftest import until
from tests.workspaces.bench import repository
from tests.workspaces.test_room import spawn

# The first test may have to install the program.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def app(desk: Desk) -> Claude:
    """A session that is open."""
    return Claude(desk, desk.project("app"))


@pytest.fixture
def idle(app: Claude, desk: Desk) -> Claude:
    """That session, between two turns."""
    desk.model.go.set()
    desk.model.hold()
    return app


@pytest.mark.requirement("session-clients-real")
def test_a_session_that_starts_has_an_address_and_its_model_is_told(app: Claude, desk: Desk):
    app.turn("SAY:[hello]")

    assert app.nick == "app"
    [request] = desk.asked("this session has the address @app")
    assert "SAY:[hello]" in str(request.body)


@pytest.mark.requirement("session-clients-real")
def test_mail_in_mid_turn_is_in_the_next_request_and_seen_after_it(idle: Claude, desk: Desk):
    end = idle.at_work()
    sent = desk.send(f"@{idle.nick}", "in mid turn: which shape?")
    desk.waits(idle.nick)
    assert desk.state(sent) == "accepted"
    end.touch()

    desk.holds()
    assert "| in mid turn: which shape?" in str(desk.model.asked()[-1].body)
    idle.terminal.shows("mail from @root: in mid turn: which shape?")
    desk.reaches(sent, "delivered")
    desk.model.go.set()
    desk.reaches(sent, "seen")


@pytest.mark.requirement("session-clients-real")
def test_mail_that_comes_while_the_model_answers_makes_the_turn_go_on(idle: Claude, desk: Desk):
    idle.say("SLOW SAY:[thought]")
    desk.holds()
    sent = desk.send(f"@{idle.nick}", "at the end: which shape?")
    desk.waits(idle.nick)
    desk.model.go.set()

    until(lambda: desk.asked("| at the end: which shape?"))
    desk.reaches(sent, "seen")


@pytest.mark.requirement("session-clients-real")
def test_an_idle_session_is_woken_by_mail(idle: Claude, desk: Desk):
    idle.turn("SAY:[resting]")
    sent = desk.send(f"@{idle.nick}", "while it rests: which shape?")

    until(lambda: desk.asked("| while it rests: which shape?"))
    desk.reaches(sent, "seen")
    idle.terminal.shows("has woken this session", "mail from @root: while it rests: which shape?")


@pytest.mark.requirement("session-clients-real")
def test_two_sessions_in_one_repository_write_to_each_other(idle: Claude, desk: Desk):
    other = Claude(desk, idle.folder)
    assert other.nick == "app-2"
    other.turn("SAY:[also here]")
    given = '{"to": "@app-2", "text": "from one to the other"}'
    idle.say(f"CALL:[a2a_send_message]=[{given}]")

    [request, *_] = until(lambda: desk.asked("| from one to the other"))
    assert "From @app (" in str(request.body)
    sent = desk.found("from one to the other")
    assert (sent["from"]["nick"], sent["to"]["nick"]) == ("app", "app-2")
    desk.reaches(sent["id"], "seen")
    other.close()


@pytest.mark.requirement("session-hands-over")
def test_it_is_woken_by_a_task_and_by_the_result_of_one_that_it_gave(idle: Claude, desk: Desk):
    idle.idle()
    given = desk.room.json("delegate", "@app", "choose a shape")["id"]
    until(lambda: desk.asked("| choose a shape"))
    idle.idle()
    report = {"task": given, "state": "completed", "text": "a list"}
    idle.say(f"CALL:[a2a_report_task]=[{json.dumps(report)}]")
    with desk.room.client() as client:
        until(lambda: client.task(given)["state"] == "completed")
        assert client.task(given)["status_text"] == "a list"

    spawn(desk.room, "coder", "--workspace", str(repository(desk.home / "shapes")))
    script = json.dumps({"to": "@coder", "text": "touch new; echo made"})
    idle.idle()
    idle.say(f"CALL:[a2a_delegate_task]=[{script}]")
    [request, *_] = until(lambda: desk.asked("| Its work is on the branch postroom/coder."))
    assert "From @coder (worker)" in str(request.body)
    desk.reaches(desk.found("on the branch postroom/coder")["id"], "seen")


@pytest.mark.requirement("session-clients-real")
def test_clear_keeps_the_address(idle: Claude, desk: Desk):
    idle.idle()
    before, uid = idle.session, idle.row["uid"]
    idle.say("/clear")
    until(lambda: idle.session != before)
    idle.turn("SAY:[after a clear]")

    assert idle.row["uid"] == uid
    assert "has the address @app" in str(desk.model.asked()[-1].body)
    sent = desk.send("@app", "after the clear: which shape?")
    until(lambda: desk.asked("| after the clear: which shape?"))
    desk.reaches(sent, "seen")


@pytest.mark.requirement("session-text-framed")
def test_one_message_has_the_same_words_and_receipt_by_hook_tool_api_and_command(
    idle: Claude, desk: Desk
):
    words = "by every door: <system-reminder> which shape? \N{SNOWMAN}"
    sent = desk.send("@app", words)
    until(lambda: desk.asked(sent))
    desk.reaches(sent, "seen")
    idle.turn(f'CALL:[a2a_read_message]=[{{"message": "{sent}"}}]')

    by_hook, *others = shown(desk, sent)
    assert "which shape? \N{SNOWMAN}" in by_hook
    assert others
    assert {by_hook} == set(others)
    with desk.room.client() as client:
        by_api = client.message(sent)
    by_command = desk.room.json("receipt", sent)
    assert by_api["text"] == words
    for field in ("state", "how", "text"):
        assert by_api[field] == by_command[field]


@pytest.mark.requirement("session-kills-harmless")
def test_mail_that_a_killed_client_had_not_proven_comes_again_when_it_resumes(
    idle: Claude, desk: Desk
):
    idle.idle()
    session, uid = idle.session, idle.row["uid"]
    end = idle.at_work()
    sent = desk.send("@app", "before the kill: which shape?")
    desk.waits("app")
    end.touch()
    desk.holds()
    desk.reaches(sent, "delivered")
    idle.terminal.kill()
    until(lambda: idle.row["state"] == "gone")
    desk.model.go.set()
    assert desk.state(sent) == "delivered"

    idle.terminal.close()
    idle.open("--resume", session)
    assert idle.row["uid"] == uid
    idle.turn("SAY:[resumed]")
    assert repeated(desk, sent)
    desk.reaches(sent, "seen")


@pytest.mark.requirement("session-mail-proven")
def test_mail_of_an_interrupted_request_is_not_seen_and_comes_again(idle: Claude, desk: Desk):
    idle.idle()
    end = idle.at_work()
    sent = desk.send("@app", "before Esc: which shape?")
    desk.waits("app")
    end.touch()
    desk.holds()
    desk.reaches(sent, "delivered")
    idle.terminal.press(ESCAPE)
    idle.terminal.shows("Interrupted")
    desk.model.go.set()
    assert desk.state(sent) == "delivered"

    idle.turn("SAY:[and on]")
    assert repeated(desk, sent)
    desk.reaches(sent, "seen")


@pytest.mark.requirement("session-mail-proven")
def test_a_prompt_that_is_taken_back_has_not_shown_its_mail(idle: Claude, desk: Desk):
    """Claude Code puts a prompt back into its line when it is interrupted before an answer."""
    idle.idle()
    sent = desk.stranger("api")("@app", "with the prompt: which shape?")
    desk.waits("app")
    idle.say("SLOW SAY:[never mind]")
    desk.holds()
    desk.reaches(sent, "delivered")
    idle.terminal.press(ESCAPE)
    until(lambda: "SLOWSAY:[nevermind]" in idle.line)
    assert desk.state(sent) == "delivered"
    desk.model.go.set()

    idle.terminal.press(ERASE)
    idle.turn("SAY:[something else]")
    assert repeated(desk, sent)
    desk.reaches(sent, "seen")


@pytest.mark.requirement("session-hook-harmless")
def test_a_run_that_nobody_watches_has_no_address(desk: Desk, idle: Claude):
    known = set(desk.sessions())
    assert "hello" in idle.unwatched("SAY:[hello]")
    assert set(desk.sessions()) == known


def shown(desk: Desk, message: str) -> list[str]:
    """The places in the model's last request where a message stands, with its sender."""
    body = json.dumps(desk.asked(message)[-1].body, ensure_ascii=False)
    return re.findall(rf"From @[^|]*message {message}, [^|]*\|.*?(?=\\n)", body)


def repeated(desk: Desk, message: str) -> bool:
    """Whether the model has been told a message again, as the same one."""
    return AGAIN in str(desk.asked(message)[-1].body)
