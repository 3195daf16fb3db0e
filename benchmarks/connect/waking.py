"""Mail to a real Claude Code: how soon an idle one asks its model, above an empty wake; where a busy one gets it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from benchmarks.report import Sheet
from benchmarks.room import scratch_folder
from tests.connect.clients.desk import Claude, Desk
from tests.e2e.conftest import running_room, until
from tests.fakes.model.server import FakeModel

WAKES, QUICK_WAKES = 19, 2
"""A session is woken 20 times an hour at most."""

PAUSE = 1.0
"""Seconds between two wakes: a person's mail does not come at the instant at which a turn ends."""


def measure(sheet: Sheet, *, quick: bool) -> None:
    """Wakes of one session by mail, and of one without a post room by a hook that does nothing else."""
    times = QUICK_WAKES if quick else WAKES
    with FakeModel() as model, running_room() as room, scratch_folder() as scratch:
        bare, home = scratch / "bare", scratch / "home"
        bare.mkdir()
        home.mkdir()
        alone, desk = Desk(room, bare, model), Desk(room, home, model, "claude")
        try:
            _empty(sheet, alone, times)
            window = Claude(desk, desk.project("app"))
            window.turn("SAY:[ready]")
            _idle(sheet, desk, times)
            _busy(sheet, desk, window, times)
        finally:
            alone.close()
            desk.close()
    sheet.note("Claude Code in a pseudo-terminal against a model that answers at once.")
    sheet.note("An empty wake: a hook in the background ends with a word, and the model is asked.")


def _empty(sheet: Sheet, desk: Desk, times: int) -> None:
    """From the word to the hook to the request at the model."""
    pipe = desk.home / "word"
    os.mkfifo(pipe)
    window = Claude(desk, _plugin(desk, pipe), address=False)
    window.say("SAY:[ready]")
    until(lambda: desk.asked("SAY:[ready]"))
    found = []
    for _ in range(times):
        time.sleep(PAUSE)
        before, begun = len(desk.model.asked()), time.monotonic()
        pipe.write_text("wake\n")
        found.append(_asked(desk, before) - begun)
    window.close()
    with open(os.open(pipe, os.O_RDWR), "w") as word:  # noqa: PTH123
        word.write("end\n")  # its last hook outlives the program
    sheet.add("an empty wake to the model, p50", [1e3 * each for each in found], "ms")


def _plugin(desk: Desk, pipe: Path) -> Path:
    """A plugin whose hook waits for a word; the folder in which to start."""
    folder = desk.home / ".claude" / "skills" / "empty"
    waits = f"read word < {pipe}; echo $word >&2; exit 2"
    hook = {"type": "command", "command": waits, "asyncRewake": True, "timeout": 3600}
    (folder / ".claude-plugin").mkdir(parents=True)
    (folder / "hooks").mkdir()
    (folder / ".claude-plugin" / "plugin.json").write_text(json.dumps({"name": "empty"}))
    hooks = {"hooks": {"Stop": [{"hooks": [hook]}]}}
    (folder / "hooks" / "hooks.json").write_text(json.dumps(hooks))
    return desk.project("app")


def _idle(sheet: Sheet, desk: Desk, times: int) -> None:
    """From the answer to the sender, accepted, to the request at the model of an idle session."""
    found = []
    with desk.room.client() as client:
        for number in range(times):
            time.sleep(PAUSE)
            before = len(desk.model.asked())
            sent = client.send("@app", f"wake {number}")
            accepted = time.monotonic()
            found.append(_asked(desk, before) - accepted)
            desk.reaches(sent["id"], "seen")
    sheet.add("accepted to the model of an idle session, p50", [1e3 * each for each in found], "ms")


def _busy(sheet: Sheet, desk: Desk, window: Claude, times: int) -> None:
    """Mail that was accepted while a tool ran: how many are in the request right after it."""
    in_next = []
    with desk.room.client() as client:
        for number in range(times):
            desk.model.hold()
            end, before = window.at_work(), len(desk.model.asked())
            client.send("@app", f"busy {number}")
            end.touch()
            _asked(desk, before)
            in_next.append(
                100.0 * (f"busy {number}" in json.dumps(desk.model.asked()[before].body))
            )
            desk.model.go.set()
            window.idle()
    sheet.add("mail to a busy session in the next request", [sum(in_next) / len(in_next)], "%")


def _asked(desk: Desk, before: int) -> float:
    """When the model was asked again."""
    return until(lambda: desk.model.asked()[before:])[0].at
