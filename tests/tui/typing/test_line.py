"""The line in which the person types, on a real screen."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual import events
from textual.pilot import Pilot

from postroom.tui.app import PostroomApp
from postroom.tui.news import Target
from postroom.tui.typing.history import History
from postroom.tui.typing.line import SaidLine, TypingLine
from tests.control.taskroom import TaskRoom
from tests.tui.conftest import app_on, doing, screen_text, until, working

pytestmark = pytest.mark.anyio


def app_of(pilot: Pilot[int]) -> PostroomApp:
    assert isinstance(pilot.app, PostroomApp)
    return pilot.app


def line_of(pilot: Pilot[int]) -> TypingLine:
    return pilot.app.screen_stack[0].query_one(TypingLine)


def names_worker(pilot: Pilot[int], nick: str) -> bool:
    """Whether the screen knows of it."""
    app = app_of(pilot)
    if app.link is not None:
        app.link.refresh()
    return app.room is not None and app.room.worker(nick) is not None


def asks(pilot: Pilot[int], ref: str) -> bool:
    """Whether the screen knows of that approval."""
    room = app_of(pilot).room
    return room is not None and room.approval(ref) is not None


async def typed(pilot: Pilot[int], text: str) -> None:
    """Type a text; the keys are real."""
    line_of(pilot).focus()
    names = {" ": "space", "/": "slash", "@": "at", "#": "number_sign", "-": "minus"}
    await pilot.press(*(names.get(char, char) for char in text))


async def test_commands_and_nicks_complete_by_tab(shared: TaskRoom, tmp_path: Path) -> None:
    async with working(shared, tmp_path) as coder, app_on(coder) as pilot:
        await doing(shared, tmp_path, "critic")
        await until(pilot, lambda: names_worker(pilot, "critic"))

        await typed(pilot, "/sto")
        await until(pilot, lambda: "Stop a worker; its inbox" in screen_text(pilot.app))
        await pilot.press("tab")
        assert line_of(pilot).text == "/stop "

        await pilot.press("tab")
        assert line_of(pilot).text == "/stop @c"
        await pilot.press("tab", "tab")
        assert line_of(pilot).text == "/stop @critic"


async def test_what_cannot_be_done_stays_in_the_line_and_says_why(
    shared: TaskRoom, tmp_path: Path
) -> None:
    async with working(shared, tmp_path) as coder, app_on(coder) as pilot:
        await typed(pilot, "/stpo x")
        await pilot.press("enter")

        await until(pilot, lambda: "did you mean /stop?" in screen_text(pilot.app))
        assert line_of(pilot).text == "/stpo x"


@pytest.mark.requirement("screen-said-once")
async def test_an_error_of_the_post_room_gives_the_text_back(
    shared: TaskRoom, tmp_path: Path
) -> None:
    async with working(shared, tmp_path) as coder, app_on(coder) as pilot:
        await typed(pilot, "/msg @nobody hi")
        await pilot.press("enter")

        await until(pilot, lambda: line_of(pilot).text == "/msg @nobody hi")
        said = pilot.app.screen_stack[0].query_one(SaidLine).kept
        assert [bad for _, _, bad in said] == [True]
        assert "nobody" in said[0][1]


async def test_a_message_reaches_its_agent(shared: TaskRoom, tmp_path: Path) -> None:
    async with working(shared, tmp_path) as coder, app_on(coder) as pilot:
        await typed(pilot, "/msg @coder are you there?")
        await pilot.press("enter")

        await until(pilot, lambda: "sent to @coder" in screen_text(pilot.app))
        await until(pilot, lambda: "conversation with @coder" in screen_text(pilot.app))
        await until(pilot, lambda: "are you there?" in screen_text(pilot.app))
        chats = (await coder.room.api.get("/v1/chats/coder/messages")).json()["messages"]
        assert [mail["text"] for mail in chats] == ["are you there?"]
        assert line_of(pilot).text == ""


async def test_who_writes_to_a_session_that_is_gone_is_told_so(
    shared: TaskRoom, tmp_path: Path
) -> None:
    async with working(shared, tmp_path) as coder, app_on(coder) as pilot:
        api = coder.room.api
        made = await api.post("/v1/sessions", json={"client": "claude", "key": "k", "nick": "app"})
        try:
            await api.put("/v1/sessions/app", json={"state": "gone"})
            await typed(pilot, "/msg @app are you there?")
            await pilot.press("enter")
            await until(pilot, lambda: "@app is gone: it gets this when" in screen_text(pilot.app))
            await until(pilot, lambda: "conversation with @app" in screen_text(pilot.app))
            pilot.app.query_one(SaidLine).say("other")
            await typed(pilot, "again")
            await pilot.press("enter")
            await until(pilot, lambda: "@app is gone: it gets this when" in screen_text(pilot.app))
        finally:
            await api.delete(f"/v1/sessions/{made.json()['uid']}")


async def test_a_pasted_text_is_one_message_of_several_lines(
    shared: TaskRoom, tmp_path: Path
) -> None:
    async with working(shared, tmp_path) as coder, app_on(coder) as pilot:
        line = line_of(pilot)
        line.focus()
        await pilot.pause()
        line.post_message(events.Paste("/msg @coder one\rtwo\x1b[2J\r\nthree\r" + "x\r" * 9))
        await until(pilot, lambda: "three" in line.text)

        assert line.size.height == 5
        assert "\x1b" not in line.text
        await pilot.press("enter")
        await until(pilot, lambda: "sent to @coder" in screen_text(pilot.app))
        chats = (await coder.room.api.get("/v1/chats/coder/messages")).json()["messages"]
        assert chats[-1]["text"].startswith("one\ntwo[2J\nthree\nx\n")


async def test_history_comes_back_by_up_and_search(shared: TaskRoom, tmp_path: Path) -> None:
    history = History(tmp_path / "typed")
    for text in ("deploy it", "what is new"):
        history.add(text)
    async with (
        working(shared, tmp_path) as coder,
        app_on(coder, history=History(tmp_path / "typed")) as pilot,
    ):
        await typed(pilot, "dep")
        await pilot.press("up", "up")
        assert line_of(pilot).text == "deploy it"
        await pilot.press("down", "down")
        assert line_of(pilot).text == "dep"
        await pilot.press("ctrl+r")
        assert line_of(pilot).text == "deploy it"
        await pilot.press("escape")
        assert line_of(pilot).text == "dep"


async def test_esc_leaves_the_line_and_its_text_stays(shared: TaskRoom, tmp_path: Path) -> None:
    async with working(shared, tmp_path) as coder, app_on(coder) as pilot:
        await typed(pilot, "not yet")
        await pilot.press("escape")

        await until(pilot, lambda: not line_of(pilot).has_focus)
        assert line_of(pilot).text == "not yet"
        await pilot.press("i")
        await until(pilot, lambda: line_of(pilot).has_focus)


async def test_without_somebody_chosen_a_text_is_kept(shared: TaskRoom, tmp_path: Path) -> None:
    async with working(shared, tmp_path) as coder, app_on(coder) as pilot:
        await until(pilot, lambda: app_of(pilot).target)
        app_of(pilot).target = None
        await typed(pilot, "hello")
        await pilot.press("enter")

        await until(pilot, lambda: "nobody is chosen yet" in screen_text(pilot.app))
        assert line_of(pilot).text == "hello"


async def test_an_approval_is_answered_by_a_command_which_is_for_people(
    shared: TaskRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with working(shared, tmp_path) as coder, app_on(coder) as pilot:
        await typed(pilot, "/deny e1e1 not today")  # who types is not interrupted by a dialog
        await coder.asks("e1" * 8)  # an id that no other test asks under
        await until(pilot, lambda: asks(pilot, "e1e1"))
        with monkeypatch.context() as patched:
            patched.setenv("CLAUDECODE", "1")
            await pilot.press("enter")
            await until(pilot, lambda: "is for people" in screen_text(pilot.app))
            await until(pilot, lambda: line_of(pilot).text)
        assert (await coder.approval("e1" * 8))["state"] == "pending"
        await pilot.press("enter")

        done = await coder.decided("e1" * 8)
        assert (done["state"], done["answer"]["reason"]) == ("denied", "not today")
        await until(pilot, lambda: "denied e1e1e1e1 of @coder" in screen_text(pilot.app))


async def test_letters_are_text_while_one_types_and_keys_elsewhere(
    shared: TaskRoom, tmp_path: Path
) -> None:
    async with (
        working(shared, tmp_path) as coder,
        app_on(coder, start=Target("coder", coder.uid)) as pilot,
    ):
        await typed(pilot, "qn1?")
        assert line_of(pilot).text == "qn1?"
        await pilot.press("escape", "question_mark")
        await until(pilot, lambda: "keys and commands" in screen_text(pilot.app))


async def test_what_is_typed_while_a_line_is_taken_is_not_lost(
    shared: TaskRoom, tmp_path: Path
) -> None:
    async with working(shared, tmp_path) as coder, app_on(coder) as pilot:
        line = line_of(pilot)
        await typed(pilot, "/who")
        line.action_submit()
        line.insert(" next")
        await until(pilot, lambda: line.text != "/who next")
        assert line.text == " next"
        await until(pilot, lambda: "@coder offline" in screen_text(pilot.app))


async def test_a_text_goes_to_whom_one_looks_at_and_slashes_may_begin_it(
    shared: TaskRoom, tmp_path: Path
) -> None:
    async with (
        working(shared, tmp_path) as coder,
        app_on(coder, start=Target("coder", coder.uid)) as pilot,
    ):
        await until(pilot, lambda: app_of(pilot).target)
        await typed(pilot, "//stop is a command")
        await pilot.press("enter", *"hi", "enter")

        async def texts() -> list[str]:
            chats = await coder.room.api.get("/v1/chats/coder/messages")
            return [mail["text"] for mail in chats.json()["messages"]]

        await until(pilot, lambda: "hi" in screen_text(pilot.app).split("@coder>")[0])
        assert (await texts())[-2:] == ["/stop is a command", "hi"]


async def test_keys_that_come_all_at_once_are_taken_in_their_order(
    shared: TaskRoom, tmp_path: Path
) -> None:
    async with working(shared, tmp_path) as coder, app_on(coder) as pilot:
        await until(pilot, lambda: names_worker(pilot, "coder"))
        special = {"/": "slash", "\r": "enter", "\t": "tab", " ": "space", "\x15": "ctrl+u"}
        for char in "inot\x15/stpo yes\r":
            pilot.app.post_message(events.Key(special.get(char, char), char))

        await until(pilot, lambda: "did you mean /stop?" in screen_text(pilot.app))
        assert line_of(pilot).text == "/stpo yes"
        assert len(pilot.app.screen_stack) == 1

        line_of(pilot).begin("")
        await pilot.press("ctrl+u")
        for char in "/msg @code\thello\r":
            pilot.app.post_message(events.Key({"@": "at"}.get(char, special.get(char, char)), char))
        await until(pilot, lambda: "sent to @coder" in screen_text(pilot.app))
        chats = (await coder.room.api.get("/v1/chats/coder/messages")).json()["messages"]
        assert chats[-1]["text"] == "hello"


@pytest.mark.parametrize("key, letter", [("alt+n", "n"), ("alt+shift+f", "F")])
async def test_a_letter_right_behind_escape_is_a_key_and_no_text(
    shared: TaskRoom, tmp_path: Path, key: str, letter: str
):
    async with working(shared, tmp_path) as coder, app_on(coder) as pilot:
        line = line_of(pilot)
        app_of(pilot).look("talk")
        await pilot.press("i", "h")
        # So Textual reads Esc and a letter that come together, which may be Alt with the letter, too.
        pilot.app.post_message(events.Key(key, letter))
        await until(pilot, lambda: not line.has_focus)
        if letter == "F":
            await until(pilot, lambda: "search" in screen_text(pilot.app))
        await pilot.pause()
        assert line.text == "h"
