"""The tools of MCP inside a worker: `postroom-agent mcp` over a real sidecar, by the official client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from postroom.mcp.tools import USUAL, offered
from postroom.sidecar.tools import TOLD
from postroom_a2a.messages import text_of
from tests.rig import Rig
from tests.sidecar.inside import Inside
from tests.sidecar.inside import inside as running
from tests.sidecar.worker_rig import WorkerRig, worker_rig_on

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def inside(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Inside]:
    async with (
        worker_rig_on(rig, tmp_path_factory.mktemp("worker")) as home,
        running(home) as found,
    ):
        yield found


def server(inside: Inside) -> StdioServerParameters:
    """How a client starts the command."""
    paths = os.pathsep.join(path for path in sys.path if path)
    start = "import sys; from postroom.agentcli import main; sys.exit(main())"
    return StdioServerParameters(
        command=sys.executable,
        args=["-c", start, "mcp"],
        env={"POSTROOM_API": inside.api, "PYTHONPATH": paths},
    )


async def call(client: Client, tool: str, **arguments: object) -> tuple[str, bool]:
    result = await client.call_tool(tool, arguments)
    (content,) = result.content
    assert content.type == "text"
    return content.text, result.is_error


async def letter(home: WorkerRig, text: str):
    return await home.tap.until(
        lambda: next((each for each in home.to_alice() if text_of(each.message) == text), None)
    )


async def test_an_agent_in_its_sandbox_has_the_same_tools_and_they_are_its_verbs(inside: Inside):
    home = inside.home
    async with Client(server(inside), mode="auto") as client:
        tools = (await client.list_tools()).tools
        assert [(each.name, each.description, each.input_schema) for each in tools] == [
            (each.name, each.help, each.schema) for each in offered(USUAL)
        ]
        assert client.instructions == TOLD

        me, _ = await call(client, "a2a_whoami")
        assert "(worker) in the organisation" in me

        asked = await home.write("one\x1b[2J")
        await home.tap.until(lambda: home.receipts(asked))
        shown, _ = await call(client, "a2a_check_inbox")
        assert "From @alice (" in shown
        assert f"), message {asked}" in shown
        assert "| one" in shown
        assert "\x1b" not in shown
        shown, _ = await call(client, "a2a_reply", message=asked, text="two")
        answer = await letter(home, "two")
        assert answer.id in shown
        assert answer.reply_to == asked
        assert (await call(client, "a2a_check_inbox"))[0].startswith("No unread messages.")

        sent, _ = await call(client, "a2a_send_message", to="@alice", text="three", key="k")
        assert (await letter(home, "three")).id in sent
        assert (await call(client, "a2a_send_message", to="@alice", text="three", key="k"))[
            0
        ] == sent


async def test_what_a_verb_refuses_is_an_error_of_the_tool(inside: Inside):
    async with Client(server(inside), mode="auto") as client:
        text, fault = await call(client, "a2a_report_task", task="ab" * 16, state="completed")
        assert fault
        assert text
        text, fault = await call(client, "a2a_send_message", to="@nobody-there", text="x")
        assert fault
        text, fault = await call(client, "a2a_whoami", key="secret")
        assert (text, fault) == ("a2a_whoami has no argument 'key'. It takes none.", True)
        with pytest.raises(Exception, match="no such tool"):
            await client.call_tool("a2a_rotate_api_key", {})


async def test_a_line_that_is_no_message_gets_an_error_and_the_next_one_its_answer(inside: Inside):
    process = await inside.start("mcp")
    lines = [b"{broken", b"[1, 2]", b'{"jsonrpc":"2.0","method":"notifications/initialized"}']
    ping = b'{"jsonrpc":"2.0","id":"p","method":"ping"}'
    out, _ = await process.communicate(b"\n".join([*lines, ping, b""]))
    answers = [json.loads(line) for line in out.splitlines()]
    assert process.returncode == 0
    assert {"jsonrpc": "2.0", "id": "p", "result": {}} in answers
    assert sum("error" in each for each in answers) == 2


def test_the_relay_loads_neither_the_sdk_nor_the_rest_of_the_command():
    code = "import sys, postroom.agentcli.mcp; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    names = set(loaded.stdout.split())
    assert not {"mcp", "pydantic", "asyncio", "argparse", "httpx2", "postroom.errors"} & names
