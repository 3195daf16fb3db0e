"""`postroom a2a` at servers of the SDK, without a post room."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from postroom.cli.root import run
from postroom.gateway.credentials import BoundCredential, Credentials
from postroom.settings import DEFAULT_ORG, Settings
from tests.remote.foreign import Foreign, foreign
from tests.remote.scripted import agent, answer, losing, result, scripted

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=["streams", "polled"])
async def server(request: pytest.FixtureRequest) -> AsyncGenerator[Foreign]:
    async with foreign(streaming=request.param == "streams") as served:
        yield served


@dataclass
class Done:
    stdout: str
    stderr: str


class Commands:
    def __init__(self, state: Path) -> None:
        self.state = state

    async def run(
        self, *words: str, status: int = 0, given: str = "", env: dict[str, str] | None = None
    ) -> Done:
        asked = ["--state", str(self.state), "a2a", *words]

        def work() -> tuple[int, Done]:
            with CliRunner(env=env or {}).isolation(input=given) as (out, err, _):
                ended = run(asked)
                return ended, Done(out.getvalue().decode(), err.getvalue().decode())

        ended, done = await asyncio.to_thread(work)
        assert ended == status, done
        return done


@pytest.fixture
def a2a(tmp_path: Path, server: Foreign) -> Commands:
    server.keys.clear()
    server.agent.gate.clear()
    server.agent.begun.clear()
    return Commands(tmp_path / "state")


@pytest.mark.requirement("a2a-client-speaks")
async def test_a_task_is_sent_waited_for_shown_and_listed(a2a: Commands, server: Foreign):
    card = await a2a.run("card", server.url)
    assert card.stdout.startswith("poet\naddress      http://127.0.0.1:")
    done = await a2a.run("send", server.url, "a", "poem", "--wait")
    assert done.stdout == "one a poem\n"
    shown = await a2a.run("send", server.url, "--stream", "-", given="a poem")
    assert shown.stdout == "one a poem\n"
    assert "completed: done" in shown.stderr
    sent = json.loads(
        (await a2a.run("send", server.url, "a poem", "--context", "c9", "--json")).stdout
    )
    task = sent["task"]["id"]
    assert sent["task"]["contextId"] == "c9"
    assert (await a2a.run("stream", server.url, task)).stdout == "one a poem\n"
    assert "completed: done" in (await a2a.run("get", server.url, task)).stdout
    assert task in (await a2a.run("list", server.url, "--context", "c9")).stdout
    await a2a.run("cancel", server.url, task, status=5)
    await a2a.run("get", server.url, "no-such", status=4)
    assert (
        await a2a.run("send", server.url, "fail", "--wait", status=11)
    ).stdout == "cannot do that\n"


@pytest.mark.requirement("a2a-client-speaks")
async def test_a_question_ends_the_waiting_and_is_answered(a2a: Commands, server: Foreign):
    await a2a.run("send", server.url, "ask me", "--wait", status=9)
    page = json.loads((await a2a.run("list", server.url, "--json")).stdout)
    asking = page["tasks"][0]["id"]
    done = await a2a.run("send", server.url, "red", "--task", asking, "--wait")
    assert done.stdout == "one red\n"
    running = json.loads((await a2a.run("send", server.url, "wait here", "--json")).stdout)
    assert "canceled" in (await a2a.run("cancel", server.url, running["task"]["id"])).stdout


async def test_a_key_goes_to_its_host_alone(a2a: Commands, server: Foreign):
    server.keys.add("s3cret")
    assert "--credential NAME" in (await a2a.run("card", server.url, status=6)).stderr
    env = {"POSTROOM_A2A_KEY": "s3cret"}
    header = ("--header", "X-Key: {secret}")
    assert "poet" in (await a2a.run("card", server.url, *header, env=env)).stdout
    kept = Credentials(Settings(state=a2a.state).credentials_file)
    form = "X-Key: {secret}"
    kept.add(BoundCredential.bind("poet", DEFAULT_ORG, server.url, secret="s3cret", header=form))
    done = await a2a.run("send", server.url, "a poem", "--wait", "--credential", "poet")
    assert done.stdout == "one a poem\n"
    await a2a.run("card", server.url, "--credential", "nobody", status=4)
    async with scripted() as strange:
        await a2a.run("card", strange.url, "--credential", "poet", status=2)
        strange.then(agent({"name": "x", "url": server.url}, answer(500)))
        await a2a.run("card", strange.url, *header, env=env)
        assert strange.asked[0].headers["x-key"] == "s3cret"  # it was named
        server.seen.clear()
        await a2a.run("get", strange.url, "t", "--retries", "0", *header, status=6, env=env)
        assert all("x-key" not in headers for _, headers in server.seen)


@pytest.mark.requirement("a2a-client-speaks")
@pytest.mark.requirement("mend-closed-repeated")
async def test_an_answer_that_a_proxy_lost_is_asked_for_again(a2a: Commands, server: Foreign):
    async with losing(server.url, "/rpc", "/.well-known/agent-card.json") as (url, passed):
        done = await a2a.run("send", url, "a poem", "--wait")
        sent = [
            asked
            for asked in passed
            if asked.method == "POST" and "message" in asked.call["params"]
        ]
    assert done.stdout == "one a poem\n"
    assert len(sent) == 2
    assert len({asked.message_id for asked in sent}) == 1


async def test_what_a_stranger_says_does_nothing_to_the_terminal(tmp_path: Path):
    a2a = Commands(tmp_path)
    evil = "\x1b[2Jhi\u202e\n0f0f completed"
    task = {
        "id": f"t{evil}",
        "status": {"state": "TASK_STATE_FAILED", "message": {"parts": [{"text": evil}]}},
        "artifacts": [{"artifactId": evil, "parts": [{"text": evil}]}] * 2,
    }
    card = {"name": evil, "description": evil, "skills": [{"id": evil}], "url": ""}
    async with scripted() as strange:
        strange.then(
            agent(
                {**card, "url": strange.url, "protocolVersion": "0.3.0"},
                result(
                    {
                        "kind": "task",
                        **task,
                        "status": {
                            "state": "failed",
                            "message": {
                                "kind": "message",
                                "messageId": "m",
                                "role": "agent",
                                "parts": [{"kind": "text", "text": evil}],
                            },
                        },
                        "contextId": "c",
                        "artifacts": [],
                    }
                ),
            )
        )
        for words, status in (
            (("card",), 0),
            (("send", "x"), 0),
            (("send", "x", "--wait"), 11),
            (("get", "t"), 0),
        ):
            done = await a2a.run(words[0], strange.url, *words[1:], status=status)
            assert not {"\x1b", "\u202e"} & set(done.stdout + done.stderr)
