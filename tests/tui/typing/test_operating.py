"""What a worker does unasked, and what went wrong, from the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.protocol.alerts import Alert
from postroom.protocol.operations import OPERATIONS
from postroom.tui.typing.commands import BY_NAME, parse
from postroom.tui.typing.completing import complete, known_of, no_paths
from postroom.tui.typing.help import Page
from tests.control.taskroom import TaskRoom
from tests.tui.conftest import app_on, screen_text, until, working
from tests.tui.typing.test_line import app_of, line_of, names_worker, typed

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("screen-types-operating")
async def test_what_a_worker_does_unasked_is_shown_and_changed(shared: TaskRoom, tmp_path: Path):
    async with working(shared, tmp_path) as coder, app_on(coder, size=(80, 24)) as pilot:
        await until(pilot, lambda: names_worker(pilot, "coder"))
        await typed(pilot, "/policy @coder")
        await pilot.press("enter")
        await until(pilot, lambda: "@coder: what it may do unasked" in screen_text(pilot.app))
        assert "everything else" in screen_text(pilot.app)
        await pilot.press("escape")
        line_of(pilot).text = "/policy @coder --allow 'Bash(npm test *)'"
        await pilot.press("enter")
        await until(pilot, lambda: "Bash(npm test *)" in screen_text(pilot.app))
        await until(pilot, lambda: isinstance(pilot.app.screen, Page))
        found = await app_of(pilot).client.policy(coder.uid)
        assert [each["pattern"] for each in found["added"]] == ["Bash(npm test *)"]
        await pilot.press("escape")
        line_of(pilot).text = "/policy @coder --remove 'Bash(npm test *)'"
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, Page))
        found = await app_of(pilot).client.policy(coder.uid)
        assert not found["added"]


@pytest.mark.requirement("screen-types-operating")
async def test_what_went_wrong_is_shown_completed_and_cleared(shared: TaskRoom, tmp_path: Path):
    async with working(shared, tmp_path) as coder, app_on(coder, size=(80, 24)) as pilot:
        await shared.parts.alerts.raise_alert(Alert("strange", "it smells of smoke", coder.uid))
        await until(pilot, lambda: "it smells" in screen_text(pilot.app))
        room = app_of(pilot).room
        assert room is not None
        (alert,) = room.status["alerts"]
        words = [
            each.word
            for each in complete("/alerts clear ", 14, known_of(room, (), no_paths)).candidates
        ]
        assert words == [str(alert["id"])]
        await typed(pilot, "/alerts")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, Page))
        assert "@coder it smells of smoke" in screen_text(pilot.app)
        await pilot.press("escape")
        line_of(pilot).text = "/alerts what"
        await pilot.press("enter")
        await until(pilot, lambda: "what does that mean?" in screen_text(pilot.app))
        line_of(pilot).text = f"/alerts clear {alert['id']}"
        await pilot.press("enter")
        await until(pilot, lambda: "cleared 1 alert" in screen_text(pilot.app))


async def test_what_is_typed_asks_the_operation_that_the_table_of_commands_says(
    shared: TaskRoom, tmp_path: Path
):
    def asked(verb: str) -> float:
        method, route = str(OPERATIONS[BY_NAME[verb].by.split()[0]]["route"]).split(" ")
        (requests, *_) = shared.site.router.metrics.families()
        said = f'method="{method}",route="{route}"'
        return sum(float(line.split()[-1]) for line in requests.lines() if said in line)

    async with working(shared, tmp_path) as coder, app_on(coder) as pilot:
        await until(pilot, lambda: names_worker(pilot, "coder"))
        task = (await shared.delegate("@coder"))["id"]
        for verb, rest in {
            "msg": "@coder hello",
            "delegate": "@coder do it",
            "answer": f"{task} yes",
            "policy": "@coder",
            "alerts": "",
            "tree": task,
            "task": task,
            "diff": "@coder",
            "interrupt": "@coder",
            "file": str(Path(__file__)),
            "search": "hello",
            "join": "#new",
            "who": "",
            "cancel": task,
        }.items():
            before = asked(verb)
            line_of(pilot).text = f"/{verb} {rest}"
            line_of(pilot).focus()
            await pilot.press("enter")
            await until(pilot, lambda verb=verb, before=before: asked(verb) > before)
            while len(pilot.app.screen_stack) > 1:
                await pilot.press("escape")
                await pilot.pause()


def test_apply_takes_a_worker_or_a_task_and_its_option_anywhere():
    for line in ("/apply --undo @coder", "/apply @coder --undo"):
        meant = parse(line)
        assert (meant["nick"], meant["undo"]) == ("@coder", "yes")  # ty: ignore
    assert parse("/apply 1a2b3c")["id"] == "1a2b3c"  # ty: ignore
