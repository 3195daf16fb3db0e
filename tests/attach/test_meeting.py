"""The two ends of a terminal: a sidecar that does not come, and one that brings a reason instead of a shell."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from postroom.control import terminals
from postroom.control.terminals import OpenTerminal
from postroom.protocol.principal import USUAL_SCOPES, Principal
from postroom.protocol.terminals import FrameKind, frame
from tests.control.doing import away, working
from tests.control.taskroom import TaskRoom

pytestmark = pytest.mark.anyio

TEMPLATE = '[worker]\nname="x"\n[workstation]\ncommand=["true"]\n[sidecar]\n'


@pytest.mark.requirement("terminal-one-at-a-time")
async def test_a_person_whose_sidecar_does_not_come_gets_an_error_and_may_try_again(
    shared: TaskRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(terminals, "MEET", 0.3)
    async with working(shared, tmp_path) as coder:
        await coder.room.worker("deaf", template=TEMPLATE)
        for _ in range(2):  # the first has left no terminal open
            with coder.terminal("attach", "--raw", "@deaf") as terminal:
                assert await away(terminal.ended) == 9
            assert "the worker has not opened a terminal within 0.3 s" in terminal.plain
            assert "postroom logs" in terminal.plain


@pytest.mark.requirement("terminal-one-at-a-time")
async def test_the_reason_of_a_sidecar_that_has_no_shell_is_told_as_harmless_text():
    holder = Principal("h-1", "default", "ann", "human", USUAL_SCOPES, "key")
    terminal = OpenTerminal("w-1", holder, 0.0)

    async def body() -> AsyncGenerator[bytes]:
        yield frame(FrameKind.DATA, b"$ ")
        yield frame(FrameKind.FAILED, b"execd has gone\x1b[2J\nroot\xff")

    await terminal.take_printed(body())
    assert [piece async for piece in terminal.output()] == [b"$ "]
    assert terminal.status is None
    assert terminal.reason.startswith("it is broken: execd has gone")
    assert terminal.reason.isprintable()
