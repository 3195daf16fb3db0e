"""`from postroom import Agent` against a real post room: two people with keys, a worker, lost connections."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from postroom import Agent, File
from postroom.client.conversation import OwnTask
from postroom.errors import Forbidden, InvalidInput, NotFound, Unauthorized
from tests.e2e.conftest import DEADLINE, EXAMPLES, PostRoom

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("agent-library")]

ECHO = str(EXAMPLES / "echo.toml")


def key_of(room: PostRoom, nick: str) -> str:
    """The key of a new person."""
    with room.client() as client:
        return client.transport.call("POST", "/v1/people", json={"nick": nick})["key"]["key"]


def someone(room: PostRoom, nick: str) -> Agent:
    return Agent(room.server["url"], key_of(room, nick))


@contextlib.asynccontextmanager
async def soon() -> AsyncGenerator[None]:
    async with asyncio.timeout(DEADLINE):
        yield


async def test_people_write_to_each_other_as_themselves(shared: PostRoom) -> None:
    async with soon(), someone(shared, "anna") as anna, someone(shared, "ben") as ben:
        sent = await anna.send("@ben", "hello", {"data": {"n": 1}}, subject="A word", thread="t1")

        async for message in ben:
            assert (message.sender, message.text, message.subject) == ("@anna", "hello", "A word")
            assert (message.id, message.thread) == (sent.id, "t1")
            assert [part.data for part in message.parts] == [None, {"n": 1}]
            await message.reply("hello to you")
            break
        async for message in anna:
            assert (message.sender, message.text) == ("@ben", "hello to you")
            assert (message.reply_to, message.thread) == (sent.id, "t1")
            break


async def test_what_the_loop_has_not_come_back_from_is_given_again_and_the_rest_is_not(
    shared: PostRoom,
) -> None:
    key = key_of(shared, "carl")
    url = shared.server["url"]
    async with soon(), someone(shared, "dora") as dora:
        for text in ("one", "two", "three"):
            await dora.send("@carl", text)
        got = []
        async with Agent(url, key) as carl:
            async for message in carl:
                got.append((message.text, message.redelivered))
                if len(got) == 2:
                    break  # as a crash in the middle of the second one
        async with Agent(url, key) as carl:
            async for message in carl:
                got.append((message.text, message.redelivered))
                if len(got) == 4:
                    await message.seen()
                    break
        async with Agent(url, key) as carl:
            await dora.send("@carl", "four")
            async for message in carl:
                got.append((message.text, message.redelivered))
                break

    assert [text for text, _ in got] == ["one", "two", "two", "three", "four"]
    # The third may have been read ahead; then it was given before, too.
    assert [again for text, again in got if text != "three"] == [False, False, True, False]


async def test_a_question_is_answered_and_its_answer_is_not_in_the_loop_too(
    shared: PostRoom,
) -> None:
    async with soon(), someone(shared, "emma") as emma, someone(shared, "fred") as fred:

        async def answer() -> None:
            async for message in fred:
                await message.reply(f"you said: {message.text}")
                await message.reply(f"you said: {message.text}", key=f"reply:{message.id}:1")

        answering = asyncio.create_task(answer())
        assert (await emma.ask("@fred", "2 + 2?")).text == "you said: 2 + 2?"
        await emma.send("@emma", "to myself")
        async for message in emma:
            assert message.text == "to myself"
            break
        answering.cancel()


async def test_a_task_of_a_worker_is_awaited_and_its_course_is_told(shared: PostRoom) -> None:
    shared.run("spawn", ECHO)
    async with soon(), someone(shared, "gina") as gina:
        task = await gina.delegate("@echo", "how many words are these")

        assert (await task).completed
        assert task.text
        states = [event["state"] async for event in task.events()]
        assert states[-1] == "completed"


async def test_a_file_goes_to_another_agent_with_its_name_and_type(
    shared: PostRoom, tmp_path: Path
) -> None:
    report, big = tmp_path / "report.pdf", bytes(300_000)
    report.write_bytes(b"%PDF-1.7")
    async with soon(), someone(shared, "hans") as hans, someone(shared, "ida") as ida:
        await hans.send("@ida", "two files", File(report), File(big, name="../zeros.bin"))

        async for message in ida:
            text, pdf, zeros = message.parts
            assert (text.text, pdf.name, pdf.media_type) == (
                "two files",
                "report.pdf",
                "application/pdf",
            )
            assert await pdf.read() == b"%PDF-1.7"
            saved = [await zeros.save(tmp_path) for _ in range(2)]
            assert saved[0].parent == saved[1].parent == tmp_path
            assert saved[0] != saved[1]
            assert saved[0].read_bytes() == saved[1].read_bytes() == big
            break


async def test_errors_are_those_of_the_post_room(shared: PostRoom, tmp_path: Path) -> None:
    async with soon(), someone(shared, "jana") as jana:
        with pytest.raises(NotFound):
            await jana.send("@nobody", "hello")
        with pytest.raises(InvalidInput):
            await jana.send("@jana")
        with pytest.raises(InvalidInput, match=r"gone\.txt"):
            await jana.send("@jana", File(tmp_path / "gone.txt"))
        with pytest.raises(Forbidden):
            await jana.get("/v1/credentials")
    with pytest.raises(Unauthorized):
        async with Agent(shared.server["url"], f"a2a_{'0' * 32}_{'0' * 64}"):
            pass


async def test_a_loop_ends_when_its_key_is_revoked(shared: PostRoom) -> None:
    with shared.client() as client:
        made = client.transport.call("POST", "/v1/people", json={"nick": "kim"})["key"]
    async with soon(), Agent(shared.server["url"], made["key"]) as kim:

        async def revoke() -> None:
            with shared.client() as client:
                await asyncio.to_thread(client.transport.call, "DELETE", f"/v1/keys/{made['id']}")

        await kim.send("@kim", "go")
        assert (await anext(kim)).text == "go"
        await revoke()
        with pytest.raises(Unauthorized):
            await anext(kim)


def external(room: PostRoom, nick: str) -> Agent:
    """An agent that Postroom does not run."""
    file = room.scratch / f"{nick}.key"
    room.run("agents", "add", nick, "--external", "--key-file", str(file))
    return Agent(room.server["url"], file.read_text())


async def test_tasks_are_done_some_at_once_while_messages_are_answered(shared: PostRoom) -> None:
    together = asyncio.Event()
    doing: set[str] = set()
    async with soon(), someone(shared, "nora") as nora, external(shared, "otto") as otto:

        @otto.task
        async def work(task: OwnTask) -> str:
            doing.add(task.id)
            if len(doing) == 3:
                together.set()
            await task.update("waiting for the others")
            await together.wait()
            return f"{len(task.text.split())} words for {task.requester}"

        async def answer() -> None:
            async for message in otto:
                assert not message.task
                await message.reply(f"you said: {message.text}")

        answering = asyncio.create_task(answer())
        given = [await nora.delegate("@otto", "one two " * n) for n in (1, 2, 3)]
        assert (await nora.ask("@otto", "hello")).text == "you said: hello"
        ended = [await task for task in given]
        answering.cancel()

    assert [task.text for task in ended] == [f"{n} words for @nora" for n in (2, 4, 6)]
    assert all(task.completed for task in ended)


@pytest.mark.requirement("agent-library")
async def test_a_message_that_serving_drops_stays_unread_and_people_are_told(
    room: PostRoom,
) -> None:
    room.env["POSTROOM_STALE_AFTER"] = "2"
    room.up()
    url = room.server["url"]
    async with Agent(url, room.server["token"]) as owner:
        key = await owner.register("kurt")

    async def work(task: OwnTask) -> str:
        return f"done: {task.text}"

    async with soon(), someone(room, "lena") as lena, Agent(url, key) as kurt:
        serving = asyncio.create_task(kurt.serve(work))
        sent = await lena.send("@kurt", "just a word")
        task = await lena.delegate("@kurt", "dig")
        assert (await task).text == "done: dig"
        found = await lena.get(f"/v1/messages/{sent.id}")
        assert found["state"] == "accepted"
        while not any(  # noqa: ASYNC110 (the command tells once)
            "kurt" in line for line in room.run("alerts").splitlines()
        ):
            await asyncio.sleep(0.1)
        async for message in kurt:  # beside the handler
            assert message.text == "just a word"
            await message.reply("I have it")
            break
        state = (await lena.get(f"/v1/messages/{sent.id}"))["state"]
        assert state in ("delivered", "seen", "answered")
        again = await lena.delegate("@kurt", "dig on")
        assert (await again).text == "done: dig on"
        serving.cancel()


async def test_a_handler_may_ask_give_files_fail_and_be_interrupted(
    shared: PostRoom, tmp_path: Path
) -> None:
    interrupted, begun = asyncio.Event(), asyncio.Event()
    async with soon(), someone(shared, "olga") as olga, external(shared, "paul") as paul:

        async def work(task: OwnTask) -> Any:
            if task.text == "ask":
                return f"the answer is {await task.ask('which one?')}"
            if task.text == "log in":
                await task.artifact("half", name="part")
                await task.complete(f"in by {await task.ask_auth('the bank')}")
                return None
            if task.text == "break":
                raise ValueError("with a secret")
            if task.text == "wait":
                begun.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    interrupted.set()
            if task.text == "refuse":
                await task.reject("nothing for me")
                return None
            (file,) = [part for part in task.parts if part.kind == "file"]
            return "and back", File(await file.read(), name="copy.csv")

        serving = asyncio.create_task(paul.serve(work))
        asked = await olga.delegate("@paul", "ask")
        assert (await asked.end(or_question=True)).state == "input-required"
        await asked.answer("this one")
        assert (await asked).text == "the answer is this one"

        barred = await olga.delegate("@paul", "log in")
        assert (await barred.end(or_question=True)).state == "auth-required"
        await barred.answer("this code")
        names = [found["name"] for found in (await barred).json["artifacts"]]
        assert (barred.text, names) == ("half\nin by this code", ["part", "result"])

        broken = await (await olga.delegate("@paul", "break"))
        assert (broken.state, "secret" in broken.text) == ("failed", False)
        assert "ValueError" in broken.text
        assert (await (await olga.delegate("@paul", "refuse"))).state == "rejected"

        waiting = await olga.delegate("@paul", "wait")
        await begun.wait()
        await waiting.cancel("not needed")
        assert (await waiting).state == "canceled"
        await interrupted.wait()

        done = await (await olga.delegate("@paul", "copy", File(b"a,b", name="table.csv")))
        (copy,) = [part for part in done.parts if part.kind == "file"]
        assert (copy.name, await copy.read()) == ("copy.csv", b"a,b")
        serving.cancel()


async def test_a_task_that_a_run_had_begun_is_done_by_the_next(shared: PostRoom) -> None:
    begun: asyncio.Queue[bool] = asyncio.Queue()
    async with soon(), someone(shared, "rosa") as rosa:
        async with external(shared, "sven") as sven:

            async def forget(task: OwnTask) -> None:
                await begun.put(task.resumed)
                await asyncio.Event().wait()

            serving = asyncio.create_task(sven.serve(forget))
            given = await rosa.delegate("@sven", "do it once")
            assert await begun.get() is False
            serving.cancel()
        key = (shared.scratch / "sven.key").read_text()
        async with Agent(shared.server["url"], key) as sven:

            async def finish(task: OwnTask) -> str:
                await begun.put(task.resumed)
                return "done"

            serving = asyncio.create_task(sven.serve(finish))
            assert (await given).text == "done"
            assert await begun.get() is True
            serving.cancel()


async def test_who_administers_registers_agents_that_are_found_by_their_skill_and_announce(
    shared: PostRoom,
) -> None:
    server = shared.server
    card = {
        "description": "Tells the weather.",
        "skills": [{"id": "weather", "name": "weather", "description": "Tells.", "tags": ["sky"]}],
    }
    async with soon(), Agent(server["url"], server["token"]) as owner:
        key = await owner.register("uma", card=card)
        async with Agent(server["url"], key) as uma:
            await uma.announce("rain at noon")
            with pytest.raises(Forbidden):
                await uma.register("vera")
        assert [found["nick"] for found in await owner.agents(skill="weather")] == ["uma"]

    assert "rain at noon" in shared.run("outbox", "@uma")


@pytest.mark.slow
async def test_an_agent_outlives_a_restart_of_its_post_room(room: PostRoom) -> None:
    room.up()
    port, key = room.server["url"].rpartition(":")[2], key_of(room, "tina")
    got: list[str] = []
    async with asyncio.timeout(2 * DEADLINE), Agent(room.server["url"], key) as tina:
        for text in ("one", "two"):
            await tina.send("@tina", text)
        got.append((await anext(tina)).text)
        await asyncio.to_thread(room.run, "down")
        later = asyncio.create_task(tina.send("@tina", "three"))
        coming = asyncio.create_task(anext(tina))
        log = room.state / "logs" / "up.log"
        await asyncio.to_thread(room.run, "up", "-d", "--port", port, "--nats-port", "0")
        await later
        got += [(await coming).text, (await anext(tina)).text]

    assert got == ["one", "two", "three"], log.read_text()


class Relay:
    """A TCP relay that can cut everything that passes it."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._open: set[asyncio.StreamWriter] = set()
        self.port = 0
        self.connected = 0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()
            self.cut()

    def cut(self) -> None:
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connected += 1
        near, far = await asyncio.open_connection("127.0.0.1", self._to)
        self._open |= {writer, far}
        await asyncio.gather(self._pump(reader, far), self._pump(near, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                # The relay has another port, and a post room answers to its own name alone.
                writer.write(
                    data.replace(f":{self.port}\r\n".encode(), f":{self._to}\r\n".encode())
                )
                await writer.drain()
        writer.transport.abort()


async def test_nothing_is_lost_or_twice_when_connections_break_all_the_time(
    shared: PostRoom,
) -> None:
    port = int(shared.server["url"].rpartition(":")[2])
    relay, wanted = Relay(port), [f"number {n}" for n in range(12)]
    key = key_of(shared, "lea")
    async with soon(), someone(shared, "max") as sender, relay.running():
        async with Agent(f"http://127.0.0.1:{relay.port}", key) as lea:
            for text in wanted[:6]:
                await sender.send("@lea", text)
            got: list[str] = []
            async for message in lea:
                got.append(message.text)
                relay.cut()
                if len(got) == 6:
                    for text in wanted[6:]:
                        await sender.send("@lea", text)
                await message.reply("got it")
                if len(got) == len(wanted):
                    break
        answers: list[str] = []
        async for message in sender:
            answers.append(message.text)
            if len(answers) == len(wanted):
                break

    assert got == wanted
    assert relay.connected > len(wanted)


def test_it_loads_no_server_code_and_postroom_alone_loads_nothing() -> None:
    code = (
        "import sys, postroom; print(sorted(m for m in sys.modules if 'postroom.' in m)); "
        "from postroom import Agent, File; "
        "print(sorted({'fastapi', 'starlette', 'sqlalchemy', 'uvicorn', 'alembic', 'click', "
        "'pydantic', 'cryptography', 'postroom.control', 'postroom.store', 'postroom.bus', "
        "'postroom.identity'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=40, check=True
    )

    assert done.stdout == "[]\n[]\n"
