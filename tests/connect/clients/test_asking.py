"""What connecting is for: a person says to Claude Code "ask the other which shape it chose, and use it".

The other is Codex in a second terminal. Then each of the two is killed at the worst moment.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from postroom.protocol.frame import AGAIN
from postroom.protocol.shapes import Mail
from tests.connect.clients.desk import Claude, Codex, Desk
from tests.e2e.conftest import PostRoom, until
from tests.fakes.model.server import FakeModel

# The first test may have to install the programs.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def desk(
    room: PostRoom, model: FakeModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Desk]:
    """With both connected."""
    made = Desk(room, tmp_path_factory.mktemp("home"), model, "claude")
    made.set_up_codex(made.project("app"), made.project("api"))
    made.connect("codex")
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def both(desk: Desk) -> tuple[Claude, Codex]:
    """Two windows, in one repository each."""
    claude, codex = Claude(desk, desk.project("app")), Codex(desk, desk.project("api"))
    codex.begin("SAY:[I chose a shape]")
    assert (claude.nick, codex.nick) == ("app", "api")
    return claude, codex


@pytest.fixture
def idle(both: tuple[Claude, Codex], desk: Desk) -> tuple[Claude, Codex]:
    """They, between two turns; what is slow waits."""
    desk.model.go.set()
    for window in both:
        window.idle()
    desk.model.hold()
    return both


def calls(tool: str, **arguments: str) -> str:
    """A prompt by which the model calls a tool of Postroom's."""
    return f"CALL:[{tool}]=[{json.dumps(arguments)}]"


def mail(desk: Desk, text: str) -> Mail:
    """A message, once it is there."""
    with desk.room.client() as client:
        found = until(lambda: client.search(text))
    return found[0]


@pytest.mark.requirement("session-clients-real")
def test_the_other_is_woken_answers_and_both_screens_show_who_said_what(
    idle: tuple[Claude, Codex], desk: Desk
):
    claude, codex = idle
    claude.say(calls("a2a_ask", to="@api", text="which shape? REPLY:[a JSON object a line]"))

    claude.terminal.shows("a JSON object a line", "All done.")
    codex.idle()
    claude.idle()
    asked, answer = mail(desk, "which shape?"), mail(desk, "a JSON object a line")
    desk.reaches(asked["id"], "answered")
    desk.reaches(answer["id"], "seen")
    assert (answer["reply_to"], answer["from"]["nick"]) == (asked["id"], "api")
    assert "From @api (" in claude.terminal.text
    assert "mail from @app: which shape?" in codex.terminal.text
    desk.send("@app", "well done")
    claude.terminal.shows(f"mail from {desk.person}: well done")
    shown = desk.command("status")
    assert all(f"@{nick}" in shown for nick in ("app", "api"))


@pytest.mark.requirement("session-kills-harmless")
def test_who_is_asked_is_killed_while_its_model_thinks_and_answers_when_it_is_back(
    idle: tuple[Claude, Codex], desk: Desk
):
    claude, codex = idle
    end = codex.at_work()
    claude.say(calls("a2a_ask", to="@api", text="which port?"))
    asked = mail(desk, "which port?")["id"]
    desk.waits("api")
    end.touch()
    desk.holds()
    desk.reaches(asked, "delivered")
    codex.kill()
    until(lambda: codex.row["state"] == "gone")
    desk.model.go.set()
    assert desk.state(asked) == "delivered"

    codex.open("resume", "--last")
    codex.say(calls("a2a_reply", message=asked, text="port 8080"))
    desk.reaches(asked, "answered")
    codex.idle()
    assert codex.row["nick"] == "api"
    told = [str(one.body) for one in desk.asked(asked) if AGAIN in str(one.body)]
    assert told
    until(lambda: desk.asked("| port 8080"))
    desk.reaches(mail(desk, "port 8080")["id"], "seen")
    claude.idle()
    assert "port 8080" in claude.terminal.text


@pytest.mark.requirement("session-kills-harmless")
def test_who_asks_is_killed_while_it_waits_and_has_the_answer_when_it_is_back(
    idle: tuple[Claude, Codex], desk: Desk
):
    claude, codex = idle
    session = claude.session
    end = codex.at_work()
    claude.say(calls("a2a_ask", to="@api", text="which host?"))
    asked = mail(desk, "which host?")["id"]
    desk.waits("api")
    end.touch()
    desk.holds()
    claude.terminal.kill()
    until(lambda: claude.row["state"] == "gone")
    desk.model.go.set()
    codex.idle()
    desk.reaches(asked, "seen")
    assert "gone" in desk.command("status")

    codex.say(calls("a2a_reply", message=asked, text="host one"))
    until(lambda: desk.asked("@app is gone: it gets this when it is resumed"))
    desk.reaches(asked, "answered")
    answer = mail(desk, "host one")["id"]
    assert desk.state(answer) == "accepted"

    claude.terminal.close()
    claude.open("--resume", session)
    assert claude.nick == "app"
    claude.turn("SAY:[resumed]")
    desk.reaches(answer, "seen")
    told = str(desk.asked("| host one")[-1].body)
    assert told.count(f"message {answer}, ") == 1 or AGAIN in told
