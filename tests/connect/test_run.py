"""`postroom connect run` with a real post room and the real hook file: mail arrives, and receipts tell the truth."""

from __future__ import annotations

from tests.connect.conftest import Connected, until


def test_a_session_registers_at_its_first_hook_and_its_model_is_told_its_address(mine: Connected):
    app = mine.client()
    app.start()

    text = app.prompt("t1")

    assert "this session has the address @app" in text


def test_mail_is_delivered_by_a_hook_and_seen_by_what_follows_a_request(mine: Connected):
    app = mine.client()
    app.start()
    app.prompt("t1")
    nick = next(iter(mine.sessions()))
    sent = mine.send(f"@{nick}", "which shape?")
    until(lambda: mine.sessions()[nick]["waiting"])

    assert app.at("PreToolUse", tool_use_id="a") == ""
    assert mine.state(sent) == "accepted"
    text = app.at("PostToolBatch", tool_calls=[{"tool_use_id": "a"}])
    assert "| which shape?" in text
    until(lambda: mine.state(sent) == "delivered")
    app.at("PreToolUse", tool_use_id="b")
    until(lambda: mine.state(sent) == "seen")
