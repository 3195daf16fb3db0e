"""The screen in a real terminal: what a person sees and types, at three sizes; and what agents cannot do to it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path

import pytest

from postroom_a2a.task_state import TaskState
from tests.cli.conftest import LIMIT, command, environment
from tests.control.taskroom import TaskRoom
from tests.tui.conftest import Doing, working
from tests.tui.real.console import TMUX, Console, in_pyte, in_tmux, left, shows

pytestmark = pytest.mark.anyio

SIZES = [(40, 20), (80, 24), (160, 50)]
OPEN = "\x1b[?1049h"
DIALOG, BORDER = " of 1 · @coder asks", "▕"
RESTORED = (b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?1000l", b"\x1b[?2004l")
"""The normal screen, the cursor, no mouse reports, no marked pastes."""


@pytest.fixture
async def coder(shared: TaskRoom, tmp_path: Path) -> AsyncGenerator[Doing]:
    async with working(shared, tmp_path, "site") as one:
        yield one


async def allows(coder: Doing, console: Console) -> None:
    """A person sees that something is asked, opens it, allows it, and leaves."""
    await shows(console, lambda text: "ctrl-n: @coder asks" in text)
    console.type("n")
    await shows(console, lambda text: "make deploy" in text and "allow" in text)
    await asyncio.sleep(0.6)  # what is pressed as a dialog opens is not for it
    console.type("y")
    answer = (await coder.decided())["answer"]
    assert (answer["decision"], answer["channel"]) == ("allowed", "screen")
    await shows(console, lambda text: DIALOG not in text)
    console.type("q")
    await left(console)


async def leaves(console: Console) -> None:
    """From the line back to the list, and away: a key right behind Esc is a key."""
    console.type("\x1bq")
    await left(console)


@pytest.mark.parametrize("columns, lines", SIZES)
async def test_an_approval_is_answered_by_one_key_and_the_terminal_is_as_before(
    coder: Doing, columns: int, lines: int
):
    await coder.asks()
    async with in_pyte("--state", str(coder.state), columns=columns, lines=lines) as console:
        await allows(coder, console)
        for sequence in RESTORED:
            assert console.raw.rfind(sequence) > console.raw.rfind(OPEN.encode())


@pytest.mark.slow
@pytest.mark.skipif(TMUX is None, reason="tmux is not installed")
@pytest.mark.parametrize("columns, lines", SIZES)
async def test_the_same_in_tmux(coder: Doing, tmp_path: Path, columns: int, lines: int):
    await coder.asks()
    words = ("--state", str(coder.state))
    async with in_tmux(tmp_path, *words, columns=columns, lines=lines) as console:
        await allows(coder, console)


async def test_a_terminal_that_changes_its_size_shows_what_fits(coder: Doing):
    await coder.report({"type": "text", "text": "I read the file."})
    words = ("--state", str(coder.state), "attach", "@coder")
    async with in_pyte(*words, columns=160, lines=50) as console:
        await shows(console, lambda text: "I read the file." in text and "#site" in text)
        console.resize(40, 20)
        await shows(console, lambda text: text.startswith("@") and BORDER not in text)
        console.resize(160, 50)
        await shows(console, lambda text: "I read the file." in text and "#site" in text)


HOSTILE = (
    "\x1b]0;EVIL\x07",
    "\x1b]2;EVIL\x1b\\",
    "\x1b]52;c;RVZJTA==\x07",
    "\x1b]8;;https://evil.example\x1b\\EVIL\x1b]8;;\x1b\\",
    "\x1b]9;EVIL\x07",
    "\x1b]777;notify;EVIL;EVIL\x07",
    "\x1b]1337;File=EVIL:RVZJTA==\x07",
    "\x1bP+q45\x1b\\",
    "\x1b_EVIL\x1b\\",
    "\x1b^EVIL\x1b\\",
    "\x1bXEVIL\x1b\\",
    "\x1b[6n",
    "\x1b[21t",
    "\x1b[3;31;41mEVIL",
    "\x1b[5;5HEVIL",
    "\x1b[4;7r",
    "\x1b[?1003l",
    "\x1bc",
    "\x9b31mEVIL",
    "\x9d0;EVIL\x9c",
    "\x0e\x0f\x05\x07\x0b\x0c",
)
"""What each of these would do: a title, the clipboard, links, notices, files, questions, places, modes, a reset."""

HIDDEN = "a\u202eb\u2066c\u200bd\u200de\ufefff\u2028g\U000e0041h"
MARKUP = "[bold red]EVIL[/] [@click=app.quit]x[/] [link=https://evil.example]y[/] $error {0} %s"


@pytest.mark.requirement("text-controls-stripped")
async def test_no_text_of_an_agent_does_anything_to_the_terminal(coder: Doing):
    evil = "".join(HOSTILE) + HIDDEN + MARKUP
    task = (await coder.room.delegate("coder", f"do {evil}"))["id"]
    await coder.hand.take(task)
    await coder.hand.say(task, TaskState.WORKING, f"progress {evil}")
    await coder.room.api.post("/v1/projects/site/posts", json={"text": f"post {evil}"})
    await coder.report(
        {"type": "text", "text": f"said {evil}"},
        {"type": "tool_call", "call": "1", "tool": f"T{evil}", "title": evil, "input": {"a": evil}},
        {"type": "tool_result", "call": "1", "status": "error", "output": evil},
        {"type": "error", "text": evil, "code": evil},
    )
    await coder.asks(tool=f"T{evil}", title=evil, input={"command": f"make deploy {evil}"})
    words = ("--state", str(coder.state), "attach", "@coder")
    async with in_pyte(*words, columns=160, lines=50) as console:
        await shows(console, lambda text: "progress EVIL" in text and "ctrl-n: @coder asks" in text)
        console.type("\x0e")
        await shows(console, lambda text: DIALOG in text)
        await asyncio.sleep(0.6)
        console.type("\x1b")
        await shows(console, lambda text: DIALOG not in text)
        console.type("i/join #site\r")
        await shows(console, lambda text: "#site>" in text and "post EVIL" in text)
        console.type("hello\r")
        await shows(console, "] hello")
        found = [one for one in HOSTILE if one.encode() in console.raw]
        plain = "\n".join(console.lines())
        await leaves(console)

    assert found == []
    assert "EVIL" not in console.screen.title
    assert not {"\u202e", "\u2066", "\u200b", "\ufeff", "\u2028"} & set(plain)


UP = ("up", "--detach", "--port", "0", "--nats-port", "0")


async def postroom(state: Path, *words: str, typed: str = "") -> None:
    """Run a command to its end."""
    run = partial(subprocess.run, env=environment(), input=typed, text=True, check=True)
    line = command("--state", str(state), *words)
    await asyncio.to_thread(run, line, stdout=subprocess.DEVNULL, timeout=LIMIT)


def pid_of(state: Path) -> int:
    return json.loads((state / "server.json").read_text())["pid"]


async def test_the_screen_waits_for_a_killed_post_room_and_goes_on_where_it_was(tmp_path: Path):
    await postroom(tmp_path, *UP)
    try:
        words = ("--state", str(tmp_path), "chat", "#main")
        async with in_pyte(*words, columns=120, lines=30) as console:
            await shows(console, lambda text: "you are @" in text)
            os.kill(pid_of(tmp_path), signal.SIGKILL)
            await shows(console, "the post room is down")
            await postroom(tmp_path, *UP)
            await postroom(tmp_path, "chat", "#main", typed="said meanwhile\n")
            await shows(console, "said meanwhile")
            console.type("ihere I am\r")
            await shows(console, "] here I am")
            await shows(console, lambda text: "is down" not in text)
            await leaves(console)
    finally:
        await postroom(tmp_path, "down")


@pytest.mark.requirement("screen-opens")
async def test_who_leaves_waits_for_no_answer_of_a_post_room_that_gives_none(tmp_path: Path):
    await postroom(tmp_path, *UP)
    try:
        async with in_pyte("--state", str(tmp_path), "chat", "#main") as console:
            await shows(console, lambda text: "you are @" in text)
            os.kill(pid_of(tmp_path), signal.SIGSTOP)
            console.type("i/who\r\x11")
            await asyncio.to_thread(console.process.wait, 5.0)
            assert console.process.returncode == 0
    finally:
        os.kill(pid_of(tmp_path), signal.SIGCONT)
        await postroom(tmp_path, "down")


async def test_sigterm_gives_the_terminal_back_and_a_terminal_that_is_gone_ends_the_process(
    coder: Doing,
):
    async with in_pyte("--state", str(coder.state)) as console:
        await shows(console, "nothing needs you")
        console.process.terminate()
        await left(console)
        assert all(each in console.raw for each in RESTORED)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup leaves it to the program
    try:
        async with in_pyte("--state", str(coder.state)) as console:
            await shows(console, "nothing needs you")
            console.hang_up()
            await asyncio.to_thread(console.process.wait, LIMIT)
    finally:
        signal.signal(signal.SIGHUP, before)
