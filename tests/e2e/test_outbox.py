"""Announcements of a worker and of a person: printed, by command, with a file; read, followed, over a restart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import PostRoom, until

HERALD = """
import json, subprocess, sys
for line in map(json.loads, sys.stdin):
    if line["type"] != "message":
        continue
    if line["text"] == "print":
        print(json.dumps({"type": "announce", "text": "the build is red", "subject": "CI"}), flush=True)
    else:
        with open("notes.txt", "w") as file:
            file.write("all of it")
        command = ["postroom-agent", "announce", "with a file", "--file", "notes.txt"]
        subprocess.run(command, check=True, stdout=2)
    print(json.dumps({"type": "seen", "id": line["id"]}), flush=True)
"""

TEMPLATE = """
[worker]
name = "herald"
[workstation]
command = ["python3", "/opt/agent/herald.py"]
files = ["herald.py"]
"""

pytestmark = pytest.mark.requirement("client-stream-resumes")


def texts(room: PostRoom, who: str) -> list[str]:
    return [said["text"] for said in room.json("outbox", who)["announcements"]]


def test_what_a_worker_and_a_person_announce_is_read_and_followed_by_everybody(room: PostRoom):
    room.up()
    room.run("spawn", room.template(TEMPLATE, "herald", herald=HERALD))
    room.run("send", "@herald", "print", "--no-reply")
    until(lambda: texts(room, "@herald"))
    with room.popen("outbox", "@herald", "--follow", "--json") as following:
        assert following.stdout is not None
        first = json.loads(following.stdout.readline())
        room.run("down")
        room.up()
        room.await_state("herald", "idle")
        room.run("send", "@herald", "file", "--no-reply")
        second = json.loads(following.stdout.readline())
        following.terminate()
    known = (first["text"], first["subject"], first["from"]["nick"])
    assert known == ("the build is red", "CI", "herald")
    (file,) = second["files"]
    assert second["text"] == "with a file"
    assert (file["filename"], file["mediaType"], file["size"]) == ("notes.txt", "text/plain", 9)
    got = room.scratch / "got.txt"
    room.run("blob", "get", file["url"], "-o", str(got))
    assert got.read_text() == "all of it"
    assert texts(room, "@herald") == ["the build is red", "with a file"]

    notes = Path(room.scratch / "mine.txt")
    notes.write_text("mine")
    room.run("announce", "to all", "--file", str(notes), "--subject", "News")
    me = room.json("status")["me"]["nick"]
    shown = room.run("outbox", f"@{me}")
    assert "to all" in shown
    assert "mine.txt" in shown
    assert "News" in shown
