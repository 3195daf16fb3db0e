"""What opens over the panes: the tree of tasks, one task, a diff; and what is asked before an act."""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import Any

import pytest

from postroom.errors import NotFound
from postroom.protocol import subjects
from postroom.protocol.content import Content
from postroom.protocol.envelope import Envelope, TaskRequest
from postroom.protocol.shapes import Difference
from postroom.protocol.tasks import task_id
from postroom.tui.app import PostroomApp
from postroom.tui.dialogs import Confirm
from postroom.tui.news import Target
from postroom.tui.worker import acts
from postroom.tui.worker.tasks import tree_of
from postroom_a2a.messages import ROLE_USER
from postroom_a2a.task_state import TaskState
from tests.control.taskroom import SECONDS, Hand, TaskRoom
from tests.tui.conftest import Doing, app_on, doing, screen_text, until, working

pytestmark = pytest.mark.anyio


def of(worker: Doing) -> Target:
    return Target(worker.hand.agent.nick, worker.uid)


def app_of(pilot: Any) -> PostroomApp:
    return pilot.app


async def delegated(room: TaskRoom, asker: Hand, to: Hand, text: str, cause: str = "") -> str:
    """A task that a worker asks of another, as its sidecar does."""
    made = secrets.token_hex(16)
    message = Content.of_text(text).referring(cause).message(made, ROLE_USER)
    now = time.time()
    envelope = Envelope(made, to.uid, message, now, expects_reply=True, request=TaskRequest())
    subject = subjects.inbox(to.uid, asker.uid)
    stored = await asker.bus.publish(subject, envelope.encode(), id=made)
    assert stored is not None
    await room.parts.fold.reached("INBOX", stored.sequence, SECONDS)
    return task_id(to.uid, asker.uid, made)


async def at_work(worker: Hand, task: str) -> None:
    await worker.take(task)
    await worker.say(task, TaskState.WORKING, attempt=1)


@pytest.mark.requirement("screen-task-tree")
async def test_the_tree_goes_up_to_the_first_requester_and_down_to_all_that_was_caused(
    shared: TaskRoom, tmp_path: Path
):
    async with working(shared, tmp_path) as coder:
        lead, tester = (
            (await doing(shared, tmp_path, "lead")).hand,
            await doing(shared, tmp_path, "tester"),
        )
        ship = (await shared.delegate("@lead", "ship it"))["id"]
        other = (await shared.delegate("@lead", "something else"))["id"]
        await at_work(lead, ship)
        write = await delegated(shared, lead, coder.hand, "write it", ship)
        await delegated(shared, lead, coder.hand, "for another task", other)
        await at_work(coder.hand, write)
        test = await delegated(shared, coder.hand, tester.hand, "test it")
        async with app_on(coder, size=(100, 24)) as pilot:
            found = await tree_of(app_of(pilot).client, write)
            edges = [(node.task["text"], node.guessed) for node in found.all()]
            assert edges == [("ship it", False), ("write it", False), ("test it", True)]
            acts.open_tree(app_of(pilot), of(coder))
            await until(pilot, lambda: "test it" in screen_text(pilot.app))
            shown = screen_text(pilot.app)
            assert "@maria asked" in shown
            assert "for another task" not in shown
            assert "only the time says" in shown
            await at_work(tester.hand, test)
            await tester.hand.say(test, TaskState.COMPLETED, "all green")
            await until(pilot, lambda: "all green" in screen_text(pilot.app))
            await pilot.press("enter")
            await until(pilot, lambda: f"task {write} working" in screen_text(pilot.app))
            # From any task, also from one that its worker is not at any more.
            await pilot.press("t")
            await until(pilot, lambda: f"task {write[:8]}: who gave" in screen_text(pilot.app))
            await until(pilot, lambda: "all green" in screen_text(pilot.app))
            await pilot.press("escape", "escape", "escape")
            await until(pilot, lambda: len(pilot.app.screen_stack) == 1)
            await pilot.press("i", "slash", *f"tree {test[:8]}", "enter")
            await until(pilot, lambda: f"task {test[:8]}: who gave" in screen_text(pilot.app))
            await until(pilot, lambda: "ship it" in screen_text(pilot.app))


DIFF = """diff --git a/src/a.py b/src/a.py
--- a/src/a.py
+++ b/src/a.py
@@ -1,2 +1,2 @@
-old
+new
+\x1b[31mevil\u202e
"""


async def test_a_diff_shows_its_files_what_is_missing_and_how_to_take_it_over(
    shared: TaskRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    found: Difference = {
        "worker": "coder",
        "workspace": {"path": "/home/m/app", "mode": "worktree", "branch": "postroom/coder"},
        "text": DIFF,
        "cut": True,
        "files": 1,
        "commits": 2,
        "tree": "",
        "left": ["a socket"],
        "command": "git merge postroom/coder",
    }
    async with working(shared, tmp_path) as coder, app_on(coder, size=(80, 24)) as pilot:

        async def diff(_: str) -> Difference:
            return found

        monkeypatch.setattr(app_of(pilot).client, "diff", diff)
        acts.open_diff(app_of(pilot), of(coder))
        await until(pilot, lambda: "+new" in screen_text(pilot.app))
        await until(pilot, lambda: "m merges it" in screen_text(pilot.app))
        shown = screen_text(pilot.app)
        for said in (
            "1 file changed, 2 commits on branch postroom/coder",
            "+2 -1 src/a.py",
            "not brought back: a socket",
            "there is more",
            "m merges it; in a shell: git merge postroom/coder",
        ):
            assert said in shown
        assert not set(shown) & set("\x1b\u202e")


async def test_a_worker_without_a_folder_has_no_diff_and_it_says_so(
    shared: TaskRoom, tmp_path: Path
):
    async with working(shared, tmp_path) as coder, app_on(coder, size=(80, 24)) as pilot:
        with pytest.raises(NotFound) as refused:
            await app_of(pilot).client.diff(coder.uid)
        acts.open_diff(app_of(pilot), of(coder))
        start = refused.value.message[:30]
        await until(pilot, lambda: start in screen_text(pilot.app))


async def test_stop_asks_first_and_n_leaves_the_worker_alone(shared: TaskRoom, tmp_path: Path):
    async with working(shared, tmp_path) as coder, app_on(coder, size=(40, 20)) as pilot:
        await until(pilot, lambda: app_of(pilot).room)
        acts.stop(app_of(pilot), of(coder))
        await until(pilot, lambda: "stop @coder?" in screen_text(pilot.app))
        assert "n or Esc: no" in screen_text(pilot.app)
        await pilot.press("n")
        await until(pilot, lambda: len(pilot.app.screen_stack) == 1)
        run = shared.parts.workers.run_of(coder.uid)
        assert run is not None
        assert not run.stopping
        acts.stop(app_of(pilot), of(coder))
        await until(pilot, lambda: isinstance(pilot.app.screen, Confirm))
        asked = pilot.app.screen
        assert isinstance(asked, Confirm)
        asked.guarded_until = float("inf")
        await pilot.press("y")  # meant for something else: nobody has read the question yet
        await pilot.pause()
        assert pilot.app.screen is asked
        asked.guarded_until = 0.0
        await pilot.press("y")
        await until(pilot, lambda: "stopped @coder" in screen_text(pilot.app))
        assert run.stopping


async def test_an_interrupt_is_in_the_history_at_once(shared: TaskRoom, tmp_path: Path):
    async with working(shared, tmp_path) as coder, app_on(coder, size=(80, 24)) as pilot:
        acts.interrupt(app_of(pilot), of(coder), "enough")
        await until(pilot, lambda: "is told to end its turn" in screen_text(pilot.app))
        (event,) = (await shared.api.get(f"/v1/workers/{coder.uid}/sdk-events")).json()["events"]
        assert (event["type"], event["reason"]) == ("interrupt", "enough")


async def test_what_the_post_room_refuses_is_said_and_nothing_breaks(
    shared: TaskRoom, tmp_path: Path
):
    async with working(shared, tmp_path) as coder, app_on(coder, size=(80, 24)) as pilot:
        acts.interrupt(app_of(pilot), Target("nobody", "f" * 32))
        await until(pilot, lambda: "nobody is called" in screen_text(pilot.app))
