"""Everything is killed at random moments while messages flow; afterwards everything is counted.

POSTROOM_SEED=N chooses who is sent what and what is killed; a failed run prints its own.
"""

from __future__ import annotations

import os
import random
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pytest

from postroom.client.http import Client
from postroom.errors import PostroomError
from postroom.protocol.shapes import Mail
from tests.e2e.conftest import PostRoom, until
from tests.e2e.processes import living
from tests.e2e.reaper import KINDS, Reaper

CLERK = """
import json, sys
for raw in sys.stdin:
    line = json.loads(raw)
    if line["type"] == "message":
        if line["expects_reply"]:
            print(json.dumps({"type": "reply", "to": line["id"], "text": "done " + line["text"]}), flush=True)
        else:
            print(json.dumps({"type": "seen", "id": line["id"]}), flush=True)
"""
# Passes each message on and posts it before it confirms: three effects, between which it can be killed.
COURIER = """
import json, sys
def say(**line):
    print(json.dumps(line), flush=True)
for raw in sys.stdin:
    line = json.loads(raw)
    if line["type"] != "message":
        continue
    if not line["reply_to"]:
        say(type="send", to="@printer", text="passed on: " + line["text"], expects_reply=True)
        say(type="post", text="effect of " + line["text"])
    if line["expects_reply"]:
        say(type="reply", to=line["id"], text="done " + line["text"])
    else:
        say(type="seen", id=line["id"])
"""
TEMPLATE = """
[worker]
name = "{name}"
project = "demo"
[workstation]
command = ["python3", "/opt/agent/{name}.py"]
files = ["{name}.py"]
[sidecar]
restart_limit = 20
"""
PRINTER = """
[worker]
name = "printer"
project = "demo"
[workstation]
command = ["sed", "-u", "s/^/printed: /"]
adapter = "text"
"""
WORKERS = ("clerk", "courier", "printer")
MESSAGES = 240
SETTLING = 90.0


@dataclass(slots=True)
class Order:
    """One message or post of the person: what is asked for, and what came of it."""

    key: str
    to: str
    options: dict[str, Any]
    accepted: str = ""
    lost: int = 0


@dataclass(slots=True)
class Person:
    """Sends for as long as it takes, and keeps what was not answered to send it again."""

    room: PostRoom
    rng: random.Random
    orders: list[Order] = field(default_factory=list)
    faults: list[BaseException] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)

    def work(self) -> None:
        try:
            for number in range(MESSAGES):
                order = self._order(number)
                self.orders.append(order)
                self.attempt(order)
                self.done.wait(self.rng.uniform(0.0, 0.25))
        except BaseException as fault:  # noqa: BLE001 (carried to the test)
            self.faults.append(fault)
        finally:
            self.done.set()

    def _order(self, number: int) -> Order:
        to = self.rng.choice(("@clerk", "@courier", "@courier", "@printer", "@sleeper", "#demo"))
        options: dict[str, Any] = {}
        if to in ("@clerk", "@courier") and self.rng.random() < 0.2:
            options["expects_reply"] = False
        if to[0] == "@" and self.rng.random() < 0.15:
            options["expires_in"] = self.rng.choice((0.05, 2.0, 15.0))
        return Order(f"m{number}", to, options)

    def attempt(self, order: Order) -> None:
        try:
            with self.room.client() as client:
                order.accepted = _submit(client, order)
        except PostroomError:
            order.lost += 1


def _submit(client: Client, order: Order) -> str:
    if order.to[0] == "#":
        return client.post(order.to, order.key, key=order.key)["id"]
    return client.send(order.to, order.key, key=order.key, **order.options)["id"]


def _staff(room: PostRoom) -> None:
    for name, program in (("clerk", CLERK), ("courier", COURIER), ("sleeper", CLERK)):
        room.run("spawn", room.template(TEMPLATE.format(name=name), name, **{name: program}))
    room.run("spawn", room.template(PRINTER, "printer"))
    room.run("stop", "sleeper")


def _rows(room: PostRoom, query: str) -> list[sqlite3.Row]:
    with closing(sqlite3.connect(f"file:{room.state / 'accounts.db'}?mode=ro", uri=True)) as file:
        file.execute("ATTACH ? AS projection", (f"file:{room.state / 'projection.db'}?mode=ro",))
        file.row_factory = sqlite3.Row
        return file.execute(query).fetchall()


def _open(room: PostRoom) -> list[str]:
    """Messages between agents that run which are not final."""
    rows = _rows(
        room,
        "SELECT m.*, a.nick FROM messages m JOIN agents a ON a.uid = m.recipient WHERE final = 0",
    )
    return [
        f"{row['text']!r} to {row['nick']}: {row['state']}"
        for row in rows
        if row["nick"] in WORKERS
    ]


def _settle(room: PostRoom, person: Person) -> None:
    """Everything runs again, everything is sent, and every message is final."""
    for nick in WORKERS:
        until(lambda nick=nick: room.worker(nick)["state"] in ("idle", "working", "failed"))
        if room.worker(nick)["state"] == "failed":
            room.run("restart", nick)
    for order in person.orders:
        if not order.accepted:
            person.attempt(order)
    end = time.monotonic() + SETTLING
    while left := _open(room):
        assert time.monotonic() < end, f"not final: {left}"
        person.done.wait()
        time.sleep(0.2)  # the projection is another process's: it can only be asked again


def _judge_mail(order: Order, mail: Mail, kills: int) -> Iterator[str]:
    where = f"{order.key} to {order.to}"
    final = "seen" if order.options.get("expects_reply") is False else "answered"
    state, reason = mail["state"], mail["reason"]
    if state == "dead":
        expiring = "expires_in" in order.options and reason == "expired"
        if not expiring and not (reason.startswith("undeliverable: 3 attempts") and kills >= 3):
            yield f"{where}: dead, {reason}"
    elif order.to == "@sleeper":
        if state != "accepted":
            yield f"{where}: {state}, but it is stopped"
    elif state != final:
        yield f"{where}: {state} and not {final}"


def _judge(room: PostRoom, person: Person, kills: int) -> list[str]:
    """What is not as it was promised, one sentence each."""
    faults: list[str] = []
    with room.client() as client:
        for order in person.orders:
            again = _submit(client, order)
            if again != order.accepted:
                faults.append(f"{order.key} to {order.to}: {order.accepted} and then {again}")
        mails = {o.key: client.message(o.accepted) for o in person.orders if o.to[0] == "@"}
        posts = client.posts("demo", limit=500)
    for order in person.orders:
        if order.to[0] == "@":
            faults += _judge_mail(order, mails[order.key], kills)
    rows = _rows(room, "SELECT * FROM messages ORDER BY seq")
    texts = Counter((row["text"], row["sender"]) for row in rows)
    faults += [f"{text!r} is there {n} times" for (text, _), n in texts.items() if n != 1]
    answers = Counter(row["reply_to"] for row in rows if row["reply_to"])
    faults += [f"{m} was answered {n} times" for m, n in answers.items() if n != 1]
    said = Counter(post["text"] for post in posts)
    faults += [f"the post {text!r} is there {n} times" for text, n in said.items() if n != 1]
    passed = {row["text"] for row in rows}
    for order in person.orders:
        if order.to == "#demo" and order.key not in said:
            faults.append(f"the post {order.key} is lost")
        if order.to == "@courier" and mails[order.key]["state"] in ("seen", "answered"):
            if f"passed on: {order.key}" not in passed:
                faults.append(f"{order.key} was not passed on")
            if f"effect of {order.key}" not in said:
                faults.append(f"{order.key} has no post")
    mine = [post["text"] for post in posts if not post["text"].startswith("effect")]
    straight = [o.key for o in person.orders if o.to == "#demo" and not o.lost]
    if [text for text in mine if text in straight] != straight:
        faults.append(f"the feed is out of order: {mine}")
    return faults


def _endure(room: PostRoom, seed: int, kinds: tuple[str, ...]) -> None:
    print(f"POSTROOM_SEED={seed} kinds={kinds}")  # noqa: T201 (shown by pytest when it fails)
    room.up()
    _staff(room)
    person = Person(room, random.Random(f"{seed} person"))
    reaper = Reaper(room, random.Random(f"{seed} reaper"), WORKERS, kinds)
    sending = threading.Thread(target=person.work)
    sending.start()
    while not person.done.wait(reaper.rng.uniform(0.2, 2.0)):
        reaper.strike()
    sending.join()
    assert not person.faults, person.faults
    print(f"killed: {dict(reaper.killed)}; lost calls: {sum(o.lost for o in person.orders)}")  # noqa: T201
    _settle(room, person)
    states = _rows(room, "SELECT state || ' ' || reason AS said FROM messages")
    print("final:", Counter(row["said"] for row in states))  # noqa: T201

    faults = _judge(room, person, sum(reaper.killed.values()))
    reaper.note()
    room.run("down")

    assert faults == []
    assert until(lambda: not reaper.seen & set(living().values()))


@pytest.fixture
def seed() -> int:
    """Chooses everything that is left to chance."""
    return int(os.environ.get("POSTROOM_SEED") or random.SystemRandom().randrange(10**6))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.requirement("all-kills-counted")
def test_whatever_is_killed_every_accepted_message_ends_once(room: PostRoom, seed: int) -> None:
    _endure(room, seed, KINDS)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.requirement("all-kills-counted")
def test_one_kind_of_kill_alone_loses_and_doubles_nothing(
    room: PostRoom, seed: int, kind: str
) -> None:
    _endure(room, seed, (kind,))
