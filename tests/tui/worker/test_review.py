"""Reading a diff: marks, and comments that go to the agent as one message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from postroom.protocol.shapes import Difference, Merge
from postroom.tui.app import PostroomApp
from postroom.tui.news import Target
from postroom.tui.rowlog.byrow import ByRow
from postroom.tui.worker import acts
from tests.control.taskroom import TaskRoom
from tests.tui.conftest import Doing, app_on, screen_text, until, working
from tests.tui.worker.test_merging import agreed, keys, shows

pytestmark = pytest.mark.anyio

ONE = (
    "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,3 @@\n kept\n+\x1b[31mnew\n end\n"
)
OTHER = "diff --git a/b.py b/b.py\n--- a/b.py\n+++ b/b.py\n@@ -1 +1 @@\n-old\n+better\n"


def difference(text: str, **workspace: Any) -> Difference:
    return {
        "worker": "coder",
        "workspace": {"path": "/app", "mode": "worktree", "branch": "postroom/coder", **workspace},
        "text": text,
        "cut": False,
        "files": 2,
        "commits": 2,
        "tree": "",
        "left": [],
        "command": "git merge postroom/coder",
    }


def place(pilot: Pilot[Any]) -> tuple[str, int]:
    return pilot.app.screen.query_one(ByRow).place


async def opened(
    pilot: Pilot[int], coder: Doing, monkeypatch: pytest.MonkeyPatch, found: Difference
) -> PostroomApp:
    app = pilot.app
    assert isinstance(app, PostroomApp)

    async def diff(_: str) -> Difference:
        return found

    monkeypatch.setattr(app.client, "diff", diff)
    acts.open_diff(app, Target("coder", coder.uid))
    await until(pilot, lambda: "+better" in screen_text(app))
    return app


@pytest.mark.requirement("screen-review")
async def test_comments_on_lines_and_files_reach_the_agent_as_one_message_with_places(
    shared: TaskRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with working(shared, tmp_path) as coder, app_on(coder, size=(80, 24)) as pilot:
        app = await opened(pilot, coder, monkeypatch, difference(ONE + OTHER))
        assert "W send" not in keys(pilot)
        await pilot.press("home", *["down"] * 5)
        await until(pilot, lambda: place(pilot) == ("file 0", 5))
        await pilot.press("w", *"why new", "enter")
        await shows(pilot, "» why new")
        await shows(pilot, "1 comment not sent: W sends")
        await pilot.press("right_square_bracket", "w", *"a test", "enter")
        await shows(pilot, "2 comments not sent")
        # On the same line again: it is changed, and without text it goes.
        await pilot.press("w", *"!", "enter")
        await shows(pilot, "» a test!")
        await pilot.press("w", "escape")
        # Left and come back to: they wait.
        await pilot.press("escape", "escape")
        await until(pilot, lambda: len(app.screen_stack) == 1)
        acts.open_diff(app, Target("coder", coder.uid))
        await shows(pilot, "2 comments not sent")
        await until(pilot, lambda: "W send" in keys(pilot))
        await pilot.press("W")
        assert "a.py:2, b.py" in await shows(pilot, "send 2 comments to @coder?")
        await agreed(pilot)
        await shows(pilot, "sent to @coder: 2 comments")
        await until(pilot, lambda: "W send" not in keys(pilot))
        (mail,) = await app.client.chat(coder.uid)
        text = "".join(part.get("text", "") for part in mail["parts"])
        said = ("Comments on your changes:\n\na.py:2\n    +", "new\nwhy new\n\nb.py\na test!")
        assert text.startswith(said[0])
        assert text.endswith(said[1])
        assert "\x1b" not in text
        assert "\x1b" not in screen_text(app)


@pytest.mark.requirement("screen-review")
async def test_a_mark_stays_while_the_change_is_the_same(
    shared: TaskRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with working(shared, tmp_path) as coder, app_on(coder, size=(80, 24)) as pilot:
        found = difference(ONE + OTHER)
        app = await opened(pilot, coder, monkeypatch, found)
        await pilot.press("home", "v")
        await shows(pilot, "✓ seen diff --git a/a.py")
        await shows(pilot, "1 of 2 files seen")
        assert " kept" not in screen_text(app)  # folded
        assert place(pilot)[0] == "file 1"
        found["text"] = ONE + OTHER.replace("better", "best")
        await pilot.press("v", "ctrl+r")
        await until(pilot, lambda: "+best" in screen_text(app))
        await shows(pilot, "1 of 2 files seen")
        found["text"] = ONE.replace("new", "newer") + OTHER.replace("better", "best")
        await pilot.press("ctrl+r")
        await until(pilot, lambda: "newer" in screen_text(app))
        assert "seen" not in screen_text(app).replace("v seen", "")
        await pilot.press("home", "v", "home", "v")
        await until(pilot, lambda: "files seen" not in screen_text(app))


async def test_keys_that_can_do_nothing_are_not_there(
    shared: TaskRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with working(shared, tmp_path) as coder, app_on(coder, size=(120, 24)) as pilot:
        found = difference(ONE + OTHER, onto="main", behind=2, ahead=1)
        await opened(pilot, coder, monkeypatch, found)
        await until(pilot, lambda: "m merge" in keys(pilot))
        for key in ("s sync", "v seen", "w comment", "e editor", "D discard"):
            assert key in keys(pilot)
        assert "undo" not in keys(pilot)
        found["workspace"] |= {"behind": 0, "ahead": 0, "merged": "main", "mode": "direct"}
        await pilot.press("ctrl+r")
        await until(pilot, lambda: "u undo merge" in keys(pilot))
        assert not any(key in keys(pilot) for key in ("m merge", "sync", "discard"))


@pytest.mark.requirement("workspace-merge-undone")
async def test_a_merge_that_does_not_count_yet_stands_below_the_files_and_is_no_file(
    shared: TaskRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    text = "diff --cc a.txt\n@@@ -1,1 -1,1 +1,1 @@@\n- theirs\n -mine\n++both\x1b[31m\n"
    merge: Merge = {"commit": "d", "onto": "c", "before": "b", "text": text, "cut": False}
    found: Difference = {**difference(ONE + OTHER), "command": "", "merge": merge}
    async with working(shared, tmp_path) as coder, app_on(coder, size=(100, 40)) as pilot:
        await opened(pilot, coder, monkeypatch, found)
        await shows(pilot, "its agent's merge does not count yet: postroom task sync @coder")
        assert "m merge" not in keys(pilot)
        await pilot.press("end", "v", "w", "e")
        await shows(pilot, "++both")
