"""People and an external agent on another machine: TLS, keys, and nothing else of the post room's own.

The other machine is a network namespace of its own, with a folder of its own; where nobody may make one, and in every
run, it is another loopback address.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.e2e.conftest import DEADLINE, EXAMPLES, TEMPLATE, PostRoom, until
from tests.prefork import prefork
from tests.tui.real.console import in_pyte, left, shows

NAMESPACE = "postroom-test"
NEAR, FAR = "198.18.77.1", "198.18.77.2"
"""Of the two ends of a cable between the machines (RFC 2544: for such tests)."""


MAKER = """
import json, subprocess, sys
for line in map(json.loads, sys.stdin):
    if line["type"] == "message":
        with open("chart.svg", "wb") as file:
            file.write(b"<svg/>" * 20_000)
        to = "@" + line["from"]["nick"]
        send = ["postroom-agent", "send", to, "as you asked", "--file", "chart.svg"]
        subprocess.run(send, check=True, stdout=2)
        print(json.dumps({"type": "seen", "id": line["id"]}), flush=True)
"""

READER = """
import json, subprocess, sys
for line in map(json.loads, sys.stdin):
    if line["type"] == "message":
        (file,) = [part for part in line["parts"] if "url" in part]
        get = ["postroom-agent", "blob", "get", file["url"], "-o", "got"]
        subprocess.run(get, check=True, stdout=2)
        text = " ".join((file["filename"], file["mediaType"], str(len(open("got", "rb").read()))))
        print(json.dumps({"type": "reply", "to": line["id"], "text": text}), flush=True)
"""

COUNTER = """
import asyncio
from postroom import Agent, File

async def main():
    async with Agent("counter") as me:
        @me.task
        async def count(task):
            (file,) = [part for part in task.parts if part.kind == "file"]
            words = len((await file.read()).split())
            return f"{words} words", File(b"[]", name="words.json")

        async for message in me:
            await message.reply(f"you said: {message.text}")
            if message.text == "end":
                await message.seen()
                return

asyncio.run(main())
"""
"""An agent that Postroom does not run, with the key of its login and nothing else."""


@dataclass
class Place:
    """Another machine: how to run a command there, and which address of the first one it reaches."""

    address: str
    namespace: str = ""


class Elsewhere:
    """Somebody on another machine, with a home of their own that has no state folder."""

    def __init__(self, place: Place, home: Path) -> None:
        self._place = place
        self.home = home
        home.mkdir()
        self.env = {
            **{key: os.environ[key] for key in ("PATH", "LANG", "PYTHONPATH") if key in os.environ},
            "HOME": str(home),
            "NO_COLOR": "1",
        }
        self.key_id = ""
        self.stderr = ""

    def run(self, *words: str, status: int = 0, given: str | None = None) -> str:
        done = self._call(words, given)
        self.stderr = done.stderr
        assert done.returncode == status, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json"))

    @contextlib.contextmanager
    def running(self, program: str) -> Generator[None]:
        """A program of theirs, which ends by itself."""
        process = subprocess.Popen(self._python("-c", program), env=self.env, cwd=self.home)
        try:
            yield
            assert process.wait(DEADLINE) == 0
        finally:
            process.kill()
            process.wait(DEADLINE)

    def _call(self, words: tuple[str, ...], given: str | None) -> subprocess.CompletedProcess[str]:
        if not self._place.namespace:
            return prefork().run(list(words), self.env, given, DEADLINE)
        return subprocess.run(
            self._python("-m", "postroom", *words),
            env=self.env,
            input=given or "",
            cwd=self.home,
            text=True,
            capture_output=True,
            timeout=DEADLINE,
            check=False,
        )

    def _python(self, *words: str) -> list[str]:
        """Python on that machine."""
        name = self._place.namespace
        return [*(("ip", "netns", "exec", name) if name else ()), sys.executable, *words]


@contextlib.contextmanager
def namespace() -> Generator[Place]:
    """A network namespace with one cable to this one."""

    def ip(*words: str) -> None:
        subprocess.run(("ip", *words), check=True, capture_output=True, timeout=DEADLINE)

    name = f"{NAMESPACE}-{os.getpid()}"
    cable = f"pr{os.getpid()}"
    with contextlib.ExitStack() as stack:
        try:
            ip("netns", "add", name)
            stack.callback(ip, "netns", "del", name)  # with its end of the cable, and so with it
            ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("addr", "add", f"{NEAR}/30", "dev", cable)
            ip("link", "set", cable, "up")
            ip("-n", name, "addr", "add", f"{FAR}/30", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("only root with network rights may make a network namespace")
        yield Place(NEAR, name)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("loopback", marks=pytest.mark.requirement("login-names-the-room")),
        # Without the mark: where nobody may make a namespace it is skipped, and the other one proves the promise.
        pytest.param("namespace", marks=pytest.mark.slow),
    ],
)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with contextlib.ExitStack() as stack:
        yield (
            Place("127.0.0.2") if request.param == "loopback" else stack.enter_context(namespace())
        )


@pytest.fixture(scope="module")
def open_room(place: Place) -> Iterator[PostRoom]:
    """A post room that listens for others, with a certificate for its address."""
    with tempfile.TemporaryDirectory(prefix="postroom-e2e-") as scratch:
        room = PostRoom(Path(scratch) / "state", Path(scratch))
        room.run("tls", "init", "--host", place.address)
        room.env["POSTROOM_TRUSTED_PROXIES"] = "127.0.0.1"
        room.up("--listen", f"{place.address}:0")
        yield room
        room.run("down")


@pytest.fixture(scope="module")
def people(open_room: PostRoom, place: Place) -> tuple[Elsewhere, Elsewhere]:
    """Anna and Ben, who use it from the other machine."""
    return arrived(open_room, place, "anna"), arrived(open_room, place, "ben")


def arrived(room: PostRoom, place: Place, nick: str) -> Elsewhere:
    """A new person, who has logged in on the other machine."""
    somebody, key = Elsewhere(place, room.scratch / nick), made(room, nick)
    somebody.key_id = key["id"]
    login(room, somebody, key["key"])
    return somebody


def made(room: PostRoom, nick: str) -> dict[str, str]:
    """The key of a new person."""
    return room.json("people", "add", nick)["key"]


def login(room: PostRoom, somebody: Elsewhere, key: str, *more: str) -> None:
    """What the post room has printed, typed on the other machine; the key comes by a pipe."""
    words = shlex.split(room.server["logins"][0])
    assert words[:2] == ["postroom", "login"]
    said = somebody.run(*words[1:], *more, given=f"{key}\n")
    assert ("you are @" in said) is ("--name" not in more)


def test_people_write_to_each_other_each_as_themself(
    people: tuple[Elsewhere, Elsewhere],
) -> None:
    anna, ben = people
    sent = anna.json("send", "@ben", "hello over there")

    (got,) = ben.json("inbox")["messages"]
    assert (got["id"], got["text"]) == (sent["id"], "hello over there")
    assert f"@{got['from']['nick']}" == "@anna"
    assert anna.json("inbox")["messages"] == []
    assert "hello over there" in ben.run("inbox")
    anna.run("receipt", sent["id"], "--wait", "seen")
    assert not (anna.home / ".local").exists()


def test_they_use_its_workers_as_its_owner_does(
    open_room: PostRoom, people: tuple[Elsewhere, Elsewhere]
) -> None:
    anna, ben = people
    open_room.run("spawn", str(EXAMPLES / "echo.toml"))

    assert "you said: hi" in anna.run("send", "@echo", "hi", "--wait", "answered")
    assert "you said: work" in ben.run("delegate", "@echo", "work", "--wait")
    assert [task["text"] for task in ben.json("task", "list", "--all")["tasks"]] == ["work"]
    assert anna.json("task", "list", "--all")["tasks"] == []


def test_a_file_goes_from_a_worker_to_a_person_to_another_worker_with_its_type(
    open_room: PostRoom, people: tuple[Elsewhere, Elsewhere]
) -> None:
    for name, program in (("maker", MAKER), ("reader", READER)):
        text = TEMPLATE.format(name=name)
        open_room.run("spawn", open_room.template(text, name, **{name: program}))
    ben, folder = people[1], people[1].home / "files"
    ben.run("inbox")
    ben.run("send", "@maker", "a chart, please")
    until(lambda: ben.json("inbox")["messages"])
    ben.run("inbox", "--out", str(folder))
    (chart,) = folder.rglob("*.svg")
    assert chart.stat().st_size == 120_000

    said = ben.run("send", "@reader", "what?", "--file", str(chart), "--wait", "answered")
    assert said == "chart.svg image/svg+xml 120000\n"


def test_an_agent_of_somebody_else_takes_messages_and_tasks_from_there(
    open_room: PostRoom, place: Place, people: tuple[Elsewhere, Elsewhere]
) -> None:
    key = open_room.scratch / "counter.key"
    open_room.run("agents", "add", "counter", "--external", "--key-file", str(key))
    counter, anna = Elsewhere(place, open_room.scratch / "counter"), people[0]
    login(open_room, counter, key.read_text(), "--name", "counter")
    (anna.home / "text.txt").write_text("three small words")
    out = anna.home / "results"

    with counter.running(COUNTER):
        assert "you said: hi" in anna.run("send", "@counter", "hi", "--wait", "answered")
        words = ("delegate", "@counter", "count", "--file", str(anna.home / "text.txt"))
        task = anna.json(*words)["id"]
        anna.run("task", "watch", task)
        anna.run("task", "get", task, "--out", str(out))
        anna.run("send", "@counter", "end", "--wait", "answered")
    results = {path.name: path.read_text() for path in out.iterdir()}
    assert results == {"result.txt": "3 words", "words.json": "[]"}


def test_a_revoked_key_is_dead_on_the_next_call(
    open_room: PostRoom, place: Place, people: tuple[Elsewhere, Elsewhere]
) -> None:
    carl = arrived(open_room, place, "carl")
    carl.run("inbox")
    open_room.run("keys", "revoke", carl.key_id)

    carl.run("inbox", status=6)
    people[0].run("inbox")


def test_the_audit_log_says_from_where_an_act_came(
    open_room: PostRoom, place: Place, people: tuple[Elsewhere, Elsewhere]
) -> None:
    server = open_room.server
    people[0].run("send", "@ben", "by myself")
    httpx2.post(
        f"{server['url']}/v1/messages",
        json={"to": "@anna", "text": "by a proxy"},
        headers={"Authorization": f"Bearer {server['token']}", "X-Forwarded-For": "203.0.113.9"},
        timeout=DEADLINE,
    ).raise_for_status()

    lines = open_room.run("audit", "--json").splitlines()
    acts = [json.loads(line) for line in lines if '"client"' in line]
    clients = {(act["nick"], act["client"]) for act in acts if act["url"] == "/v1/messages"}
    assert ("anna", FAR if place.namespace else "127.0.0.1") in clients
    assert (server["me"]["nick"], "203.0.113.9") in clients


def test_what_works_on_the_machine_of_the_post_room_alone_says_so(
    open_room: PostRoom, people: tuple[Elsewhere, Elsewhere]
) -> None:
    anna, _ = people

    anna.run("down", status=2)
    assert "run it on that machine" in anna.stderr
    anna.run("--url", "local", "down", status=3)
    open_room.run("status")


@pytest.mark.anyio
@pytest.mark.requirement("screen-state-fresh")
async def test_the_screen_of_a_login_waits_for_a_post_room_that_is_away_and_goes_on_by_itself(
    open_room: PostRoom, place: Place
) -> None:
    # Last in this file: the post room ends here, and runs again.
    if place.namespace:
        pytest.skip("the terminal of this test is on this machine")
    dora = arrived(open_room, place, "dora")
    (url,) = (word for word in shlex.split(open_room.server["logins"][0]) if "://" in word)
    listen, home = urlsplit(url).netloc, str(dora.home)
    config, state = f"{home}/.config", f"{home}/state"
    async with in_pyte(HOME=home, XDG_CONFIG_HOME=config, XDG_STATE_HOME=state) as screen:
        await shows(screen, "you are @dora")
        assert listen in screen.lines()[0]
        await asyncio.to_thread(open_room.run, "down")
        await shows(screen, "the post room is down since")
        await asyncio.to_thread(open_room.up, "--listen", listen)
        await asyncio.to_thread(open_room.run, "send", "@dora", "while you were away")
        await shows(screen, "1 needs you")
        await shows(screen, "m @")
        screen.type("\x11")
        await left(screen)
