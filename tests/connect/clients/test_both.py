"""Claude Code in one terminal and Codex in another: a person has one ask the other, and both go on with the answer."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.connect.clients.desk import Claude, Codex, Desk
from tests.connect.conftest import KEY
from tests.e2e.conftest import PostRoom, until
from tests.fakes.model.server import FakeModel

# The first test may have to install the programs.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture
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


@pytest.mark.requirement("session-clients-real")
def test_one_asks_the_other_and_goes_on_with_its_answer(desk: Desk):
    claude, codex = Claude(desk, desk.project("app")), Codex(desk, desk.project("api"))
    codex.begin("SAY:[I chose a shape]")
    assert (claude.nick, codex.nick) == ("app", "api")
    given = '{"to": "@api", "text": "which shape did you choose? REPLY:[one JSON object a line]"}'
    claude.say(f"CALL:[a2a_send_message]=[{given}]")

    [request, *_] = until(lambda: desk.asked("| one JSON object a line"))
    assert "From @api (" in str(request.body)
    codex.idle()
    claude.idle()
    asked, answered = desk.found("which shape"), desk.found("one JSON object a line")
    desk.reaches(asked["id"], "answered")
    desk.reaches(answered["id"], "seen")
    assert answered["reply_to"] == asked["id"]
    requests = desk.model.requests
    assert not [one for one in requests if KEY.search(json.dumps(one.body).encode())]
    shown = desk.command("status")
    assert all(f"@{nick}" in shown for nick in ("app", "api"))
