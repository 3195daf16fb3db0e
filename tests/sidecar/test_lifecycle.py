"""From the first instruction of the sidecar to its last."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from pathlib import Path

import pytest

from postroom.protocol.preface import Preface
from postroom.protocol.presence import WorkerState
from postroom.sandbox.selftest import Canaries
from postroom.sidecar.walls import BREACHED
from tests.sidecar.worker_rig import ECHO, WorkerRig, end

pytestmark = pytest.mark.anyio


def canaries(**found: object) -> dict[str, object]:
    return json.loads(Canaries().to_json()) | found


@pytest.mark.requirement("sidecar-message-handed")
async def test_sigterm_tells_the_agent_and_what_it_still_says_counts(home: WorkerRig):
    agent = """
    held = next(messages())
    for line in lines():
        if line["type"] == "stop":
            say(type="reply", to=held["id"], text="last words")
    """
    async with home.sidecar(agent) as process:
        asked = await home.write("hello")
        await home.tap.until(lambda: home.receipts(asked))
        assert await end(process) == 0

        await home.tap.until(home.to_alice)
        await home.all_acked()
        await home.state(WorkerState.STOPPED)
        assert home.states()[-1] is WorkerState.STOPPED


async def test_an_agent_that_does_not_heed_the_stop_is_ended_and_its_message_given_back(
    home: WorkerRig,
):
    agent = """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    next(messages())
    say(type="post", text="busy")
    while True:
        time.sleep(60)
    """
    async with home.sidecar(agent, stop_grace=0.2) as process:
        await home.write("hello")
        await home.tap.until(home.posts)
        assert await end(process) == 0

    async with home.sidecar(ECHO):
        await home.tap.until(home.to_alice)
        await home.all_acked()


@pytest.mark.requirement("wall-sidecar-closed")
async def test_the_configuration_is_gone_before_the_agent_runs_and_no_secret_is_in_its_world(
    home: WorkerRig,
):
    agent = """
    say(type="post", text=json.dumps([
        os.path.exists("sidecar.json"), dict(os.environ), sorted(os.listdir("/proc/self/fd"))]))
    sys.stdin.read()
    """
    async with home.sidecar(agent):
        (post,) = await home.tap.until(home.posts)
        there, env, files = json.loads(post)

        assert not there
        assert "POSTROOM_SIDECAR_CONFIG" not in env
        for secret in (home.credential.jwt, home.credential.seed, home.secret, "t0ken"):
            assert secret not in env.values()
        assert files[:3] == ["0", "1", "2"]
        assert len(files) == 4  # and the folder being listed
        assert env["POSTROOM_NICK"] == "reader"


@pytest.mark.requirement("sandbox-canary-unreachable")
async def test_a_reachable_canary_behind_an_enforced_wall_ends_the_worker_before_its_agent_runs(
    home: WorkerRig,
):
    with socket.create_server(("127.0.0.1", 0)) as canary:
        address = list(canary.getsockname())
        process = await home.start(
            home.config(
                'open("ran", "w")',
                canaries=canaries(tcp=[address]),
                sandbox_level="enforced",
            )
        )
        assert await process.wait() == BREACHED

    await home.tap.until(home.alerts)
    assert home.alerts() == ["wall-breached"]
    assert not (home.folder / "ran").exists()
    await home.state(WorkerState.FAILED)
    assert home.presence().sandbox == "none"


async def test_without_a_wall_the_reachable_is_reported_and_the_worker_runs(home: WorkerRig):
    with socket.create_server(("127.0.0.1", 0)) as canary:
        found = canaries(tcp=[list(canary.getsockname())])
        async with home.sidecar(ECHO, canaries=found, sandbox_level="none"):
            await home.state(WorkerState.IDLE)
            assert home.presence().sandbox == "none"


async def test_the_credential_is_renewed_before_it_runs_out_and_the_worker_goes_on(home: WorkerRig):
    async with home.sidecar(ECHO, jwt_expires_at=time.time() + 2):
        await home.write("before")
        await home.tap.until(home.to_alice)
        async with asyncio.timeout(20):
            while not home.renewals:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        after = await home.write("after")
        await home.seen(after)


@pytest.mark.requirement("identity-revocation-everywhere")
async def test_a_worker_whose_credential_is_refused_ends_with_the_code_of_forbidden(
    home: WorkerRig,
):
    stranger = home.bus.credential(home.alice.uid)
    process = await home.start(home.config(ECHO, seed=stranger.seed))

    assert await process.wait() == 6
    assert home.credential.jwt not in home.log()


async def test_everything_passes_through_the_gateways_door_where_there_is_one(
    home: WorkerRig, tmp_path: Path
):
    path = tmp_path / "gw"
    prefaces: list[Preface] = []
    requests: list[bytes] = []

    async def gateway(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        preface = Preface.decode(await reader.readline())
        prefaces.append(preface)
        if preface.protocol == "http":
            head = await reader.readuntil(b"\r\n\r\n")
            requests.append(head)
            writer.write(b"HTTP/1.1 202 Accepted\r\ncontent-length: 2\r\n\r\n{}")
            await writer.drain()
            writer.close()
            return
        host, port = home.bus.url.removeprefix("nats://").split(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

    server = await asyncio.start_unix_server(gateway, path)
    async with server, home.sidecar(ECHO, gateway_socket=str(path), nats_url=""):
        await home.write("hello")
        await home.tap.until(home.to_alice)

    assert {p.protocol for p in prefaces} == {"nats", "http"}
    assert {p.token for p in prefaces} == {"t0ken"}
    # The others ask what people say to the agent.
    reports = [head for head in requests if not head.startswith(b"GET ")]
    first = f"POST /v1/workers/{home.worker}/sdk-events HTTP/1.1\r\n".encode()
    assert reports  # one or more, as the events came
    assert all(head.startswith(first) for head in reports)
    assert all(b"authorization: bearer t0ken" in head.lower() for head in reports)


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


@pytest.mark.requirement("package-footprint-bounded")
async def test_an_idle_sidecar_is_small_and_holds_no_server_or_database_code(home: WorkerRig):
    process = await home.start_alone(home.config(ECHO))
    try:
        await home.state(WorkerState.IDLE)
        await home.seen(await home.write("warm"))
        status = Path(f"/proc/{process.pid}/status").read_text()
        resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))

        assert int(resident.split()[1]) < 60 * 1024
    finally:
        await end(process)


@pytest.mark.requirement("package-footprint-bounded")
async def test_no_heavy_library_is_loaded_by_the_sidecar():
    code = (
        "import sys, postroom.sidecar.main\n"
        "heavy = {'sqlalchemy', 'starlette', 'fastapi', 'alembic', 'uvicorn', 'pydantic', 'httpx2',"
        " 'click', 'structlog', 'rich', 'a2a', 'google.protobuf'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code),
        stdout=asyncio.subprocess.PIPE,
        env={"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    out, _ = await process.communicate()

    assert out.decode().strip() == "[]"
