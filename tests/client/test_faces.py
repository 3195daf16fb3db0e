"""The client for threads in a program that is interrupted, forks, ends, or has an event loop; the one for tasks."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator

import pytest

from postroom.client.http import AsyncClient, Client
from postroom.client.locate import ServerAddress
from postroom.errors import InvalidInput, NotFound
from tests.client.standin import DEADLINE, TOKEN, Standin, change, frame, mail, status, task

BEGIN = """
import asyncio, os, sys, threading
from postroom.client.http import AsyncClient, Client
from postroom.client.locate import ServerAddress
def here(): return ServerAddress(sys.argv[1], 1, sys.argv[2])
client = Client.on(here)
"""


@pytest.fixture
def program(standin: Standin) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Starts a program of its own that has a `client`."""
    running: list[subprocess.Popen[str]] = []

    def start(body: str) -> subprocess.Popen[str]:
        words = [sys.executable, "-c", BEGIN + textwrap.dedent(body), standin.url, TOKEN]
        made = subprocess.Popen(words, stdout=-1, stderr=-1, text=True)
        running.append(made)
        return made

    yield start
    for each in running:
        each.kill()
        each.communicate()


def on(standin: Standin) -> AsyncClient:
    return AsyncClient.on(lambda: ServerAddress(standin.url, 1, TOKEN))


@pytest.mark.parametrize("call", ["client.status()", "list(client.follow_everything())"])
def test_ctrl_c_ends_a_call_and_a_stream_that_wait(
    standin: Standin, program: Callable[[str], subprocess.Popen[str]], call: str
):
    came = standin.hold("GET", "/v1/status")
    standin.stream()
    running = program(call)
    if "status" in call:
        assert came.wait(DEADLINE)
    else:
        standin.stream_requests.get(timeout=DEADLINE)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=DEADLINE)
    assert running.returncode == -signal.SIGINT
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert "Exception ignored" not in err


def test_after_a_fork_both_processes_have_answers_of_their_own(
    standin: Standin, program: Callable[[str], subprocess.Popen[str]]
):
    standin.answer("GET /v1/status", status())
    standin.answer("GET /v1/workers", {"workers": []})
    running = program(
        """
        client.status()
        child = os.fork()
        for _ in range(20):
            assert ("workers" in client.status()) if child else (client.workers() == [])
        client.close()
        if not child:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        """
    )
    assert running.communicate(timeout=DEADLINE) == ("", "")
    assert running.returncode == 0


LEFT_OPEN = {
    "a client": "client.status()",
    "a stream": "stream = iter(client.follow_everything()); next(stream)",
    "the stream of a thread": """
        threading.Thread(target=lambda: list(client.follow_everything()), daemon=True).start()
        client.status()
        """,
    "a client of a loop": "asyncio.run(AsyncClient.on(here).status())",
}


@pytest.mark.parametrize("left_open", LEFT_OPEN.values(), ids=LEFT_OPEN)
def test_a_program_may_end_with_all_that_it_has_left_open(
    standin: Standin, program: Callable[[str], subprocess.Popen[str]], left_open: str
):
    standin.answer("GET /v1/status", status())
    standin.stream().put(frame("mail", 7, mail(7, "a")))
    running = program(left_open)
    assert running.communicate(timeout=DEADLINE) == ("", "")
    assert running.returncode == 0


def test_a_program_with_a_loop_ends_with_a_stream_that_it_has_left_open(
    standin: Standin, program: Callable[[str], subprocess.Popen[str]]
):
    standin.stream().put(frame("mail", 7, mail(7, "a")))
    running = program(
        """
        async def main():
            async for event in AsyncClient.on(here).follow_everything():
                return print(event.data["text"])
        asyncio.run(main())
        """
    )
    out, _ = running.communicate(timeout=DEADLINE)
    assert (running.returncode, out) == (0, "a\n")


@pytest.mark.anyio
async def test_the_blocking_client_answers_inside_a_running_loop(standin: Standin):
    standin.answer("GET /v1/status", status())
    standin.stream().put(frame("mail", 7, mail(7, "a")))
    with Client.on(lambda: ServerAddress(standin.url, 1, TOKEN)) as client:
        assert client.status() == status()
        stream = client.follow_everything()
        assert next(iter(stream)).data["text"] == "a"
        stream.close()


def test_a_client_of_another_loop_says_so(standin: Standin):
    standin.answer("GET /v1/status", status())
    client = on(standin)

    async def asked() -> object:
        async with client:
            return await client.status()

    assert asyncio.run(asked()) == status()
    with pytest.raises(InvalidInput, match="another event loop"):
        asyncio.run(client.status())


@pytest.mark.anyio
async def test_the_client_for_tasks_answers_many_at_a_time(standin: Standin):
    standin.answer("GET /v1/status", status())
    standin.answer("GET /v1/tasks", {"tasks": [task()]})
    async with on(standin) as client:
        found, tasks = await asyncio.gather(client.status(), client.tasks(open_only=True))
        assert (found, tasks) == (status(), [task()])
        with pytest.raises(NotFound):
            await client.worker("@nobody")
    assert {request.query.get("open") for request in standin.calls("GET /v1/tasks")} == {"1"}


@pytest.mark.anyio
async def test_a_task_is_followed_over_two_connections_by_the_client_for_tasks(standin: Standin):
    first, second = standin.stream(), standin.stream()
    first.put(frame("update", 7, change(7, "working")))
    first.put(None)
    second.put(frame("update", 7, change(7, "working")) + frame("update", 9, change(9, "failed")))
    async with on(standin) as client:
        found = [event.data["seq"] async for event in client.follow_task("ab12cd34")]
    assert found == [7, 9]


@pytest.mark.anyio
async def test_a_cancelled_reader_of_a_stream_leaves_at_once(standin: Standin):
    standin.stream()
    async with on(standin) as client:

        async def read() -> None:
            async for _ in client.follow_everything():
                pass

        reader = asyncio.create_task(read())
        await asyncio.to_thread(standin.stream_requests.get, timeout=DEADLINE)
        reader.cancel()
        done, _ = await asyncio.wait({reader}, timeout=DEADLINE)
        assert done == {reader}


def test_a_call_says_which_argument_it_misses_or_does_not_know(standin: Standin):
    with Client.on(lambda: ServerAddress(standin.url, 1, TOKEN)) as client:
        with pytest.raises(TypeError, match="misses to"):
            client.send(text="hi")  # ty: ignore[missing-argument]
        with pytest.raises(TypeError, match="'colour'"):
            client.send("@bob", colour="red")  # ty: ignore[unknown-argument]
    assert standin.requests == []
