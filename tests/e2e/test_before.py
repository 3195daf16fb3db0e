"""A post room opens the state folder that the version before has left.

`before.tar.xz` is such a folder, made with the code of commit 8feb61e3; its keys are good for nothing else. There is
the worker @busy, which ran when the post room ended, and @away, which did not, and an organisation `team`. @busy has
answered a message and ended two tasks, one of them after a question to the operator; a third task asks that still. A
message waits for @away.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

from tests.e2e.conftest import PostRoom, until

LEFT = Path(__file__).with_name("before.tar.xz")


def test_everything_that_the_version_before_has_left_is_there_and_goes_on(room: PostRoom) -> None:
    with tarfile.open(LEFT) as left:
        if hasattr(tarfile, "tar_filter"):  # Python 3.11.4 and newer
            left.extraction_filter = tarfile.tar_filter
        left.extractall(room.state)
    room.up()

    asks = everything_is_there(room)
    room.run("down")
    room.run("admin", "rebuild")
    room.up()
    assert everything_is_there(room) == asks

    room.run("task", "answer", asks, "red")
    assert "chose red" in room.run("task", "watch", asks)
    room.run("restart", "away", "--same")
    until(lambda: len(room.json("inbox", "--all")["messages"]) == 2)
    texts = {message["text"] for message in room.json("inbox", "--all")["messages"]}
    assert "heard are you there?" in texts
    assert "did more" in room.run("delegate", "@busy", "more", "--wait")


def everything_is_there(room: PostRoom) -> str:
    """Look for each message and task that was left; returns the id of the one that asks."""
    (asks,) = room.json("status")["attention"]
    tasks = {task["id"]: task for task in room.json("task", "list", "--all")["tasks"]}
    (heard,) = room.json("inbox", "--all")["messages"]
    assert heard["text"] == "heard good morning"
    assert sorted((task["state"], task["status_text"]) for task in tasks.values()) == [
        ("completed", "chose blue"),
        ("completed", "did tidy"),
        ("input-required", "which?"),
    ]
    assert (room.worker("away")["state"], room.worker("away")["unread"]) == ("stopped", 1)
    assert "no workers" in room.run("--org", "team", "status")
    return str(asks["id"])
