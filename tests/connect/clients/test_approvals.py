"""What Claude Code and Codex ask their person in a terminal, answered there or elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.connect.clients.desk import Claude, Codex, Desk
from tests.connect.clients.terminal import ENTER
from tests.connect.conftest import until
from tests.e2e.conftest import PostRoom
from tests.fakes.model.server import FakeModel

# The first test may have to install the program.
pytestmark = pytest.mark.timeout(900)

PIN = "2846"
ANSWERS = {"allowed": "Accepted: message", "denied": "not that one"}
QUESTION = "Do you want to proceed?"


class Asking(Claude):
    """Claude Code that asks before it runs a command."""

    permissions: Mapping[str, Any] = {"defaultMode": "default", "disableAutoMode": "disable"}


@pytest.fixture(scope="module")
def desk(
    room: PostRoom, model: FakeModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Desk]:
    made = Desk(room, tmp_path_factory.mktemp("home"), model)
    said = made.connect("claude", "--approvals")
    assert "Claude Code shows its own question at once" in said
    with room.client() as client:
        client.set_pin(PIN)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def claude(desk: Desk) -> Asking:
    return Asking(desk, desk.project("app"))


def asked(
    desk: Desk, said: str, state: str = "pending", *, field: str = "command"
) -> dict[str, Any]:
    """The approval that has a text as its input, once it stands so."""

    def found() -> dict[str, Any]:
        with desk.room.client() as client:
            rows: list[dict[str, Any]] = [dict(row) for row in client.approvals(state="all")]
        return next((r for r in rows if (r["input"].get(field), r["state"]) == (said, state)), {})

    return until(found, f"{said} is not {state}")


def decide(desk: Desk, row: dict[str, Any], decision: str, reason: str = "") -> None:
    with desk.room.client() as client:
        client.control(row["worker"]["uid"], row["id"], decision, reason=reason, pin=PIN)


@pytest.mark.requirement("session-approval-owner")
def test_what_claude_code_asks_is_answered_elsewhere_or_at_its_terminal(claude: Asking, desk: Desk):
    claude.say("RUN:[touch allowed] SAY:[done]")
    row = asked(desk, "touch allowed")
    claude.terminal.shows(QUESTION)
    decide(desk, row, "allowed")
    claude.until((claude.folder / "allowed").exists, "it was not run")
    claude.idle()

    claude.say("RUN:[touch denied] SAY:[well]")
    decide(desk, asked(desk, "touch denied"), "denied", "not that one")
    claude.until(lambda: desk.asked("not that one"), "the model is not told")
    claude.idle()
    assert not (claude.folder / "denied").exists()

    claude.say("RUN:[touch here] SAY:[fine]")
    asked(desk, "touch here")
    claude.press_until(ENTER, (claude.folder / "here").exists)
    row = asked(desk, "touch here", "withdrawn")
    assert row["answer"]["reason"] == "answered at the terminal"


def test_codex_shows_its_own_question_only_without_an_answer_from_elsewhere(desk: Desk):
    folder = desk.project("site")
    desk.set_up_codex(folder)
    config = desk.home / ".codex" / "config.toml"
    asks = config.read_text().replace('"never"', '"on-request"')
    config.write_text(asks.replace("danger-full-access", "read-only"))
    assert "only when nobody has answered there" in desk.connect("codex", "--approvals")
    codex = Codex(desk, folder)
    codex.begin("SAY:[hello]")
    while "a2a_send_message" not in str(desk.model.asked()[-1].body):  # its server begins meanwhile
        codex.turn("SAY:[hello]")

    for text, decision in (("one", "allowed"), ("two", "denied")):
        given = f'{{"to": "{desk.person}", "text": "{text}"}}'
        codex.say(f"CALL:[a2a_send_message]=[{given}] SAY:[well]")
        row = asked(desk, text, field="text")
        codex.terminal.shows("Running hook")
        decide(desk, row, decision, "not that one")
        codex.until(lambda answer=decision: desk.asked(ANSWERS[answer]), "the model is not told")
        codex.idle()
    assert set(desk.inbox()) == {"one"}
