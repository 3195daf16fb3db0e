"""The dialog about an approval."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, TextArea

from postroom.identity import pins
from postroom.tui.app import PostroomApp
from postroom.tui.dialogs import PinDialog
from postroom.tui.needs import dialog
from postroom.tui.needs.approval import ApprovalDialog
from postroom.tui.needs.bar import NeedsBar
from postroom.tui.needs.dialog import Phase
from postroom.tui.news import NeedChosen
from postroom.tui.typing.line import TypingLine
from tests.control.doing import COMMAND, REQUEST, Doing
from tests.control.taskroom import TaskRoom
from tests.tui.conftest import app_on, screen_text, until, working

pytestmark = pytest.mark.anyio

SIZES = [(40, 20), (80, 24), pytest.param((160, 50), marks=pytest.mark.slow)]
OTHER = "ffff0000ffff0000"
PIN = "4711"


def app_of(pilot: Pilot[Any]) -> PostroomApp:
    assert isinstance(pilot.app, PostroomApp)
    return pilot.app


def shows(pilot: Pilot[Any], *texts: str) -> bool:
    shown = " ".join(screen_text(pilot.app).replace("│", " ").split())
    return all(text in shown for text in texts)


async def dialog_of(pilot: Pilot[Any], request: str = REQUEST) -> ApprovalDialog:
    """The dialog about that approval, once its keys count."""
    app = pilot.app

    def ready() -> bool:
        found = app.screen
        return (
            isinstance(found, ApprovalDialog)
            and found.need.id == request
            and found.phase is Phase.ASK
            and not found.guarded
        )

    await until(pilot, ready)
    assert isinstance(app.screen, ApprovalDialog)
    return app.screen


async def closed(pilot: Pilot[Any]) -> None:
    await until(pilot, lambda: len(pilot.app.screen_stack) == 1)


async def state_of(coder: Doing, request: str = REQUEST) -> str:
    return (await coder.approval(request))["state"]


async def ask_another(coder: Doing, pilot: Pilot[Any], **asked: Any) -> None:
    """A further request, opened by a key."""
    await coder.asks(OTHER, **asked)
    bar = pilot.app.query_one(NeedsBar)
    await until(pilot, lambda: bar.queue.find(OTHER))
    await pilot.press("ctrl+n")
    await dialog_of(pilot, OTHER)


@asynccontextmanager
async def opened(
    shared: TaskRoom, folder: Path, size: tuple[int, int] = (80, 24), **asked: Any
) -> AsyncGenerator[tuple[Doing, Pilot[int]]]:
    """A dialog that opens by itself about what the worker asks."""
    async with working(shared, folder) as coder, app_on(coder, size=size, opens=True) as pilot:
        await coder.asks(**asked)
        await dialog_of(pilot)
        yield coder, pilot


@pytest.mark.requirement("approval-shown-decided")
@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_a_dialog_opens_by_itself_and_shows_exactly_what_is_to_be_allowed_however_long(
    shared: TaskRoom, tmp_path: Path, size: tuple[int, int]
):
    many = {"command": COMMAND, "stdin": "\n".join(f"line {n}" for n in range(80))}
    async with opened(shared, tmp_path, size, reason="it is new", input=many) as (coder, pilot):
        await until(pilot, lambda: shows(pilot, "more lines", "d deny", "e edit", "esc later"))
        shown = screen_text(pilot.app)
        assert "@coder asks to use Bash" in shown
        assert "\\u{202e}prod" in shown
        assert "\u202e" not in shown
        assert all(len(line) <= size[0] for line in shown.splitlines())
        assert not shows(pilot, "line 79")
        await pilot.press("end")
        await until(pilot, lambda: shows(pilot, "line 79", "why: it is new", "y allow"))
        assert not shows(pilot, "more lines")
        await pilot.click("#key-allow")
        answer = (await coder.decided())["answer"]
        assert (answer["decision"], answer["channel"]) == ("allowed", "screen")
        await closed(pilot)


async def test_a_denial_takes_a_reason_and_an_edited_input_must_be_json(
    shared: TaskRoom, tmp_path: Path
):
    async with opened(shared, tmp_path) as (coder, pilot):
        await pilot.press("d", "escape", "d", *"not", "space", *"yet", "enter")
        answer = (await coder.decided())["answer"]
        assert (answer["decision"], answer["reason"]) == ("denied", "not yet")
        await closed(pilot)
        await ask_another(coder, pilot)
        await pilot.press("e")
        area = pilot.app.screen.query_one(TextArea)
        assert area.has_focus
        assert "\\u202eprod" in area.text
        area.load_text('{"command": }')
        await pilot.press("ctrl+s")
        await until(pilot, lambda: shows(pilot, "no JSON", "line 1 column 13"))
        assert await state_of(coder, OTHER) == "pending"
        area.load_text(json.dumps({"command": "make test"}))
        await pilot.press("ctrl+s")
        answer = (await coder.decided(OTHER))["answer"]
        assert (answer["decision"], answer["input"]) == ("edited", {"command": "make test"})


async def test_what_was_left_for_later_stays_in_the_queue_and_does_not_open_again(
    shared: TaskRoom, tmp_path: Path
):
    async with opened(shared, tmp_path) as (coder, pilot):
        await pilot.press("escape")
        await closed(pilot)
        await until(pilot, lambda: shows(pilot, "@coder asks to use Bash", "ctrl-n"))
        app_of(pilot).pressed_at = 0.0
        await coder.report({"type": "text", "text": "something happens"})
        app = app_of(pilot)
        before, link = app.room, app.link
        assert link is not None
        link.refresh()
        await until(pilot, lambda: app.room is not before)
        await pilot.pause()
        assert len(pilot.app.screen_stack) == 1
        app.pressed_at = 0.0
        await coder.asks(OTHER)
        await dialog_of(pilot, OTHER)  # what is new opens, and not what was put off
        await pilot.press("y")
        await closed(pilot)
        await pilot.press("n")
        await dialog_of(pilot)
        assert await state_of(coder) == "pending"


@pytest.mark.requirement("attach-answers")
async def test_nothing_opens_while_the_person_types_or_right_after_a_key(
    shared: TaskRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with working(shared, tmp_path) as coder, app_on(coder, opens=True) as pilot:
        line = pilot.app.query_one(TypingLine)
        await pilot.press("i", "h")
        app_of(pilot).pressed_at = 0.0
        await coder.asks()
        await until(pilot, lambda: shows(pilot, "@coder asks to use Bash", "ctrl-n"))
        assert len(pilot.app.screen_stack) == 1
        await pilot.press("y")
        assert len(pilot.app.screen_stack) == 1
        await pilot.press("ctrl+n")
        await dialog_of(pilot)
        await pilot.press("escape")
        await closed(pilot)
        assert pilot.app.focused is line or line.has_focus_within
        monkeypatch.setattr("postroom.tui.needs.bar.QUIET", 3600.0)
        app_of(pilot).look("sidebar")
        await pilot.press("down")
        await coder.asks(OTHER)
        await until(pilot, lambda: shows(pilot, "2 wait"))
        assert len(pilot.app.screen_stack) == 1


@pytest.mark.requirement("attach-answers")
async def test_a_key_that_was_meant_for_something_else_decides_nothing(
    shared: TaskRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(dialog, "GUARD", 3600.0)
    async with working(shared, tmp_path) as coder, app_on(coder, opens=True) as pilot:
        await coder.asks()
        await until(pilot, lambda: shows(pilot, "y allow"))
        await pilot.press("y", "d", "e", "escape")
        await pilot.click("#key-allow")
        await pilot.pause()
        shown = pilot.app.screen
        assert isinstance(shown, ApprovalDialog)
        assert shown.phase is Phase.ASK
        assert await state_of(coder) == "pending"
        shown._guarded_until = 0.0
        await pilot.press("y")
        assert (await coder.decided())["state"] == "allowed"


@pytest.mark.requirement("approval-first-answer-wins")
async def test_what_is_answered_elsewhere_says_by_whom_and_goes(
    shared: TaskRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with opened(shared, tmp_path) as (coder, pilot):
        monkeypatch.setattr(dialog, "GUARD", 0.0)
        await coder.decide("denied")
        await until(pilot, lambda: shows(pilot, "denied by @maria over cli"))
        await pilot.press("y")
        await closed(pilot)
        monkeypatch.setattr(dialog, "SHOWN", 0.05)
        await ask_another(coder, pilot)
        gone = {"type": "control_response", "request": OTHER, "decision": "withdrawn"}
        await coder.report(gone | {"channel": "agent"})
        await closed(pilot)


@pytest.mark.requirement("approval-first-answer-wins")
async def test_an_answer_that_comes_too_late_says_who_was_first_and_an_agent_gives_none(
    shared: TaskRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with opened(shared, tmp_path) as (coder, pilot):
        with monkeypatch.context() as patched:
            patched.setenv("CLAUDECODE", "1")
            await pilot.press("y")
            await until(pilot, lambda: shows(pilot, "is for people", "Claude Code"))
            assert await state_of(coder) == "pending"
        monkeypatch.setattr(NeedsBar, "on_snapshot", lambda *_: None)
        await coder.decide("denied")
        await pilot.press("y")
        await until(pilot, lambda: shows(pilot, "too late: denied by @maria over cli"))


async def test_the_pin_is_asked_for_each_time_and_a_wrong_one_says_how_many_tries_are_left(
    shared: TaskRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(pins._COST, "n", 2)
    async with opened(shared, tmp_path) as (coder, pilot):
        assert (await coder.room.api.put("/v1/pin", json={"pin": PIN})).status_code == 200
        try:
            await pilot.press("y")
            await until(pilot, lambda: isinstance(pilot.app.screen, PinDialog))
            await pilot.press("escape")
            await until(pilot, lambda: shows(pilot, "nothing was decided"))
            for request in (REQUEST, OTHER):
                await dialog_of(pilot, request)
                await pilot.press("y")
                await until(pilot, lambda: isinstance(pilot.app.screen, PinDialog))
                await pilot.press(*"0815", "enter")
                await until(pilot, lambda: shows(pilot, "more tries"))
                assert "0815" not in screen_text(pilot.app)
                await pilot.press(*PIN, "enter")
                assert (await coder.decided(request))["state"] == "allowed"
                await closed(pilot)
                if request == REQUEST:
                    await ask_another(coder, pilot)
        finally:
            cleared = await coder.room.api.put("/v1/pin", json={"pin": "", "old": PIN})
            assert cleared.status_code == 200


async def test_the_next_one_follows_an_answer_and_keys_go_from_one_to_the_other(
    shared: TaskRoom, tmp_path: Path
):
    async with opened(shared, tmp_path) as (coder, pilot):
        await coder.asks(OTHER, tool="Edit", input={"file_path": "a.py"})
        await until(pilot, lambda: shows(pilot, "1 of 2"))
        await pilot.press("right")
        await dialog_of(pilot, OTHER)
        await until(pilot, lambda: shows(pilot, "2 of 2", "asks to use Edit"))
        await pilot.press("left_square_bracket")
        await dialog_of(pilot)
        await pilot.press("y")
        await dialog_of(pilot, OTHER)
        assert await state_of(coder) == "allowed"
        assert await state_of(coder, OTHER) == "pending"
        await until(pilot, lambda: shows(pilot, "1 of 1"))


async def test_always_says_what_it_will_allow_writes_the_rule_and_says_where(
    shared: TaskRoom, tmp_path: Path
):
    async with opened(shared, tmp_path, input={"command": "make test"}) as (coder, pilot):
        await pilot.press("a")
        await until(pilot, lambda: shows(pilot, "without asking for exactly this: make test"))
        line = pilot.app.screen.query_one("#pattern", Input)
        assert (line.value, line.has_focus) == ("Bash(make test)", True)
        line.value = "*"
        await pilot.press("enter")
        await until(pilot, lambda: shows(pilot, "would allow every tool"))
        assert await state_of(coder) == "pending"
        line.value = "Bash(make *)"
        await until(pilot, lambda: shows(pilot, "where it fits make *"))
        await pilot.press("enter")
        assert (await coder.decided())["state"] == "allowed"
        await until(pilot, lambda: shows(pilot, "postroom policy @coder --remove 'Bash(make *)'"))
        rules = (await coder.room.api.get(f"/v1/workers/{coder.uid}/policy")).json()
        assert [each["pattern"] for each in rules["added"]] == ["Bash(make *)"]
        await pilot.press("space")
        await closed(pilot)
        await ask_another(coder, pilot)
        assert shows(pilot, "a always", "not by a rule: it has characters that do not show")
        assert pilot.app.screen.query_one("#key-always").disabled
        await pilot.press("a")
        assert await state_of(coder, OTHER) == "pending"


@pytest.mark.requirement("autonomy-set")
@pytest.mark.requirement("approval-pin-demanded")
async def test_one_key_and_enter_allow_all_until_the_task_ends_and_the_pin_is_asked_for(
    shared: TaskRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(pins._COST, "n", 2)
    async with working(shared, tmp_path) as coder, app_on(coder, opens=True) as pilot:
        task = (await coder.room.delegate("@coder", "fix it"))["id"]
        await coder.hand.take(task)
        await coder.asks(task=task)
        await dialog_of(pilot)
        assert (await coder.room.api.put("/v1/pin", json={"pin": PIN})).status_code == 200
        try:
            await pilot.press("A")
            await until(pilot, lambda: shows(pilot, "Until this task ends it asks for nothing"))
            await pilot.press("y", "escape", "A", "enter")
            await until(pilot, lambda: isinstance(pilot.app.screen, PinDialog))
            assert await state_of(coder) == "pending"
            await pilot.press(*PIN, "enter")
            answer = (await coder.decided())["answer"]
            assert (answer["decision"], answer["channel"]) == ("allowed", "screen")
        finally:
            cleared = await coder.room.api.put("/v1/pin", json={"pin": "", "old": PIN})
            assert cleared.status_code == 200
        rules = (await coder.room.api.get(f"/v1/workers/{coder.uid}/policy")).json()
        assert [(each["autonomy"], each["task"]) for each in rules["autonomy"]] == [("all", task)]
        await closed(pilot)
        await ask_another(coder, pilot)  # in no task
        assert pilot.app.screen.query_one("#key-all").disabled
        await pilot.press("A", "enter")
        assert await state_of(coder, OTHER) == "pending"


@pytest.mark.requirement("approval-edit-plain")
async def test_a_command_is_edited_as_a_command_and_not_at_all_where_the_agent_takes_none(
    shared: TaskRoom, tmp_path: Path
):
    async with opened(shared, tmp_path, input={"command": "a\nb", "n": 1}) as (coder, pilot):
        await pilot.press("e")
        area = pilot.app.screen.query_one(TextArea)
        assert area.text == "a\nb"
        area.load_text("c")
        await pilot.press("ctrl+s")
        answer = (await coder.decided())["answer"]
        assert (answer["decision"], answer["input"]) == ("edited", {"command": "c", "n": 1})
        await closed(pilot)
        await ask_another(coder, pilot, fixed=True)
        found = await dialog_of(pilot, OTHER)
        assert not found.query_one("#key-edit").display
        await pilot.press("e")
        assert found.phase is Phase.ASK


async def test_the_screen_for_approvals_opens_the_first_or_says_that_nothing_waits(
    shared: TaskRoom, tmp_path: Path
):
    async with working(shared, tmp_path) as coder:
        async with app_on(coder, needs=True) as pilot:
            await until(pilot, lambda: shows(pilot, "nothing waits for you"))
            app_of(pilot).post_message(NeedChosen("dead" * 4))
            await until(pilot, lambda: shows(pilot, "waits for no answer any more"))
            await coder.asks()  # the screen may not know of it yet
            app_of(pilot).post_message(NeedChosen(REQUEST))
            await dialog_of(pilot)
        async with app_on(coder, needs=True) as pilot:
            await dialog_of(pilot)
