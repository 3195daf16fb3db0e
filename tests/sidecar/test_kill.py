"""The sidecar may be killed at any moment: nothing is lost, and nothing that it does on the bus happens twice."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from postroom.errors import PostroomError
from postroom.protocol.envelope import Envelope
from postroom.protocol.streams import MAX_DELIVER
from postroom_a2a.messages import text_of
from tests.sidecar.worker_rig import PATIENCE, WorkerRig, end, worker_rig

pytestmark = pytest.mark.anyio

WORKS = """
for message in messages():
    say(type="post", text="did " + message["text"])
    say(type="send", to="@alice", text="about " + message["text"])
    say(type="reply", to=message["id"], text="echo " + message["text"])
"""

MESSAGES = 24
ROUNDS = 2


@pytest.mark.requirement("all-kills-counted")
@pytest.mark.parametrize(
    "seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)]
)
async def test_killed_while_messages_arrive_every_one_is_handled_and_no_effect_is_doubled(
    tmp_path: Path, seed: int
):
    chance = random.Random(seed)
    async with worker_rig(tmp_path) as home:
        config = home.config(WORKS)
        sent = []
        # One kill fewer than a message may be delivered, so that none can become a dead letter.
        for _ in range(MAX_DELIVER - 1):
            sidecar = await home.start(config)
            kill_after = len(home.tap.messages) + chance.randrange(5, 40)
            for _ in range(MESSAGES // MAX_DELIVER):
                sent.append(await home.write(f"m{len(sent)}"))
            await home.tap.until(lambda limit=kill_after: len(home.tap.messages) >= limit)
            sidecar.kill()
            await sidecar.wait()
        sidecar = await home.start(config)
        try:
            sent += [await home.write(f"m{n}") for n in range(len(sent), MESSAGES)]
            await home.seen(*sent)
            await home.all_acked()
        finally:
            await end(sidecar)

        expected = sorted(f"m{n}" for n in range(MESSAGES))
        posts = sorted(await stored(home, "FEED"))
        assert posts == [f"did {name}" for name in expected]
        letters = sorted(await stored(home, "INBOX"))
        assert letters == sorted(f"{w} {name}" for name in expected for w in ("about", "echo"))


@pytest.mark.requirement("sidecar-message-handed")
async def test_what_is_sent_while_the_bus_is_away_is_stored_when_it_is_back(tmp_path: Path):
    agent = """
    message = next(messages())
    say(type="post", text="ready")
    while not os.path.exists("go"):
        time.sleep(0.02)
    say(type="send", to="@alice", text="during")
    say(type="reply", to=message["id"], text="the outage")
    sys.stdin.read()
    """
    async with worker_rig(tmp_path, memory=False) as home, home.sidecar(agent):
        await home.write("go")
        await home.tap.until(home.posts)
        await home.bus.stop(kill=True)
        (home.folder / "go").touch()
        await home.bus.start()

        # Not by the tap: it may come back later than the sidecar.
        await home.all_acked()
        assert sorted(await stored(home, "INBOX")) == ["during", "the outage"]


@pytest.mark.requirement("sidecar-message-handed")
@pytest.mark.parametrize("with_server", ["sidecar", "agent"])
async def test_what_is_handed_over_just_before_the_server_is_killed_comes_again_flagged_with_one_effect(
    tmp_path: Path, with_server: str
):
    """The server writes late what it has delivered; so it forgets that when it is killed in that moment."""
    agent = """
    for message in messages():
        open("pid", "w").write(str(os.getpid()))
        open("handed", "a").write(f"{message['text']} {message['redelivered']}\\n")
        say(type="send", to="@alice", text="about " + message["text"])
        say(type="post", text="did " + message["text"])
        if message["redelivered"]:
            say(type="seen", id=message["id"])
    """
    async with worker_rig(tmp_path, memory=False) as home:
        config = home.config(agent)
        names = [f"m{n}" for n in range(ROUNDS)]
        sidecar = await home.start(config)
        try:
            for number, name in enumerate(names, start=1):
                sent = await home.write(name)
                await posted(home, number)
                if with_server == "agent":
                    os.kill(int((home.folder / "pid").read_text()), signal.SIGKILL)
                    await home.bus.stop(kill=True)
                else:
                    sidecar.kill()
                    await home.bus.stop(kill=True)
                    await sidecar.wait()
                await home.bus.start()
                if with_server == "sidecar":
                    sidecar = await home.start(config)
                await confirmed(home, sent)
        finally:
            await end(sidecar)

        handed = (home.folder / "handed").read_text().splitlines()
        assert handed == [f"{name} {again}" for name in names for again in (False, True)]
        assert await stored(home, "FEED") == [f"did {name}" for name in names]
        assert await stored(home, "INBOX") == [f"about {name}" for name in names]


async def posted(home: WorkerRig, records: int) -> None:
    """Wait until the feed has so many records; the tap may come back from a kill of the server later than others."""
    async with asyncio.timeout(PATIENCE):
        while True:
            with suppress(PostroomError):
                if await home.bus.admin.last_sequence("FEED") >= records:
                    return
            await asyncio.sleep(0.005)


async def confirmed(home: WorkerRig, message: str) -> None:
    """Wait until the worker's journal says so; the tap may come back later than the sidecar."""
    journal = home.folder / "state" / "confirmed"
    async with asyncio.timeout(PATIENCE):
        while f"{message} {home.alice.uid}\n" not in journal.read_text():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def stored(home: WorkerRig, stream: str) -> list[str]:
    """Texts of the worker's own records in the log."""
    return [
        text_of(Envelope.decode(message.payload).message)
        async for message in home.bus.admin.replay(stream)
        if message.sender_uid == home.worker
    ]


@pytest.mark.slow
async def test_a_message_confirmed_before_the_kill_is_not_handed_over_again(home: WorkerRig):
    """The acknowledgement is lost on purpose: the sidecar is stopped the moment the receipt is stored."""
    agent = """
    for message in messages():
        say(type="post", text="handled " + message["text"])
        say(type="seen", id=message["id"])
    """
    config = home.config(agent)
    sidecar = await home.start(config)
    asked = await home.write("once")
    await home.seen(asked)
    sidecar.kill()
    await sidecar.wait()

    journal = (home.folder / "state" / "confirmed").read_text().split()
    assert journal == [asked, home.alice.uid]
    async with home.sidecar(agent):
        await home.seen(await home.write("twice"))
        await home.all_acked()

    assert home.posts() == ["handled once", "handled twice"]
