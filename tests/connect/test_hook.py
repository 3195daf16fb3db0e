"""The hook file never breaks a session: it costs next to nothing, and is silent and 0 whatever happens."""

from __future__ import annotations

import resource
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from postroom.http.unix import short_address
from tests.connect.conftest import DEADLINE, Connected, Terminal, connected, until
from tests.e2e.conftest import PostRoom

CPU = 0.025
SILENT = (0, b"", b"")


@pytest.fixture(scope="module")
def shared(shared_room: PostRoom, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connected]:
    with connected(shared_room, tmp_path_factory.mktemp("hooks")) as made:
        yield made


@pytest.fixture(scope="module")
def app(shared: Connected) -> Terminal:
    client = shared.client()
    client.start()
    client.prompt("t1")
    return client


def outcome(done: subprocess.CompletedProcess[bytes]) -> tuple[int, bytes, bytes]:
    return done.returncode, done.stdout, done.stderr


@pytest.mark.requirement("session-hook-harmless")
def test_it_takes_at_most_25_ms_of_cpu(app: Terminal):
    def cpu() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    costs = []
    for number in range(20):
        before = cpu()
        app.at("PreToolUse", tool_use_id=f"{number}")
        costs.append(cpu() - before)

    assert statistics.median(costs) <= CPU, costs


@pytest.mark.requirement("session-hook-harmless")
def test_forty_at_once_are_silent_in_time(app: Terminal):
    with ThreadPoolExecutor(40) as forty:
        done = list(forty.map(lambda n: app.run("PreToolUse", tool_use_id=f"{n}"), range(40)))

    assert {outcome(each) for each in done} == {SILENT}


def test_forty_at_once_begin_one_run(shared_room: PostRoom, tmp_path: Path):
    with connected(shared_room, tmp_path) as made:
        client = made.client()
        with ThreadPoolExecutor(40) as forty:
            done = list(
                forty.map(lambda n: client.run("PreToolUse", tool_use_id=f"{n}"), range(40))
            )
        assert {outcome(each) for each in done} == {SILENT}
        pid = until(lambda: made.status().get("pid"))
        until(made.sessions)
        assert made.status()["pid"] == pid
        assert len(made.sessions()) == 1


@pytest.mark.requirement("session-hook-harmless")
def test_a_post_room_that_is_down_is_no_matter(tmp_path: Path):
    room = PostRoom(tmp_path / "nowhere", tmp_path)
    with connected(room, tmp_path) as made:
        client = made.client()
        assert outcome(client.run("SessionStart", source="startup")) == SILENT
        until(made.status)
        assert outcome(client.run("UserPromptSubmit", prompt="x")) == SILENT
        assert outcome(client.run("Stop")) == SILENT


def test_a_socket_where_nobody_answers_is_left_soon(tmp_path: Path):
    with connected(PostRoom(tmp_path / "nowhere", tmp_path), tmp_path) as made:
        client = made.client()
        with socket.socket(socket.AF_UNIX) as deaf:
            with short_address(made.folder / "run.sock") as address:
                deaf.bind(address)
            deaf.listen()
            began = time.monotonic()
            assert outcome(client.run("Stop")) == SILENT
        assert time.monotonic() - began < DEADLINE / 2


@pytest.mark.parametrize(
    "what", ["hook gone", "folder gone", "interpreter gone", "none at all", "broken", "full disk"]
)
@pytest.mark.requirement("session-hook-harmless")
def test_what_is_missing_is_no_matter(what: str, tmp_path: Path):
    with connected(PostRoom(tmp_path / "nowhere", tmp_path), tmp_path) as made:
        client = made.client()
        words = client.command("UserPromptSubmit")
        text = made.hook.read_text()
        python = next(line for line in text.splitlines() if line.startswith("PYTHON="))
        match what:
            case "hook gone":
                made.hook.unlink()
            case "folder gone":
                shutil.rmtree(made.folder)
            case "interpreter gone":
                made.hook.write_text(text.replace(python, "PYTHON=/nowhere/python"))
            case "none at all":
                made.hook.write_text(text.replace(python, "PYTHON=/nowhere/python"))
                (tmp_path / "sh").symlink_to("/bin/sh")
                client.env["PATH"] = str(tmp_path)
                words[0] = "/bin/sh"
            case "broken":  # every use of `python` fails with 2
                broken = tmp_path / "python"
                broken.write_text("#!/bin/sh\necho usage; echo usage >&2; exit 2\n")
                broken.chmod(0o700)
                made.hook.write_text(text.replace(python, f"PYTHON={broken}"))
            case "full disk":
                words = ["sh", "-c", f"ulimit -f 0; {words[2]}"]

        done = subprocess.run(
            words,
            input=client.said("Stop"),
            env=client.env,
            capture_output=True,
            timeout=DEADLINE,
            check=False,
        )

        assert done.returncode == 0
        assert done.stderr == b""
        assert not (done.stdout and what != "broken")


def test_a_run_that_cannot_start_is_not_begun_by_each_hook(tmp_path: Path):
    with connected(PostRoom(tmp_path / "nowhere", tmp_path), tmp_path) as made:
        (made.folder / "settings.json").write_text("nothing")
        client = made.client()
        for _ in range(5):
            assert outcome(client.run("Stop")) == SILENT
        log = made.folder / "run.log"
        until(lambda: log.exists() and log.read_text())
        assert outcome(client.run("Stop")) == SILENT
        assert log.read_text().count("settings.json") == 1


@pytest.mark.requirement("session-hook-harmless")
def test_it_does_nothing_in_a_worker_nor_where_nobody_watches(
    shared_room: PostRoom, tmp_path: Path
):
    with connected(shared_room, tmp_path) as made:
        client = made.client()
        for more in (
            {"POSTROOM_API": "http://gateway"},
            {"CLAUDE_CODE_ENTRYPOINT": "sdk-cli", "CLAUDE_CODE_SESSION_ATTENDED": "0"},
        ):
            before = dict(client.env)
            client.env |= more
            assert outcome(client.run("SessionStart")) == SILENT
            assert client.wait().wait(DEADLINE) == 0
            client.env = before
        assert not (made.folder / "run.lock").exists()

        client.env |= {"CLAUDE_CODE_ENTRYPOINT": "sdk-cli", "POSTROOM_CONNECT": "1"}
        client.start()
        assert client.wait().wait(DEADLINE) == 0, (
            "a run that waits for a hook in the background would not begin"
        )


def test_runs_that_nobody_watches_have_an_address_where_the_person_has_chosen_so(
    shared_room: PostRoom, tmp_path: Path
):
    with connected(shared_room, tmp_path) as made:
        words = [sys.executable, "-m", "postroom", "connect", "claude", "--yes", "--headless"]
        state = ["--state", str(shared_room.state)]
        subprocess.run([*words, *state], env=made.env, check=True, capture_output=True)
        client = made.client()
        client.env |= {"CLAUDE_CODE_ENTRYPOINT": "sdk-cli"}
        client.start()


def test_what_it_says_is_what_the_client_reads(app: Terminal, shared: Connected):
    nick = next(n for n, each in shared.sessions().items() if each["pid"] == app.process.pid)
    shared.send(f"@{nick}", "x" * 20000)
    until(lambda: shared.sessions()[nick]["waiting"])

    done = app.run("UserPromptSubmit", prompt="x")

    assert done.returncode == 0
    assert len(done.stdout) < 10000
