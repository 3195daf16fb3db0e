"""Record the way from one word to a merged change: `python -m tools.one_word` writes docs/one-word.svg, for README.md.

It is `postroom` in the clone of a project, in a pseudo-terminal of 80x24 with an empty home, by keys alone: a real post
room, and the real Claude Code in its sandbox. The model behind the gateway is scripted. Its address, of this machine
and as wide as the usual one, is replaced by that in the picture, and the folder by /home/maria.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import AsyncGenerator, Generator
from itertools import groupby
from pathlib import Path
from typing import Any
from unittest import mock

import pyte
from rich.console import Console
from rich.style import Style
from rich.text import Text

from tests.agents.programs import CLAUDE, installed
from tests.e2e.conftest import gone, until
from tests.fakes.model import server
from tests.fakes.model.script import Conversation, Edit, Say, Step, next_step
from tests.templates.machine import link
from tests.tui.real.console import in_pyte, left, shows
from tests.workspaces.bench import repository
from tools.recording import ROOT, film

PICTURE = ROOT / "docs" / "one-word.svg"
HOME, SHOWN_HOME = Path("/tmp/maria0"), "/home/maria"  # noqa: S108 (of that very width, and made anew)
ADDRESS, HOST = "127.0.0.100", "api.anthropic.com"
TASK = "Write hello.py, which says hello"
READ = 0.7
"""Seconds until a moment is whole, and its keys count."""


def scripted(conversation: Conversation) -> Step:
    """What the model does for the task."""
    if not conversation.tools or TASK not in conversation.user:
        return next_step(conversation)
    if not conversation.results:
        return Step(Edit("/workspace/hello.py", 'print("hello")\n'))
    return Step(Say("hello.py says hello when it is run."))


def drawn(screen: pyte.Screen) -> str:
    """What a terminal shows, as SVG."""
    console = Console(
        width=screen.columns,
        file=io.StringIO(),
        record=True,
        force_terminal=True,
        color_system="truecolor",
    )
    for row in range(screen.lines):
        line = Text(no_wrap=True)
        chars = [screen.buffer[row][column] for column in range(screen.columns)]
        for style, same in groupby(chars, _style):
            line.append("".join(char.data for char in same), style)
        console.print(line, crop=True)
    return console.export_svg(title="postroom")


def _style(char: Any) -> Style:
    return Style(
        color=_colour(char.fg),
        bgcolor=_colour(char.bg),
        bold=char.bold,
        underline=char.underscore,
        reverse=char.reverse,
    )


def _colour(name: str) -> str | None:
    if name == "default":
        return None
    if re.fullmatch("[0-9a-f]{6}", name):
        return f"#{name}"
    return name.replace("brown", "yellow").replace("bright", "bright_")


@contextlib.asynccontextmanager
async def reached(port: int) -> AsyncGenerator[int]:
    """The port of `ADDRESS` at which the model is, too."""

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to, back = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pipe(reader, back), pipe(to, writer))

    async with await asyncio.start_server(forward, ADDRESS, 0) as listening:
        yield listening.sockets[0].getsockname()[1]


@contextlib.contextmanager
def home() -> Generator[Path]:
    """An empty home with the clone of a project; the post room that was started from it is ended."""
    HOME.mkdir(mode=0o700)
    try:
        repository(HOME / "app")
        link(HOME / "bin" / "claude", installed(CLAUDE))
        yield HOME
    finally:
        file = HOME / ".state" / "server.json"
        if file.exists():
            pid = json.loads(file.read_text())["pid"]
            os.kill(pid, signal.SIGTERM)
            until(lambda: gone(pid))
        shutil.rmtree(HOME)


async def record(place: Path) -> list[str]:
    """The moments, as SVG."""
    moments: list[str] = []
    with mock.patch.object(server, "next_step", scripted), server.FakeModel() as model:
        async with reached(model.port) as port:
            env = {
                "HOME": str(place),
                "LOGNAME": "maria",
                "CI": "",
                "COLORTERM": "truecolor",
                "PATH": f"{place}/bin:/usr/local/bin:/usr/bin:/bin",
                "POSTROOM_STATE": str(place / ".state"),
                "POSTROOM_HTTP_PORT": "0",
                "POSTROOM_NATS_PORT": "0",
                "POSTROOM_EGRESS_ALLOW_PRIVATE": f"{ADDRESS}:{port}",
                "ANTHROPIC_API_KEY": "a stand-in",
                "ANTHROPIC_BASE_URL": f"http://{ADDRESS}:{port}",
            }
            async with in_pyte(folder=place / "app", env=env) as console:

                async def moment(wanted: str, keys: str) -> None:
                    await shows(console, wanted)
                    await asyncio.sleep(READ)
                    picture = drawn(console.screen)
                    picture = picture.replace(f"{ADDRESS}:{port}", HOST)
                    moments.append(picture.replace(str(place), SHOWN_HOME))
                    console.type(keys)

                await shows(console, "not now")
                console.type(TASK)
                await moment(TASK, "\r")
                await moment("1 of 1", "y")
                await moment("completed", "d")
                await moment("m merges it", "m")
                await moment("y: yes", "y")
                await moment("u undo merge", "\x1b")
                await shows(console, "1 rooms")
                await asyncio.sleep(READ)
                console.type("q")
                await left(console)
    return moments


def main() -> int:
    """Record, and write the picture."""
    with home() as place:
        moments = asyncio.run(record(place))
    title = "From one word to a merged change: postroom in a repository"
    PICTURE.write_text(film(moments, title, still=3), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
