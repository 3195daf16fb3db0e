"""Mail between two organisations of a post room, by real processes: as people, workers and programs have it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest

from tests.e2e.across import Caller, operator
from tests.e2e.conftest import EXAMPLES, TEMPLATE, PostRoom, gone, running_room, until
from tests.e2e.dying import STEPS

ECHO = str(EXAMPLES / "echo.toml")

SENDER = """
import json, sys
for raw in sys.stdin:
    line = json.loads(raw)
    if line["type"] == "message":
        to, _, text = line["text"].partition(" ")
        said = {"type": "send", "to": to, "text": text, "ref": line["id"]}
    elif "ref" in line:
        said = {"type": "reply", "to": line["ref"], "text": line.get("detail", "sent")}
    else:
        continue
    print(json.dumps(said), flush=True)
"""
"""Sends what it is told to whom it is told, and answers with what went wrong."""


@pytest.fixture(scope="module")
def room() -> Generator[PostRoom]:
    with running_room() as made:
        made.run("org", "create", "acme")
        yield made


@pytest.fixture(scope="module")
def both(room: PostRoom) -> tuple[Caller, Caller]:
    """The operator in either organisation, who let each other in."""
    here, there = operator(room, "default"), operator(room, "acme")
    here.lets_in(there.uid)
    there.lets_in(here.address)
    return here, there


@pytest.mark.requirement("across-both-halves")
def test_two_people_of_two_organisations_talk_by_the_commands(
    room: PostRoom, both: tuple[Caller, Caller], tmp_path: Path
) -> None:
    here, there = both
    sheet, drawing = tmp_path / "sheet.txt", tmp_path / "drawing.txt"
    sheet.write_text("a sheet")
    drawing.write_text("a drawing")
    asked = room.popen(
        *("send", there.address, "which colour?", "--file", str(sheet)),
        *("--subject", "Paint", "--wait", "answered"),
    )

    question = until(lambda: room.json("--org", "acme", "inbox")["messages"])[-1]
    assert question["from"] == {"uid": here.uid, "nick": f"{here.nick}.default", "kind": "human"}
    (file,) = question["files"]
    got = tmp_path / "got.txt"
    room.run("--org", "acme", "blob", "get", file["url"], "--output", str(got))
    assert got.read_text() == "a sheet"
    room.run(
        *("--org", "acme", "send", here.address, "green", "--file", str(drawing)),
        *("--reply-to", question["id"], "--no-reply"),
    )

    answer, _ = asked.communicate(timeout=40)
    assert (asked.returncode, "green" in answer) == (0, True)
    receipt = room.json("receipt", question["id"])
    assert receipt["state"] == "answered"
    assert receipt["to"]["nick"] == f"{there.nick}.acme"
    (reply,) = [m for m in room.json("inbox", "--all")["messages"] if m["text"] == "green"]
    assert reply["thread"] == question["thread"]
    again = tmp_path / "again.txt"
    room.run("blob", "get", reply["files"][0]["url"], "--output", str(again))
    assert again.read_text() == "a drawing"
    assert here.ask("GET", f"/v1/agents/{there.nick}.acme")["nick"] == f"{there.nick}.acme"
    shown = room.run("chat", there.address, given="thank you\n")
    assert [line for line in shown.splitlines() if f"[{there.nick}.acme] green" in line]
    until(lambda: room.json("--org", "acme", "inbox")["messages"])
    shown = room.run("--org", "acme", "chat", here.address, given="")
    assert f"[{here.nick}.default] thank you" in shown


@pytest.mark.requirement("across-workers")
def test_a_worker_is_written_to_and_writes_to_people_of_another_organisation(
    room: PostRoom, both: tuple[Caller, Caller]
) -> None:
    here, there = both
    room.run("spawn", ECHO)
    room.run("spawn", room.template(TEMPLATE.format(name="sender"), "sender", sender=SENDER))
    echo, sender = room.worker("echo"), room.worker("sender")
    stranger = Caller(room, "acme", "stranger")
    here.lets_in(there.uid, echo["uid"])
    there.lets_in(sender["uid"])

    said = room.run("--org", "acme", "send", "@echo.default", "hello", "--wait", "answered")
    assert "you said: hello" in said

    told = room.run("send", "@sender", f"{there.address} from a worker", "--wait", "answered")
    assert told == "sent\n"
    (came,) = until(lambda: [m for m in there.inbox() if m["text"] == "from a worker"])
    assert came["from"]["nick"] == "sender.default"
    there.sees(came["id"])
    refused = {
        room.run("send", "@sender", f"{to} hello", "--wait", "answered").replace(to, "?")
        for to in (stranger.address, "@nobody.acme")
    }
    assert len(refused) == 1
    assert "cannot be reached" in refused.pop()
    assert not stranger.inbox()


@pytest.mark.requirement("across-ambiguous")
def test_who_is_not_let_in_learns_nothing_from_any_way_of_naming_an_agent(room: PostRoom) -> None:
    alice, bob = Caller(room, "default", "alice"), Caller(room, "acme", "bob")
    refs = [bob.address, "@nobody.acme", "@bob.nowhere", bob.uid, "f" * 32]

    refused = [alice.send(ref, "hello", 403) for ref in refs]
    unseen = [alice.ask("GET", f"/v1/chats/{ref.removeprefix('@')}/messages", 404) for ref in refs]

    for answers in (refused, unseen):
        said = [
            {name: str(value).replace(ref.removeprefix("@"), "?") for name, value in answer.items()}
            for ref, answer in zip(refs, answers, strict=True)
        ]
        assert [str(each).replace("@", "") for each in said] == [
            str(said[0]).replace("@", "")
        ] * len(refs)
    assert not bob.inbox()


@pytest.mark.requirement("across-waits")
def test_a_message_that_is_not_seen_in_time_is_dead_on_both_sides(
    room: PostRoom, both: tuple[Caller, Caller]
) -> None:
    here, _ = both
    carol = Caller(room, "acme", "carol")
    carol.lets_in(here.address)

    sent = here.send(carol.address, "quick", expires_in=1)

    dead = here.receipt(sent["id"], "seen")
    assert (dead["state"], dead["reason"]) == ("dead", "expired")
    assert (carol.receipt(sent["id"])["state"], carol.inbox()) == ("dead", [])


@pytest.mark.requirement("across-both-halves")
def test_a_session_gets_mail_from_another_organisation_and_its_receipts_say_how(
    room: PostRoom, both: tuple[Caller, Caller]
) -> None:
    here, there = both
    made = there.ask("POST", "/v1/sessions", json={"client": "claude", "key": "k", "nick": "app"})
    session = Caller(room, "acme", "app", made["api_key"]["key"])

    sent = here.send(session.address, "which shape?", key="once")
    (came,) = session.inbox(wait=20)
    session.ask(
        "POST", "/v1/inbox/ack", json={"ids": [sent["id"]], "state": "delivered", "how": "hook"}
    )
    told = here.receipt(sent["id"], "delivered")
    session.send(came["from"]["uid"], "round", reply_to=came["id"], expects_reply=False)

    assert (told["state"], told["how"]) == ("delivered", "hook")
    assert here.receipt(sent["id"], "answered")["answer"]["text"] == "round"
    assert here.send(session.address, "which shape?", key="once")["id"] == sent["id"]


@pytest.mark.requirement("across-waits")
def test_what_nobody_has_answered_is_dead_with_the_removal_of_its_organisation(
    room: PostRoom, both: tuple[Caller, Caller]
) -> None:
    here = both[0]
    room.run("org", "create", "brief")
    dora = Caller(room, "brief", "dora")
    dora.lets_in(here.address)
    sent = here.send(dora.address, "hello")
    dora.sees(dora.inbox(wait=20)[0]["id"])
    assert here.receipt(sent["id"], "seen")["state"] == "seen"

    room.run("org", "remove", "brief", "--yes")

    dead = here.receipt(sent["id"], "answered")
    assert (dead["state"], dead["reason"]) == ("dead", "recipient retired")
    here.send(dora.address, "again", 403)


@pytest.mark.slow
@pytest.mark.requirement("across-kills")
@pytest.mark.timeout(240)
def test_a_kill_at_any_step_leaves_a_message_once_on_each_side_and_a_repeat_is_answered(
    tmp_path: Path,
) -> None:
    room = PostRoom(tmp_path / "state", tmp_path)
    room.env["POSTROOM_TEST_KILLED"] = str(tmp_path)
    up: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        words = ("--state", str(room.state), "up", "--port", "0", "--nats-port", "0")
        up.append(
            subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.dying", *words],
                env=room.env | {"PYTHONPATH": os.pathsep.join(sys.path)},
                stdout=subprocess.DEVNULL,
            )
        )
        until(lambda: answers(room, up[-1].pid))

    def killed() -> None:
        assert up[-1].wait(30) == -signal.SIGKILL
        until(lambda: gone(room.server["nats_pid"]))
        start()

    start()
    try:
        room.run("org", "create", "acme")
        alice, bob = Caller(room, "default", "alice"), Caller(room, "acme", "bob")
        bob.lets_in(alice.address)
        for step in STEPS:
            text = f"at: {step}"
            with suppress(httpx2.TransportError):
                alice.send(bob.address, text, key=text)
                if step in STEPS[-3:]:
                    bob.sees(bob.inbox(wait=20)[0]["id"])
            killed()
            again = alice.send(bob.address, text, key=text)
            if step not in STEPS[-3:]:
                (came,) = bob.inbox(wait=20)
                assert (came["id"], came["text"]) == (again["id"], text)
                bob.sees(came["id"])
            assert alice.receipt(again["id"], "seen")["state"] == "seen"
        for side in (alice, bob):
            found = side.ask("GET", "/v1/messages")["messages"][::-1]
            assert [mail["text"] for mail in found] == [f"at: {step}" for step in STEPS]
            assert {mail["state"] for mail in found} == {"seen"}
            assert [mail["seq"] for mail in found] == list(range(1, len(STEPS) + 1))
        before = [side.ask("GET", "/v1/messages") for side in (alice, bob)]
        room.run("down")
        up[-1].wait(30)
        for org in ("default", "acme"):
            room.run("--org", org, "admin", "rebuild")
        start()
        assert before == [side.ask("GET", "/v1/messages") for side in (alice, bob)]
        assert alice.send(bob.address, "last", key="last")["seq"] == len(STEPS) + 1
    finally:
        room.call("down")
        up[-1].wait(30)


def answers(room: PostRoom, pid: int) -> bool:
    """Whether that process serves both organisations, as far as they exist."""
    with suppress(OSError, ValueError):
        return room.server["pid"] == pid
    return False
