"""Gemini CLI and OpenCode themselves, in a terminal, connected to a real post room; see `hand_installed`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.agents import hand_installed
from tests.connect.clients.desk import ByHand, Desk
from tests.e2e.conftest import PostRoom, until
from tests.fakes.model.server import FakeModel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module", params=["gemini", "opencode"])
def client(request: pytest.FixtureRequest) -> str:
    hand_installed.installed(request.param)
    return request.param


@pytest.fixture(scope="module")
def desk(
    client: str, room: PostRoom, model: FakeModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Desk]:
    made = Desk(room, tmp_path_factory.mktemp("home"), model, client)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def app(desk: Desk, client: str) -> ByHand:
    """A session that is open."""
    window = ByHand(desk, client, desk.project("app"))
    window.begin("SAY:[hello]")
    return window


@pytest.fixture
def idle(app: ByHand, desk: Desk) -> ByHand:
    """That session, between two turns."""
    desk.model.go.set()
    app.idle()
    desk.model.hold()
    return app


def test_mail_in_mid_turn_is_in_the_next_request_and_seen_after_it(idle: ByHand, desk: Desk):
    end = idle.at_work()
    sent = desk.send(f"@{idle.nick}", "in mid turn: which shape?")
    desk.waits(idle.nick)
    end.touch()

    desk.holds()
    assert "| in mid turn: which shape?" in str(desk.model.asked()[-1].body)
    desk.reaches(sent, "delivered")
    desk.model.go.set()
    desk.reaches(sent, "seen")


def test_mail_that_comes_while_the_model_answers_is_read_at_the_end(idle: ByHand, desk: Desk):
    idle.say("SLOW SAY:[thought]")
    desk.holds()
    sent = desk.send(f"@{idle.nick}", "at the end: which shape?")
    desk.waits(idle.nick)
    desk.model.go.set()

    until(lambda: desk.asked("| at the end: which shape?"))
    desk.reaches(sent, "seen")


def test_an_idle_session_is_woken_or_its_sender_is_told_that_it_is_not(
    idle: ByHand, desk: Desk, client: str
):
    sent = desk.room.json("send", f"@{idle.nick}", "while it rests: which shape?")

    if client == "gemini":
        assert "next activity" in sent["note"]
        idle.say("SAY:[go on]")
    until(lambda: desk.asked("| while it rests: which shape?"))
    desk.reaches(sent["id"], "seen")
