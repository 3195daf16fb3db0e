"""When the command line opens the screen, on what, and what a person sees where it does not."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from postroom.tui import running as application
from postroom.tui.news import Target
from tests.cli.conftest import spawned
from tests.cli.terminal import Terminal
from tests.control.doing import Doing, away, working
from tests.control.taskroom import TaskRoom

pytestmark = pytest.mark.anyio

SWITCHED = "\x1b[?1049h"
"""A program has taken the whole terminal."""

BACK = "\x1b[?1049l"


@pytest.fixture
async def coder(shared: TaskRoom, tmp_path: Path) -> AsyncGenerator[Doing]:
    async with working(shared, tmp_path, "indigo") as coder:
        yield coder


def screen(coder: Doing, *words: str, **more: Any) -> Terminal:
    """A command that may open the screen."""
    return coder.terminal(*words, screen=True, **more)


@pytest.mark.requirement("screen-opens")
async def test_postroom_alone_in_a_terminal_opens_the_screen_and_leaving_it_gives_the_terminal_back(
    coder: Doing,
):
    with screen(coder) as terminal:
        await away(lambda: terminal.read_until("leave"))
        assert SWITCHED in terminal.text
        terminal.type("\x11")
        assert await away(terminal.ended) == 0
        assert BACK in terminal.text


class Opened:
    """In place of the screen: what it was opened on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.with_: list[dict[str, Any]] = []

        def run(_: object, **arguments: Any) -> int:
            self.with_.append(arguments)
            return 0

        monkeypatch.setattr(application, "run", run)
        monkeypatch.setattr("postroom.cli.screen.in_terminal", lambda: True)


@pytest.mark.requirement("screen-opens")
@pytest.mark.parametrize(
    "words, start, needs",
    [
        ((), None, False),
        (("chat", "#indigo"), "#indigo", False),
        (("chat", "@coder"), "@coder", False),
        (("attach", "@coder"), "@coder", False),
        (("attach", "coder"), "@coder", False),
        (("approvals",), None, True),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
async def test_a_command_opens_the_screen_on_what_it_names(
    coder: Doing,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    start: str | None,
    needs: bool,
):
    from postroom.cli.root import run

    opened = Opened(monkeypatch)
    status = await away(lambda: run(["--state", str(coder.state), "--no-mouse", *words]))
    assert status == 0
    (found,) = opened.with_
    target: Target | None = found["start"]
    assert (str(target) if target else None, found["needs"], found["mouse"]) == (
        start,
        needs,
        False,
    )
    if start == "@coder":
        assert target is not None
        assert target.uid == coder.uid


@pytest.mark.requirement("screen-opens")
@pytest.mark.parametrize(
    "words",
    [
        ("--no-tui", "approvals"),
        ("approvals", "--no-tui"),
        ("approvals", "--history"),
        ("approvals", "--json"),
        ("attach", "@coder", "--json", "--history", "0"),
        ("chat", "#indigo", "--history", "3"),
        ("chat", "@coder", "--wait", "seen"),
        ("chat", "#indigo", "--posts"),
    ],
    ids=" ".join,
)
async def test_an_option_of_the_line_mode_keeps_the_lines(
    coder: Doing, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
):
    from postroom.cli.root import run

    opened = Opened(monkeypatch)
    monkeypatch.setattr("postroom.cli.chat.attached.Session.run", lambda *_: None)
    monkeypatch.setattr("postroom.cli.chat.conversation.Conversation.run", lambda *_: None)
    assert await away(lambda: run(["--state", str(coder.state), *words])) == 0
    assert opened.with_ == []


async def test_the_environment_refuses_the_screen_as_the_option_does(
    coder: Doing, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    from postroom.cli.root import run

    opened = Opened(monkeypatch)
    monkeypatch.setenv("POSTROOM_NO_TUI", "1")
    assert await away(lambda: run(["--state", str(coder.state), "approvals"])) == 0
    assert run(["--state", str(coder.state)]) == 2
    assert "Usage: postroom" in capfd.readouterr().err
    monkeypatch.setenv("POSTROOM_NO_TUI", "0")
    assert opened.with_ == []
    assert await away(lambda: run(["--state", str(coder.state), "approvals"])) == 0
    assert len(opened.with_) == 1


@pytest.mark.requirement("one-word-starts")
@pytest.mark.parametrize("kind", ["pipe", "dumb"])
async def test_where_no_screen_can_be_shown_postroom_prints_its_help(tmp_path: Path, kind: str):
    if kind == "pipe":
        done = spawned(["--state", str(tmp_path)])
        status, said = done.status, done.err
        assert done.out == ""
        assert not list(tmp_path.iterdir())
    else:
        with Terminal("--state", str(tmp_path), screen=True, TERM="dumb") as terminal:
            status, said = terminal.ended(), terminal.plain
    assert status == 2
    assert "Usage: postroom" in said


@pytest.mark.requirement("one-word-starts")
async def test_in_continuous_integration_no_post_room_is_started_and_what_starts_it_is_said(
    tmp_path: Path,
):
    with Terminal("--state", str(tmp_path), screen=True, columns=300, CI="true") as terminal:
        assert terminal.ended() == 3
        assert terminal.plain.splitlines() == [
            f"postroom: no post room runs on {tmp_path}",
            f"  try: postroom --state {tmp_path} up --detach",
        ]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words, said",
    [
        (("chat", "#nowhere", "--new", "--url", "local"), ""),
        (("attach", "@nobody"), "nobody"),
        (("chat", "@nobody"), "nobody"),
    ],
    ids=["new project", "attach", "chat"],
)
async def test_what_is_not_there_is_said_before_the_screen_opens(
    coder: Doing,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    said: str,
):
    from postroom.cli.root import run

    opened = Opened(monkeypatch)
    status = await away(lambda: run(["--state", str(coder.state), *words]))
    if not said:
        assert status == 0
        assert str(opened.with_[0]["start"]) == "#nowhere"
        return
    assert status == 4
    assert opened.with_ == []
    assert said in capfd.readouterr().err
