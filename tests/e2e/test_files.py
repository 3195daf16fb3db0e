"""A file goes from a worker to a person to another worker, with all that is said beside it."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tests.e2e.conftest import TEMPLATE, PostRoom, until

MAKER = """
import json, random, subprocess, sys
for line in map(json.loads, sys.stdin):
    if line["type"] != "message":
        continue
    with open("plot.bin", "wb") as file:
        file.write(random.Random(5).randbytes(300_000))
    put = ["postroom-agent", "blob", "put", "plot.bin"]
    url = subprocess.run(put, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    parts = [
        {"url": url, "mediaType": "image/x-plot", "filename": "../my\\nplot.bin"},
        {"data": {"points": [1, None, 2.5]}, "mediaType": "application/vnd.points+json"},
        {"raw": "AAEC", "filename": "three.bin", "tomorrow": {"kept": True}},
    ]
    print(json.dumps({"type": "reply", "to": line["id"], "text": "here", "parts": parts}), flush=True)
"""

TAKER = """
import json, subprocess, sys
def say(**line):
    print(json.dumps(line), flush=True)
def keep(line):
    with open("heard.json", "a") as file:
        file.write(json.dumps(line) + "\\n")
    for part in line["parts"]:
        if "url" in part:
            get = ["postroom-agent", "blob", "get", part["url"], "-o", "got-" + part.get("filename", "stdin")]
            subprocess.run(get, check=True, stdout=2)
for line in map(json.loads, sys.stdin):
    if line["type"] == "message":
        keep(line)
        say(type="reply", to=line["id"], text="got it")
    elif line["type"] == "task":
        keep(line)
        say(type="ask", text="which one?", parts=[{"data": [1, 2]}])
    elif line["type"] == "input":
        keep(line)
        say(type="artifact", name="copy", parts=line["parts"])
        say(type="complete", text="done")
"""

WHOLE = random.Random(5).randbytes(300_000)


def spawned(room: PostRoom, name: str, program: str) -> Path:
    """A worker that waits for mail; its workspace."""
    room.run("spawn", room.template(TEMPLATE.format(name=name), name, **{name: program}))
    room.await_state(name, "idle")
    return room.state / "workers" / room.worker(name)["uid"] / "workspace"


def heard(workspace: Path) -> list[dict]:
    return [json.loads(line) for line in (workspace / "heard.json").read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.requirement("mail-content-whole")
@pytest.mark.timeout(180)
def test_a_file_goes_from_a_worker_to_a_person_to_another_worker(shared: PostRoom):
    spawned(shared, "maker", MAKER)
    taken = spawned(shared, "taker", TAKER)
    folder = shared.scratch / "saved"

    # From a worker to a person.
    asked = shared.json(
        "send",
        "@maker",
        "draw it",
        "--subject",
        "The plot",
        "--thread",
        "plots",
        "--wait",
        "answered",
    )
    answer = asked["answer"]
    assert (asked["subject"], asked["thread"], answer["thread"]) == ("The plot", "plots", "plots")
    assert [part.get("mediaType") for part in answer["parts"]] == [
        None,
        "image/x-plot",
        "application/vnd.points+json",
        None,
    ]
    assert answer["parts"][3] == {
        "raw": "AAEC",
        "filename": "three.bin",
        "tomorrow": {"kept": True},
    }
    assert answer["files"][0]["size"] == len(WHOLE)
    shown = shared.run("search", "here", "--thread", "plots", "--out", str(folder))
    assert "    file _my plot.bin, 300.0 kB, image/x-plot\n" in shown
    mine = folder / answer["id"][:8]
    assert (mine / "_my plot.bin").read_bytes() == WHOLE
    assert json.loads((mine / "data.json").read_text()) == {"points": [1, None, 2.5]}
    assert (mine / "three.bin").read_bytes() == b"\0\1\2"

    # From a person to another worker, with a file of no byte, and one from standard input.
    empty = shared.scratch / "empty.txt"
    empty.touch()
    files = ("--file", str(mine / "_my plot.bin"), "--file", str(empty), "--file", "-")
    shared.run(
        *("send", "@taker", "pass it on", *files, "--data", '{"n": 1}', "--thread", "plots"),
        *("--subject", "From me", "--wait", "answered"),
        given="a,b\n",
    )
    (line,) = heard(taken)
    assert (line["text"], line["subject"], line["thread"]) == ("pass it on", "From me", "plots")
    assert [(part.get("filename"), part.get("mediaType")) for part in line["parts"]] == [
        (None, None),
        ("_my plot.bin", "application/octet-stream"),
        ("empty.txt", "text/plain"),
        (None, "application/octet-stream"),
        (None, None),
    ]
    assert line["parts"][4]["data"] == {"n": 1}
    assert (taken / "got-_my plot.bin").read_bytes() == WHOLE
    assert (taken / "got-empty.txt").read_bytes() == b""
    assert (taken / "got-stdin").read_bytes() == b"a,b\n"

    # A task, its question, the answer and the result, each with parts.
    task = shared.json(
        *("delegate", "@taker", "check it", "--file", str(mine / "three.bin")),
        *("--type", "image/x-three", "--subject", "Three"),
    )
    until(lambda: shared.json("task", "show", task["id"])["state"] == "input-required")
    question = shared.json("task", "show", task["id"])
    assert (question["subject"], question["parts"][1]["mediaType"]) == ("Three", "image/x-three")
    assert question["status_parts"] == [{"text": "which one?"}, {"data": [1, 2]}]
    (mine / "choice.bin").write_bytes(WHOLE[::-1])
    shared.run("task", "answer", task["id"], "--file", str(mine / "choice.bin"))
    until(lambda: shared.json("task", "show", task["id"])["final"])
    results = shared.scratch / "results"
    said = shared.run("task", "get", task["id"], "--out", str(results))
    assert said == f"saved {results}/choice.bin, 300.0 kB\n"
    assert (results / "choice.bin").read_bytes() == WHOLE[::-1]
    shared.run("task", "get", task["id"], "--out", str(results), status=5)

    # What a recipient does not take is refused before anything is sent.
    plain = TEMPLATE.format(name="plain") + 'adapter = "text"\n'
    shared.run("spawn", shared.template(plain, "plain", plain="import sys; sys.stdin.read()"))
    for command in ("send", "delegate"):
        shared.run(command, "@plain", "look", "--file", str(mine / "three.bin"), status=2)
        assert (
            "@plain does not take part 2 (three.bin): file, application/octet-stream"
            in shared.stderr
        )
    assert shared.worker("plain")["unread"] == 0
