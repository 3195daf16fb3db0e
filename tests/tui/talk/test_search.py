"""Search in everything that was said."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from postroom.tui.talk.search import Search
from tests.control.taskroom import TaskRoom
from tests.tui.conftest import until
from tests.tui.talk.said import looking

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("mail-search-own")
async def test_a_stranger_finds_yesterdays_conversation_and_opens_it_there(
    shared: TaskRoom, tmp_path: Path
):
    async with looking(shared, tmp_path) as (coder, screen):
        yesterday = time.time() - 86400
        await coder.write("the parser fails on umlauts", at=yesterday)
        await coder.write_all(f"noise {n}." for n in range(110))
        await screen.look(coder.target)
        assert not any("umlauts" in row for row in screen.rows)
        await screen.pilot.press("F")
        await screen.shows("said last, the newest first", "noise 109.")
        await screen.pilot.press(*"Umlauts", "enter")
        day = time.strftime("%Y-%m-%d", time.localtime(yesterday))
        text = await screen.shows("1 found", "@coder → @maria: the parser fails on")
        assert day in text
        await screen.pilot.press("enter")
        await until(screen.pilot, lambda: not isinstance(screen.app.screen, Search))
        await screen.shows("[coder] the parser fails on umlauts", "noise 0.")
        await screen.has("noise 109.")
        # Nobody has read the first of the noise; what stands below them is not new.
        marks = [at for at, row in enumerate(screen.rows) if "── new" in row]
        assert ["noise 0." in screen.rows[at + 1] for at in marks] == [True]
        assert "umlauts" in screen.text  # what came then did not move it


@pytest.mark.requirement("mail-search-own")
async def test_posts_are_found_too_and_what_is_not_there_is_said(shared: TaskRoom, tmp_path: Path):
    async with looking(shared, tmp_path, "web") as (coder, screen):
        await coder.post("web", "release on friday")
        await screen.look(coder.target)
        screen.talk.open_search("FRIDAY release")
        await screen.shows("@maria → #web: release on friday")
        await screen.pilot.press("tab", "enter")
        await screen.shows("#web", "[maria] release on friday")
        screen.talk.open_search("nobodysaidthis")
        await screen.shows("nothing that was said has “nobodysaidthis”")
        await screen.pilot.press("escape")
        await until(screen.pilot, lambda: not isinstance(screen.app.screen, Search))


@pytest.mark.slow
async def test_messages_of_others_are_shown_whole_where_they_are_found(
    shared: TaskRoom, tmp_path: Path
):
    async with looking(shared, tmp_path) as (coder, screen):
        other = await coder.room.worker("otto")
        await coder.write_to(other.uid, "line one\nline two of otto")
        await screen.look(coder.target)
        screen.talk.open_search("otto")
        await screen.shows("@coder → @otto: line one line two of otto")
        await screen.pilot.press("tab", "enter")
        await screen.shows("[coder] line one", "    line two of otto", "not with you")
