"""A PIN: every decision in a person's name needs it, and nobody tries many."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from postroom.errors import EnvironmentFault, InvalidInput, PinPaused, PinRequired, PinWrong
from postroom.identity import pins as pins_module
from postroom.identity.pins import FIRST_PAUSE, LONGEST_PAUSE, Pins
from postroom.protocol.limits import PIN_TRIES
from tests.approvals.asking import answer, shown, sidecar_of
from tests.control.taskroom import TaskRoom, emptied, task_room

pytestmark = pytest.mark.anyio

PIN = "4711"


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as room:
        yield room


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(pins_module._COST, "n", 2)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys" / "pins.json"


@pytest.mark.requirement("approval-pin-demanded")
async def test_with_a_pin_set_no_decision_counts_without_it(shared: TaskRoom):
    async with emptied(shared) as room, sidecar_of(room) as alice:
        asked, other = await alice.ask(), await alice.ask()
        put = await room.api.put("/v1/pin", json={"pin": PIN})
        try:
            bare = await answer(room, "alice", asked)
            wrong = await answer(room, "alice", asked, pin="1234")
            right = await answer(room, "alice", asked, pin=PIN)
            denied = await answer(room, "alice", other, "denied")
            stop = {"type": "interrupt"}
            stopped = await room.api.post("/v1/workers/alice/control", json=stop)
            seen = [(await room.api.get("/v1/pin")).json()["tries_left"], put.json()["set"]]
            unset = await room.api.put("/v1/pin", json={"pin": ""})
        finally:
            cleared = await room.api.put("/v1/pin", json={"pin": "", "old": PIN})

        codes = [(each.status_code, each.json().get("code")) for each in (bare, wrong, denied)]
        assert codes == [(403, "pin-required"), (403, "pin-wrong"), (403, "pin-required")]
        assert (right.status_code, stopped.status_code) == (200, 200)
        assert seen == [PIN_TRIES, True]
        assert (unset.json()["code"], cleared.json()["set"]) == ("pin-required", False)
        assert (await shown(room, other))["state"] == "pending"
        assert (await answer(room, "alice", other)).status_code == 200


@pytest.mark.requirement("approval-pin-demanded")
async def test_the_pin_is_in_no_event_and_in_no_file(shared: TaskRoom):
    pin = "a-pin-that-is-found-nowhere"
    async with emptied(shared) as room, sidecar_of(room) as alice:
        await room.api.put("/v1/pin", json={"pin": pin})
        asked = await alice.ask()
        await answer(room, "alice", asked, pin=pin + "!")
        assert (await answer(room, "alice", asked, pin=pin)).status_code == 200
        await room.api.put("/v1/pin", json={"pin": pin + "?" * 64, "old": pin})
        await room.api.put("/v1/pin", json={"pin": "", "old": pin})
        told = json.dumps((await alice.heard())["records"])
        settings = room.parts.settings
        written = [path for path in settings.state.rglob("*") if path.is_file()]

    assert asked in told
    assert "pin" not in told
    assert written
    assert all(pin.encode() not in path.read_bytes() for path in written)


@pytest.mark.requirement("approval-pin-demanded")
async def test_after_five_wrong_tries_none_is_taken_for_a_while_that_grows(
    file: Path, clock: Clock
):
    pins = Pins(file, clock)
    await pins.change("maria", PIN, "")
    for _ in range(PIN_TRIES):
        with pytest.raises(PinWrong):
            await pins.check("maria", "0000")

    pauses = []
    for _ in range(10):
        # A restart changes nothing, and neither does the right PIN.
        pins = Pins(file, clock)
        before = clock.now
        while True:
            try:
                await pins.check("maria", "0000" if len(pauses) < 9 else PIN)
            except PinPaused:
                clock.now += 15
                continue
            except PinWrong:
                pass
            break
        pauses.append(clock.now - before)

    assert pauses == [min(FIRST_PAUSE * 2**n, LONGEST_PAUSE) for n in range(10)]
    assert pins.status("maria") == {"set": True, "tries_left": PIN_TRIES, "paused_until": None}


@pytest.mark.requirement("approval-pin-demanded")
async def test_a_try_counts_before_it_is_looked_at(
    file: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    pins = Pins(file, clock)
    await pins.change("maria", PIN, "")

    class Killed(BaseException):
        pass

    def killed(*_: object) -> bool:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("postroom.identity.pins.Pin.fits", killed)
        with pytest.raises(Killed):
            await pins.check("maria", "0000")

    assert Pins(file, clock).status("maria")["tries_left"] == PIN_TRIES - 1


async def test_of_tries_at_once_no_more_than_five_are_looked_at(file: Path, clock: Clock):
    pins = Pins(file, clock)
    await pins.change("maria", PIN, "")
    done = await asyncio.gather(
        *(pins.check("maria", f"{n:04}") for n in range(20)), return_exceptions=True
    )
    assert [type(each) for each in done] == [PinWrong] * PIN_TRIES + [PinPaused] * 15


async def test_the_file_is_for_its_user_alone_and_holds_no_pin(file: Path, clock: Clock):
    await Pins(file, clock).change("maria", PIN, "")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    kept = json.loads(file.read_text())["maria"]
    assert {*kept} == {"salt", "hash", "wrong", "until"}
    assert PIN not in kept["hash"]


async def test_a_pin_is_of_one_person_and_changes_with_the_old_one_alone(file: Path, clock: Clock):
    pins = Pins(file, clock)
    await pins.change("maria", PIN, "")
    await pins.check("jan", "")
    with pytest.raises(PinRequired):
        await pins.change("maria", "9999", "")
    with pytest.raises(PinWrong):
        await pins.change("maria", "9999", "1111")
    await pins.change("maria", "9999", PIN)
    await pins.check("maria", "9999")
    for bad in ("123", "x" * 65, "12\n34"):
        with pytest.raises(InvalidInput):
            await pins.change("maria", bad, "9999")


@pytest.mark.parametrize("content", ["", "[]", '{"maria": {}}', '{"maria": 7}'])
async def test_a_damaged_file_permits_nothing(file: Path, clock: Clock, content: str):
    file.parent.mkdir()
    file.write_text(content)
    with pytest.raises(EnvironmentFault, match="cannot be read"):
        await Pins(file, clock).check("maria", PIN)
