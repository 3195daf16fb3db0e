"""Commands and files over the local API and `postroom-agent`, with a real sidecar."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator

import pytest

from tests.rig import Rig
from tests.sidecar.inside import Inside
from tests.sidecar.inside import inside as running
from tests.sidecar.worker_rig import worker_rig_on

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def inside(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Inside]:
    async with (
        worker_rig_on(rig, tmp_path_factory.mktemp("worker")) as home,
        running(home, workspace=str(home.folder)) as found,
    ):
        yield found


def python(text: str) -> tuple[str, ...]:
    return "--", sys.executable, "-c", text


async def test_run_passes_on_outputs_and_exit_code(inside: Inside):
    text = "import os, sys; print(os.getcwd(), sys.argv[1:], os.environ['A']); sys.exit('gone')"
    code, out, err = await inside.run(
        "run", "--env", "A=b=c", *python(text), "--cwd", "--", "-h", "x y"
    )

    assert (code, err) == (1, "gone\n")
    assert out == f"{inside.home.folder} ['--cwd', '--', '-h', 'x y'] b=c"
    assert (await inside.run("run", "--", "sh", "-c", "exit 42"))[0] == 42


async def test_a_command_has_the_agents_environment_and_no_secret(inside: Inside):
    _, out, _ = await inside.run("run", "--", "env")

    assert f"POSTROOM_API={inside.api}" in out.splitlines()
    assert inside.home.credential.jwt not in out
    assert "SIDECAR_CONFIG" not in out


async def test_run_says_that_the_time_was_over_and_that_there_was_more(inside: Inside):
    code, _, err = await inside.run("run", "--timeout", "0.3", "--", "sleep", "600")
    assert (code, err) == (124, "postroom-agent: killed after 0.3 s\n")

    code, out, err = await inside.run("run", *python("print('x' * 2_000_000)"))
    assert (code, len(out)) == (0, 1024 * 1024)
    assert err == "postroom-agent: there was more on stdout\n"


async def test_files_are_written_read_listed_and_removed(inside: Inside):
    content = b"line\n" * 500_000
    code, _, err = await inside.run("file", "write", "--mode", "600", "a/b c", stdin=content)
    assert (code, err) == (0, "")
    assert (inside.home.folder / "a/b c").read_bytes() == content
    code, out, _ = await inside.run("file", "read", "a/b c")
    assert (code, out) == (0, content.decode().removesuffix("\n"))
    assert (await inside.run("file", "list", "a"))[1].split() == ["600", "2500000", "b", "c"]
    _, listed, _ = await inside.run("file", "list", "--json")
    names = {entry["name"] for entry in map(json.loads, listed.splitlines())}
    assert "a" in names
    assert (await inside.run("file", "remove", "a"))[0] == 0
    assert not (inside.home.folder / "a").exists()


async def test_work_that_is_refused_has_its_exit_code_and_says_why(inside: Inside):
    for words, code in (
        (("run",), 2),
        (("run", "--", "no-such-program"), 2),
        (("run", "--timeout", "0", "--", "true"), 2),
        (("run", "--env", "A", "--", "true"), 2),
        (("run", "--cwd", "..", "--", "true"), 2),
        (("file", "read", "none"), 4),
        (("file", "read", "../x"), 2),
        (("file", "write", "--mode", "9", "x"), 2),
        (("file", "write", "--mode", "7777", "x"), 2),
        (("file", "list", "/etc"), 2),
        (("file", "remove", "."), 2),
    ):
        found, out, err = await inside.run(*words)

        assert (found, out) == (code, ""), words
        assert "postroom-agent" in err


async def test_a_malformed_command_is_refused(inside: Inside):
    for body in (
        b"{}",
        b'{"command": "ls"}',
        b'{"command": []}',
        b'{"command": [""]}',
        b'{"command": ["a", 1]}',
        b'{"command": ["a\\u0000"]}',
        b'{"command": ["a"], "env": []}',
        b'{"command": ["a"], "env": {"A=B": "c"}}',
        b'{"command": ["a"], "cwd": 5}',
        b'{"command": ["a"], "timeout": "1"}',
        b'{"command": ["a"], "timeout": NaN}',
        b'{"command": ["a"], "timeout": true}',
    ):
        answer = await inside.raw(
            "POST /v1/run HTTP/1.1\nHost: {host}\nContent-Type: application/json\n"
            f"Content-Length: {len(body)}\nConnection: close\n\n",
            body,
        )
        assert answer.startswith(b"HTTP/1.1 422 "), body


async def test_a_web_page_can_run_nothing(inside: Inside):
    answer = await inside.raw(
        "POST /v1/run HTTP/1.1\nHost: {host}\nOrigin: http://evil\nContent-Length: 0\nConnection: close\n\n"
    )
    assert answer.startswith(b"HTTP/1.1 403 ")


async def test_a_file_over_its_measure_is_refused_and_not_there(inside: Inside):
    code, _, err = await inside.run("file", "write", "big", stdin=bytes(17 * 1024 * 1024))
    assert code == 2
    assert "has more than" in err
    assert not (inside.home.folder / "big").exists()
