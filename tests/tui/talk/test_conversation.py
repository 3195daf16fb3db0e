"""The conversation with an agent."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from textual import events

from postroom.errors import PostroomError
from postroom.protocol.receipts import State
from postroom.tui.news import Target
from tests.control.taskroom import TaskRoom
from tests.tui.conftest import until
from tests.tui.talk.said import looking

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("screen-said-once")
async def test_what_is_said_shows_at_once_and_its_state_changes_in_place(
    shared: TaskRoom, tmp_path: Path
):
    async with looking(shared, tmp_path) as (coder, screen):
        await screen.look(coder.target)
        await screen.talk.send("fix the tests")
        await screen.shows("[maria] fix the tests · accepted")
        sent = (await coder.mails())[0]
        await coder.receipt(sent["id"], State.SEEN)
        text = await screen.shows("[maria] fix the tests · seen")
        assert text.count("fix the tests") == 1
        await coder.write("done", reply_to=sent["id"])
        text = await screen.shows("[coder] done", "fix the tests · answered")
        assert text.count("fix the tests") == 1


async def test_a_reply_says_to_what_unless_that_stands_right_above(
    shared: TaskRoom, tmp_path: Path
):
    async with looking(shared, tmp_path) as (coder, screen):
        first = await coder.write("which branch?", expects_reply=True)
        await coder.write("and how soon?")
        await screen.look(coder.target)
        await screen.shows("which branch? · wants an answer", "your next line answers @coder")
        await screen.talk.send("main")
        await screen.shows("(to “which branch?”) main")
        await screen.hides("wants an answer", "your next line answers")
        last = (await coder.mails())[-1]
        assert (last["reply_to"], last["expects_reply"]) == (first, False)
        await coder.write("good", reply_to=last["id"])
        await screen.shows("[coder] good")


async def test_no_text_begins_in_the_first_column_or_forges_a_head(
    shared: TaskRoom, tmp_path: Path
):
    async with looking(shared, tmp_path) as (coder, screen):
        forged = "12:00 [maria] delete it · seen"
        await coder.write(
            f"hello\n{forged}\n\u202e\x1b[2Jred [bold]x[/bold] {'wide ' * 30}{forged}"
        )
        await screen.look(coder.target)
        text = await screen.shows("[bold]x[/bold]")
        assert "\x1b" not in text
        assert "\u202e" not in text
        pane = screen.talk.region
        for line in text.splitlines():
            shown = line[pane.x : pane.right]
            if "12:00" in shown:
                assert shown.lstrip(" │▏").startswith("12:00") is False or shown.startswith("   ")


@pytest.mark.requirement("screen-calls")
async def test_what_is_shown_counts_as_seen_only_before_the_eyes_of_the_person(
    shared: TaskRoom, tmp_path: Path
):
    async with looking(shared, tmp_path) as (coder, screen):
        await screen.look(coder.target)
        screen.app.post_message(events.AppBlur())
        await until(screen.pilot, lambda: not screen.app.app_focus)
        early = await coder.write("are you there?")
        await screen.shows("are you there?")
        assert "── new ──" in screen.text
        assert await coder.state(early) == "accepted"
        screen.app.post_message(events.AppFocus())
        await coder.seen(early)


@pytest.mark.requirement("screen-calls")
async def test_a_hidden_conversation_is_not_seen(shared: TaskRoom, tmp_path: Path):
    async with looking(shared, tmp_path, size=(40, 20)) as (coder, screen):
        await screen.look(coder.target)
        screen.app.look("sidebar")
        await until(screen.pilot, lambda: not screen.talk.is_on_screen)
        told = await coder.write("nobody looks")
        await coder.write("nobody looks still")
        await screen.has("nobody looks still")
        assert await coder.state(told) == "accepted"
        screen.app.look("talk")
        await screen.shows("── new ──", "nobody looks still")
        await coder.seen(told)


async def test_a_long_history_is_read_in_pages_to_its_beginning_without_a_jump(
    shared: TaskRoom, tmp_path: Path
):
    async with looking(shared, tmp_path) as (coder, screen):
        yesterday = time.time() - 86400
        await coder.write_all((f"line {n} of it" for n in range(20)), at=yesterday)
        await coder.write_all(f"line {n} of it" for n in range(20, 130))
        await screen.look(coder.target)
        await screen.shows("line 129 of it")
        for _ in range(60):
            await screen.pilot.press("pageup")
            await screen.pilot.pause()
            if "the beginning of the conversation" in screen.text:
                break
        text = await screen.shows("the beginning of the conversation", "line 0 of it")
        assert text.index("beginning") < text.index("line 0 of it")
        days = time.strftime("%A", time.localtime(yesterday))
        assert f"── {days}, " in text
        said = [row.partition("line ")[2] for row in screen.rows if " of it" in row]
        assert said == [f"{n} of it" for n in range(130)]
        marks = [row for row in screen.rows if "── " in row]
        assert "beginning" in marks[0]
        assert sorted("── new" in mark for mark in marks[1:]) == [False, False, True]


async def test_switching_fast_mixes_nothing_and_each_keeps_its_place(
    shared: TaskRoom, tmp_path: Path
):
    async with looking(shared, tmp_path, "web") as (coder, screen):
        await coder.write_all(f"mail {n}." for n in range(60))
        await coder.post("web", "a post")
        web = Target("web")
        await screen.look(coder.target)
        await screen.pilot.press("pageup", "pageup")
        await screen.pilot.pause()
        before = screen.text
        for _ in range(3):
            screen.talk.show(web)
            screen.talk.show(coder.target)
        await screen.look(web)
        text = await screen.shows("a post")
        assert "[coder] mail" not in text
        await coder.write("while away")
        await screen.look(coder.target)
        await screen.has("while away")
        assert "[coder] mail 59." not in screen.text
        said = r"\[coder\] mail \d+"
        assert re.findall(said, screen.text) == re.findall(said, before)
        assert sum("while away" in row for row in screen.rows) == 1


@pytest.mark.requirement("screen-said-once")
async def test_nothing_is_sent_twice_when_a_line_is_typed_again_after_an_error(
    shared: TaskRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with looking(shared, tmp_path) as (coder, screen):
        await screen.look(coder.target)
        client = screen.app.client
        send = client.send

        async def lost(*words: Any, **more: Any) -> Any:
            await send(*words, **more)
            raise PostroomError("the answer was lost")

        monkeypatch.setattr(client, "send", lost)
        with pytest.raises(PostroomError, match="lost"):
            await screen.talk.send("once")
        monkeypatch.setattr(client, "send", send)
        await screen.talk.send("once")
        await screen.shows("[maria] once · accepted")
        await screen.talk.send("later")
        text = await screen.shows("[maria] later · accepted")
        assert text.count("] once") == 1
        assert [mail["text"] for mail in await coder.mails()] == ["once", "later"]
        await screen.talk.send("once")  # a new line, since that one went
        assert [mail["text"] for mail in await coder.mails()] == ["once", "later", "once"]
