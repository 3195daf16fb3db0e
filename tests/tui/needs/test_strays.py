"""Keys that were meant for something else when a dialog came, changed or went."""

from __future__ import annotations

import asyncio
from pathlib import Path

import anyio
import pytest
from textual.css.query import NoMatches
from textual.worker import WorkerFailed

from postroom.http.unix import bind_unix
from postroom.tui.needs import dialog
from postroom.tui.needs.approval import ApprovalDialog
from postroom.tui.needs.dialog import Phase
from postroom.view.room import Room
from tests.control.taskroom import TaskRoom
from tests.tui.conftest import app_on, until, working
from tests.tui.needs.test_approval import OTHER, app_of, closed, dialog_of, opened, shows, state_of

pytestmark = pytest.mark.anyio


async def test_the_rest_of_a_reason_for_what_is_over_acts_nowhere(
    shared: TaskRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(dialog, "SHOWN", 0.01)
    async with opened(shared, tmp_path) as (coder, pilot):
        shown = await dialog_of(pilot)
        await pilot.press("d", *"no")
        await coder.decide("denied")
        await until(pilot, lambda: shows(pilot, "denied by @maria over cli"))
        shown._guarded_until = 0.0
        await pilot.press(*"xsy")  # below, that would interrupt and stop a worker
        await pilot.pause(0.05)
        assert pilot.app.screen is shown
        await pilot.press("enter")
        await closed(pilot)


@pytest.mark.requirement("attach-answers")
async def test_the_letters_of_a_word_decide_nothing(
    shared: TaskRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with opened(shared, tmp_path) as (coder, pilot):
        monkeypatch.setattr(dialog, "WORD", 3600.0)
        await pilot.press(*"hi yes, please do")
        await pilot.pause(0.05)
        shown = await dialog_of(pilot)
        assert await state_of(coder) == "pending"
        monkeypatch.setattr(dialog, "WORD", 0.0)
        await pilot.press("y")
        assert (await coder.decided())["state"] == "allowed"
        assert not shown.types


async def test_a_key_right_behind_the_one_for_the_next_need_decides_nothing_about_it(
    shared: TaskRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with opened(shared, tmp_path) as (coder, pilot):
        await coder.asks(OTHER)
        await until(pilot, lambda: shows(pilot, "1 of 2"))
        monkeypatch.setattr(dialog, "GUARD", 3600.0)
        await pilot.press("n")

        def shown() -> bool:
            found = pilot.app.screen
            return (
                isinstance(found, ApprovalDialog)
                and found.need.id == OTHER
                and found.phase is Phase.ASK
            )

        await until(pilot, shown)
        await pilot.press("y")
        await pilot.pause(0.05)
        assert await state_of(coder, OTHER) == "pending"
        assert shown()


async def test_an_error_that_nobody_expected_in_the_state_ends_the_screen_with_a_word(
    shared: TaskRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with working(shared, tmp_path) as coder, app_on(coder) as pilot:
        app = app_of(pilot)
        ended: list[Exception] = []
        monkeypatch.setattr(app, "_handle_exception", ended.append)
        link = app.link
        assert link is not None
        await until(pilot, lambda: app.room)

        async def fetch() -> Room:
            raise KeyError("deadletters")  # an earlier version has no such field

        monkeypatch.setattr(link, "_fetch", fetch)
        link.refresh()
        await until(pilot, lambda: ended)
        assert isinstance(ended[0], WorkerFailed)
        assert isinstance(ended[0].error, KeyError)


async def test_an_answer_that_comes_as_its_call_is_cancelled_does_not_end_the_screen(
    shared: TaskRoom, tmp_path: Path
):
    async with working(shared, tmp_path) as coder, app_on(coder) as pilot:
        await until(pilot, lambda: app_of(pilot).room)
        with bind_unix(tmp_path / "door") as listener:
            listener.listen()
            stream = await anyio.connect_unix(tmp_path / "door")
            link, _ = listener.accept()
            call = asyncio.create_task(stream.receive())
            with link:
                await pilot.pause(0.05)
                link.send(b"answer")
                asyncio.get_running_loop().call_soon(call.cancel)
                await asyncio.wait({call})
            await stream.aclose()
        await pilot.pause(0.05)
        assert app_of(pilot).at_work


async def test_a_late_result_for_a_widget_that_went_with_the_screen_is_no_failure(
    shared: TaskRoom, tmp_path: Path
):
    async with working(shared, tmp_path) as coder, app_on(coder) as pilot:
        app = app_of(pilot)
        app.exit()
        app._handle_exception(NoMatches("No nodes match 'RowsView' on ApprovalDialog()"))
    assert app.failure is None
