"""The work of a worker from its diff into the branch of a person: real workers in real repositories, by keys alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from postroom.tui.app import PostroomApp
from postroom.tui.dialogs import Confirm
from postroom.tui.news import Target
from postroom.tui.worker import acts
from tests.e2e.conftest import PostRoom, running_room
from tests.tui.conftest import app_on, screen_text, until
from tests.workspaces.bench import QUIET, git, repository
from tests.workspaces.test_room import spawn, task

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def room() -> Iterator[PostRoom]:
    with running_room(**QUIET) as room:
        yield room


def app_of(pilot: Pilot[Any]) -> PostroomApp:
    assert isinstance(pilot.app, PostroomApp)
    return pilot.app


@asynccontextmanager
async def diff_of(room: PostRoom, nick: str) -> AsyncGenerator[Pilot[int]]:
    """The screen with what a worker changed."""
    uid = room.worker(nick)["uid"]
    async with app_on(room.state, size=(80, 24)) as pilot:
        acts.open_diff(app_of(pilot), Target(nick, uid))
        await until(pilot, lambda: "changed, " in screen_text(pilot.app))
        yield pilot


def flat(pilot: Pilot[Any]) -> str:
    return " ".join(screen_text(pilot.app).split())


async def shows(pilot: Pilot[Any], said: str) -> str:
    """All that is shown, in one line, once `said` is in it."""
    await until(pilot, lambda: said in flat(pilot))
    return flat(pilot)


async def agreed(pilot: Pilot[Any]) -> None:
    """The question is read, and `y` pressed."""
    await until(pilot, lambda: isinstance(pilot.app.screen, Confirm))
    asked = pilot.app.screen
    assert isinstance(asked, Confirm)
    asked.guarded_until = 0.0
    await pilot.press("y")


def keys(pilot: Pilot[Any]) -> str:
    """The line of keys."""
    return screen_text(pilot.app).rsplit("\n", 1)[-1]


@pytest.mark.requirement("workspace-merge-undone")
async def test_a_merge_says_first_where_it_goes_and_one_key_takes_it_back(
    room: PostRoom, tmp_path: Path
):
    app = repository(tmp_path / "app")
    spawn(room, "merger", "--workspace", str(app))
    await asyncio.to_thread(task, room, "merger", "echo two >> a.txt; git commit -qam second")
    before = git(app, "rev-parse", "HEAD")
    async with diff_of(room, "merger") as pilot:
        await until(pilot, lambda: "m merge" in keys(pilot))
        assert "undo" not in keys(pilot)
        (app / "a.txt").write_text("mine\n")
        await pilot.press("m")
        await shows(pilot, "it cannot be merged now")
        assert "has uncommitted changes" in await shows(pilot, "commit or stash them")
        git(app, "checkout", "a.txt")
        await pilot.press("m")
        shown = await shows(pilot, "merge postroom/merger into main?")
        assert f"would be merged into main, now at {before[:12]}" in shown
        assert "none of your hooks runs" in shown
        assert (app / "a.txt").read_text() == "one\n"
        await agreed(pilot)
        await shows(pilot, f"it was at {before[:12]}")
        await until(pilot, lambda: "u undo merge" in keys(pilot))
        assert (app / "a.txt").read_text() == "one\ntwo\n"
        assert "m merge" not in keys(pilot)
        await pilot.press("u")
        await shows(pilot, f"is at {before[:12]} again")
        await until(pilot, lambda: "m merge" in keys(pilot))
        assert "undo" not in keys(pilot)
        assert (app / "a.txt").read_text() == "one\n"
        # The same from the line, for the worker that is named.
        await pilot.press("escape")
        await until(pilot, lambda: len(pilot.app.screen_stack) == 1)
        await pilot.press("i", "slash", *"apply @merger", "enter")
        await shows(pilot, "merge postroom/merger into main?")
        await agreed(pilot)
        await shows(pilot, "merged postroom/merger into main")
        await pilot.press("slash", *"apply --undo @merger", "enter")
        await shows(pilot, f"is at {before[:12]} again")
    assert git(app, "rev-parse", "HEAD") == before


@pytest.mark.requirement("workspace-merge-undone")
async def test_what_a_worker_does_after_the_look_is_shown_before_it_is_merged(
    room: PostRoom, tmp_path: Path
):
    app = repository(tmp_path / "app")
    spawn(room, "goeson", "--workspace", str(app))
    await asyncio.to_thread(task, room, "goeson", "echo two >> a.txt")
    async with diff_of(room, "goeson") as pilot:
        await until(pilot, lambda: "m merge" in keys(pilot))
        await asyncio.to_thread(task, room, "goeson", "echo evil >> a.txt")
        await pilot.press("m")
        await shows(pilot, "it has gone on since")
        await shows(pilot, "+evil")
        await pilot.press("m")
        await shows(pilot, "merge postroom/goeson into main?")
        await asyncio.to_thread(task, room, "goeson", "echo worse >> a.txt")
        await agreed(pilot)
        await shows(pilot, "has gone on since it was shown: nothing was merged")
    assert (app / "a.txt").read_text() == "one\n"
    tree = room.json("task", "apply", "@goeson")["tree"]
    room.run("task", "apply", "@goeson", "--merge", "--tree", tree)
    assert (app / "a.txt").read_text() == "one\ntwo\nevil\nworse\n"


@pytest.mark.requirement("workspace-sync")
async def test_one_key_brings_a_worker_up_to_date_and_what_conflicts_is_offered_to_its_agent(
    room: PostRoom, tmp_path: Path
):
    app = repository(tmp_path / "app")
    spawn(room, "syncer", "--workspace", str(app))
    await asyncio.to_thread(task, room, "syncer", "echo mine > b.txt; git add .; git commit -qm b")
    async with diff_of(room, "syncer") as pilot:
        await until(pilot, lambda: "m merge" in keys(pilot))
        assert "s sync" not in keys(pilot)
        commit(app, "c.txt")
        await pilot.press("ctrl+r")
        await until(pilot, lambda: "s sync" in keys(pilot))
        await pilot.press("s")
        await shows(pilot, "@syncer has 1 commit more of main")
        await until(pilot, lambda: "s sync" not in keys(pilot))
        commit(app, "b.txt")
        await pilot.press("ctrl+r")
        await until(pilot, lambda: "s sync" in keys(pilot))
        await pilot.press("s")
        shown = await shows(pilot, "let @syncer resolve 1 conflict?")
        assert "Nothing was changed: b.txt conflicts with its work." in shown
        await agreed(pilot)
        await shows(pilot, "@syncer joins both: /task ")


def commit(app: Path, name: str) -> None:
    (app / name).write_text("theirs\n")
    git(app, "add", ".")
    git(app, "commit", "-qm", name)


@pytest.mark.requirement("screen-review")
async def test_a_file_opens_whole_in_the_editor_and_a_discarded_worker_leaves_its_branch(
    room: PostRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    app = repository(tmp_path / "app")
    (app / "long.txt").write_text("".join(f"{number}\n" for number in range(100)))
    commit(app, "other.txt")
    spawn(room, "leaver", "--workspace", str(app))
    await asyncio.to_thread(task, room, "leaver", "echo more >> long.txt; git commit -qam more")
    (editor := tmp_path / "editor").write_text(f'#!/bin/sh\ncp "$1" {tmp_path}/shown; ls -l "$1"\n')
    editor.chmod(0o755)
    monkeypatch.setenv("VISUAL", str(editor))
    async with diff_of(room, "leaver") as pilot:
        monkeypatch.setattr(pilot.app, "suspend", nullcontext)
        await until(pilot, lambda: "e editor" in keys(pilot))
        await pilot.press("e")
        await shows(pilot, "that was a copy of long.txt as @leaver has it")
        shown = (tmp_path / "shown").read_text()
        assert shown == (app / "long.txt").read_text() + "more\n"
        await pilot.press("D")
        shown = await shows(pilot, "discard @leaver?")
        assert "What it did stays on the branch" in shown
        assert "-D postroom/leaver" in shown
        await agreed(pilot)
        await until(pilot, lambda: len(pilot.app.screen_stack) == 1)
        await shows(pilot, "removed @leaver with its files")
    assert git(app, "show", "postroom/leaver:long.txt").endswith("more")
