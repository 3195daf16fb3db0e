"""A person who looks elsewhere is called when something new needs them, and at no other time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.events import AppBlur, AppFocus

from postroom.tui import notify
from postroom.tui.notify import LONGEST, Notices, Way, harmless, said, sequence
from postroom.view.needs import Need, NeedKind
from tests.control.doing import away
from tests.control.taskroom import TaskRoom
from tests.tui.conftest import app_on, screen_text, until, working

if TYPE_CHECKING:
    from postroom.tui.app import PostroomApp

pytestmark = pytest.mark.anyio

HOSTILE = "\x1b]0;x\x07\x1b[2J;\x9b31m\x9d9;a\x9c\u202eevil\u200b\nnext\r;9;4;1;50\x1b\\"
CALLED = "\x1b]9;Postroom: @coder"


def need(id_: str, text: str = "Bash: make deploy", nick: str = "coder") -> Need:
    return Need(NeedKind.APPROVAL, id_, "u", nick, text)


def room(*needs: Need) -> Any:
    return SimpleNamespace(needs=needs)


class Person:
    """Somebody at a terminal, with a clock that a test moves."""

    def __init__(self, way: Way = Way.OSC9) -> None:
        self.written: list[str] = []
        self.called = asyncio.Event()
        self.now = self.pressed = 1000.0
        self.notices = Notices(
            way,
            self.write,
            pressed_at=lambda: self.pressed,
            environment={"TERM": "xterm"},
            now=lambda: self.now,
        )
        self.after(60)

    def write(self, sequence: str) -> None:
        self.written.append(sequence)
        self.called.set()

    def after(self, seconds: float) -> None:
        self.now += seconds

    def sees(self, *ids: str) -> None:
        self.notices.see(room(*map(need, ids)))

    @property
    def calls(self) -> int:
        return len(self.written)


# ── when ─────────────────────────────────────────────────────────────────────────────────────────


def test_what_was_there_when_the_screen_opened_and_what_is_seen_again_calls_nobody():
    person = Person()
    for ids in (("a", "b"), ("a", "b"), ("b",), ()):
        person.sees(*ids)
        person.after(60)
    assert person.calls == 0
    person.sees("c")
    assert person.calls == 1


@pytest.mark.requirement("screen-calls")
def test_nobody_is_called_who_is_there():
    person = Person()
    person.sees()
    person.pressed = person.now
    person.sees("a")  # this terminal has never told of its focus, and a key was just pressed
    assert person.calls == 0
    person.notices.focus(False)
    person.sees("a", "b")
    assert person.calls == 1
    person.after(60)
    person.notices.focus(True)
    person.sees("a", "b", "c")
    person.notices.focus(False)
    person.sees("a", "b", "c")
    assert person.calls == 1


@pytest.mark.requirement("screen-calls")
async def test_what_comes_in_quick_succession_calls_once_and_later_for_what_still_waits(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(notify, "GAP", 0.05)
    person = Person()
    person.sees()
    for ids in ("a", "ab", "abc", "abcd", "acd", "cd"):
        person.sees(*ids)  # b was answered before there was a second call
    assert person.calls == 1
    person.after(60)
    person.called.clear()
    async with asyncio.timeout(5.0):
        await person.called.wait()
    assert person.written[1].endswith("(and 1 more)\x07")


async def test_what_is_answered_before_the_later_call_calls_nobody(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(notify, "GAP", 0.01)
    person = Person()
    person.sees()
    person.sees("a")
    person.sees("a", "b")
    person.sees()
    person.after(60)
    await asyncio.sleep(0.05)
    assert person.calls == 1
    person.notices.close()


def test_who_wants_no_call_gets_none():
    person = Person(Way.OFF)
    person.sees()
    person.sees("a")
    assert person.calls == 0


# ── what ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "way, environment, written",
    [
        (Way.OFF, {"TERM": "xterm"}, ""),
        (Way.BELL, {"TERM": "xterm"}, "\x07"),
        (Way.BELL, {"TERM": "tmux-256color", "TMUX": "/tmp/x,1,0"}, "\x07"),
        (Way.OSC9, {"TERM": "xterm"}, "\x1b]9;Postroom: text\x07"),
        (Way.OSC777, {"TERM": "foot"}, "\x1b]777;notify;Postroom;text\x07"),
        (
            Way.OSC9,
            {"TERM": "screen-256color", "TMUX": "/tmp/x,1,0"},
            "\x1bPtmux;\x1b\x1b]9;Postroom: text\x07\x1b\\\x07",
        ),
        (
            Way.OSC777,
            {"TERM": "tmux-256color"},
            "\x1bPtmux;\x1b\x1b]777;notify;Postroom;text\x07\x1b\\\x07",
        ),
        (Way.OSC9, {"TERM": "screen"}, "\x07"),
        (Way.OSC777, {"TERM": "linux"}, "\x07"),
    ],
)
def test_each_terminal_gets_what_it_understands(
    way: Way, environment: dict[str, str], written: str
):
    assert sequence(way, "text", environment) == written


def test_the_first_need_is_told_with_how_many_more_there_are():
    assert said([need("a")]) == "@coder Bash: make deploy"
    assert said([need("a"), need("b"), need("c")]) == "@coder Bash: make deploy (and 2 more)"
    assert said([need("a", "3 dead letters", nick="")]) == "3 dead letters"


def check(text: str) -> None:
    """One field of printable characters: nothing in it ends it."""
    assert ";" not in text
    assert "\n" not in text
    assert text.isprintable()
    assert len(text) <= LONGEST


@pytest.mark.requirement("screen-calls")
@pytest.mark.parametrize("text", [HOSTILE, "a;b", "\x07\x07", "x" * 9000, "é漢字 ok"])
def test_no_text_of_an_agent_ends_a_notification_or_begins_another(text: str):
    check(harmless(text))
    for environment in ({"TERM": "xterm"}, {"TMUX": "1"}):
        for way, fields in ((Way.OSC9, 1), (Way.OSC777, 3)):
            written = sequence(way, said([need("a", text)]), environment)
            empty = sequence(way, "", environment)
            assert [written.count(c) for c in "\x1b\x07"] == [empty.count(c) for c in "\x1b\x07"]
            assert written.count(";") == fields + ("TMUX" in environment)


@given(st.text(max_size=200))
def test_no_text_at_all_does(text: str):
    check(harmless(text))


# ── on the screen ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("screen-calls")
async def test_the_screen_calls_for_a_new_need_unless_the_terminal_has_the_focus(
    shared: TaskRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(notify, "GAP", 0.0)
    written: list[str] = []
    async with working(shared, tmp_path) as coder, app_on(coder, notify=Way.BELL) as pilot:
        app = cast("PostroomApp", pilot.app)
        await until(pilot, lambda: "@coder" in screen_text(app))
        monkeypatch.setattr(app, "terminal", SimpleNamespace(write=written.append))
        await coder.asks("aa" * 8)
        await until(pilot, lambda: "\x07" in written)
        app.post_message(AppFocus())
        await coder.asks("bb" * 8)
        await until(pilot, lambda: app.room is not None and len(app.room.approvals) == 2)
        app.post_message(AppBlur())
        await coder.asks("cc" * 8)
        await until(pilot, lambda: written.count("\x07") > 1)
        assert written.count("\x07") == 2


@pytest.mark.requirement("screen-calls")
async def test_in_a_real_terminal_a_notification_comes_between_the_frames(
    shared: TaskRoom, tmp_path: Path
):
    env: Any = {"POSTROOM_NOTIFY": "osc9", "TERM": "xterm-256color", "TMUX": ""}
    async with working(shared, tmp_path) as coder:
        with coder.terminal(screen=True, **env) as terminal:
            await away(lambda: terminal.read_until("@coder"))
            terminal.type("\x1b[O")  # the focus is elsewhere
            await coder.asks("dd" * 8, input={"command": "make deploy; echo"})
            await away(lambda: terminal.read_until(CALLED))
            await away(lambda: terminal.read_until("\x07"))
            told = terminal.text.partition(CALLED)[2].partition("\x07")[0]
            assert told == " Bash: make deploy, echo"
