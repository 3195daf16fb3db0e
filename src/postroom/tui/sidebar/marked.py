"""What a person does to several marked rows at once, after one question that names them all."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from postroom.client.answering import decided
from postroom.client.belonging import refuse_agents
from postroom.errors import PinPaused, PinRequired, PinWrong, PostroomError
from postroom.lines.approvals import asked_rows
from postroom.lines.inputs import visible
from postroom.lines.rows import Row, Style, broken
from postroom.tui.dialogs import Confirm, with_pin
from postroom.tui.looks import text_of
from postroom.tui.news import CHANNEL, Said
from postroom.tui.port import started
from postroom.view.tasks import short
from postroom.view.words import address
from postroom.view.workspaces import counted
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.client.http import AsyncClient
    from postroom.protocol.shapes import Approval
    from postroom.tui.news import Target
    from postroom.tui.port import ScreenPort
    from postroom.view.needs import Need

WIDTH, AROUND = 60, 8
"""Columns of a request in a question, and columns and lines of the terminal that are left to other things."""

PINS = (PinRequired, PinWrong, PinPaused)


@dataclass(frozen=True, slots=True)
class Act:
    """Something that is done to workers.

    Attributes:
        done: does it to the worker of a uid, with a PIN.
        word: what is said of it then.
        sentence: what will happen.
    """

    done: Callable[[AsyncClient, str, str], Awaitable[Any]]
    word: str
    sentence: str


ACTS = {
    "stop": Act(
        lambda client, uid, _: client.stop(uid),
        "stopped",
        "Their programs are ended now; their inboxes keep what comes, and open tasks wait.",
    ),
    "restart": Act(
        lambda client, uid, pin: client.restart(uid, pin=pin),
        "restarted",
        "Their programs are ended and started anew with the templates that they have.",
    ),
    "interrupt": Act(
        lambda client, uid, _: client.interrupt(uid, channel="attach"),
        "told to end their turns:",
        "Their turns end; what they have done stays.",
    ),
    "remove": Act(
        lambda client, uid, _: client.remove(uid),
        "removed",
        "They are stopped and have no address any more; their open tasks will fail. Their files stay.",
    ),
}
"""What can be done to several workers at once."""


@started
async def act(
    app: ScreenPort, name: str, targets: Sequence[Target], then: Callable[[], None]
) -> None:
    """Do one of `ACTS` to workers, after a question; `then` where it was done."""
    what, names = ACTS[name], ", ".join(one_line(str(target)) for target in targets)
    title = f"{name} {counted(len(targets), 'worker')}"
    if not await app.push_screen_wait(Confirm(title, names, what.sentence)):
        return
    calls = {one_line(str(each)): partial(what.done, app.client, each.uid) for each in targets}
    await _each(app, calls, what.word)
    then()


@started
async def decide(
    app: ScreenPort, decision: str, needs: Sequence[Need], then: Callable[[], None]
) -> None:
    """Answer approvals, `allowed` or `denied`, after a question that shows each of them whole."""
    client, now = app.client, time.time()
    refuse_agents("approve")
    found = [await client.approval(need.id, worker=need.worker) for need in needs]
    waits = [each for each in found if each["state"] == "pending"]
    rows = [row for each in waits for row in _rows(each, now)]
    columns, lines = min(WIDTH, app.size.width - AROUND), app.size.height - AROUND
    if sum(len(broken(row, columns)) for row in rows) > lines:
        said = "they do not fit on the screen, and nothing is decided unseen: n opens one after the other"
        app.post_message(Said(said, bad=True))
        return
    verb = "allow" if decision == "allowed" else "deny"
    title = f"{verb} {counted(len(waits), 'request')}"
    if not waits or not await app.push_screen_wait(Confirm(title, text_of(rows))):
        return

    async def answered(asked: Approval, pin: str) -> str:
        return await decided(
            client, asked["worker"]["uid"], asked["id"], decision, pin=pin, channel=CHANNEL
        )

    calls = {
        f"{short(each['id'])} of {address(each['worker'])}": partial(answered, each)
        for each in waits
    }
    await _each(app, calls, decision)
    then()


def _rows(asked: Approval, now: float) -> list[Row]:
    head = Row.of(f"{address(asked['worker'])} {visible(asked['tool'])}", Style.STRONG)
    return [head, *asked_rows(asked, now)]


async def _each(
    app: ScreenPort, calls: Mapping[str, Callable[[str], Awaitable[Any]]], word: str
) -> None:
    """Do all of them, and say what came of it; one that fails hinders no other."""
    left = dict(calls)
    done: list[str] = []
    wrong: list[str] = []

    async def go(pin: str) -> None:
        for name in list(left):
            try:
                await left[name](pin)
            except PINS:
                raise
            except PostroomError as error:
                wrong.append(f"{name}: {one_line(error.message, 200)}")
            else:
                done.append(name)
            del left[name]

    await with_pin(app, go)
    said = [f"{word} {', '.join(done)}"] if done else []
    app.post_message(Said("\n".join([*said, *wrong]), bad=bool(wrong)))
